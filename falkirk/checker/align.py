"""Aligns one key's outputs with its inputs in one pass. This finds a good explanation quickly; a search may find a
better one.

Each output takes the next row that can give it. The rows before it that no later output needs count as lost. Rows of
other sources count as lost too, but only if nothing else makes the content right. The pass never goes back.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from falkirk.checker.content import content, content_of
from falkirk.checker.explain import Move, Script, SearchStep
from falkirk.checker.model import Model
from falkirk.checker.run import KeyRun
from falkirk.checker.run_index import RunIndex

S = TypeVar("S")


def align(run: KeyRun, model: Model[S]) -> Script:
    """Return a script for `run`. It may use any move except REAPPLY."""
    end = _Walk(run, model, RunIndex(run, model), (0,) * len(run.sources), model.initial())
    script: list[SearchStep] = []
    seen: set[Hashable] = set()
    for observed, each in enumerate(run.contents):
        steps = end.reach(observed)
        script.extend(steps or [SearchStep(Move.REDELIVER if each in seen else Move.STRAY, observed=observed)])
        seen.add(each)
    for source in range(len(run.sources)):
        while end.has_next(source):
            script.append(end.leave(source))
    return tuple(script)


class _Walk(Generic[S]):
    """A point in the pass: the number of consumed rows of each source, and the state after them."""

    def __init__(self, run: KeyRun, model: Model[S], echoes: RunIndex, positions: tuple[int, ...], state: S) -> None:
        self._run = run
        self._model = model
        self._echoes = echoes
        self._positions = positions
        self._state = state

    def reach(self, observed: int) -> list[SearchStep] | None:
        """Continue until the output `observed` is delivered. Return the steps, or None (and do not move) if no row
        gives it."""
        for source in range(len(self._positions)):
            trial = _Walk(self._run, self._model, self._echoes, self._positions, self._state)
            steps = trial._reach_from(source, observed)
            if steps is not None:
                self._positions, self._state = trial._positions, trial._state
                return steps
        return None

    def _reach_from(self, source: int, observed: int) -> list[SearchStep] | None:
        steps: list[SearchStep] = []
        while True:
            target = self._echoes.next_position(source, observed, self._positions)
            if target is None:
                return None
            while self._positions[source] < target:
                steps.append(self.leave(source))
            row = self._run.sources[source][target]
            state, expected = self._model.step(self._state, row.row)
            if expected is not None and content(expected) == self._run.contents[observed]:
                self._advance(source, state)
                return [*steps, SearchStep(Move.DELIVER, row, observed, expected)]
            # The row itself is the last choice.
            others = [other for other in range(len(self._positions)) if other != source]
            spare = next((each for each in (*others, source) if self._is_spare(each, observed)), None)
            if spare is None:
                return None
            steps.append(self.leave(spare))

    def has_next(self, source: int) -> bool:
        return self._positions[source] < len(self._run.sources[source])

    def leave(self, source: int) -> SearchStep:
        """Consume the next row of `source` without an output."""
        row = self._run.sources[source][self._positions[source]]
        state, expected = self._model.step(self._state, row.row)
        changed = content_of(state) != content_of(self._state)
        self._advance(source, state)
        move = Move.SILENT if expected is None else Move.LOSE if changed else Move.SKIP
        return SearchStep(move, row, None, expected)

    def _is_spare(self, source: int, observed: int) -> bool:
        return self.has_next(source) and self._echoes.spare(source, observed, self._positions)

    def _advance(self, source: int, state: S) -> None:
        before = self._positions
        self._positions = (*before[:source], before[source] + 1, *before[source + 1 :])
        self._state = state
