"""Spanning: decides about inputs whose derivatives have several keys. It finds them part by part, and decides group by
group.

The rows of the run are divided a second time, now by their record, each with its fate. A record with all or none of its
rows lost is decided. If a record has lost only some rows, its keys' scripts may be searched again (see
`falkirk.checker.atomic`). This may affect the other records of these keys, and so on. Keys that share a record are
linked. All keys that are linked, directly or not, form a group and are decided together. A group that does not fit into
memory stays open. In a run that has lost nothing, none of this happens.
"""

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from falkirk.checker.atomic import Atomicity, Choices, Problem, Record, check_atomicity, lost_places, standing
from falkirk.checker.diagnose import diagnose
from falkirk.checker.divide import RunPart
from falkirk.checker.model import Model
from falkirk.checker.notes import Bounds, FirstFew, Note, note_of
from falkirk.checker.run import RowPlace, group_by_key
from falkirk.checker.spill import Space, SpilledRows, SpillFiles
from falkirk.checker.verdict import Anomaly

S = TypeVar("S")
#: The fate of a row: its record, its sub-index, its key, whether it is lost, and the standing of the key.
Fate = tuple[Record, int, Hashable, bool, Choices]


@dataclass(slots=True, kw_only=True)
class Spanning:
    """The result over all keys.

    `partial`: inputs with some derivatives in the output and some not. `open`: inputs for which this is not known.
    `replaced`: the new notes of keys that were decided again, in a pile.
    """

    partial: FirstFew[Anomaly]
    open: FirstFew[Record]
    replaced: SpilledRows[Note]
    settled: set[Hashable] = field(default_factory=set)

    def add(self, atomicity: Atomicity) -> None:
        for anomaly in atomicity.partial:
            self.partial.add(anomaly.inputs, anomaly)
        for record in atomicity.open:
            self.open.add(record, record)


def check_spanning(
    parts: list[RunPart],
    notes: list[SpilledRows[Note]],
    model: Model[S],
    bounds: Bounds,
    piles: SpillFiles,
    space: Space,
) -> Spanning:
    """Return the inputs that are partial, over all parts.

    Args: notes: for each part, the notes on its inexact keys; all other keys count as exact.
    """
    shown = bounds.anomalies_shown
    found = Spanning(partial=FirstFew(shown), open=FirstFew(shown), replaced=piles.several(1)[0])
    fates = _fates_by_record(parts, notes, model, piles, space)
    groups = _Groups()
    for pile in fates:
        for record, rows in _records(pile):
            free = groups.link(record, rows)
            if not free and _contested(rows):
                found.add(check_atomicity(_problem_without_runs(rows), model, bounds.nodes_max))
    batch_of = groups.batches(space)
    found.add(Atomicity(open=tuple(groups.too_large)))
    if batch_of:
        work = _Work(parts=parts, fates=fates, model=model, bounds=bounds, piles=piles)
        for problem in work.problems(batch_of):
            _settle(problem, model, bounds, found)
    return found


def _fates_by_record(
    parts: list[RunPart], notes: list[SpilledRows[Note]], model: Model[S], piles: SpillFiles, space: Space
) -> list[SpilledRows[Fate]]:
    """Return the fate of every row, divided by record."""
    total = sum(part.came_out.bytes + part.went_in.bytes for part in parts)
    fates: list[SpilledRows[Fate]] = piles.several(max(space.parts, math.ceil(total / space.part_bytes)))
    exact = standing(None, model)
    for part, noted in zip(parts, notes, strict=True):
        by_key = {note.key: (note.standing, note.lost) for note in noted}
        for key, topic, partition, offset, sub_index, _ in part.went_in:
            stands, lost = by_key.get(key, (exact, frozenset()))
            record = (topic, partition, offset)
            is_lost = bool(lost) and RowPlace(*record, sub_index) in lost
            fates[hash(record) % len(fates)].add((record, sub_index, key, is_lost, stands))
    return fates


def _records(pile: Iterable[Fate]) -> Iterator[tuple[Record, list[Fate]]]:
    """Yield each record with the fates of all its rows, in order of the records."""
    by_record: dict[Record, list[Fate]] = {}
    for fate in pile:
        by_record.setdefault(fate[0], []).append(fate)
    for record in sorted(by_record):
        yield record, sorted(by_record[record], key=lambda fate: fate[1])


def _contested(rows: list[Fate]) -> bool:
    return len({is_lost for _, _, _, is_lost, _ in rows}) == 2


def _choosable(rows: list[Fate]) -> list[Hashable]:
    """Return the keys of a record whose choice may matter, that is, that may be searched again.

    There are none unless some key has lost a row of the record, or may lose one.
    """
    if not any(is_lost or stands is Choices.FREE for _, _, _, is_lost, stands in rows):
        return []
    return list(dict.fromkeys(key for _, _, key, _, stands in rows if stands in (Choices.FREE, Choices.EXACT)))


