"""Diagnoses one key whose outputs are not exactly those of its inputs: which guarantees fit, and which script explains
them."""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

from falkirk.checker.align import align
from falkirk.checker.explain import PERMITTED, Failure, Move, Script, Search, SearchLimits, follows_exactly
from falkirk.checker.model import Model
from falkirk.checker.run import KeyRun
from falkirk.checker.run_index import RunIndex
from falkirk.checker.verdict import REACHABLE, Guarantee

S = TypeVar("S")


@dataclass(slots=True, kw_only=True)
class Diagnosis:
    """The diagnosis of one key. `script` is None if it is not known whether anything is wrong."""

    run: KeyRun
    fits: dict[Guarantee, bool | None]
    chosen: Guarantee
    script: Script | None
    expected_outputs: int


def diagnose(run: KeyRun, model: Model[S], nodes_max: int) -> Diagnosis | None:
    """Return None if the key's outputs are explained exactly, else the diagnosis.

    Args: nodes_max: bound on the nodes that each search may visit.
    """
    if not run.scattered and follows_exactly(run, model):
        return None
    alike = len({model.effect(row.row) for source in run.sources for row in source}) == 1
    run = _merged(run) if alike and len(run.sources) > 1 else run
    aligned = align(run, model)
    fits: dict[Guarantee, bool | None] = dict.fromkeys(REACHABLE, False)
    chosen, script = Guarantee.BROKEN, None
    for guarantee in _worth_a_search(run, model, alike=alike):
        found = _find(run, model, guarantee, aligned, nodes_max)
        fits[guarantee] = None if found is Failure.GAVE_UP else not isinstance(found, Failure)
        if not isinstance(found, Failure):
            if guarantee is Guarantee.EXACTLY_ONCE:
                return None
            if script is None:
                chosen, script = guarantee, found
    if fits[Guarantee.EXACTLY_ONCE] is None:
        # A guarantee weaker than one that may hold may hold too, and no anomaly is certain.
        fits = {guarantee: fits[guarantee] or None for guarantee in REACHABLE}
        chosen, script = Guarantee.UNDECIDED, None
    elif script is None:
        # Only the wording depends on this search now, so it may cost less.
        found = _find(run, model, Guarantee.BROKEN, aligned, nodes_max // 20)
        script = aligned if isinstance(found, Failure) else found
    return Diagnosis(run=run, fits=fits, chosen=chosen, script=script, expected_outputs=_expected_outputs(run, model))


def _find(run: KeyRun, model: Model[S], guarantee: Guarantee, aligned: Script, nodes_max: int) -> Script | Failure:
    """Return the cheapest script that `guarantee` permits: `aligned` if it is the cheapest, else the result of a
    search."""
    permitted = PERMITTED[guarantee]
    # No script costs less than the sum of missing and surplus outputs.
    cost = sum(step.move not in (Move.DELIVER, Move.SILENT) for step in aligned)
    cheapest = model.every_row_answers and cost == RunIndex(run, model).imbalance()
    if cheapest and permitted.issuperset(step.move for step in aligned):
        return aligned
    if guarantee is Guarantee.BROKEN and len(run.sources) > 1:
        # An output of a rolled-back state may fit. Then the outputs after it do not.
        found = Search(run, model, permitted, SearchLimits(nodes_max=nodes_max, thorough=True)).find()
        if not isinstance(found, Failure):
            return found
    return Search(run, model, permitted, SearchLimits(nodes_max=nodes_max)).find()


def _worth_a_search(run: KeyRun, model: Model[S], *, alike: bool) -> Iterator[Guarantee]:
    """Yield the guarantees that the numbers of rows and outputs do not refute, given that a straight pass has failed.

    Outputs of one key in several partitions have no order, so no guarantee about an order can hold for them.
    """
    if run.scattered:
        return
    rows, outputs = run.input_count, len(run.observed)
    if len(run.sources) > 1 and (outputs == rows or not model.every_row_answers):
        yield Guarantee.EXACTLY_ONCE
    if outputs > rows or not model.every_row_answers:
        yield Guarantee.REPEATED_DELIVERY
    # If all rows are equal, any part of them gives the same outputs, so the first rows decide.
    if outputs < rows and not (alike and model.every_row_answers and not follows_exactly(_first(run, outputs), model)):
        yield Guarantee.AT_MOST_ONCE
    if outputs > rows or not model.every_row_answers:
        yield Guarantee.AT_LEAST_ONCE


def _merged(run: KeyRun) -> KeyRun:
    """Return `run` with one source instead of several, for rows that are all equal: their order does not matter."""
    merged = sorted((row for source in run.sources for row in source), key=attrgetter("place"))
    return KeyRun(key=run.key, sources=[merged], observed=run.observed, contents=run.contents)


def _first(run: KeyRun, rows: int) -> KeyRun:
    """Return `run`, which has one source, with only its first rows."""
    return KeyRun(key=run.key, sources=[run.sources[0][:rows]], observed=run.observed, contents=run.contents)


def _expected_outputs(run: KeyRun, model: Model[S]) -> int:
    if model.every_row_answers:
        return run.input_count
    state, outputs = model.initial(), 0
    for source in run.sources:
        for row in source:
            state, expected = model.step(state, row.row)
            outputs += expected is not None
    return outputs
