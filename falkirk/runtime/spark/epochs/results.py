"""Results: computes the results of an epoch into a folder of its log or straight into its topic."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from falkirk.declare.cut import SLICE
from falkirk.plan.batch import Batch
from falkirk.runtime.spark.epochs.computed import Computed
from falkirk.runtime.spark.epochs.inputs import PLACE_BITS, ROW, Bad, dead_letters
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.epochs.observed import Observed, job
from falkirk.steps.dataframes.names import STAMP

#: Operators that read all of their input. An operator that is not listed may stop early: a limit, a join with nothing
#: on its other side, a Python function that takes an iterator.
_READING_ALL = frozenset({
    "Aggregate", "CollectMetrics", "Deduplicate", "Distinct", "Expand", "Filter", "Generate", "LocalRelation",
    "LogicalRDD", "Project", "Range", "Relation", "RelationV2", "Repartition", "RepartitionByExpression",
    "ResolvedHint", "Sort", "SubqueryAlias", "Union", "View", "Window",
})  # fmt: skip
#: The name of an operator in each line of a plan, and the subqueries, which become joins.
_OPERATOR, _SUBQUERY = re.compile(r"^[ :|+-]*(\w+)", re.MULTILINE), re.compile(r"\b(exists|list|subquery)#")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The results that were written for an epoch.

    Args: rows: the number of results. dead: the number of dead letters. newest: for a batch that sorts by time, the
        greatest time in the results of each source partition, in microseconds; None: unknown.
    """

    rows: int
    dead: int
    newest: dict[str, int] | None = None


class Results:
    """Writes the results of one batch."""

    def __init__(self, batch: Batch, epochs: EpochLog) -> None:
        self._batch, self._epochs = batch, epochs
        #: Columns that all epochs use: the place of a row, and the counts to observe.
        self._place, self._counts = F.monotonically_increasing_id(), (F.count("*").alias("rows"), job())

    def write(self, name: str, computed: Computed, partitions: Iterable[int] = ()) -> Written:
        """Write the results of an epoch into a folder. Args: partitions: those of the topics that the epoch reads."""
        folder, times = self._epochs.path(name), self._newest(partitions)
        placed = computed.result.withColumn(ROW, self._place)
        counted = Observed(placed, [*self._counts, *times.values()])
        writer = counted.data.write
        folder.write(writer.partitionBy(SLICE) if self._batch.sorts is not None else writer)
        seen = counted.values()
        newest = None if seen is None else {p: int(seen[p]) for p in times if seen[p] is not None}
        dead = self._write_dead(name, self._refused(computed, seen))
        return Written(rows=folder.count_rows() if seen is None else int(seen["rows"]), dead=dead, newest=newest)

    def _newest(self, partitions: Iterable[int]) -> dict[str, Column]:
        """Return the columns to observe for `Written.newest`, by their names."""
        if self._batch.sorts is None:
            return {}
        time, of = F.unix_micros(f"`{self._batch.sorts.column}`"), F.col(f"{STAMP}.partition")
        return {str(p): F.max(F.when(of == p, time)).alias(str(p)) for p in sorted(partitions)}

    def send(self, name: str, computed: Computed, deliver: Callable[[DataFrame], DataFrame | None]) -> Written:
        """Deliver the results of an epoch. Results that can't be delivered go into a folder as dead letters.

        Args: deliver: returns the results that are too large.
        """
        counted = Observed(computed.result, self._counts)
        too_large = deliver(counted.data)
        rows = counted.values()
        refused = self._refused(computed, rows)
        dead = self._write_dead(name, refused if too_large is None else [*refused, too_large.drop(ROW)])
        return Written(rows=computed.result.count() if rows is None else int(rows["rows"]), dead=dead)

    def _refused(self, computed: Computed, written: dict[str, Any] | None) -> list[DataFrame]:
        """Return the dead letters of an epoch. Args: written: the observation of the job that wrote its results."""
        unfit = [dead_letters(self._batch.name, bad) for bad in computed.bad if _count(bad, computed, written) != 0]
        return [*unfit, *computed.letters]

    def _write_dead(self, name: str, refused: list[DataFrame]) -> int:
        dead = 0
        for i, letters in enumerate(refused):
            target = self._epochs.dead(name, i)
            # unique over all dead letters of the epoch
            place = F.monotonically_increasing_id() + F.lit(i << PLACE_BITS)
            target.write(letters.withColumn(ROW, place).write)
            dead += target.count_rows()
        return dead


def _count(bad: Bad, computed: Computed, written: dict[str, Any] | None) -> int | None:
    """Return how many records did not fit; None: no job has counted all of them.

    The count comes from the first job that read the records. This may be a job of the user's function that stopped
    early.
    """
    if not any(_reads(plan, bad) for plan in (computed.plan, *computed.ran)):
        return None
    found = bad.counted.values()
    if found is None:
        return None
    if found["read"] == bad.length:
        return int(found["bad"])
    with_results = written is not None and found["job"] == written["job"] and _reads_all(computed.plan)
    return int(found["bad"]) if with_results else None


def _reads(plan: str, bad: Bad) -> bool:
    return f"CollectMetrics {bad.counted.name}," in plan


def _reads_all(plan: str) -> bool:
    return _SUBQUERY.search(plan) is None and _READING_ALL.issuperset(_OPERATOR.findall(plan))
