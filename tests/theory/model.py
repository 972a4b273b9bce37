"""A region without Spark: the elements that it sends for an input, and those that the log has accepted."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from falkirk.theory.channel import Channel, Regression, ReleasedTail
from falkirk.theory.delivery import SourcePartition
from falkirk.theory.stamp import Stamp

#: Source partition → its records, each with the output partitions of its derivatives.
Inputs = Mapping[int, Sequence[tuple[int, ...]]]
#: (source, partition) → the first offset that a checkpoint does not cover.
Checkpoint = Mapping[SourcePartition, int]


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Element:
    """An output record. `value` depends on everything processed before it in its source partition."""

    channel: Channel
    stamp: Stamp
    value: int


def sent(inputs: Inputs, restored: Checkpoint, skipped: Collection[tuple[int, int]] = ()) -> list[Element]:
    """Return the elements that a deterministic region sends after a restore, if it skips some input (partition,
    offset)."""
    elements = []
    for partition, records in sorted(inputs.items()):
        state = 0
        for offset, targets in enumerate(records):
            if (partition, offset) in skipped:
                continue
            state = state * 31 + offset + 1
            if offset >= restored.get((0, partition), 0):
                elements += [_element(partition, offset, i, to, state) for i, to in enumerate(targets)]
    return elements


def _element(partition: int, offset: int, index: int, to: int, value: int) -> Element:
    channel = Channel(source=0, source_partition=partition, state_partition=0, output_partition=to)
    return Element(channel=channel, stamp=derived(Stamp(0, partition, offset), index), value=value)


def by_channel(elements: Iterable[Element]) -> dict[Channel, list[Element]]:
    """Return the elements of each channel in their order. Different channels have no order."""
    found: dict[Channel, list[Element]] = {}
    for element in elements:
        found.setdefault(element.channel, []).append(element)
    return found


def is_released(tail: ReleasedTail, channel: Channel, stamp: Stamp) -> bool:
    """Return whether an element is already published."""
    last = tail.greatest.get(channel)
    return last is not None and stamp <= last


def fold_tail(records: Iterable[tuple[Channel, Stamp]]) -> tuple[ReleasedTail, tuple[Regression, ...]]:
    """Return the tail of records in log order, and each place where a channel's stamps did not increase."""
    greatest: dict[Channel, Stamp] = {}
    regressions = []
    for channel, stamp in records:
        last = greatest.get(channel)
        if last is not None and stamp <= last:
            regressions.append(Regression(channel=channel, earlier=last, later=stamp))
        else:
            greatest[channel] = stamp
    return ReleasedTail(greatest=greatest), tuple(regressions)


def tail_of(log: Iterable[Element]) -> ReleasedTail:
    """Return the greatest stamp of each channel."""
    return fold_tail((e.channel, e.stamp) for e in log)[0]


def after_greatest(elements: Iterable[Element], log: Iterable[Element]) -> list[Element]:
    """Return the elements that pass a barrier with the greatest published stamp of each channel."""
    tail = tail_of(log)
    return [e for e in elements if not is_released(tail, e.channel, e.stamp)]


def not_in_set(elements: Iterable[Element], log: Iterable[Element]) -> list[Element]:
    """Return the elements that pass a barrier with the set of published stamps."""
    released = {(e.channel, e.stamp) for e in log}
    return [e for e in elements if (e.channel, e.stamp) not in released]


def draw_prefix(data: st.DataObject, elements: Iterable[Element]) -> list[Element]:
    """Draw the elements accepted before a crash, if each channel accepts a prefix of its sent elements."""
    accepted = []
    for channel, queue in sorted(by_channel(elements).items()):
        accepted += queue[: data.draw(st.integers(0, len(queue)), label=f"accepted of {channel}")]
    return accepted


def draw_subset(data: st.DataObject, elements: Iterable[Element]) -> list[Element]:
    """Draw the elements accepted before a crash, if batches in the middle expired."""
    return [e for e in elements if data.draw(st.booleans(), label=f"accepted {e.stamp}")]


def draw_checkpoint(
    data: st.DataObject,
    inputs: Inputs,
    log: Collection[Element],
    before: Checkpoint,
    skipped: Collection[tuple[int, int]] = (),
) -> dict[SourcePartition, int]:
    """Draw how far the last commit reaches: over any input whose outputs are all published, and never back."""
    missing = not_in_set(sent(inputs, before, skipped), log)
    checkpoint = {}
    for partition, records in inputs.items():
        place = (0, partition)
        limit = min((e.stamp.offset for e in missing if e.stamp.partition == partition), default=len(records))
        checkpoint[place] = data.draw(st.integers(before.get(place, 0), limit), label=f"committed of {partition}")
    return checkpoint


def derived(stamp: Stamp, index: int) -> Stamp:
    """Return the stamp of derivative number `index` of an element. Derivatives of one element sort by it."""
    return replace(stamp, sub=(*stamp.sub, index))


def gaps(
    sent: Iterable[tuple[Channel, Stamp]], released: Collection[tuple[Channel, Stamp]]
) -> tuple[tuple[Channel, Stamp], ...]:
    """Return the sent elements that are not published although a later element of their channel is, sorted.

    A barrier that compares with the greatest stamps would lose exactly these elements. If `sent` contains all published
    elements, there are no gaps iff each channel has published a prefix. Missing elements at a channel's end are not
    gaps, because a replay publishes them.

    Args: sent: in any order. released: every published stamp, in any order; duplicates are allowed.
    """
    out = frozenset(released)
    tail, _ = fold_tail(out)
    return tuple(sorted({s for s in sent if is_released(tail, *s) and s not in out}))