class _Groups:
    """Keys that are linked by records, as a union-find. It contains only keys that may be searched again."""

    def __init__(self) -> None:
        self._parent: dict[Hashable, Hashable] = {}
        self._rows: dict[Hashable, int] = {}
        self._contested: dict[Hashable, list[Record]] = {}
        self.too_large: list[Record] = []

    def link(self, record: Record, rows: list[Fate]) -> list[Hashable]:
        """Link the keys whose choices this record connects; return them."""
        keys = _choosable(rows)
        for key in keys:
            self._parent.setdefault(key, key)
            self._rows[key] = self._rows.get(key, 0) + len(rows)
        for key in keys[1:]:
            first, other = self._root(keys[0]), self._root(key)
            if first != other:
                self._parent[other] = first
        if keys and _contested(rows):
            self._contested.setdefault(keys[0], []).append(record)
        return keys

    def _root(self, key: Hashable) -> Hashable:
        while self._parent[key] != key:
            self._parent[key] = self._parent[self._parent[key]]
            key = self._parent[key]
        return key

    def batches(self, space: Space) -> dict[Hashable, int]:
        """Return the number of the batch for each key in a group with a contested record.

        Groups that do not fit into memory are omitted, and their records are `too_large`.
        """
        rows_max = space.linked_rows_max
        contested: dict[Hashable, list[Record]] = {}
        for key, records in self._contested.items():
            contested.setdefault(self._root(key), []).extend(records)
        sizes = dict.fromkeys(contested, 0)
        for key, rows in self._rows.items():
            root = self._root(key)
            if root in sizes:
                sizes[root] += rows
        batch, filled, batch_of_root = 0, 0, dict[Hashable, int]()
        for root, size in sizes.items():
            if size > rows_max:
                self.too_large.extend(contested[root])
                continue
            if filled + size > rows_max:
                batch, filled = batch + 1, 0
            filled += size
            batch_of_root[root] = batch
        roots = {key: self._root(key) for key in self._parent}
        return {key: batch_of_root[root] for key, root in roots.items() if root in batch_of_root}


@dataclass(slots=True, kw_only=True)
class _Work(Generic[S]):
    """The inputs from which the problem of a batch is assembled."""

    parts: list[RunPart]
    fates: list[SpilledRows[Fate]]
    model: Model[S]
    bounds: Bounds
    piles: SpillFiles

    def problems(self, batch_of: dict[Hashable, int]) -> Iterator[Problem]:
        """Yield the problem of each batch: all rows of its keys, and all records of these rows."""
        count = max(batch_of.values()) + 1
        batches = RunPart.several(count, self.piles)
        for part in self.parts:
            for row in part.went_in:
                if row[0] in batch_of:
                    batches[batch_of[row[0]]].went_in.add(row)
            for row in part.came_out:
                if row[0] in batch_of:
                    batches[batch_of[row[0]]].came_out.add(row)
        concerned: list[SpilledRows[Fate]] = self.piles.several(count)
        for pile in self.fates:
            for _, fates in _records(pile):
                keys = [key for key in _choosable(fates) if key in batch_of]
                if keys:
                    concerned[batch_of[keys[0]]].extend(fates)
        for batch, fates_of_batch in zip(batches, concerned, strict=True):
            yield self._problem(batch, fates_of_batch)

    def _problem(self, batch: RunPart, fates: Iterable[Fate]) -> Problem:
        problem = _problem_without_runs(fates)
        for run in group_by_key(batch.inputs(), batch.outputs()):
            diagnosis = diagnose(run, self.model, self.bounds.nodes_max)
            problem.runs[run.key] = run
            problem.standings[run.key] = standing(diagnosis, self.model)
            if diagnosis is not None:
                problem.diagnoses[run.key] = diagnosis
                problem.lost[run.key] = lost_places(diagnosis)
        return problem


def _problem_without_runs(fates: Iterable[Fate]) -> Problem:
    problem = Problem()
    lost: dict[Hashable, set[RowPlace]] = {}
    for record, sub_index, key, is_lost, stands in fates:
        place = RowPlace(*record, sub_index)
        problem.rows.setdefault(record, {}).setdefault(key, []).append(place)
        problem.standings[key] = stands
        if is_lost:
            lost.setdefault(key, set()).add(place)
    problem.lost.update((key, frozenset(places)) for key, places in lost.items())
    return problem


def _settle(problem: Problem, model: Model[S], bounds: Bounds, found: Spanning) -> None:
    """Decide a batch, and replace the notes of its keys, whose scripts may have changed."""
    found.add(check_atomicity(problem, model, bounds.nodes_max))
    for key, diagnosis in problem.diagnoses.items():
        found.settled.add(key)
        found.replaced.add(note_of(problem.runs[key], diagnosis, model, bounds))
