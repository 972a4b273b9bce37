"""Flow: computes an epoch of a graph on Spark.

An epoch makes a new state from the former one and does not change that. So an epoch that fails or is cancelled has no
effect.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from falkirk.steps.differential.files import FlowFiles
from falkirk.steps.differential.graph import LoopGraph, Result
from falkirk.steps.differential.jobs import Jobs
from falkirk.steps.differential.routes import Routes
from falkirk.steps.differential.schedule import Rounds, Schedule
from falkirk.steps.differential.single_task import ALONE_MAX
from falkirk.steps.differential.state import LoopState

_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"
#: Falkirk must run an operator even if the optimizer sees that its input is empty or that nobody reads its output:
#: rows may wait for the operator, and it has a memory. So these optimizer rules are switched off.
_PRUNING = {f"{_OPTIMIZER}.{rule}" for rule in ("ConvertToLocalRelation", "PropagateEmptyRelation", "PruneFilters")}


@dataclass(frozen=True, kw_only=True)
class Advanced:
    """The result of an epoch.

    Args: changes: the changes of the result, as rows with their difference. rounds: of each loop that had work, or that
        was cut short earlier and still is, in the order of the graph. jobs: the number of Spark jobs.
    """

    changes: DataFrame
    state: LoopState
    rounds: tuple[Rounds, ...]
    jobs: int


class Flow:
    """A graph on Spark.

    Args: session: used only by this flow, which switches off adaptive execution and some rules of the optimizer
        (adaptive execution would examine known sizes a second time). files: its own. partitions: their number; it can't
        change for an existing state. alone: one task computes a round if at most this many rows wait.
    """

    def __init__(
        self, graph: LoopGraph, session: SparkSession, files: FlowFiles, partitions: int, alone: int = ALONE_MAX
    ) -> None:  # fmt: skip
        self._graph, self._session, self._files, self._partitions = graph, session, files, partitions
        self._routes, self._alone = Routes(graph=graph), alone
        session.conf.set("spark.sql.adaptive.enabled", "false")
        rules = {r for r in (session.conf.get("spark.sql.optimizer.excludedRules", "") or "").split(",") if r}
        session.conf.set("spark.sql.optimizer.excludedRules", ",".join(sorted(rules | _PRUNING)))

    def advance(self, state: LoopState, inputs: Mapping[str, DataFrame], name: str) -> Advanced:
        """Compute one epoch.

        Args: inputs: by the source's name, its changed rows with their difference. name: a new folder for the
            epoch.
        """
        graph, result = self._graph, self._graph.result
        self._files.begin(name)
        jobs = self._jobs(state, inputs, name)
        turns = Schedule(graph, jobs, self._routes, state.cut_short)
        if not jobs.go_alone(turns):
            turns.run(result.scope, ())
        jobs.flush()
        files = jobs.pending.pop((result.name, "deferred0", ()), ())
        whole = _all_of(result)
        jobs.traces[whole] = (*jobs.traces.get(whole, ()), *files)
        jobs.compact()
        assert not jobs.pending, "all waiting rows are processed, dropped, or left for the next epoch"
        return Advanced(
            changes=jobs.reading(result, files, ()),
            state=LoopState(traces=jobs.traces, left=jobs.left, cut_short=turns.cut_short),
            rounds=tuple(turns.ended().values()), jobs=jobs.count,
        )  # fmt: skip

    def whole(self, state: LoopState) -> DataFrame:
        """Return all rows of the result, with their counts."""
        files = state.traces.get(_all_of(self._graph.result), ())
        return self._jobs(state, {}, "whole").reading(self._graph.result, files, ())

    def _jobs(self, state: LoopState, inputs: Mapping[str, DataFrame], name: str) -> Jobs:
        return Jobs(
            self._session, self._graph, self._routes, state, inputs, self._files, name, self._partitions, self._alone
        )


def _all_of(result: Result) -> tuple[str, str]:
    return result.name, "all"
