"""Schedule: decides at which times of a graph there is work, and in which order, but not how the work is done.

Spark jobs (`jobs.py`) take the same turns as one task alone (`in_memory.py`), which works while few rows wait.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from falkirk.steps.differential.graph import Joined, Left, LoopGraph, LoopNode, LoopVariable, Reduced, Result, Scope
from falkirk.steps.differential.residue import added_up
from falkirk.steps.differential.routes import Routes
from falkirk.steps.differential.rows import LoopTime
from falkirk.steps.differential.schemas import port_names
from falkirk.steps.differential.task import LaterReader

WaitingKey = tuple[str, str, LoopTime]
"""The key of waiting rows: their holder, their kind, and their time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How a loop ended in an epoch. Args: count: the number of its rounds. converged: no changes were left."""

    count: int
    converged: bool


class Works(Protocol):
    """Does the work at a time.

    Attributes: pending: rows that wait. left: those of them with which the next epoch begins. read: rows that were
        taken from `pending` to be read, until their time is complete. entered: loops that began with the result of the
        former epoch; the time around them does not advance while they run. count: the number of steps with work.
    """

    pending: dict[WaitingKey, tuple[Any, ...]]
    left: dict[WaitingKey, tuple[Any, ...]]
    read: dict[tuple[str, LoopTime], Any]
    entered: set[Scope]
    count: int

    def operate(self, holder: Joined | Reduced, now: LoopTime) -> None:
        """Run an operator at a time, if rows may wait for it."""

    def conclude(self, result: Result, now: LoopTime) -> None:
        """Store the changes of the result, equal rows together."""

    def store(self, node: LoopNode, now: LoopTime, readers: list[LaterReader], sign: int = 1) -> None:
        """Store the changes of a node for its readers."""

    def flush(self) -> None:
        """End a round. Of its results only the stored ones remain."""

    def residue(self, rows: Any) -> int:
        """Return the residue of rows for which a loop has no round left."""

    def go_round(self, turns: "Schedule", left: Left, now: LoopTime, count: int) -> int:
        """Run further rounds of a loop in a faster way, if there is one. Return their number. Args: count: so far."""


class Schedule:
    """The turns of one epoch.

    Attributes: rounds: of each loop that had work. cut_short: as in `State`.
    """

    def __init__(self, graph: LoopGraph, works: Works, routes: Routes, cut_short: Mapping[WaitingKey, int]) -> None:
        self.graph, self._works, self._routes = graph, works, routes
        self._holders = {holder.name: holder for holder in graph.holders()}
        self.rounds: dict[str, Rounds] = {}
        self.cut_short = dict(cut_short)

    def run(self, scope: Scope, now: LoopTime) -> None:
        """Process one time of a scope. The caller must flush the last step."""
        for holder in self.graph.holders():
            if holder.scope is not scope:
                continue
            if isinstance(holder, Left):
                self._loop(holder, now)
            elif isinstance(holder, LoopVariable):
                self._begin(holder, now)
            elif isinstance(holder, Joined | Reduced):
                self._works.operate(holder, now)
            elif isinstance(holder, Result):
                self._works.conclude(holder, now)
        for left in self.graph.holders():
            if isinstance(left, Left) and left.loop is scope and not isinstance(left.of, Joined | Reduced):
                self._works.store(left.of, now, self._routes.readers[id(left.of)])
        self._works.read = {key: rows for key, rows in self._works.read.items() if key[1] != now}
        for key in self.waiting(scope):
            if key[2] == now and key[0] != self.graph.result.name:  # nobody has read it
                del self._works.pending[key]

    def _begin(self, variable: LoopVariable, now: LoopTime) -> None:
        """Store the negated start of a loop for the next round: only the first round contains the start."""
        if variable.start is not None and now[-1] == 0:
            names, limit = port_names(variable, 0), variable.scope.rounds
            reader = LaterReader(holder=variable.name, port=0, names=names, move="next", rounds=limit)
            self._works.store(variable.start, now, [reader], sign=-1)

    def _loop(self, left: Left, now: LoopTime) -> None:
        """Process the rounds of a loop at one time of the scope around it."""
        works, loop, count, converged = self._works, left.loop, 1, True
        before = works.count
        self.run(loop, (*now, 0))
        works.flush()
        if not loop.restarts:
            works.entered.add(loop)
        while (then := self._next(loop, now)) is not None:
            if self._is_last(loop, then, count):
                converged = False
                self._drop(loop, then)
                break
            done = works.go_round(self, left, now, count)
            if not done:
                self.run(loop, then)
                works.flush()
            count += done or 1
        works.entered.discard(loop)
        if works.count > before:
            so_far = self.rounds.get(left.name, Rounds(count=0, converged=True))
            # Changes that were left out at one time may have cancelled at another.
            converged = not self._is_cut_short(loop) if loop.restarts else converged and so_far.converged
            self.rounds[left.name] = Rounds(count=so_far.count + count, converged=converged)

    def rest(self, left: Left, now: LoopTime, count: int, goes_on: Callable[[], bool]) -> int:
        """Run further rounds of a loop that has begun, while rows wait and it `goes_on`. Return their number. Args:
        count: the number of rounds done before."""
        done = 0
        while (then := self._next(left.loop, now)) is not None and goes_on():
            if self._is_last(left.loop, then, count + done):
                break
            self.run(left.loop, then)
            self._works.flush()
            done += 1
        return done

    def ended(self) -> dict[str, Rounds]:
        """Return how loops ended, in the order of the graph: those that had work, and those that had none but are still
        cut short."""
        found = {}
        for holder in self.graph.holders():
            if isinstance(holder, Left):
                if holder.name in self.rounds:
                    found[holder.name] = self.rounds[holder.name]
                elif self._is_cut_short(holder.loop):
                    found[holder.name] = Rounds(count=0, converged=False)
        return found

    def _is_cut_short(self, loop: Scope) -> bool:
        return any(self._holders[name].scope is loop for name, *_ in self.cut_short)

    @staticmethod
    def _is_last(loop: Scope, then: LoopTime, count: int) -> bool:
        """Whether a loop has no round left for waiting rows. Args: count: the number of rounds done."""
        return (then[-1] if loop.restarts else count) >= loop.rounds

    def _next(self, loop: Scope, now: LoopTime) -> LoopTime | None:
        """Return the first time of a loop for which rows wait. Args: now: the beginning of the time."""
        waiting = (time for _, _, time in self.waiting(loop))
        return min((time[: loop.depth] for time in waiting if time[: len(now)] == now), default=None)

    def _drop(self, loop: Scope, bound: LoopTime) -> None:
        """Drop rows that wait for a round of a loop, or for a later one, and record their residue. A `fixpoint` drops
        nothing: its rows are left for the next epoch."""
        for key in self.waiting(loop):
            *around, last = key[2][: loop.depth]
            if tuple(around) == bound[:-1] and last >= bound[-1]:
                rows = self._works.pending.pop(key)
                if loop.restarts:
                    left_out = added_up([self.cut_short.pop(key, 0), *map(self._works.residue, rows)])
                    if left_out:
                        self.cut_short[key] = left_out
                else:
                    self._works.left[key] = (*self._works.left.get(key, ()), *rows)  # a loop around it may add more

    def waiting(self, scope: Scope) -> list[WaitingKey]:
        """Return the keys of rows that wait in a scope, or in a loop inside it."""
        names = ((key, key[0].removeprefix("kept-")) for key in self._works.pending)
        return [key for key, name in names if self._holders[name].scope.is_within(scope)]
