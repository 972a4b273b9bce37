"""Final values: judges outputs that keep only the last row of each key, as in a table that is updated in place.

The row of a key must equal the key's last expected output. If the inputs of a key are in several sources, the row may
be the one that some order gives. A table does not show enough to decide more than one further question: whether a row
is what the *first* inputs of its key give, so that the later ones are missing.
"""

from typing import TypeVar

from falkirk.checker.atomic import Choices
from falkirk.checker.consistency import KeyConsistency
from falkirk.checker.content import content
from falkirk.checker.model import AggregateModel, DistinctModel, Model, StatelessModel
from falkirk.checker.notes import Note, key_order
from falkirk.checker.run import InputRow, KeyRun, OutputRow, RowPlace, Values
from falkirk.checker.verdict import REACHABLE, Anomaly, Guarantee, Kind

S = TypeVar("S")
#: Models whose last output depends only on which row was the last, and on no other order.
_KNOWN = (AggregateModel, DistinctModel, StatelessModel)


def judge_final(run: KeyRun, model: Model[S]) -> tuple[int, Note | None]:
    """Return how many rows the table should have for the key, and a note unless it has exactly these."""
    orders = _orders(run)
    due = [_last(rows, model) for rows in orders]
    expected = due[0] if due else None
    acceptable = {content(values) for values in due if values is not None}
    right = [index for index, each in enumerate(run.contents) if each in acceptable]
    if len(run.observed) == (expected is not None) == len(right):
        return len(right), None
    anomalies: list[Anomaly] = []
    fits: dict[Guarantee, bool | None] = dict.fromkeys(REACHABLE, False)
    consistent: bool | None = True
    if right:
        kept = run.observed[right[0]]
        anomalies = [_too_many(run, kept, other, acceptable) for other in run.observed if other is not kept]
        fits[Guarantee.REPEATED_DELIVERY] = len(right) == len(run.observed)
        consistent = False
    elif not run.observed:
        anomalies = [_missing(run, run.input_count, orders[0][0].place, expected, "the table has no row for this key")]
        fits[Guarantee.AT_MOST_ONCE] = True
    else:
        behind = _behind(run, orders, model) if len(run.observed) == 1 else None
        if behind is not None:
            anomalies = [behind]
            fits[Guarantee.AT_MOST_ONCE] = True
        else:
            anomalies = [_wrong(run, output, expected) for output in run.observed]
            decided = len(orders) < 2 or isinstance(model, _KNOWN)
            fits[Guarantee.EXACTLY_ONCE] = None if len(run.observed) == 1 and not decided else False
            consistent = False if decided else None
    first = next((each for each in anomalies if each.outputs), None) if consistent is False else None
    return int(expected is not None), Note(
        key=run.key,
        order=key_order(run),
        fits=fits,
        standing=Choices.FIXED,
        lost=frozenset(),
        kinds={kind: sum(each.kind is kind for each in anomalies) for kind in {each.kind for each in anomalies}},
        anomalies=tuple(anomalies),
        consistency=KeyConsistency(holds=consistent, first=first),
        rows=run.input_count,
    )


def _orders(run: KeyRun) -> list[list[InputRow]]:
    """Return orders of the inputs: for each source, one order that ends with the rows of this source."""
    return [
        [row for other in (*run.sources[:last], *run.sources[last + 1 :], run.sources[last]) for row in other]
        for last in range(len(run.sources))
    ]


def _last(rows: list[InputRow], model: Model[S]) -> Values | None:
    state, last = model.initial(), None
    for row in rows:
        state, output = model.step(state, row.row)
        last = last if output is None else output
    return last


def _behind(run: KeyRun, orders: list[list[InputRow]], model: Model[S]) -> Anomaly | None:
    """Return the anomaly of a row that equals the result of the first inputs of some order, or None."""
    for rows in orders:
        state = model.initial()
        for number, row in enumerate(rows[:-1], 1):
            state, output = model.step(state, row.row)
            if output is not None and content(output) == run.contents[0]:
                expected = _last(rows, model)
                how = f"the row at {run.observed[0].place} has the state after the input at {row.place}"
                return _missing(run, len(rows) - number, rows[number].place, expected, how, run.observed[0])
    return None


def _missing(
    run: KeyRun, count: int, first: RowPlace, expected: Values | None, how: str, found: OutputRow | None = None
) -> Anomaly:
    return Anomaly(
        kind=Kind.LOST,
        key=run.key,
        inputs=(first,),
        outputs=() if found is None else (found.place,),
        expected=expected,
        found=None if found is None else found.values,
        explanation=f"{how}: {count} inputs are missing, from {first} on",
    )


def _wrong(run: KeyRun, output: OutputRow, expected: Values | None) -> Anomaly:
    last = run.sources[-1][-1].place if run.sources else None
    return Anomaly(
        kind=Kind.UNEXPLAINED,
        key=run.key,
        inputs=() if last is None else (last,),
        outputs=(output.place,),
        expected=expected,
        found=output.values,
        explanation=f"no order of the inputs ends with the row at {output.place}"
        if last is not None
        else f"no input explains the row at {output.place}",
    )


def _too_many(run: KeyRun, kept: OutputRow, other: OutputRow, acceptable: set[object]) -> Anomaly:
    if content(other.values) not in acceptable:
        return _wrong(run, other, kept.values)
    return Anomaly(
        kind=Kind.DUPLICATE,
        key=run.key,
        outputs=(kept.place, other.place),
        found=other.values,
        explanation=f"the table has a row of this key at {kept.place}, and another at {other.place}",
    )
