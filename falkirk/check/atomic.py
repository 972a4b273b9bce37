"""Atomicity: an input must be processed with all its derivatives or not at all, across keys (Delivery,
consistency, and determinism, §III-E, definition 7).

Which row a key has lost is often open: a count says that one of its rows is missing, not which. So before an
input is called partial, the scripts of its keys are searched again for a choice under which it is whole: gone
everywhere, or there everywhere. Choices made for one input bind the next ones, so inputs whose keys are linked
have to be looked at together; `falkirk.check.spanning` finds out which are.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from falkirk.check.anomalies import places_without_output
from falkirk.check.diagnose import Diagnosis
from falkirk.check.explain import PERMITTED, Failure, Limits, Script, Search
from falkirk.check.model import Model
from falkirk.check.run import KeyRun, Place
from falkirk.check.verdict import Anomaly, Guarantee, Kind

S = TypeVar("S")
Record = tuple[str, int, int]
#: How many rows may be searched again, for each row that is given.
SEARCHED_AGAIN = 50


class Standing(Enum):
    """What may be chosen about the rows that a key has lost."""

    FIXED = "no other script comes into question"
    OPEN = "it is not known what the key has lost"
    FREE = "a script may lose other rows"
    EXACT = "nothing is lost, but a script may lose something"


def standing(diagnosis: Diagnosis | None, model: Model[S]) -> Standing:
    """Return how a key stands, given its diagnosis; None is that of a key whose outputs are exact."""
    if diagnosis is None:
        return Standing.FIXED if model.every_row_answers else Standing.EXACT
    if diagnosis.script is None:
        return Standing.OPEN
    # If the key is no run on a part of the inputs anyway, its script is taken as it stands.
    return Standing.FREE if diagnosis.chosen is Guarantee.AT_MOST_ONCE else Standing.FIXED


def lost_places(diagnosis: Diagnosis) -> frozenset[Place]:
    """Return the places of the rows that the key has lost, by its script."""
    return frozenset() if diagnosis.script is None else places_without_output(diagnosis.run, diagnosis.script)


@dataclass(frozen=True, slots=True, kw_only=True)
class Atomicity:
    """`partial`: inputs of which some derivatives came out and some did not. `open`: inputs for which that
    stayed open.
    """

    partial: tuple[Anomaly, ...] = ()
    open: tuple[Record, ...] = ()


@dataclass(slots=True, kw_only=True)
class Problem:
    """What has to be looked at together.

    Args:
        rows: by record, all its derivatives by key. lost: by key, the places of rows without an output.
        standings: of every key in `rows`.
        runs: of the keys that stand `FREE` or `EXACT`. diagnoses: of those that stand `FREE`.
    """

    rows: dict[Record, dict[Hashable, list[Place]]] = field(default_factory=dict)
    lost: dict[Hashable, frozenset[Place]] = field(default_factory=dict)
    standings: dict[Hashable, Standing] = field(default_factory=dict)
    runs: dict[Hashable, KeyRun] = field(default_factory=dict)
    diagnoses: dict[Hashable, Diagnosis] = field(default_factory=dict)


def check_atomicity(problem: Problem, model: Model[S], nodes_max: int) -> Atomicity:
    """Find the inputs that are partial, and make the scripts in `diagnoses` choose so that as few are as
    possible: they may be replaced by equally good ones.
    """
    rows = sum(run.input_count + len(run.observed) for run in problem.runs.values())
    return _Resolver(
        problem=problem, model=model, nodes_max=nodes_max, rows_left=10 * nodes_max + SEARCHED_AGAIN * rows
    ).resolve()


@dataclass(slots=True, kw_only=True)
class _Known:
    """Records of which it is settled that they were processed, or that they were not."""

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
            # What no choice can change is a fact; only facts can prove that an input is partial.
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

    def _split(self, record: Record) -> tuple[dict[Hashable, list[Place]], dict[Hashable, list[Place]]]:
        """Return the record's derivatives by key: those without an output, and the others."""
        gone: dict[Hashable, list[Place]] = {}
        there: dict[Hashable, list[Place]] = {}
        for key, places in self.problem.rows[record].items():
            lost = self.problem.lost.get(key, frozenset())
            for place in places:
                (gone if place in lost else there).setdefault(key, []).append(place)
        return gone, there

    def _settle(self, record: Record, rows: Mapping[Hashable, list[Place]], *, drop: bool) -> list[Hashable]:
        """Replace the scripts of the keys of `rows`, if possible, so that these rows are lost or kept; return the
        keys, none if it is not possible.
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
        if self.problem.standings[key] is Standing.FIXED:
            return Failure.IMPOSSIBLE
        if self.problem.standings[key] is Standing.OPEN:
            return Failure.GAVE_UP
        diagnosis = self.problem.diagnoses.get(key)
        run = self.problem.runs[key] if diagnosis is None else diagnosis.run
        self.rows_left -= run.input_count + len(run.observed)
        if self.rows_left < 0:
            return Failure.GAVE_UP
        # Its rows by what has to become of them: True if they are dropped, None if that is open.
        decided: dict[bool | None, set[Place]] = {True: set(), False: set(), None: set()}
        for place in (row.place for source in run.sources for row in source):
            if place.record == record:
                decided[drop].add(place)
            else:
                decided[True if place.record in known.dropped else False if place.record in known.kept else None].add(
                    place
                )
        limits = Limits(
            keep=frozenset(decided[False]),
            skip=frozenset(decided[True]),
            nodes_max=self.nodes_max,
        )
        return Search(run, self.model, PERMITTED[Guarantee.AT_MOST_ONCE], limits).find()


def _partial(record: Record, gone: Mapping[Hashable, list[Place]], there: Mapping[Hashable, list[Place]]) -> Anomaly:
    missing = sorted(place for places in gone.values() for place in places)
    present = sum(map(len, there.values()))
    place = Place(*record)
    return Anomaly(
        kind=Kind.PARTIAL,
        key=min(gone, key=lambda key: min(gone[key])),
        inputs=tuple(missing),
        explanation=f"{len(missing)} of the {present + len(missing)} derivatives of the input at {place} "
        "did not come out",
    )
