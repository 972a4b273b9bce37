"""The barrier: crashes do not show in the output as long as the accepted elements are a prefix of the sent ones."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from falkirk.theory.channel import Channel
from falkirk.theory.delivery import SourcePartition, touched
from falkirk.theory.positions import is_caught_up
from falkirk.theory.stamp import Stamp
from tests.strategies import inputs
from tests.theory.model import (
    Element,
    Inputs,
    after_greatest,
    by_channel,
    draw_checkpoint,
    draw_prefix,
    draw_subset,
    gaps,
    not_in_set,
    sent,
    tail_of,
)

lives = st.integers(0, 4)


def stamped(elements: Iterable[Element]) -> list[tuple[Channel, Stamp]]:
    return [(e.channel, e.stamp) for e in elements]


@given(inputs(), lives, st.data())
def test_after_any_crashes_the_output_is_the_crash_free_one(source: Inputs, crashes: int, data: st.DataObject) -> None:
    log: list[Element] = []
    restored: dict[SourcePartition, int] = {}
    for _ in range(crashes):
        log += draw_prefix(data, after_greatest(sent(source, restored), log))
        restored = draw_checkpoint(data, source, log, restored)
    log += after_greatest(sent(source, restored), log)
    assert by_channel(log) == by_channel(sent(source, {}))


def test_without_the_prefix_the_greatest_stamp_loses_records() -> None:
    """A batch in the middle expired. This was seen with a delivery timeout of 5 s and a stalled broker."""
    source = {0: [(0,), (0,), (0,)]}
    everything = sent(source, {})
    log = [everything[0], everything[2]]
    assert gaps(stamped(everything), stamped(log)) == tuple(stamped([everything[1]]))
    log += after_greatest(sent(source, {}), log)
    assert not_in_set(everything, log) == [everything[1]]


@given(inputs(), lives, st.data())
def test_without_the_prefix_the_set_of_stamps_delivers_each_once(
    source: Inputs, crashes: int, data: st.DataObject
) -> None:
    """Each element occurs once and with the right content. Only the order in the log is lost."""
    log: list[Element] = []
    restored: dict[SourcePartition, int] = {}
    for _ in range(crashes):
        log += draw_subset(data, not_in_set(sent(source, restored), log))
        restored = draw_checkpoint(data, source, log, restored)
    log += not_in_set(sent(source, restored), log)
    assert sorted(log) == sorted(sent(source, {}))


@given(inputs(), lives, st.data())
def test_the_set_is_needed_until_a_commit_covers_what_was_out(
    source: Inputs, crashes: int, data: st.DataObject
) -> None:
    log: list[Element] = []
    restored: dict[SourcePartition, int] = {}
    doubtful: dict[SourcePartition, int] = {}
    for _ in range(crashes):
        let_through = after_greatest if is_caught_up(doubtful, restored) else not_in_set
        queue = let_through(sent(source, restored), log)
        if data.draw(st.booleans(), label="a batch expired"):
            log += draw_subset(data, queue)
            doubtful = touched(tail_of(log))
        else:
            log += draw_prefix(data, queue)
        restored = draw_checkpoint(data, source, log, restored)
    let_through = after_greatest if is_caught_up(doubtful, restored) else not_in_set
    log += let_through(sent(source, restored), log)
    assert sorted(log) == sorted(sent(source, {}))


def test_one_commit_after_a_hole_does_not_make_the_greatest_stamp_right_again() -> None:
    source = {0: [(0,), (0,), (0,), (0,)]}
    everything = sent(source, {})
    log = [everything[0], everything[3]]
    log += not_in_set(sent(source, {}), log)[:1]
    committed = {(0, 0): 2}
    assert not not_in_set(everything[:2], log)
    assert after_greatest(sent(source, committed), log) == []
    assert not_in_set(sent(source, committed), log) == [everything[2]]
    assert not is_caught_up(touched(tail_of(log)), committed)


@given(inputs(), st.data())
def test_gaps_are_what_the_greatest_stamp_loses(source: Inputs, data: st.DataObject) -> None:
    everything = sent(source, {})
    log = draw_subset(data, data.draw(st.permutations(everything), label="order of arrival"))
    found = gaps(stamped(everything), stamped(log + log[:2]))
    lost = set(not_in_set(everything, log)) - set(after_greatest(everything, log))
    assert found == tuple(sorted(stamped(lost)))
    queues = by_channel(everything)
    out = set(log)
    is_prefix = all([e in out for e in q] == sorted((e in out for e in q), reverse=True) for q in queues.values())
    assert (found == ()) == is_prefix


@given(inputs(), st.data())
def test_a_prefix_has_no_gaps(source: Inputs, data: st.DataObject) -> None:
    everything = sent(source, {})
    assert gaps(stamped(everything), stamped(draw_prefix(data, everything))) == ()
