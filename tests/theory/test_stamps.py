"""Stamps keep the order of the input through derivation, and tails have the greatest stamp of each channel."""

from hypothesis import given
from hypothesis import strategies as st

from falkirk.theory.channel import Channel, ReleasedTail
from falkirk.theory.stamp import Stamp
from tests.strategies import channels, offsets, stamps
from tests.theory.model import derived, fold_tail, is_released

indexes = st.lists(st.integers(0, 3), max_size=3)


def derived_by(stamp: Stamp, path: list[int]) -> Stamp:
    for index in path:
        stamp = derived(stamp, index)
    return stamp


@given(offsets, offsets, st.data())
def test_derivation_keeps_the_order_of_parents(source: int, partition: int, data: st.DataObject) -> None:
    """All parents have the same number of sub-indexes: every record of a region takes the same steps.

    Their numbers are small, so that two often differ only in the last one.
    """
    depth = data.draw(st.integers(0, 2), label="steps before")
    places = data.draw(st.lists(st.tuples(*[st.integers(0, 2)] * (depth + 1)), min_size=2, max_size=2, unique=True))
    earlier, later = (Stamp(source, partition, offset, tuple(sub)) for offset, *sub in sorted(places))
    assert derived_by(earlier, data.draw(indexes)) < derived_by(later, data.draw(indexes))


@given(stamps, offsets, offsets)
def test_siblings_sort_by_index(parent: Stamp, i: int, j: int) -> None:
    assert (derived(parent, i) < derived(parent, j)) == (i < j)


records = st.lists(st.tuples(channels, stamps), max_size=12)


@given(records)
def test_the_tail_is_the_greatest_stamp_of_each_channel(log: list[tuple[Channel, Stamp]]) -> None:
    tail, regressions = fold_tail(log)
    assert tail.greatest == {c: max(s for d, s in log if d == c) for c, _ in log}
    assert all(is_released(tail, c, s) for c, s in log)
    assert len(regressions) == sum(any(d == c and s <= t for d, t in log[:i]) for i, (c, s) in enumerate(log))


@given(records, records)
def test_merging_tails_is_folding_both_logs(a: list[tuple[Channel, Stamp]], b: list[tuple[Channel, Stamp]]) -> None:
    assert fold_tail(a)[0].merge(fold_tail(b)[0]) == fold_tail(a + b)[0]


@given(channels, stamps)
def test_nothing_is_out_on_a_channel_without_records(channel: Channel, stamp: Stamp) -> None:
    assert not is_released(ReleasedTail(), channel, stamp)
