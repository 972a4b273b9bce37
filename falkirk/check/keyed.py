"""Judge a run: group what went in and what came out by key, let each key explain itself, and sum up."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from falkirk.check.anomalies import anomalies_of
from falkirk.check.atomic import Atomicity, check_atomicity
from falkirk.check.content import content
from falkirk.check.diagnose import Diagnosis, diagnose
from falkirk.check.model import Model, StatelessModel
from falkirk.check.run import Input, KeyRun, Output, group_by_key
from falkirk.check.verdict import REACHABLE, Anomaly, Counts, Guarantee, Kind, Undecided, Verdict, reached

S = TypeVar("S")


def check_keyed(
    inputs: Iterable[Input],
    outputs: Iterable[Output],
    model: Model[S],
    *,
    anomalies_shown: int = 20,
    nodes_max: int = 100_000,
) -> Verdict:
    """Judge the outputs of a keyed step by the rows that had to reach it.

    Args:
        inputs: every row that, by the declared stateless part, had to reach the step; in any order.
        outputs: everything observed on the output topic; in any order, since each knows its place.
        model: the keyed step.
        anomalies_shown: how many anomalies the verdict carries; all are counted.
        nodes_max: bound on each search for an order of the inputs. A key that meets it is undecided, never
            passed.
    Raises: DefinitionError: two inputs of one key claim the same place.
    """
    runs = group_by_key(inputs, outputs)
    diagnoses: dict[Hashable, Diagnosis] = {}
    for run in runs:
        diagnosis = diagnose(run, model, nodes_max)
        if diagnosis is not None:
            diagnoses[run.key] = diagnosis
    atomicity = check_atomicity(runs, diagnoses, model, nodes_max)
    anomalies = [each for diagnosis in diagnoses.values() for each in anomalies_of(diagnosis, model)]
    anomalies.extend(atomicity.partial)
    holds = _holds(diagnoses, atomicity)
    return Verdict(
        guarantee=reached(holds),
        holds=holds,
        counts=_counts(runs, diagnoses, anomalies),
        anomalies=tuple(anomalies[:anomalies_shown]),
        undecided=tuple(_undecided(diagnoses, atomicity)),
    )


def check_stateless(
    inputs: Iterable[Input], outputs: Iterable[Output], *, anomalies_shown: int = 20, nodes_max: int = 100_000
) -> Verdict:
    """Judge the outputs of a stateless step: `inputs` are the output rows that were due, each at the place
    that caused it.

    Rows with a key must come out in the order of each source partition; rows whose key is None in any order,
    since a log keeps no order among its partitions. Arguments and errors as in `check_keyed`.
    """
    verdict = check_keyed(
        (_keyed_by_content(row) for row in inputs),
        (_observed_by_content(output) for output in outputs),
        StatelessModel(),
        anomalies_shown=anomalies_shown,
        nodes_max=nodes_max,
    )
    anomalies = tuple(
        replace(each, key=None) if isinstance(each.key, _ByContent) else each for each in verdict.anomalies
    )
    return replace(verdict, anomalies=anomalies)


@dataclass(frozen=True, slots=True)
class _ByContent:
    """The group of all rows without a key that have one content: within it every order is the same."""

    content: Hashable


def _keyed_by_content(row: Input) -> Input:
    return row if row.key is not None else replace(row, key=_ByContent(content(row.row)))


def _observed_by_content(output: Output) -> Output:
    return output if output.key is not None else replace(output, key=_ByContent(content(output.values)))


def _holds(diagnoses: Mapping[Hashable, Diagnosis], atomicity: Atomicity) -> dict[Guarantee, bool | None]:
    """Return for each guarantee whether it holds of every key; False outweighs None, None outweighs True."""
    holds: dict[Guarantee, bool | None] = {}
    for guarantee in REACHABLE:
        answers = {diagnosis.fits[guarantee] for diagnosis in diagnoses.values()}
        if guarantee is Guarantee.AT_MOST_ONCE:
            answers |= {False} if atomicity.partial else {None} if atomicity.open else set()
        holds[guarantee] = False if False in answers else None if None in answers else True
    return holds


def _counts(runs: list[KeyRun], diagnoses: Mapping[Hashable, Diagnosis], anomalies: Iterable[Anomaly]) -> Counts:
    kinds = Counter(anomaly.kind for anomaly in anomalies)
    due = sum(diagnoses[run.key].expected_outputs if run.key in diagnoses else len(run.observed) for run in runs)
    return Counts(
        inputs=sum(run.input_count for run in runs),
        expected_outputs=due,
        observed_outputs=sum(len(run.observed) for run in runs),
        keys=len(runs),
        duplicates=kinds[Kind.DUPLICATE],
        repeated_inputs=kinds[Kind.REPEATED_INPUT],
        lost=kinds[Kind.LOST],
        unexplained=kinds[Kind.UNEXPLAINED],
        broken_sequences=kinds[Kind.BROKEN_SEQUENCE],
        partial=kinds[Kind.PARTIAL],
    )


def _undecided(diagnoses: Mapping[Hashable, Diagnosis], atomicity: Atomicity) -> Iterable[Undecided]:
    for key, diagnosis in diagnoses.items():
        open_ones = [guarantee for guarantee in REACHABLE if diagnosis.fits[guarantee] is None]
        if open_ones:
            yield Undecided(
                key=key,
                reason=f"the search for an order of its {diagnosis.run.input_count} inputs was given up: "
                f"open whether {', '.join(open_ones)}",
            )
    for record in atomicity.open:
        yield Undecided(key=record, reason="open whether this input was lost with all its derivatives or only some")
