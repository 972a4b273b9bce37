"""Divides a run by key into parts that fit into memory: all input and output rows of a key are in one part.

A part that is still too large is divided again by another hash, as in a Grace hash join. The division does not
influence the verdict, because rows know their places.
"""

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from falkirk.checker.run import InputRow, OutputRow, RowPlace, Values
from falkirk.checker.spill import Space, SpilledRows, SpillFiles

#: A row as stored in a file: key, topic, partition, offset, sub-index, values.
_Row = tuple[Hashable, str, int, int, int, Values]

#: How many times a part is divided again. If it is still too large, it consists of a few large keys.
_DEPTH_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPart:
    """Some keys with all their rows."""

    went_in: SpilledRows[_Row]
    came_out: SpilledRows[_Row]

    @classmethod
    def several(cls, count: int, piles: SpillFiles) -> "list[RunPart]":
        """Return new empty parts."""
        went_in: list[SpilledRows[_Row]] = piles.several(count)
        came_out: list[SpilledRows[_Row]] = piles.several(count)
        return [cls(went_in=top, came_out=bottom) for top, bottom in zip(went_in, came_out, strict=True)]

    @property
    def rows(self) -> int:
        return self.went_in.rows + self.came_out.rows

    @property
    def bytes(self) -> int:
        return self.went_in.bytes + self.came_out.bytes

    def inputs(self) -> Iterator[InputRow]:
        for key, topic, partition, offset, sub_index, values in self.went_in:
            yield InputRow(key=key, place=RowPlace(topic, partition, offset, sub_index), row=values)

    def outputs(self) -> Iterator[OutputRow]:
        for key, topic, partition, offset, sub_index, values in self.came_out:
            yield OutputRow(key=key, place=RowPlace(topic, partition, offset, sub_index), values=values)


def divide(inputs: Iterable[InputRow], outputs: Iterable[OutputRow], piles: SpillFiles, space: Space) -> list[RunPart]:
    """Return the run in non-empty parts, each small enough for `space` unless one key is too large."""
    went_in = ((row.key, *row.place, row.row) for row in inputs)
    came_out = ((output.key, *output.place, output.values) for output in outputs)
    return _divide(went_in, came_out, piles, space, count=max(1, space.parts), depth=0)


def _divide(
    went_in: Iterable[_Row], came_out: Iterable[_Row], piles: SpillFiles, space: Space, *, count: int, depth: int
) -> list[RunPart]:
    among = RunPart.several(count, piles)
    for row in went_in:
        among[hash((depth, row[0])) % count].went_in.add(row)
    for row in came_out:
        among[hash((depth, row[0])) % count].came_out.add(row)
    parts: list[RunPart] = []
    total = sum(part.rows for part in among)
    for part in among:
        if not part.rows:
            continue
        if part.bytes <= space.part_bytes or depth == _DEPTH_MAX or (depth and part.rows == total):
            parts.append(part)
            continue
        # One more than needed, since hashes do not divide evenly.
        smaller = math.ceil(part.bytes / space.part_bytes) + 1
        parts.extend(_divide(part.went_in, part.came_out, piles, space, count=min(smaller, 256), depth=depth + 1))
        part.went_in.drop()
        part.came_out.drop()
    return parts
