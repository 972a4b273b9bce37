"""Results: computes the results of an epoch into a folder of its log or straight into its topic."""

import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from falkirk.declare.cut import SLICE
from falkirk.plan.batch import Batch
from falkirk.runtime.epochs.computed import Computed
from falkirk.runtime.epochs.inputs import ROW, Bad, dead_letters, read_folders
from falkirk.runtime.epochs.log import EpochLog
from falkirk.runtime.epochs.observed import job, observed

#: Operators that read all of their input. An operator that is not listed may stop early: a limit, a join with nothing
#: on its other side, a Python function that takes an iterator.
_READING_ALL = frozenset({
    "Aggregate", "CollectMetrics", "Deduplicate", "Distinct", "Expand", "Filter", "Generate", "LocalRelation",
    "LogicalRDD", "Project", "Range", "Relation", "RelationV2", "Repartition", "RepartitionByExpression",
    "ResolvedHint", "Sort", "SubqueryAlias", "Union", "View", "Window",
})  # fmt: skip
#: The name of an operator in each line of a plan, and the subqueries, which become joins.
_OPERATOR, _SUBQUERY = re.compile(r"^[ :|+-]*(\w+)", re.MULTILINE), re.compile(r"\b(exists|list|subquery)#")
#: The bits of a dead letter's place below the number of its origin.
_PLACES = 55


class Results:
    """Writes the results of one batch. Both methods return the number of rows and the number of dead letters."""

    def __init__(self, session: SparkSession, batch: Batch, epochs: EpochLog) -> None:
        self._session, self._batch, self._epochs = session, batch, epochs

    def write(self, name: str, computed: Computed) -> tuple[int, int]:
        """Write the results of an epoch into a folder."""
        folder, counted = self._epochs.path(name), Observation()
        placed = computed.result.withColumn(ROW, F.monotonically_increasing_id())
        writer = placed.observe(counted, F.count("*").alias("rows"), job()).write
        (writer.partitionBy(SLICE) if self._batch.sorts is not None else writer).parquet(str(folder))
        rows = observed(counted)
        dead = self._write_dead(name, self._refused(computed, rows))
        if rows is None:
            return read_folders(self._session, [folder], self._batch.schema).count(), dead
        return int(rows["rows"]), dead

    def send(
        self, name: str, computed: Computed, deliver: Callable[[DataFrame], DataFrame | None]
    ) -> tuple[int, int]:  # fmt: skip
        """Deliver the results of an epoch. Results that can't be delivered go into a folder as dead letters.

        Args: deliver: returns the results that are too large.
        """
        counted = Observation()
        too_large = deliver(computed.result.observe(counted, F.count("*").alias("rows"), job()))
        rows = observed(counted)
        refused = self._refused(computed, rows)
        dead = self._write_dead(name, refused if too_large is None else [*refused, too_large.drop(ROW)])
        return computed.result.count() if rows is None else int(rows["rows"]), dead

    def _refused(self, computed: Computed, written: dict[str, Any] | None) -> list[DataFrame]:
        """Return the dead letters of an epoch. Args: written: the observation of the job that wrote its results."""
        unfit = [dead_letters(self._batch.name, bad) for bad in computed.bad if _count(bad, computed, written) != 0]
        return [*unfit, *computed.letters]

    def _write_dead(self, name: str, refused: list[DataFrame]) -> int:
        dead = 0
        for i, letters in enumerate(refused):
            target = str(self._epochs.dead(name, i))
            place = F.monotonically_increasing_id() + F.lit(i << _PLACES)  # unique over all dead letters of the epoch
            letters.withColumn(ROW, place).write.parquet(target)
            dead += self._session.read.parquet(target).count()
        return dead


def _count(bad: Bad, computed: Computed, written: dict[str, Any] | None) -> int | None:
    """Return how many records did not fit; None: no job has counted all of them.

    The count comes from the first job that read the records. This may be a job of the user's function that stopped
    early.
    """
    if not any(_reads(plan, bad) for plan in (computed.plan, *computed.ran)):
        return None
    found = observed(bad.counted)
    if found is None:
        return None
    if found["read"] == bad.length:
        return int(found["bad"])
    with_results = written is not None and found["job"] == written["job"] and _reads_all(computed.plan)
    return int(found["bad"]) if with_results else None


def _reads(plan: str, bad: Bad) -> bool:
    return f"CollectMetrics {_name(bad.counted)}," in plan


def _reads_all(plan: str) -> bool:
    return _SUBQUERY.search(plan) is None and _READING_ALL.issuperset(_OPERATOR.findall(plan))


def _name(observation: Observation) -> str:
    return str(observation._jo.name())  # type: ignore[union-attr]  # it was used
