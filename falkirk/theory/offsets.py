"""Offsets: positions in logs as plain values, their form in JSON, and the part of a range that still exists.

A frontier says the same of a whole application: `OffsetFrontier.before` and `OffsetFrontier.positions` convert.

    >>> positions_from_json(positions_to_json({LogId("pages"): {0: Offset(7)}}))
    {'pages': {0: 7}}
    >>> within({0: Offset(2), 1: Offset(9)}, oldest={0: Offset(3), 1: Offset(0)}, ends={0: Offset(8), 1: Offset(5)})
    {0: 3, 1: 5}
    >>> merged_ranges(PartitionRange(*each) for each in [(0, 7, 9), (0, 2, 7), (1, 9, 10)])
    [PartitionRange(partition=0, first=2, last_exclusive=9), PartitionRange(partition=1, first=9, last_exclusive=10)]
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from falkirk.theory.ids import LogId, Offset, Offsets, Positions


class PartitionRange(NamedTuple):
    """Records of a partition: [first, last_exclusive)."""

    partition: int
    first: Offset
    last_exclusive: Offset

    def covers(self, number: int) -> bool:
        """Return whether it contains this offset of its partition."""
        return self.first <= number < self.last_exclusive


def within(first: Mapping[int, Offset], oldest: Mapping[int, Offset], ends: Mapping[int, Offset]) -> Offsets:
    """Return positions moved into the records that exist: [oldest, end] of each partition that has an end.

    A partition without a position begins at its oldest record.
    """
    start = Offset(0)
    return {p: min(max(first.get(p, start), oldest.get(p, start)), end) for p, end in ends.items()}


def merged_ranges(ranges: Iterable[PartitionRange], *, gap: int = 0) -> list[PartitionRange]:
    """Return the ranges in order. Ranges that overlap, touch, or have at most `gap` records between them become one."""
    merged: list[PartitionRange] = []
    for each in sorted(ranges):
        last = merged[-1] if merged else None
        if last is not None and last.partition == each.partition and each.first <= last.last_exclusive + gap:
            merged[-1] = last._replace(last_exclusive=max(last.last_exclusive, each.last_exclusive))
        else:
            merged.append(each)
    return merged


def offsets_to_json(offsets: Mapping[int, int]) -> dict[str, int]:
    """Return the positions in one log as an object of JSON, whose keys are texts. Its partitions are in order."""
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def offsets_from_json(content: Mapping[str, int]) -> Offsets:
    """Return the value that `offsets_to_json` converted."""
    return {int(partition): Offset(offset) for partition, offset in content.items()}


def positions_to_json(positions: Mapping[LogId, Mapping[int, Offset]]) -> dict[str, dict[str, int]]:
    """Return the positions in several logs as an object of JSON."""
    return {log: offsets_to_json(offsets) for log, offsets in positions.items()}


def positions_from_json(content: Mapping[str, Mapping[str, int]]) -> Positions:
    """Return the value that `positions_to_json` converted."""
    return {LogId(log): offsets_from_json(offsets) for log, offsets in content.items()}
