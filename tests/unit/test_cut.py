"""Cuts: when an epoch is complete, and that nothing is left out or taken twice, wherever it falls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falkirk.cut import ByClock, ByRows, Cut, OnArrival, Positions, positions_of, waiting

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
    taken = ByRows(rows=rows).take(first, ends, now_s=1.0, last_at_s=0.0)
    if waiting(first, ends) < rows:
        assert taken is None
        return
    assert taken is not None
    assert waiting(first, taken) == rows
    assert all(first[log][p] <= taken[log][p] <= end for log, parts in ends.items() for p, end in parts.items())


@given(logs)
def test_on_arrival_takes_all_there_is(drawn: dict[str, dict[int, tuple[int, int]]]) -> None:
    first, ends = between(drawn)
    assert OnArrival().take(first, ends, now_s=0.0, last_at_s=0.0) == (ends if waiting(first, ends) else None)


@given(logs, st.integers(1, 60), st.booleans())
def test_an_epoch_has_at_most_so_many_records_and_the_next_ones_have_the_rest(
    drawn: dict[str, dict[int, tuple[int, int]]], most: int, by_clock: bool
) -> None:
    first, ends = between(drawn)
    there = waiting(first, ends)
    cut: Cut = ByClock(every_s=1.0, records_max=most) if by_clock else OnArrival(records_max=most)
    sizes = []
    while (taken := cut.take(first, ends, now_s=1.0, last_at_s=0.0)) is not None:
        assert all(first[log][p] <= taken[log][p] <= end for log, parts in ends.items() for p, end in parts.items())
        sizes.append(waiting(first, taken))
        first = taken
    assert sizes == [most] * (there // most) + [there % most] * (there % most > 0)
    assert waiting(first, ends) == 0


@pytest.mark.parametrize(
    ("last_at_s", "now_s", "complete"),
    [
        (10.0, 19.9, False),
        (10.0, 20.0, True),
        (19.9, 20.1, True),
        (20.0, 29.0, False),
        (20.0, 5.0, False),
        (5.0, 95.0, True),
    ],
)
def test_by_clock_ends_at_multiples_and_a_clock_set_back_waits(last_at_s: float, now_s: float, complete: bool) -> None:
    first, ends = {"a": {0: 3}}, {"a": {0: 7}}
    cut = ByClock(every_s=10.0)
    assert cut.may_be_due(now_s=now_s, last_at_s=last_at_s) is complete
    assert cut.take(first, ends, now_s=now_s, last_at_s=last_at_s) == (ends if complete else None)
    assert cut.take(ends, ends, now_s=now_s, last_at_s=last_at_s) is None, "nothing has come"


def test_positions_survive_json() -> None:
    assert positions_of({"a": {"0": 1, "11": 2}}) == {"a": {0: 1, 11: 2}}
