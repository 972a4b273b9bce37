"""Align one key's outputs with the sequence that its inputs give: an explanation for runs too broken to search.

It takes every row for applied and keeps the longest part of the outputs that is in order, in n log n. A search
might have found a shorter way to say what is wrong. Only for one source partition: with several there is no one
sequence to compare with.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Hashable
from typing import TypeVar

from falkirk.check.content import content
from falkirk.check.explain import Move, Script, Step
from falkirk.check.model import Model
from falkirk.check.run import KeyRun

S = TypeVar("S")


def align(run: KeyRun, model: Model[S]) -> Script:
    """Return a script for `run`, which has at most one source, in which every row is applied."""
    rows: list[Step] = []
    due: dict[Hashable, deque[int]] = {}
    state = model.initial()
    for row in run.sources[0] if run.sources else []:
        state, expected = model.step(state, row.row)
        if expected is not None:
            due.setdefault(content(expected), deque()).append(len(rows))
        rows.append(Step(Move.SILENT if expected is None else Move.LOSE, row, None, expected))
    matched: list[tuple[int, int]] = []
    for observed, each in enumerate(run.contents):
        if due.get(each):
            matched.append((observed, due[each].popleft()))
    places = {observed for observed, _ in matched}
    delivered = _longest_in_order(matched)
    script: list[Step] = []
    next_row = 0
    for observed, each in enumerate(run.contents):
        if observed in delivered:
            script.extend(rows[next_row : delivered[observed]])
            row_step = rows[delivered[observed]]
            script.append(Step(Move.DELIVER, row_step.row, observed, row_step.expected))
            next_row = delivered[observed] + 1
        else:
            # What came before is a repetition; anything else is out of its place, or a stray.
            again = each in due and observed not in places
            script.append(Step(Move.REDELIVER if again else Move.STRAY, observed=observed))
    script.extend(rows[next_row:])
    return tuple(script)


def _longest_in_order(matched: list[tuple[int, int]]) -> dict[int, int]:
    """Return the longest sub-sequence of (output, row) pairs whose rows increase, as row by output."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int | None] = []
    for index, (_, row) in enumerate(matched):
        length = bisect_left(tails, row)
        before.append(ends[length - 1] if length else None)
        tails[length : length + 1] = [row]
        ends[length : length + 1] = [index]
    chosen: dict[int, int] = {}
    index_or_none = ends[-1] if ends else None
    while index_or_none is not None:
        observed, row = matched[index_or_none]
        chosen[observed] = row
        index_or_none = before[index_or_none]
    return chosen
