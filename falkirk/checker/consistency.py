"""Consistency: decides whether each output is possible at its position in a run whose recoveries lose nothing.

After some outputs of its key, an output is consistent if a sequence of the key's inputs gives exactly those outputs and
then this one. The sequence applies each input at most once, and takes the inputs of each source partition from the
first one on. So a run that lost only its last outputs is consistent. An output that is a duplicate, counts an input
twice or contradicts an earlier output is not.

Source: Delivery, consistency, and determinism, §III-D, definitions 3 to 5.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from falkirk.checker.content import content, content_of
from falkirk.checker.model import Model
from falkirk.checker.run import InputRow, KeyRun, RowPlace, Values
from falkirk.checker.verdict import Anomaly, Kind

S = TypeVar("S")
#: How many possible outputs in place of the inconsistent one are collected.
DUE_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyConsistency:
    """Whether the outputs of a key are consistent (None: a search was given up), and the first inconsistent one."""

    holds: bool | None
    first: Anomaly | None = None


def check_consistency(run: KeyRun, model: Model[S], nodes_max: int) -> KeyConsistency:
    """Return whether each output of `run` is possible at its position.

    Args: nodes_max: bound on the visited points, in addition to a number in proportion to the run.
    """
    if run.scattered:
        first = next(output for output in run.observed if output.place[:2] != run.observed[0].place[:2])
        how = f"in another partition than {run.observed[0].place}, so the two have no order"
        return KeyConsistency(
            holds=False,
            first=Anomaly(
                kind=Kind.INCONSISTENT,
                key=run.key,
                outputs=(run.observed[0].place, first.place),
                found=first.values,
                explanation=f"the output at {first.place} is {how}",
            ),
        )
    explained, ends = _furthest(run, model, nodes_max)
    if explained == len(run.contents):
        return KeyConsistency(holds=True)
    if ends is None:
        return KeyConsistency(holds=None)
    return KeyConsistency(holds=False, first=_first(run, model, explained, ends))


@dataclass(frozen=True, slots=True)
class _Point:
    """The number of explained outputs, the number of consumed rows of each source, and the state after them."""

    explained: int
    positions: tuple[int, ...]
    state: object


def _furthest(run: KeyRun, model: Model[S], nodes_max: int) -> tuple[int, list[_Point] | None]:
    """Return how many outputs can be explained, counted from the first, and some points where the explanation ends.

    The points are None if the search was given up before all outputs were explained. The search is depth first, because
    the first source with a fitting row is nearly always the right one.
    """
    visits_left = nodes_max + 8 * (run.input_count + len(run.contents))
    start = _Point(0, (0,) * len(run.sources), model.initial())
    best, ends = 0, list[_Point]()
    stack, seen = [start], {_identity(start)}
    while stack:
        here = stack.pop()
        if here.explained > best:
            best, ends = here.explained, []
        if best == len(run.contents):
            return best, None
        if here.explained == best and len(ends) < DUE_MAX:
            ends.append(here)
        if visits_left < 0:
            return best, None
        for there in reversed(list(_after(run, model, here))):
            visits_left -= 1
            if len(run.sources) > 1:
                identity = _identity(there)
                if identity in seen:
                    continue
                seen.add(identity)
            stack.append(there)
    return best, ends


def _identity(point: _Point) -> Hashable:
    return point.explained, point.positions, content_of(point.state)


def _next_rows(run: KeyRun, positions: tuple[int, ...]) -> Iterator[tuple[int, InputRow]]:
    for source, position in enumerate(positions):
        if position < len(run.sources[source]):
            yield source, run.sources[source][position]


def _after(run: KeyRun, model: Model[S], point: _Point) -> Iterator[_Point]:
    """Yield the points after one more row, with no output or with the next one."""
    for source, row in _next_rows(run, point.positions):
        state, due = model.step(point.state, row.row)  # type: ignore[arg-type]
        if due is not None and content(due) != run.contents[point.explained]:
            continue
        positions = (*point.positions[:source], point.positions[source] + 1, *point.positions[source + 1 :])
        yield _Point(point.explained + (due is not None), positions, state)


def _first(run: KeyRun, model: Model[S], explained: int, ends: list[_Point]) -> Anomaly:
    """Return the anomaly of the first output that has no explanation, with the output that is possible in its place."""
    output = run.observed[explained]
    due: list[tuple[RowPlace, Values]] = []
    for end in ends:
        for _, row in _next_rows(run, end.positions):
            _, values = model.step(end.state, row.row)  # type: ignore[arg-type]
            if values is not None and len(due) < DUE_MAX:
                due.append((row.place, values))
    before = run.observed[explained - 1].place if explained else None
    after = f"after {before}, the last consistent one" if before is not None else "as the first of its key"
    instead = f"; expected was the output for the input at {due[0][0]}" if due else "; no input was left that gives one"
    return Anomaly(
        kind=Kind.INCONSISTENT,
        key=run.key,
        inputs=tuple(place for place, _ in due[:1]),
        outputs=(output.place,) if before is None else (before, output.place),
        expected=due[0][1] if due else None,
        found=output.values,
        explanation=f"the output at {output.place} is not possible {after}, in a run without failures{instead}",
    )
