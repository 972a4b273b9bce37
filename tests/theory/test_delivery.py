"""At-most-once: the output has all derivatives of an input or none, whenever the region crashes."""

from collections.abc import Iterable, Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from falkirk.theory.delivery import SkipRange, SourcePartition, input_records, skip_ranges, touched
from tests.strategies import examples, inputs
from tests.theory.model import (
    Element,
    Inputs,
    after_greatest,
    by_channel,
    draw_checkpoint,
    draw_prefix,
    sent,
    tail_of,
)


def places(ranges: Iterable[SkipRange]) -> set[tuple[int, int]]:
    return {(r.partition, offset) for r in ranges for offset in range(r.first, r.last_exclusive)}


def ends_of(source: Inputs) -> dict[SourcePartition, int]:
    return {(0, p): len(records) for p, records in source.items()}


def draw_arrived(data: st.DataObject, source: Inputs, before: Mapping[SourcePartition, int]) -> Inputs:
    """Draw how much of the input has arrived by now: at least as much as before."""
    return {
        p: records[: data.draw(st.integers(before.get((0, p), 0), len(records)), label=f"arrived of {p}")]
        for p, records in source.items()
    }


@settings(max_examples=examples(150))
@given(inputs(), st.integers(1, 4), st.data())
def test_the_output_is_that_of_a_crash_free_run_without_what_was_skipped(
    source: Inputs, crashes: int, data: st.DataObject
) -> None:
    log: list[Element] = []
    restored: dict[SourcePartition, int] = {}
    skipped: set[tuple[int, int]] = set()
    ends: dict[SourcePartition, int] = {}
    for _ in range(crashes):
        arrived = draw_arrived(data, source, ends)
        log += draw_prefix(data, after_greatest(sent(arrived, restored, skipped), log))
        restored = draw_checkpoint(data, arrived, log, restored, skipped)
        ends = ends_of(draw_arrived(data, source, ends_of(arrived)))
        skipped |= places(skip_ranges(touched(tail_of(log)), restored, ends))
    log += after_greatest(sent(source, restored, skipped), log)
    assert by_channel(log) == by_channel(sent(source, {}, skipped))


@given(inputs(), st.data())
def test_what_was_not_reached_is_skipped_and_nothing_else(source: Inputs, data: st.DataObject) -> None:
    log = draw_prefix(data, sent(source, {}))
    restored = draw_checkpoint(data, source, log, {})
    reached = touched(tail_of(log))
    skipped = places(skip_ranges(reached, restored, ends_of(source)))
    for partition, records in source.items():
        for offset in range(len(records)):
            is_behind = offset > reached.get((0, partition), -1) and offset >= restored[0, partition]
            assert ((partition, offset) in skipped) == is_behind


def test_skipping_from_the_checkpoint_on_leaves_an_input_half_done() -> None:
    """One derivative of the record was published and the other was not. The naive rule never completes it."""
    source = {0: [(0, 1)]}
    everything = sent(source, {})
    log = everything[:1]
    naive = places(skip_ranges({}, {(0, 0): 0}, {(0, 0): 1}))
    assert naive == {(0, 0)}
    assert log + after_greatest(sent(source, {}, naive), log) == everything[:1]

    right = places(skip_ranges(touched(tail_of(log)), {(0, 0): 0}, {(0, 0): 1}))
    assert log + after_greatest(sent(source, {}, right), log) == everything


def test_a_partition_is_skipped_by_its_own_progress() -> None:
    source = {0: [(0,), (0,)], 1: [(0,), (0,)]}
    log = sent(source, {})[:2]
    assert skip_ranges(touched(tail_of(log)), {}, ends_of(source)) == (
        SkipRange(source=0, partition=1, first=0, last_exclusive=2),
    )


def test_the_stamp_of_a_pair_has_two_places() -> None:
    assert input_records((0, 1, 7, 3, 9), joins=1) == (((0, 1), 7), ((1, 2), 9))
    assert input_records((1, 2, 9, 0, 0), joins=1) == (((1, 2), 9),)
    assert input_records((0, 1, 7, 3, 9), joins=0) == (((0, 1), 7),)


def test_a_stamp_of_several_joins_names_the_record_of_the_last_one_first() -> None:
    assert input_records((0, 1, 7, 4, 5, 3, 9), joins=2) == (((0, 1), 7), ((1, 2), 9), ((2, 3), 5))
    assert input_records((0, 1, 7, 4, 5, 0, 0), joins=2) == (((0, 1), 7), ((2, 3), 5))
    assert input_records((2, 1, 7, 0, 0, 0, 0), joins=2) == (((2, 1), 7),)
