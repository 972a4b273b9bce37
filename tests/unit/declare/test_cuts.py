"""How much of its input an epoch with a limit takes."""

import random

from hypothesis import given
from hypothesis import strategies as st

from falkirk.declare.cut import at_most, records_between
from falkirk.theory.ids import LogId, Offset, Positions

A, B = LogId("a"), LogId("b")


def taken(records: int, waiting: dict[LogId, list[int]]) -> dict[LogId, list[int]]:
    first: Positions = {log: dict.fromkeys(range(len(counts)), Offset(7)) for log, counts in waiting.items()}
    ends: Positions = {log: {p: Offset(7 + n) for p, n in enumerate(counts)} for log, counts in waiting.items()}
    found = at_most(records, first, ends)
    assert records_between(first, found) == min(records, sum(map(sum, waiting.values())))
    return {log: [found[log][p] - 7 for p in range(len(counts))] for log, counts in waiting.items()}


def test_a_short_backlog_beside_a_long_one_is_part_of_each_epoch() -> None:
    assert taken(1_000_000, {A: [10_000_000, 9]}) == {A: [999_999, 1]}
    assert taken(100, {A: [3_000_000], B: [2]}) == {A: [99], B: [1]}
    assert taken(1, {A: [5, 5], B: [0]}) == {A: [1, 0], B: [0]}


def test_each_partition_contributes_no_more_than_it_has() -> None:
    draw = random.Random(1)
    for _ in range(2_000):
        waiting = {log: draw.choices([0, 1, 5, 100, 10**6], k=draw.randint(1, 5)) for log in (A, B)}
        records = draw.choice([1, 2, 5, 50, 10**5])
        every = [
            (mine, its) for log in (A, B) for mine, its in zip(waiting[log], taken(records, waiting)[log], strict=True)
        ]
        assert all(0 <= its <= mine for mine, its in every)
        if records >= sum(mine > 0 for mine, _ in every):
            assert all(its for mine, its in every if mine)


def test_more_partitions_than_records_take_turns() -> None:
    """The first ones contributed to each epoch. The others waited as long as these had records, and counted as idle."""
    first: Positions = {A: dict.fromkeys(range(7), Offset(0)), B: {0: Offset(100), 1: Offset(3)}}
    ends: Positions = {A: dict.fromkeys(range(7), Offset(50)), B: {0: Offset(150), 1: Offset(53)}}
    places = {(log, partition) for log in first for partition in first[log]}
    for records in (1, 2, 3, 5, 8):
        at, epochs = first, -(-len(places) // records)
        served = set[tuple[LogId, int]]()
        for _ in range(epochs):
            to = at_most(records, at, ends)
            assert records_between(at, to) == records
            served |= {(log, p) for log, p in places if to[log][p] > at[log][p]}
            at = to
        assert served == places, f"each within {epochs} epochs of {records}"


@given(st.integers(2, 8), st.data())
def test_each_partition_has_its_turn_if_others_have_records_at_times_only(count: int, data: st.DataObject) -> None:
    """A circle of those that had records was another one in each epoch, and never stopped at some of them."""
    records = data.draw(st.integers(1, count - 1), label="records of an epoch")
    kinds = data.draw(st.lists(st.sampled_from(["always", "again", "at times"]), min_size=count, max_size=count))
    at: Positions = {A: {p: Offset(3 * p) for p in range(count)}}
    ends, waited = {A: dict(at[A])}, dict.fromkeys(range(count), 0)
    for number in range(60):
        for p, kind in enumerate(kinds):
            if kind == "always" or (ends[A][p] == at[A][p] and (kind == "again" or number % (p + 2) == 0)):
                ends[A][p] = Offset(ends[A][p] + (9 if kind == "always" else 1))
        to = at_most(records, at, ends)
        for p in range(count):
            waited[p] = waited[p] + 1 if to[A][p] == at[A][p] < ends[A][p] else 0
        assert max(waited.values()) < -(-count // records)
        at = to
