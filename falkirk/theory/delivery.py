"""At-most-once: which input to skip after a failure, so that none is processed without all its derivatives.

Input up to the last one with a released derivative has been seen outside and must be completed: it is
replayed behind the barrier, as for exactly-once. Input behind that, up to the present end, is skipped. What
comes later is processed.
Source: Delivery, consistency, and determinism, Definition 7 (A' ⊆ A).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from falkirk.theory.channel import ReleasedTail

SourcePartition = tuple[int, int]
"""(source, partition)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipRange:
    """Input [first, last_exclusive) of a partition, never processed. A recorded decision: replays skip it too."""

    source: int
    partition: int
    first: int
    last_exclusive: int


def touched(tail: ReleasedTail) -> dict[SourcePartition, int]:
    """Return the greatest offset per source partition of which a derivative has been released."""
    greatest: dict[SourcePartition, int] = {}
    for stamp in tail.greatest.values():
        place = (stamp.source, stamp.partition)
        greatest[place] = max(stamp.offset, greatest.get(place, stamp.offset))
    return greatest


def skip_ranges(
    reached: Mapping[SourcePartition, int],
    restored: Mapping[SourcePartition, int],
    ends: Mapping[SourcePartition, int],
) -> tuple[SkipRange, ...]:
    """Return the input to skip.

    Args: reached: as `touched` returns. restored: the first offset that is not in the checkpoint. ends: the
        input's ends.
    """
    ranges = []
    for (source, partition), end in sorted(ends.items()):
        first = max(reached.get((source, partition), -1) + 1, restored.get((source, partition), 0))
        if first < end:
            ranges.append(SkipRange(source=source, partition=partition, first=first, last_exclusive=end))
    return tuple(ranges)
