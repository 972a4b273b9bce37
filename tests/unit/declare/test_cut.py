"""Cuts: when an epoch is complete, and that each record is in exactly one epoch, wherever the cut is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falkirk.declare.cut import ByClock, ByRows, ByTime, Cut, OnArrival, records_between
from falkirk.theory.ids import Positions
from falkirk.theory.offsets import positions_from_json

logs = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 50), st.integers(0, 40)), min_size=1),
    min_size=1,
)


def between(drawn: dict[str, dict[int, tuple[int, int]]]) -> tuple[Positions, Positions]:
    first = {log: {p: begin for p, (begin, _) in parts.items()} for log, parts in drawn.items()}
    return first, {log: {p: begin + n for p, (begin, n) in parts.items()} for log, parts in drawn.items()}


@given(logs, st.integers(1, 60))
def test_by_rows_takes_exactly_so_many_and_never_goes_back(
    drawn: dict[str, dict[int, tuple[int, int]]], rows: int
) -> None:
    first, ends = between(drawn)
    taken = ByRows(rows=rows).end_of_epoch(first, ends, now_s=1.0, last_at_s=0.0)
    if records_between(first, ends) < rows:
        assert taken is None
        return
    assert taken is not None
    assert records_between(first, taken) == rows
    assert all(first[log][p] <= taken[log][p] <= end for log, parts in ends.items() for p, end in parts.items())


@given(logs)
def test_on_arrival_takes_all_there_is(drawn: dict[str, dict[int, tuple[int, int]]]) -> None:
    first, ends = between(drawn)
    assert OnArrival().end_of_epoch(first, ends, now_s=0.0, last_at_s=0.0) == (
        ends if records_between(first, ends) else None
    )


@given(logs, st.integers(1, 60), st.booleans())
def test_an_epoch_has_at_most_so_many_records_and_the_next_ones_have_the_rest(
    drawn: dict[str, dict[int, tuple[int, int]]], most: int, by_clock: bool
) -> None:
    first, ends = between(drawn)
    there = records_between(first, ends)
    cut: Cut = ByClock(every_s=1.0, records_max=most) if by_clock else OnArrival(records_max=most)
    sizes = []
    while (taken := cut.end_of_epoch(first, ends, now_s=1.0, last_at_s=0.0)) is not None:
        assert all(first[log][p] <= taken[log][p] <= end for log, parts in ends.items() for p, end in parts.items())
        sizes.append(records_between(first, taken))
        first = taken
    assert sizes == [most] * (there // most) + [there % most] * (there % most > 0)
    assert records_between(first, ends) == 0


@pytest.mark.parametrize(
    ("last_at_s", "now_s", "complete"),
    [
        (10.0, 19.9, False),
        (10.0, 20.0, True),
        (19.9, 20.1, True),
        (20.0, 29.0, False),
        (20.0, 5.0, True),
        (1_000_000.0, 5.0, True),
        (5.0, 95.0, True),
    ],
)
def test_by_clock_ends_at_multiples_and_does_not_wait_for_a_clock_that_was_ahead(
    last_at_s: float, now_s: float, complete: bool
) -> None:
    first, ends = {"a": {0: 3}}, {"a": {0: 7}}
    cut = ByClock(every_s=10.0)
    assert cut.may_be_due(now_s=now_s, last_at_s=last_at_s) is complete
    assert cut.end_of_epoch(first, ends, now_s=now_s, last_at_s=last_at_s) == (ends if complete else None)
    assert cut.end_of_epoch(ends, ends, now_s=now_s, last_at_s=last_at_s) is None, "no record has arrived"


def test_positions_survive_json() -> None:
    assert positions_from_json({"a": {"0": 1, "11": 2}}) == {"a": {0: 1, 11: 2}}


BY = ByTime(column="at", every_us=10)


def test_an_epoch_by_time_is_complete_when_all_logs_have_passed_it() -> None:
    present = {"a": {0: frozenset({1, 2}), 1: frozenset({2, 4})}, "b": {0: frozenset({1})}}
    assert BY.next_slice(present, {"a": 50, "b": None}, None) is None
    assert BY.next_slice(present, {"a": 50, "b": 19}, None) is None
    assert BY.next_slice(present, {"a": 50, "b": 20}, None) == (1, {"a": 0, "b": -1})
    assert BY.next_slice(present, {"a": 50, "b": 49}, 1) == (2, {"a": 1, "b": -1})
    assert BY.next_slice(present, {"a": 50, "b": 49}, 2) is None
    assert BY.next_slice(present, {"a": 50, "b": 50}, 2) == (4, {"a": -1, "b": -1}), "the empty slice is skipped"
    assert BY.next_slice(present, {"a": 90, "b": 90}, 4) is None


def test_who_keeps_a_state_is_told_that_time_has_passed() -> None:
    present = {"a": {0: frozenset({1})}}
    assert BY.next_slice(present, {"a": 95}, 1) is None
    assert BY.next_slice(present, {"a": 95}, None, keeps=True) == (1, {"a": -1}), "the first slice with rows is next"
    assert BY.next_slice(present, {"a": 95}, 1, keeps=True) == (8, {"a": -1})
    assert BY.next_slice(present, {"a": 95}, 8, keeps=True) is None


def test_windows_that_slide_go_on_until_their_last_row_has_left() -> None:
    by = ByTime(column="at", every_us=10, over=3)
    present = {"a": {5: frozenset({1})}, "b": {0: frozenset()}}
    ends, before = [], None
    while (found := by.next_slice(present, {"a": 99, "b": 99}, before)) is not None:
        ends.append(found)
        before = found[0]
    # The second and the third epoch still read slice 1; no epoch after the third does.
    assert ends == [(1, {"a": 5, "b": -1}), (2, {"a": 5, "b": -1}), (3, {"a": -1, "b": -1})]


@given(
    st.dictionaries(st.integers(0, 6), st.frozensets(st.integers(0, 8), max_size=4), max_size=5),
    st.integers(1, 3), st.integers(0, 120),
)  # fmt: skip
def test_every_complete_slice_is_read_while_it_is_kept(
    present: dict[int, frozenset[int]], over: int, upto: int
) -> None:
    """Each epoch names the records that later epochs need. All others are deleted. None that they need was deleted."""
    by = ByTime(column="at", every_us=10, over=over)
    kept, before, read = dict(present), None, []
    while (found := by.next_slice({"a": kept}, {"a": upto}, before)) is not None:
        end, then = found
        assert before is None or end > before
        wanted = set(range(end - over + 1, end + 1))
        assert {n: e & wanted for n, e in kept.items() if e & wanted} == {
            n: e & wanted for n, e in present.items() if e & wanted
        }
        read += sorted(s for s in {s for e in present.values() for s in e} if s == end)
        kept = {n: e for n, e in kept.items() if then["a"] >= 0 and n >= then["a"]}
        before = end
    assert read == sorted(s for s in {s for e in present.values() for s in e} if (s + 1) * 10 <= upto)
