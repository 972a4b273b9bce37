"""The checker in its simplest form: the whole run in memory, not divided.

`check_keyed` must give the same verdict, however it divides the run.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from falkirk.checker import Anomaly, Guarantee, InputRow, Kind, Model, OutputRow
from falkirk.checker.anomalies import anomalies_of
from falkirk.checker.atomic import Problem, check_atomicity, lost_places, standing
from falkirk.checker.consistency import check_consistency
from falkirk.checker.diagnose import Diagnosis, diagnose
from falkirk.checker.run import KeyRun, group_by_key
from falkirk.checker.verdict import REACHABLE


@dataclass(frozen=True)
class Whole:
    """The parts of a verdict that decide, without those that are only shown."""

    holds: dict[Guarantee, bool | None]
    kinds: dict[Kind, int]
    anomalies: frozenset[Anomaly]
    undecided: int
    consistent: bool | None
    inconsistent_keys: int


def check_whole(inputs: Iterable[InputRow], outputs: Iterable[OutputRow], model: Model[Any]) -> Whole:
    """Judge a run, as `check_keyed` does."""
    nodes_max = 100_000
    runs = group_by_key(inputs, outputs)
    found = {run.key: diagnose(run, model, nodes_max) for run in runs}
    diagnoses = {key: diagnosis for key, diagnosis in found.items() if diagnosis is not None}
    atomicity = check_atomicity(_problem(runs, found, diagnoses, model), model, nodes_max)
    anomalies = [each for diagnosis in diagnoses.values() for each in anomalies_of(diagnosis, model)]
    anomalies.extend(atomicity.partial)
    answers = {each: {diagnosis.fits[each] for diagnosis in diagnoses.values()} for each in REACHABLE}
    answers[Guarantee.AT_MOST_ONCE] |= {False} if atomicity.partial else {None} if atomicity.open else set()
    consistencies = [check_consistency(diagnosis.run, model, nodes_max).holds for diagnosis in diagnoses.values()]
    return Whole(
        holds={each: _all_of(those) for each, those in answers.items()},
        kinds=dict(Counter(each.kind for each in anomalies)),
        anomalies=frozenset(map(_hashable, anomalies)),
        undecided=sum(None in each.fits.values() for each in diagnoses.values()) + len(atomicity.open),
        consistent=_all_of(set(consistencies)),
        inconsistent_keys=consistencies.count(False),
    )


def _problem(
    runs: list[KeyRun], found: dict[Hashable, Diagnosis | None], diagnoses: dict[Hashable, Diagnosis], model: Model[Any]
) -> Problem:
    """Return one problem with all keys, whether they are linked or not."""
    problem = Problem(
        lost={key: lost_places(diagnosis) for key, diagnosis in diagnoses.items()},
        standings={key: standing(diagnosis, model) for key, diagnosis in found.items()},
        runs={run.key: run for run in runs},
        diagnoses=diagnoses,
    )
    for run in runs:
        for source in run.sources:
            for row in source:
                problem.rows.setdefault(row.place.record, {}).setdefault(run.key, []).append(row.place)
    return problem


def _all_of(answers: set[bool | None]) -> bool | None:
    return False if False in answers else None if None in answers else True


def _hashable(anomaly: Anomaly) -> Any:
    """Return the anomaly's identity: rows with the same content are one element of a `set`."""
    return (anomaly.kind, anomaly.key, anomaly.inputs, anomaly.outputs, anomaly.explanation)
