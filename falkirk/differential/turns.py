"""Turns: which times of a graph there is something to do at, one after the other; not how it is done.

The same turns are taken by Spark jobs (`jobs.py`) and, while little goes round, by one task alone (`alone.py`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from falkirk.differential.graph import Graph, Joined, Left, Node, Reduced, Result, Scope, Variable
from falkirk.differential.residue import added_up
from falkirk.differential.routes import Routes
from falkirk.differential.rows import Time
from falkirk.differential.schemas import port_names
from falkirk.differential.task import Hand

Waiting = tuple[str, str, Time]
"""What waits for a time: whose it is, what, and the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How a loop has ended in an epoch. Args: count: of its rounds, in all. converged: nothing was left to change."""

    count: int
    converged: bool


class Works(Protocol):
    """Whatever does what there is to do at a time.

    Attributes: pending: what waits. left: of it, what the next epoch begins with. read: what was taken from there to be
        read, until its time has been worked off. entered: loops that go on where they were, whose time stands still
        while they go round. count: how often anything was done.
    """

    pending: dict[Waiting, tuple[Any, ...]]
    left: dict[Waiting, tuple[Any, ...]]
    read: dict[tuple[str, Time], Any]
    entered: set[Scope]
    count: int

    def operate(self, holder: Joined | Reduced, now: Time) -> None:
        """Do what an operator does at a time, if there may be anything for it."""

    def conclude(self, result: Result, now: Time) -> None:
        """Have what is new of the result stored, equal rows together."""

    def store(self, node: Node, now: Time, hands: list[Hand], sign: int = 1) -> None:
        """Have what is new of a node handed on."""

    def flush(self) -> None:
        """End a round: what was made in it is no longer there, but for what was handed on or is kept."""

    def residue(self, rows: Any) -> int:
        """Return the residue of what has waited for a round that there is not."""

    def go_round(self, turns: "Turns", left: Left, now: Time, count: int) -> int:
        """Do further rounds of a loop in a way of its own, if there is one; return how many. Args: count: so far."""


class Turns:
    """The turns of one epoch.

    Attributes: rounds: of each loop that had anything to do. cut_short: as of `State`.
    """

    def __init__(self, graph: Graph, works: Works, routes: Routes, cut_short: Mapping[Waiting, int]) -> None:
        self.graph, self._works, self._routes = graph, works, routes
        self._holders = {holder.name: holder for holder in graph.holders()}
        self.rounds: dict[str, Rounds] = {}
        self.cut_short = dict(cut_short)

    def run(self, scope: Scope, now: Time) -> None:
        """Work off one time of a scope; what was begun last is still to be flushed."""
        for holder in self.graph.holders():
            if holder.scope is not scope:
                continue
            if isinstance(holder, Left):
                self._loop(holder, now)
            elif isinstance(holder, Variable):
                self._begin(holder, now)
            elif isinstance(holder, Joined | Reduced):
                self._works.operate(holder, now)
            elif isinstance(holder, Result):
                self._works.conclude(holder, now)
        for left in self.graph.holders():
            if isinstance(left, Left) and left.loop is scope and not isinstance(left.of, Joined | Reduced):
                self._works.store(left.of, now, self._routes.hands[id(left.of)])
        self._works.read = {key: rows for key, rows in self._works.read.items() if key[1] != now}
        for key in self.waiting(scope):
            if key[2] == now and key[0] != self.graph.result.name:  # nobody has read it
                del self._works.pending[key]

    def _begin(self, variable: Variable, now: Time) -> None:
        """Of what a loop starts with, see that it is taken back in the next round."""
        if variable.start is not None and now[-1] == 0:
            names, limit = port_names(variable, 0), variable.scope.rounds
            hand = Hand(holder=variable.name, port=0, names=names, move="next", rounds=limit)
            self._works.store(variable.start, now, [hand], sign=-1)

    def _loop(self, left: Left, now: Time) -> None:
        """Work off the rounds of a loop at one time of the scope around it."""
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
            # What was left out at one time may have been taken back at another.
            converged = not self._is_cut_short(loop) if loop.restarts else converged and so_far.converged
            self.rounds[left.name] = Rounds(count=so_far.count + count, converged=converged)

    def rest(self, left: Left, now: Time, count: int, goes_on: Callable[[], bool]) -> int:
        """Do rounds of a loop that has begun, while there are any and it `goes_on`; return how many. Args: count: of
        those that were done before."""
        done = 0
        while (then := self._next(left.loop, now)) is not None and goes_on():
            if self._is_last(left.loop, then, count + done):
                break
            self.run(left.loop, then)
            self._works.flush()
            done += 1
        return done

    def ended(self) -> dict[str, Rounds]:
        """Return how loops have ended: those that had anything to do, and those that had not and are still cut short,
        in the order of the graph."""
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
    def _is_last(loop: Scope, then: Time, count: int) -> bool:
        """Whether a loop has no round left for what waits. Args: count: of those done."""
        return (then[-1] if loop.restarts else count) >= loop.rounds

    def _next(self, loop: Scope, now: Time) -> Time | None:
        """Return the first time of a loop, of those that begin with this one, that something waits for."""
        waiting = (time for _, _, time in self.waiting(loop))
        return min((time[: loop.depth] for time in waiting if time[: len(now)] == now), default=None)

    def _drop(self, loop: Scope, bound: Time) -> None:
        """Drop what waits for a round of a loop, or for a later one, and note its residue; of a loop that goes on where
        it was, leave it for the next epoch."""
        for key in self.waiting(loop):
            *around, last = key[2][: loop.depth]
            if tuple(around) == bound[:-1] and last >= bound[-1]:
                rows = self._works.pending.pop(key)
                if loop.restarts:
                    left_out = added_up([self.cut_short.pop(key, 0), *map(self._works.residue, rows)])
                    if left_out:
                        self.cut_short[key] = left_out
                else:
                    self._works.left[key] = (*self._works.left.get(key, ()), *rows)  # around it, a loop goes on

    def waiting(self, scope: Scope) -> list[Waiting]:
        """Return what waits in a scope, or in a loop in it."""
        names = ((key, key[0].removeprefix("kept-")) for key in self._works.pending)
        return [key for key, name in names if self._holders[name].scope.is_within(scope)]
