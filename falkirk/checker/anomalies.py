"""Names the anomalies of a key: reads them from its script, each with the places that prove it."""

from collections.abc import Mapping
from itertools import islice
from typing import TypeVar

from falkirk.checker.content import content
from falkirk.checker.diagnose import Diagnosis
from falkirk.checker.explain import Move, Script, SearchStep
from falkirk.checker.model import Model
from falkirk.checker.run import InputRow, KeyRun, OutputRow, RowPlace
from falkirk.checker.verdict import Anomaly, Guarantee, Kind

S = TypeVar("S")


def anomalies_of(diagnosis: Diagnosis, model: Model[S]) -> list[Anomaly]:
    """Return the anomalies in the script of `diagnosis`, in its order."""
    run, script = diagnosis.run, diagnosis.script
    found: list[Anomaly] = []
    if run.scattered:
        found.append(_scattered(run))
    if script is None:
        return found if found or diagnosis.fits[Guarantee.EXACTLY_ONCE] is None else [_unnamed(run)]
    displaced = _displaced(run, script)
    due = _answering(script, model)
    last = max((index for index, step in enumerate(script) if step.move is Move.DELIVER), default=-1)
    delivered = {
        run.contents[step.observed] for step in script if step.move is Move.DELIVER and step.observed is not None
    }
    sequence = _first_break(run, script, displaced, delivered, model.ordered)
    if sequence is not None and not found:
        found.append(sequence)
    forgotten = _forgettable(run, script, model)
    first = {each: index for index, each in reversed(list(enumerate(run.contents)))}
    for index, step in enumerate(script):
        if index in displaced:
            continue
        if step.move in (Move.SKIP, Move.LOSE) and step.row is not None:
            if index in due:
                found.append(_lost(run, step, step.row, counted=step.move is Move.LOSE and index < last))
        elif step.observed is not None and step.move is not Move.DELIVER:
            output = run.observed[step.observed]
            earlier = first[run.contents[step.observed]]
            if step.move is Move.REAPPLY and step.row is not None:
                found.append(_reapplied(run, output, step.row))
            elif step.move is Move.STRAY and run.contents[step.observed] not in delivered:
                row = forgotten.get(index)
                due_there = _due(script, index)
                found.append(
                    _unexplained(run, output, due_there) if row is None else _forgotten(run, output, row, due_there)
                )
            else:
                other = earlier if earlier != step.observed else _next_same(run, step.observed)
                found.append(_duplicate(run, output, run.observed[other]))
    return found


def _answering(script: Script, model: Model[S]) -> set[int]:
    """Return the script indices of the rows that have an output if every row is applied once.

    A skipped row may have an expected output only because rows before it were skipped.
    """
    state, answering = model.initial(), set()
    for index, step in enumerate(script):
        if step.row is not None and step.move is not Move.REAPPLY:
            state, expected = model.step(state, step.row.row)
            if expected is not None:
                answering.add(index)
    return answering


def _forgettable(run: KeyRun, script: Script, model: Model[S]) -> Mapping[int, InputRow]:
    """Return the script indices of the strays that a row explains at that very point, each with the row.

    This kind of output contradicts only the later outputs: by the script, they come from a run without it. The likely
    cause: the state that gave it was rolled back, and the inputs were then taken in another order.
    """
    strays = [index for index, step in enumerate(script) if step.move is Move.STRAY]
    if not strays:
        return {}
    following = _next_rows(script, set(strays))
    state, found = model.initial(), dict[int, InputRow]()
    for index, step in enumerate(script):
        if step.move is Move.STRAY and step.observed is not None:
            for row in following[index]:
                due = model.step(state, row.row)[1]
                if due is not None and content(due) == run.contents[step.observed]:
                    found[index] = row
        elif step.row is not None and step.move is not Move.SKIP:
            state, _ = model.step(state, step.row.row)
    return found


def _next_rows(script: Script, indices: set[int]) -> Mapping[int, list[InputRow]]:
    """Return, for script indices, the next row of each source partition."""
    following: dict[tuple[str, int], InputRow] = {}
    found: dict[int, list[InputRow]] = {}
    for index in range(len(script) - 1, -1, -1):
        step = script[index]
        if index in indices:
            found[index] = list(following.values())
        elif step.row is not None and step.move is not Move.REAPPLY:
            following[step.row.place[:2]] = step.row
    return found


def places_without_output(run: KeyRun, script: Script) -> frozenset[RowPlace]:
    """Return the places of the rows whose output, by `script`, is missing, and not merely in the wrong position."""
    displaced = _displaced(run, script)
    return frozenset(
        step.row.place
        for index, step in enumerate(script)
        if step.row is not None
        and step.move in (Move.SKIP, Move.LOSE)
        and step.expected is not None
        and index not in displaced
    )


