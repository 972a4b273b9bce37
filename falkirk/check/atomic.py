"""Atomicity: an input must be processed with all its derivatives or not at all, across keys (Delivery,
consistency, and determinism, §III-E,
definition 7).

Which row a key has lost is often open: a count says that one of its rows is missing, not which. So before an
input is called partial, the scripts of its keys are searched again for a choice under which it is whole: gone
everywhere, or there everywhere.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from falkirk.check.anomalies import places_without_output
from falkirk.check.diagnose import Diagnosis
from falkirk.check.explain import PERMITTED, Failure, Limits, Script, Search
from falkirk.check.model import Model
from falkirk.check.run import KeyRun, Place
from falkirk.check.verdict import Anomaly, Guarantee, Kind

S = TypeVar("S")
Record = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Atomicity:
    """`partial`: inputs of which some derivatives came out and some did not. `open`: inputs for which that
    stayed open.
    """

    partial: tuple[Anomaly, ...] = ()
    open: tuple[Record, ...] = ()


def check_atomicity(
    runs: Iterable[KeyRun], diagnoses: Mapping[Hashable, Diagnosis], model: Model[S], nodes_max: int
) -> Atomicity:
    """Find the inputs that are partial, and make the scripts in `diagnoses` choose so that as few are as
    possible.

    Args: runs: all keys. diagnoses: by key, those that are not exact; their scripts may be replaced by
        equally good ones.
    """
    lost = {
        key: places_without_output(each.run, each.script) for key, each in diagnoses.items() if each.script is not None
    }
    if not any(lost.values()):
        return Atomicity()
    return _Resolver(runs=list(runs), diagnoses=diagnoses, model=model, nodes_max=nodes_max, lost=lost).resolve()


@dataclass(slots=True, kw_only=True)
class _Known:
    """Records of which it is settled that they were processed, or that they were not."""

    kept: set[Record] = field(default_factory=set)
    dropped: set[Record] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class _Resolver(Generic[S]):
    runs: list[KeyRun]
    diagnoses: Mapping[Hashable, Diagnosis]
    model: Model[S]
    nodes_max: int
    lost: dict[Hashable, frozenset[Place]]
    by_key: dict[Hashable, KeyRun] = field(default_factory=dict)
    rows: dict[Record, dict[Hashable, list[Place]]] = field(default_factory=dict)
    choices: _Known = field(default_factory=_Known)
    facts: _Known = field(default_factory=_Known)

    def resolve(self) -> Atomicity:
        suspects = {place.record for places in self.lost.values() for place in places}
        self._index()
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
            elif self._settle(record, there, drop=True) or self._settle(record, gone, drop=False):
                if stays or is_gone:
                    (self.facts.kept if stays else self.facts.dropped).add(record)
                for place in sorted(place for places in self.lost.values() for place in places):
                    if place.record not in queued:
                        queued.add(place.record)
                        queue.append(place.record)
            else:
                still_open.append(record)
        return Atomicity(partial=tuple(partial), open=tuple(still_open))

    def _index(self) -> None:
        """Index, with all their derivatives, the records that a key with lost rows has met.

        All of them and not only the suspects, since a choice made for one record may make another one a
        suspect.
        """
        concerned = {key for key, places in self.lost.items() if places}
        for run in self.runs:
            if run.key in concerned:
                for source in run.sources:
                    for row in source:
                        self.rows.setdefault(row.place.record, {})
        for run in self.runs:
            for source in run.sources:
                for row in source:
                    places = self.rows.get(row.place.record)
                    if places is not None:
                        self.by_key[run.key] = run
                        places.setdefault(run.key, []).append(row.place)

    def _split(self, record: Record) -> tuple[dict[Hashable, list[Place]], dict[Hashable, list[Place]]]:
        """Return the record's derivatives by key: those without an output, and the others."""
        gone: dict[Hashable, list[Place]] = {}
        there: dict[Hashable, list[Place]] = {}
        for key, places in self.rows[record].items():
            lost = self.lost.get(key, frozenset())
            for place in places:
                (gone if place in lost else there).setdefault(key, []).append(place)
        return gone, there

    def _settle(self, record: Record, rows: Mapping[Hashable, list[Place]], *, drop: bool) -> bool:
        """Replace the scripts of the keys of `rows`, if possible, so that these rows are lost or kept."""
        replacements: dict[Hashable, Script] = {}
        for key in rows:
            found = self._search(key, record, self.choices, drop=drop)
            if isinstance(found, Failure):
                return False
            replacements[key] = found
        for key, script in replacements.items():
            self.lost[key] = places_without_output(self.by_key[key], script)
            if key in self.diagnoses:
                self.diagnoses[key].script = script
        (self.choices.dropped if drop else self.choices.kept).add(record)
        return True

    def _none_can(self, record: Record, keys: Iterable[Hashable], *, drop: bool) -> bool:
        """Return whether it is a fact that some key of `keys` can't drop, or can't keep, `record`."""
        return any(self._search(key, record, self.facts, drop=drop) is Failure.IMPOSSIBLE for key in keys)

    def _search(self, key: Hashable, record: Record, known: _Known, *, drop: bool) -> Script | Failure:
        """Search the key's script again with all its rows of `record` dropped or kept."""
        diagnosis = self.diagnoses.get(key)
        if diagnosis is None:
            if drop and self.model.every_row_answers:
                return Failure.IMPOSSIBLE
        elif diagnosis.script is None:
            return Failure.GAVE_UP
        elif diagnosis.chosen is not Guarantee.AT_MOST_ONCE:
            # The key is no run on a part of the inputs anyway: its script is taken as it stands.
            return Failure.IMPOSSIBLE
        run = self.by_key[key] if diagnosis is None else diagnosis.run
        dropped = known.dropped | ({record} if drop else set())
        kept = known.kept | (set() if drop else {record})
        places = [row.place for source in run.sources for row in source]
        limits = Limits(
            keep=frozenset(place for place in places if place.record in kept),
            skip=frozenset(place for place in places if place.record in dropped),
            nodes_max=self.nodes_max,
        )
        return Search(run, self.model, PERMITTED[Guarantee.AT_MOST_ONCE], limits).find()


def _partial(record: Record, gone: Mapping[Hashable, list[Place]], there: Mapping[Hashable, list[Place]]) -> Anomaly:
    missing = sorted(place for places in gone.values() for place in places)
    present = sum(map(len, there.values()))
    place = Place(*record)
    return Anomaly(
        kind=Kind.PARTIAL,
        key=next(iter(gone)),
        inputs=tuple(missing),
        explanation=f"{len(missing)} of the {present + len(missing)} derivatives of the input at {place} "
        "did not come out",
    )
