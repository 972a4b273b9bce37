"""Flow: works off an epoch of a graph: which times there is something to do at, one after the other.

An epoch makes a new state of the one before and leaves that as it was: one that fails, or is not wanted, has never
been.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from falkirk.differential.graph import Graph, Joined, Left, Reduced, Result, Scope, Variable
from falkirk.differential.jobs import Jobs, Waiting
from falkirk.differential.routes import Routes
from falkirk.differential.rows import Time
from falkirk.differential.state import State

_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"
#: An operator is run even where the optimizer sees that nothing arrives, or that nobody reads what it emits: something
#: may wait for it, and it remembers.
_PRUNING = {f"{_OPTIMIZER}.{rule}" for rule in ("ConvertToLocalRelation", "PropagateEmptyRelation", "PruneFilters")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How a loop has ended in an epoch. Args: count: of its rounds, in all. converged: nothing was left to change."""

    count: int
    converged: bool


@dataclass(frozen=True, kw_only=True)
class Advanced:
    """What an epoch has come to.

    Args: changes: of the result, rows with their difference. rounds: of each loop that had anything to do, in the order
        of the graph. jobs: of Spark.
    """

    changes: DataFrame
    state: State
    rounds: tuple[Rounds, ...]
    jobs: int


class Flow:
    """A graph on Spark.

    Args: session: for this alone: adaptive execution, which looks twice at what is known before, and some rules of its
        optimizer are switched off. folder: where its files are. partitions: how many; a state is one's for good.
    """

    def __init__(self, graph: Graph, session: SparkSession, folder: Path, partitions: int) -> None:
        self._graph, self._session, self._folder, self._partitions = graph, session, folder, partitions
        self._routes = Routes(graph=graph)
        session.conf.set("spark.sql.adaptive.enabled", "false")
        rules = {r for r in (session.conf.get("spark.sql.optimizer.excludedRules", "") or "").split(",") if r}
        session.conf.set("spark.sql.optimizer.excludedRules", ",".join(sorted(rules | _PRUNING)))

    def advance(self, state: State, inputs: Mapping[str, DataFrame], name: str) -> Advanced:
        """Work off what has changed.

        Args: inputs: by the source's name, its rows with their difference. name: of the epoch's folder: a new one.
        """
        jobs = Jobs(self._session, self._routes, state, inputs, self._folder, name, self._partitions)
        return _Epoch(self._graph, jobs, self._routes, state.cut_short).work()

    def whole(self, state: State) -> DataFrame:
        """Return all rows of the result, with how often each is there."""
        jobs = Jobs(self._session, self._routes, state, {}, self._folder, "whole", self._partitions)
        return jobs.reading(self._graph.result, (), jobs.traces.get(_all_of(self._graph.result), ()))


class _Epoch:
    """One epoch that is worked off."""

    def __init__(self, graph: Graph, jobs: Jobs, routes: Routes, cut_short: frozenset[str]) -> None:
        self._graph, self._jobs, self._routes = graph, jobs, routes
        self._holders = {holder.name: holder for holder in graph.holders()}
        self._rounds: dict[str, Rounds] = {}
        self._cut_short = set(cut_short)

    def work(self) -> Advanced:
        """Work it off."""
        jobs, result = self._jobs, self._graph.result
        self._run(result.scope, ())
        jobs.flush()
        files = jobs.pending.pop((result.name, "parked0", ()), ())
        whole = _all_of(result)
        jobs.traces[whole] = (*jobs.traces.get(whole, ()), *files)
        jobs.tidy()
        assert not jobs.pending, "all that waits is worked off, dropped, or left for the next epoch"
        return Advanced(
            changes=jobs.reading(result, (), files),
            state=State(traces=jobs.traces, left=jobs.left, cut_short=frozenset(self._cut_short)),
            rounds=tuple(self._rounds[name] for name in self._holders if name in self._rounds), jobs=jobs.count,
        )  # fmt: skip

    def _run(self, scope: Scope, now: Time) -> None:
        """Work off one time of a scope; what is in the job that is open is still to be run."""
        for holder in self._graph.holders():
            if holder.scope is not scope:
                continue
            if isinstance(holder, Left):
                self._loop(holder, now)
            elif isinstance(holder, Variable):
                self._jobs.begin(holder, now)
            elif isinstance(holder, Joined | Reduced):
                self._jobs.operate(holder, now)
            elif isinstance(holder, Result):
                self._jobs.conclude(holder, now)
        for left in self._graph.holders():
            if isinstance(left, Left) and left.loop is scope and not isinstance(left.of, Joined | Reduced):
                self._jobs.store(left.of, now, self._routes.hands[id(left.of)])
        self._jobs.read = {key: files for key, files in self._jobs.read.items() if key[1] != now}
        for key in self._waiting(scope):
            if key[2] == now and key[0] != self._graph.result.name:  # nobody has read it
                del self._jobs.pending[key]

    def _loop(self, left: Left, now: Time) -> None:
        """Work off the rounds of a loop at one time of the scope around it."""
        jobs, loop, count, converged = self._jobs, left.loop, 1, True
        before = jobs.count
        self._run(loop, (*now, 0))
        jobs.flush()
        if not loop.restarts:
            jobs.entered.add(loop)
        while (then := self._next(loop, now)) is not None:
            if (then[-1] if loop.restarts else count) >= loop.rounds:
                converged = False
                self._drop(loop, then)
                if loop.restarts:
                    self._cut_short.add(left.name)
                break
            self._run(loop, then)
            jobs.flush()
            count += 1
        jobs.entered.discard(loop)
        if jobs.count > before:
            so_far = self._rounds.get(left.name, Rounds(count=0, converged=True))
            converged = converged and so_far.converged and left.name not in self._cut_short
            self._rounds[left.name] = Rounds(count=so_far.count + count, converged=converged)

    def _next(self, loop: Scope, now: Time) -> Time | None:
        """Return the first time of a loop, of those that begin with this one, that something waits for."""
        waiting = (time for _, _, time in self._waiting(loop))
        return min((time[: loop.depth] for time in waiting if time[: len(now)] == now), default=None)

    def _drop(self, loop: Scope, bound: Time) -> None:
        """Drop what waits for a round of a loop, or for a later one; of a loop that goes on where it was, leave it for
        the next epoch."""
        for key in self._waiting(loop):
            *around, last = key[2][: loop.depth]
            if tuple(around) == bound[:-1] and last >= bound[-1]:
                files = self._jobs.pending.pop(key)
                if not loop.restarts:
                    self._jobs.left[key] = files

    def _waiting(self, scope: Scope) -> list[Waiting]:
        """Return what waits in a scope, or in a loop in it."""
        names = ((key, key[0].removeprefix("kept-")) for key in self._jobs.pending)
        return [key for key, name in names if self._holders[name].scope.is_within(scope)]


def _all_of(result: Result) -> tuple[str, str]:
    return result.name, "all"
