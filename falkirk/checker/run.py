"""A run in the form that the checker judges: input rows and output rows, each with its place.

Nothing here comes from the mechanism that is judged: no stamps, no headers, no checkpoints.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from falkirk.checker.content import content
from falkirk.errors.conditions.checker import INPUT_PLACE_TWICE

Values = Mapping[str, object]


class RowPlace(NamedTuple):
    """The place of a row in a log. Places are compared as tuples.

    `sub_index` numbers the rows that the declared stateless part made from one record, from 0.
    """

    topic: str
    partition: int
    offset: int
    sub_index: int = 0

    @property
    def record(self) -> tuple[str, int, int]:
        """The record from which the row comes, without its sub-index."""
        return self[:3]

    def __str__(self) -> str:
        tail = f"#{self.sub_index}" if self.sub_index else ""
        return f"{self.topic}/{self.partition}@{self.offset}{tail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRow:
    """A row that should reach the keyed step: its key, the place of its record, its values."""

    key: Hashable
    place: RowPlace
    row: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRow:
    """A row on the output topic: its key, its place there, its values."""

    key: Hashable
    place: RowPlace
    values: Values


@dataclass(slots=True, kw_only=True)
class KeyRun:
    """All rows of one key: its inputs by source partition in order, its outputs in log order."""

    key: Hashable
    sources: list[list[InputRow]] = field(default_factory=list)
    observed: list[OutputRow] = field(default_factory=list)
    contents: list[Hashable] = field(default_factory=list)

    @property
    def input_count(self) -> int:
        return sum(map(len, self.sources))

    @property
    def scattered(self) -> bool:
        """Whether different outputs are in several partitions, so that they have no order."""
        if not self.observed or self.observed[0].place[:2] == self.observed[-1].place[:2]:
            return False
        return len(set(self.contents)) > 1


def group_by_key(inputs: Iterable[InputRow], outputs: Iterable[OutputRow]) -> list[KeyRun]:
    """Return one `KeyRun` per key in `inputs` or `outputs`, in order of first appearance.

    Both may be in any order: rows are sorted by their places.

    Raises: DefinitionError: two inputs of one key have the same place.
    """
    rows: dict[Hashable, list[InputRow]] = {}
    for row in inputs:
        rows.setdefault(row.key, []).append(row)
    seen: dict[Hashable, list[OutputRow]] = {}
    for output in outputs:
        seen.setdefault(output.key, []).append(output)
    runs = []
    for key in rows | seen:
        observed = seen.get(key, [])
        observed.sort(key=attrgetter("place"))
        runs.append(
            KeyRun(
                key=key,
                sources=_by_source(rows.get(key, [])),
                observed=observed,
                contents=[content(output.values) for output in observed],
            )
        )
    return runs


def _by_source(rows: list[InputRow]) -> list[list[InputRow]]:
    """Split the rows of one key by source partition, each in order of offset and sub-index."""
    rows.sort(key=attrgetter("place"))
    sources: list[list[InputRow]] = []
    previous: RowPlace | None = None
    for row in rows:
        place = row.place
        if previous is not None and place == previous:
            raise INPUT_PLACE_TWICE.error(where=str(place), key=row.key, place=place)
        if previous is None or place[:2] != previous[:2]:
            sources.append([])
        sources[-1].append(row)
        previous = place
    return sources
