"""Decides which records of a log are void, so that its writer and all readers skip them.

A recovery records the ranges that it cancels. A record of a former incarnation may also arrive late: after the position
up to which a later incarnation has read the log. The later incarnation publishes the same result again, so the late
record is void. Its header names its incarnation, so a reader recognises it whenever it arrives.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping

from falkirk.theory.ids import Incarnation, Offset
from falkirk.theory.offsets import PartitionRange

Fence = tuple[int, Offset, Incarnation]
"""The end of a partition when an incarnation started: (partition, position, incarnation)."""


class Void:
    """The void records of a log.

    Args: ranges: cancelled ranges, disjoint. fences: those of the log's writer; given only if every reader skips late
        records.
    """

    def __init__(self, ranges: Iterable[PartitionRange] = (), fences: Iterable[Fence] = ()) -> None:
        self.ranges, self.fences = tuple(sorted(ranges)), tuple(sorted(fences))
        self._ranges: dict[int, list[tuple[Offset, Offset]]] = {}
        self._fences: dict[int, list[tuple[Offset, Incarnation]]] = {}
        for partition, first, last in self.ranges:
            self._ranges.setdefault(partition, []).append((first, last))
        for partition, position, incarnation in self.fences:
            self._fences.setdefault(partition, []).append((position, incarnation))

    def has(self, partition: int, offset: Offset, incarnation: Incarnation | None) -> bool:
        """Return whether a record is void.

        Args: incarnation: of its writer; None: the home did not write the record.
        """
        if self._is_taken_back(partition, offset):
            return True
        return incarnation is not None and self._is_late(partition, offset, incarnation)

    def _is_taken_back(self, partition: int, offset: Offset) -> bool:
        ranges = self._ranges.get(partition, [])
        at = bisect_right(ranges, offset, key=lambda r: r[0]) - 1
        return at >= 0 and offset < ranges[at][1]

    def _is_late(self, partition: int, offset: Offset, incarnation: Incarnation) -> bool:
        fences = self._fences.get(partition, [])
        at = bisect_right(fences, offset, key=lambda f: f[0]) - 1
        return at >= 0 and incarnation < fences[at][1]

    def within(self, first: Mapping[int, Offset], last: Mapping[int, Offset] | None = None) -> "Void":
        """Return the part that matters to [first, last) of each partition; without `last`, from `first` on."""
        ranges = [r for r in self.ranges if r[2] > first.get(r[0], 0) and (last is None or r[1] < last.get(r[0], 0))]
        fences = []
        for partition, known in self._fences.items():
            begin = bisect_right(known, first.get(partition, 0), key=lambda f: f[0]) - 1
            end = len(known) if last is None else bisect_right(known, last.get(partition, 0) - 1, key=lambda f: f[0])
            fences += [(partition, *fence) for fence in known[max(0, begin) : end]]
        return Void(ranges, fences)


def late_behind(fences: Iterable[tuple[Incarnation, Mapping[int, Offset]]]) -> list[Fence]:
    """Return the fences of a log, from the end of each partition at the start of each incarnation of its writer.

    Of several fences at one position the last counts. No incarnation is older than the first.
    """
    found: dict[tuple[int, Offset], Incarnation] = {}
    for incarnation, positions in sorted(fences, key=lambda f: f[0]):
        if incarnation > 1:
            found |= dict.fromkeys(positions.items(), incarnation)
    return [(partition, position, incarnation) for (partition, position), incarnation in found.items()]
