"""Atomicity: checks across keys that each input is processed with all its derivatives or not at all.

It is often open which row a key has lost: a count shows that one of its rows is missing, but not which. So before an
input is called partial, the scripts of its keys are searched again. They may have a choice for which the input is
whole: lost under all its keys, or present under all. A choice for one input restricts the next ones, so inputs with
linked keys are examined together. `falkirk.checker.spanning` finds them.
Source: Delivery, consistency, and determinism, §III-E, definition 7.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from falkirk.checker.anomalies import places_without_output
from falkirk.checker.diagnose import Diagnosis
from falkirk.checker.explain import PERMITTED, Failure, Script, Search, SearchLimits
from falkirk.checker.model import Model
from falkirk.checker.run import KeyRun, RowPlace
from falkirk.checker.verdict import Anomaly, Guarantee, Kind

S = TypeVar("S")
Record = tuple[str, int, int]
#: How many rows may be searched again per given row.
SEARCHED_AGAIN = 50


class Choices(Enum):
    """The choices that a key has about the rows that it has lost."""

    FIXED = "no other script is possible"
    OPEN = "the rows that the key has lost are not known"
    FREE = "a script may lose other rows"
    EXACT = "nothing is lost, but a script may lose rows"


def standing(diagnosis: Diagnosis | None, model: Model[S]) -> Choices:
    """Return the standing of a key by its diagnosis. None is the diagnosis of a key whose outputs are exact."""
    if diagnosis is None:
        return Choices.FIXED if model.every_row_answers else Choices.EXACT
    if diagnosis.script is None:
        return Choices.OPEN
    # If no part of the inputs explains the key anyway, its script is not changed.
    return Choices.FREE if diagnosis.chosen is Guarantee.AT_MOST_ONCE else Choices.FIXED


def lost_places(diagnosis: Diagnosis) -> frozenset[RowPlace]:
    """Return the places of the rows that the key has lost, by its script."""
    return frozenset() if diagnosis.script is None else places_without_output(diagnosis.run, diagnosis.script)


@dataclass(frozen=True, slots=True, kw_only=True)
class Atomicity:
    """The result of the check.

    `partial`: inputs with some derivatives in the output and some not. `open`: inputs for which this is not known.
    """

    partial: tuple[Anomaly, ...] = ()
    open: tuple[Record, ...] = ()


@dataclass(slots=True, kw_only=True)
class Problem:
    """The rows and keys that have to be examined together.

    Args:
        rows: all derivatives of each record, by key. lost: the places of rows without an output, by key.
        standings: of every key in `rows`.
        runs: for keys with standing `FREE` or `EXACT`. diagnoses: for keys with standing `FREE`.
    """

    rows: dict[Record, dict[Hashable, list[RowPlace]]] = field(default_factory=dict)
    lost: dict[Hashable, frozenset[RowPlace]] = field(default_factory=dict)
    standings: dict[Hashable, Choices] = field(default_factory=dict)
    runs: dict[Hashable, KeyRun] = field(default_factory=dict)
    diagnoses: dict[Hashable, Diagnosis] = field(default_factory=dict)


def check_atomicity(problem: Problem, model: Model[S], nodes_max: int) -> Atomicity:
    """Find the partial inputs, with the choice of scripts that makes them as few as possible.

    It may replace scripts in `diagnoses` by equally good ones.
    """
    rows = sum(run.input_count + len(run.observed) for run in problem.runs.values())
    return _Resolver(
        problem=problem, model=model, nodes_max=nodes_max, rows_left=10 * nodes_max + SEARCHED_AGAIN * rows
    ).resolve()


@dataclass(slots=True, kw_only=True)
class _Known:
    """Records that were certainly processed, and records that were certainly not."""

    kept: set[Record] = field(default_factory=set)
    dropped: set[Record] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class _Resolver(Generic[S]):
    problem: Problem
    model: Model[S]
    nodes_max: int
    rows_left: int
    choices: _Known = field(default_factory=_Known)
    facts: _Known = field(default_factory=_Known)

    def resolve(self) -> Atomicity:
        suspects = {place.record for places in self.problem.lost.values() for place in places}
        suspects &= self.problem.rows.keys()
        partial: list[Anomaly] = []
        still_open: list[Record] = []
        queue, queued = deque(sorted(suspects)), set(suspects)
        while queue:
            record = queue.popleft()
            gone, there = self._split(record)
            if not gone or not there:
                (self.choices.dropped if gone else self.choices.kept).add(record)
                continue
            # A fact is a part that no choice can change. Only facts can prove that an input is partial.
            stays = self._none_can(record, there, drop=True)
            is_gone = self._none_can(record, gone, drop=False)
            if stays and is_gone:
                partial.append(_partial(record, gone, there))
                continue
            changed = self._settle(record, there, drop=True) or self._settle(record, gone, drop=False)
            if not changed:
                still_open.append(record)
                continue
            if stays or is_gone:
                (self.facts.kept if stays else self.facts.dropped).add(record)
            newly = {place.record for key in changed for place in self.problem.lost[key]} & self.problem.rows.keys()
            queue.extend(sorted(newly - queued))
            queued |= newly
        return Atomicity(partial=tuple(partial), open=tuple(still_open))

    def _split(self, record: Record) -> tuple[dict[Hashable, list[RowPlace]], dict[Hashable, list[RowPlace]]]:
        """Return the record's derivatives by key: those without an output, and the others."""
        gone: dict[Hashable, list[RowPlace]] = {}
        there: dict[Hashable, list[RowPlace]] = {}
        for key, places in self.problem.rows[record].items():
            lost = self.problem.lost.get(key, frozenset())
            for place in places:
                (gone if place in lost else there).setdefault(key, []).append(place)
        return gone, there

    def _settle(self, record: Record, rows: Mapping[Hashable, list[RowPlace]], *, drop: bool) -> list[Hashable]:
        """Replace the scripts of the keys of `rows`, if possible, so that these rows are lost or kept.

        Returns: the keys; none if it is not possible.
        """
        replacements: dict[Hashable, Script] = {}
        for key in rows:
            found = self._search(key, record, self.choices, drop=drop)
            if isinstance(found, Failure):
                return []
            replacements[key] = found
        for key, script in replacements.items():
            self.problem.lost[key] = places_without_output(self.problem.runs[key], script)
            if key in self.problem.diagnoses:
                self.problem.diagnoses[key].script = script
        (self.choices.dropped if drop else self.choices.kept).add(record)
        return list(replacements)

    def _none_can(self, record: Record, keys: Iterable[Hashable], *, drop: bool) -> bool:
        """Return whether it is a fact that some key of `keys` can't drop, or can't keep, `record`."""
        return any(self._search(key, record, self.facts, drop=drop) is Failure.IMPOSSIBLE for key in keys)

    def _search(self, key: Hashable, record: Record, known: _Known, *, drop: bool) -> Script | Failure:
        """Search the key's script again with all its rows of `record` dropped or kept."""
        if self.problem.standings[key] is Choices.FIXED:
            return Failure.IMPOSSIBLE
        if self.problem.standings[key] is Choices.OPEN:
            return Failure.GAVE_UP
        diagnosis = self.problem.diagnoses.get(key)
        run = self.problem.runs[key] if diagnosis is None else diagnosis.run
        self.rows_left -= run.input_count + len(run.observed)
        if self.rows_left < 0:
            return Failure.GAVE_UP
        # The rows by decision: True if they are dropped, False if they are kept, None if it is open.
        decided: dict[bool | None, set[RowPlace]] = {True: set(), False: set(), None: set()}
        for place in (row.place for source in run.sources for row in source):
            if place.record == record:
                decided[drop].add(place)
            else:
                decided[True if place.record in known.dropped else False if place.record in known.kept else None].add(
                    place
                )
        limits = SearchLimits(
            keep=frozenset(decided[False]),
            skip=frozenset(decided[True]),
            nodes_max=self.nodes_max,
        )
        return Search(run, self.model, PERMITTED[Guarantee.AT_MOST_ONCE], limits).find()


def _partial(
    record: Record, gone: Mapping[Hashable, list[RowPlace]], there: Mapping[Hashable, list[RowPlace]]
) -> Anomaly:
    missing = sorted(place for places in gone.values() for place in places)
    present = sum(map(len, there.values()))
    place = RowPlace(*record)
    return Anomaly(
        kind=Kind.PARTIAL,
        key=min(gone, key=lambda key: min(gone[key])),
        inputs=tuple(missing),
        explanation=f"{len(missing)} of the {present + len(missing)} derivatives of the input at {place} "
        "are not in the output",
    )