def _displaced(run: KeyRun, script: Script) -> Mapping[int, int]:
    """Return pairs of script indices, in both directions: an output without a row, and the row without an output that
    gives it."""
    waiting: dict[object, list[int]] = {}
    for index, step in enumerate(script):
        if step.move in (Move.SKIP, Move.LOSE) and step.expected is not None:
            waiting.setdefault(content(step.expected), []).append(index)
    pairs: dict[int, int] = {}
    for index, step in enumerate(script):
        if step.move in (Move.STRAY, Move.REDELIVER) and step.observed is not None:
            rows = waiting.get(run.contents[step.observed])
            if rows:
                row = rows.pop(0)
                pairs[index], pairs[row] = row, index
    return pairs


def _first_break(
    run: KeyRun, script: Script, displaced: Mapping[int, int], delivered: set[object], ordered: bool
) -> Anomaly | None:
    """Return the first place where the outputs of the key leave every possible sequence, or None."""
    lost: SearchStep | None = None
    for index, step in enumerate(script):
        if step.move is Move.LOSE and index not in displaced:
            lost = step
        elif step.observed is None:
            continue
        elif index in displaced:
            row = script[displaced[index]]
            return _break(run, step.observed, row, "is not at its position")
        elif step.move is Move.STRAY and run.contents[step.observed] in delivered:
            return _break(run, step.observed, _due(script, index), "is before its position")
        elif step.move is Move.DELIVER and lost is not None and ordered:
            return _break(run, step.observed, lost, "comes after a gap")
    return None


def _due(script: Script, index: int) -> SearchStep | None:
    """Return the step of the row whose output was expected, given that the output at `index` is a stray."""
    if index and script[index - 1].move in (Move.LOSE, Move.SKIP):
        return script[index - 1]
    return next((step for step in islice(script, index + 1, None) if step.row is not None), None)


def _break(run: KeyRun, observed: int, due: SearchStep | None, how: str) -> Anomaly:
    output = run.observed[observed]
    before = run.observed[observed - 1].place if observed else None
    after = f" after {before}" if before is not None else " as the first output"
    return Anomaly(
        kind=Kind.BROKEN_SEQUENCE,
        key=run.key,
        inputs=() if due is None or due.row is None else (due.row.place,),
        outputs=(output.place,) if before is None else (before, output.place),
        expected=None if due is None else due.expected,
        found=output.values,
        explanation=f"the output at {output.place} {how}: it was read{after}",
    )


def _scattered(run: KeyRun) -> Anomaly:
    firsts: dict[tuple[str, int], RowPlace] = {}
    for output in run.observed:
        firsts.setdefault((output.place.topic, output.place.partition), output.place)
    return Anomaly(
        kind=Kind.BROKEN_SEQUENCE,
        key=run.key,
        outputs=tuple(firsts.values()),
        explanation=f"outputs of one key are in {len(firsts)} partitions, so they have no order",
    )


def _lost(run: KeyRun, step: SearchStep, row: InputRow, *, counted: bool) -> Anomaly:
    state = "although later outputs count it" if counted else "and no later output counts it"
    return Anomaly(
        kind=Kind.LOST,
        key=run.key,
        inputs=(row.place,),
        expected=step.expected,
        explanation=f"the input at {row.place} has no output, {state}",
    )


def _reapplied(run: KeyRun, output: OutputRow, row: InputRow) -> Anomaly:
    return Anomaly(
        kind=Kind.REPEATED_INPUT,
        key=run.key,
        inputs=(row.place,),
        outputs=(output.place,),
        found=output.values,
        explanation=f"only a second application of the input at {row.place} explains the output at {output.place}",
    )


def _duplicate(run: KeyRun, output: OutputRow, other: OutputRow) -> Anomaly:
    first, again = sorted((output.place, other.place))
    return Anomaly(
        kind=Kind.DUPLICATE,
        key=run.key,
        outputs=(first, again),
        found=output.values,
        explanation=f"the output at {first} is repeated at {again}",
    )


def _unexplained(run: KeyRun, output: OutputRow, due: SearchStep | None) -> Anomaly:
    return Anomaly(
        kind=Kind.UNEXPLAINED,
        key=run.key,
        inputs=() if due is None or due.row is None else (due.row.place,),
        outputs=(output.place,),
        expected=None if due is None else due.expected,
        found=output.values,
        explanation=f"no input explains the output at {output.place}",
    )


def _forgotten(run: KeyRun, output: OutputRow, row: InputRow, due: SearchStep | None) -> Anomaly:
    return Anomaly(
        kind=Kind.FORGOTTEN,
        key=run.key,
        inputs=(row.place,),
        outputs=(output.place,),
        expected=None if due is None else due.expected,
        found=output.values,
        explanation=f"the input at {row.place} explains the output at {output.place}, but the later outputs "
        "are those of a run without it, as if its state had been rolled back",
    )


def _unnamed(run: KeyRun) -> Anomaly:
    """Return the anomaly of a key with too many faults for the search to separate."""
    return Anomaly(
        kind=Kind.UNEXPLAINED,
        key=run.key,
        outputs=tuple(output.place for output in run.observed[:1]),
        explanation=f"no order of the {run.input_count} inputs explains the {len(run.observed)} outputs; "
        "there are too many faults to name each",
    )


def _next_same(run: KeyRun, observed: int) -> int:
    return run.contents.index(run.contents[observed], observed + 1)
