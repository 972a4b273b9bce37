"""Flow: works off an epoch of a graph on Spark.

An epoch makes a new state of the one before and leaves that as it was: one that fails, or is not wanted, has never
been.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from falkirk.differential.alone import ALONE_MAX
from falkirk.differential.graph import Graph, Result
from falkirk.differential.jobs import Jobs
from falkirk.differential.routes import Routes
from falkirk.differential.state import State
from falkirk.differential.turns import Rounds, Turns

_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"
#: An operator is run even where the optimizer sees that nothing arrives, or that nobody reads what it emits: something
#: may wait for it, and it remembers.
_PRUNING = {f"{_OPTIMIZER}.{rule}" for rule in ("ConvertToLocalRelation", "PropagateEmptyRelation", "PruneFilters")}


@dataclass(frozen=True, kw_only=True)
class Advanced:
    """What an epoch has come to.

    Args: changes: of the result, rows with their difference. rounds: of each loop that had anything to do, or that was
        cut short before and is so still, in the order of the graph. jobs: of Spark.
    """

    changes: DataFrame
    state: State
    rounds: tuple[Rounds, ...]
    jobs: int


class Flow:
    """A graph on Spark.

    Args: session: for this alone: adaptive execution, which looks twice at what is known before, and some rules of its
        optimizer are switched off. folder: where its files are. partitions: how many; a state is one's for good.
        alone: while no more rows than this wait for a round, it is one task's.
    """

    def __init__(
        self, graph: Graph, session: SparkSession, folder: Path, partitions: int, alone: int = ALONE_MAX
    ) -> None:  # fmt: skip
        self._graph, self._session, self._folder, self._partitions = graph, session, folder, partitions
        self._routes, self._alone = Routes(graph=graph), alone
        session.conf.set("spark.sql.adaptive.enabled", "false")
        rules = {r for r in (session.conf.get("spark.sql.optimizer.excludedRules", "") or "").split(",") if r}
        session.conf.set("spark.sql.optimizer.excludedRules", ",".join(sorted(rules | _PRUNING)))

    def advance(self, state: State, inputs: Mapping[str, DataFrame], name: str) -> Advanced:
        """Work off what has changed.

        Args: inputs: by the source's name, its rows with their difference. name: of the epoch's folder: a new one.
        """
        graph, result = self._graph, self._graph.result
        jobs = self._jobs(state, inputs, name)
        turns = Turns(graph, jobs, self._routes, state.cut_short)
        if not jobs.go_alone(turns):
            turns.run(result.scope, ())
        jobs.flush()
        files = jobs.pending.pop((result.name, "parked0", ()), ())
        whole = _all_of(result)
        jobs.traces[whole] = (*jobs.traces.get(whole, ()), *files)
        jobs.compact()
        assert not jobs.pending, "all that waits is worked off, dropped, or left for the next epoch"
        return Advanced(
            changes=jobs.reading(result, (), files),
            state=State(traces=jobs.traces, left=jobs.left, cut_short=turns.cut_short),
            rounds=tuple(turns.ended().values()), jobs=jobs.count,
        )  # fmt: skip

    def whole(self, state: State) -> DataFrame:
        """Return all rows of the result, with how often each is there."""
        files = state.traces.get(_all_of(self._graph.result), ())
        return self._jobs(state, {}, "whole").reading(self._graph.result, (), files)

    def _jobs(self, state: State, inputs: Mapping[str, DataFrame], name: str) -> Jobs:
        return Jobs(
            self._session, self._graph, self._routes, state, inputs, self._folder, name, self._partitions, self._alone
        )


def _all_of(result: Result) -> tuple[str, str]:
    return result.name, "all"
