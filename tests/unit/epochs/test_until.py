"""The ends of a batch's inputs in a run that ends by itself: they clip its inputs and cut the incomplete epoch."""

import pytest

from falkirk.declare.cut import ByClock, ByRows, ByTime, Cut, OnArrival
from falkirk.runtime.spark.epochs.until import Until
from falkirk.theory.ids import LogId, Offset, Offsets

A, B = LogId("a"), LogId("b")
NOW_S = 1_000_000.5


def at(*offsets: int) -> Offsets:
    return {p: Offset(o) for p, o in enumerate(offsets)}


def test_known_ends_clip_an_input_and_others_do_not() -> None:
    until = Until(ends={A: at(5)}, is_final=False)
    assert until.clip(A, at(0, 0), at(3, 4)) == at(3, 0), "a partition that was empty has no input in this run"
    assert until.clip(A, at(0, 0), at(9, 4)) == at(5, 0)
    assert until.clip(A, at(7, 2), at(9, 4)) == at(7, 2), "an ordinary run has read further"
    assert until.clip(B, at(0), at(9)) == at(9)


@pytest.mark.parametrize("cut", [ByRows(rows=10), ByClock(every_s=3600.0, records_max=10), OnArrival(records_max=10)])
def test_what_is_left_at_the_end_is_an_epoch(cut: Cut) -> None:
    until = Until(ends={A: at(13)}, is_final=True)
    found, first = [], {A: at(0)}
    while (last := until.cut(cut).end_of_epoch(first, {A: at(13)}, now_s=NOW_S, last_at_s=NOW_S)) is not None:  # type: ignore[union-attr]
        found.append(last[A][0])
        first = last
    assert found == [10, 13]


def test_before_the_ends_are_known_the_cut_is_its_own() -> None:
    cut = ByRows(rows=10)
    assert Until(ends={}, is_final=False).cut(cut) is cut
    by_time = ByTime(column="at", every_us=1_000_000)
    assert Until(ends={A: at(13)}, is_final=True).cut(by_time) is by_time
