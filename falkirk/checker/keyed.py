"""Judges a run: divides inputs and outputs by key, diagnoses each key, and sums up.

Rows are streamed into parts (`falkirk.checker.divide`), which are judged one after the other. So a run may be larger
than memory. The time is linear in its length.
"""

import gc
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from falkirk.checker.content import content
from falkirk.checker.divide import RunPart, divide
from falkirk.checker.final import judge_final
from falkirk.checker.model import Model, StatelessModel
from falkirk.checker.notes import Bounds, Note, RuleBreaks, Totals, judge_sequence, take_notes
from falkirk.checker.rules import Rule
from falkirk.checker.run import InputRow, OutputRow, group_by_key
from falkirk.checker.spanning import check_spanning
from falkirk.checker.spill import Space, SpilledRows, SpillFiles
from falkirk.checker.tally import Tally, final_notes, rule_verdicts
from falkirk.checker.verdict import Anomaly, Kind, RuleVerdict, Undecided, Verdict

S = TypeVar("S")
Named = TypeVar("Named", Anomaly, Undecided)


def check_keyed(
    inputs: Iterable[InputRow],
    outputs: Iterable[OutputRow],
    model: Model[S],
    *,
    rules: Sequence[Rule] = (),
    final: bool = False,
    anomalies_shown: int = 20,
    nodes_max: int = 100_000,
    space: Space | None = None,
) -> Verdict:
    """Judge the outputs of a keyed step by its input rows.

    Args:
        inputs: every row that should reach the step after the declared stateless part; in any order. Read once.
        outputs: all rows on the output topic; in any order, since each knows its place. Read once.
        model: the keyed step.
        rules: further conditions on each key's outputs.
        final: whether the outputs keep only the last row of each key (see `falkirk.checker.final`). Then the checker
            does not examine whether an input is processed with all its derivatives.
        anomalies_shown: the maximum number of anomalies in the verdict, and of undecided keys. All are counted.
        nodes_max: bound on each search for an order of the inputs. A key that reaches it is undecided and does not
            pass.
        space: how much memory to use, and the folder for temporary files.
    Raises: DefinitionError: two inputs of one key have the same place.
    """
    space = space or Space()
    bounds = Bounds(anomalies_shown=anomalies_shown, nodes_max=nodes_max)
    totals, tally = Totals(), Tally(bounds=bounds)
    breaks = RuleBreaks(rules=rules, shown=anomalies_shown)
    judge = partial(judge_final, model=model) if final else partial(judge_sequence, model=model, bounds=bounds)
    with SpillFiles(space) as piles:
        parts: list[RunPart] = divide(inputs, outputs, piles, space)
        notes: list[SpilledRows[Note]] = piles.several(len(parts))
        lost = False
        with _no_collector():
            for part, noted in zip(parts, notes, strict=True):
                for note in take_notes(part, judge, totals, breaks):
                    noted.add(note)
                    lost = lost or bool(note.lost)
            spanning = check_spanning(parts, notes, model, bounds, piles, space) if lost else None
            for note in final_notes(notes, spanning):
                tally.add(note)
        return tally.verdict(totals, spanning, breaks)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Pause garbage collection: rows, notes and scripts have no cycles, and examining millions costs time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def check_stateless(
    inputs: Iterable[InputRow],
    outputs: Iterable[OutputRow],
    *,
    anomalies_shown: int = 20,
    nodes_max: int = 100_000,
    space: Space | None = None,
) -> Verdict:
    """Judge the outputs of a stateless step. `inputs` are the expected output rows, each at the place that caused it.

    Rows with a key must be in the order of each source partition. Rows whose key is None may be in any order, since a
    log has no order among its partitions. Arguments and errors as in `check_keyed`.
    """
    verdict = check_keyed(
        (_keyed_by_content(row) for row in inputs),
        (_observed_by_content(output) for output in outputs),
        StatelessModel(),
        anomalies_shown=anomalies_shown,
        nodes_max=nodes_max,
        space=space,
    )
    first = verdict.consistency.first
    return replace(
        verdict,
        anomalies=tuple(map(_of_rows, verdict.anomalies)),
        undecided=tuple(map(_without_content, verdict.undecided)),
        consistency=replace(verdict.consistency, first=None if first is None else _without_content(first)),
    )


def check_rules(
    outputs: Iterable[OutputRow], rules: Sequence[Rule], *, anomalies_shown: int = 20, space: Space | None = None
) -> tuple[RuleVerdict, ...]:
    """Judge outputs only by rules, without any inputs. Arguments as in `check_keyed`."""
    space = space or Space()
    breaks = RuleBreaks(rules=rules, shown=anomalies_shown)
    with SpillFiles(space) as piles:
        for part in divide((), outputs, piles, space):
            for run in group_by_key((), part.outputs()):
                breaks.add(run)
    return rule_verdicts(breaks)


@dataclass(frozen=True, slots=True)
class _ByContent:
    """The group of all rows without a key that have the same content: within it every order is the same."""

    content: Hashable


def _of_rows(each: Anomaly) -> Anomaly:
    """Return an anomaly of rows that no later ones count, and that may share their input with others."""
    if each.kind is Kind.LOST:
        each = replace(each, explanation=f"a result of the input at {each.inputs[0]} is missing")
    return _without_content(each)


def _without_content(each: Named) -> Named:
    return replace(each, key=None) if isinstance(each.key, _ByContent) else each


def _keyed_by_content(row: InputRow) -> InputRow:
    return row if row.key is not None else replace(row, key=_ByContent(content(row.row)))


def _observed_by_content(output: OutputRow) -> OutputRow:
    return output if output.key is not None else replace(output, key=_ByContent(content(output.values)))
