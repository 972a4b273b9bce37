"""At-most-once: chooses the input to skip after a failure, so that no record is processed without all its derivatives.

The last input record with a published derivative divides the input of each partition:
  - Readers may have seen derivatives of the input up to that record. It is completed: a replay computes all its
    derivatives, and the barrier drops the published ones, as for exactly-once.
  - The input after that record, up to the present end, is skipped.
  - Input that arrives later is processed.
Source: Delivery, consistency, and determinism, Definition 7 (A' ⊆ A).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from falkirk.theory.channel import ReleasedTail
from falkirk.theory.ids import Offset

SourcePartition = tuple[int, int]
"""(source, partition)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipRange:
    """A range of input, [first, last_exclusive), that is never processed. It is a recorded decision: replays skip it
    too."""

    source: int
    partition: int
    first: Offset
    last_exclusive: Offset


def input_records(numbers: Sequence[int], *, joins: int) -> tuple[tuple[SourcePartition, Offset], ...]:
    """Return the input records of a stamp, given as its numbers.

    Args: joins: how many joins it has passed. For each, the last one first, it has two sub-indexes: the right record's
        partition plus 1, and its offset; or 0, if the join has found none.
    """
    source, partition, offset, *sub = numbers
    found = [((source, partition), Offset(offset))]
    for number in range(1, joins + 1):
        place = 2 * (joins - number)
        if sub[place] > 0:
            found.append(((number, sub[place] - 1), Offset(sub[place + 1])))
    return tuple(found)


def touched(tail: ReleasedTail) -> dict[SourcePartition, Offset]:
    """Return for each source partition the greatest offset that has a published derivative."""
    greatest: dict[SourcePartition, Offset] = {}
    for stamp in tail.greatest.values():
        place = (stamp.source, stamp.partition)
        greatest[place] = max(stamp.offset, greatest.get(place, stamp.offset))
    return greatest


def skip_ranges(
    reached: Mapping[SourcePartition, Offset],
    restored: Mapping[SourcePartition, Offset],
    ends: Mapping[SourcePartition, Offset],
) -> tuple[SkipRange, ...]:
    """Return the input to skip.

    Args: reached: as returned by `touched`. restored: the first offset that is not in the checkpoint. ends: the ends of
        the input.
    """
    ranges = []
    for (source, partition), end in sorted(ends.items()):
        first = Offset(max(reached.get((source, partition), -1) + 1, restored.get((source, partition), 0)))
        if first < end:
            ranges.append(SkipRange(source=source, partition=partition, first=first, last_exclusive=end))
    return tuple(ranges)
