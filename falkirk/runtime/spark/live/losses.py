"""Losses: a live region stops writing once Spark has lost an executor.

Spark runs the tasks of a lost executor again. A second attempt that meets a record refuses it (attempts.py). But a
batch of Real-time Mode ends at a time that is fixed when it begins. A second attempt that begins after that time reads
nothing, so it succeeds, and the batch is committed as if the first attempt had sent nothing. The next batch would
send the same results again, in first attempts, within milliseconds.

So no batch that begins after a loss may write. The driver plans each batch separately, and evaluates constants then.
One constant in a live region's plan is the number of executors that Spark has lost. It is a call on the scheduler's
record of them, which the driver updates before it runs any task again. If that number has grown since the query began,
every record of the batch fails its task, and the region restarts with a new barrier.
"""

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from falkirk.spark_setup.spark import MissingSetting, unsuitable_session
from falkirk.theory.ids import BatchId, Positions

#: The error text of a batch that begins after a loss.
LOST = "an executor was lost, so a batch may have been committed without the results that it had sent"
#: The field of Spark's DAGScheduler with the executors that it has lost, by identity. Identities are never reused.
_RECORD = "executorFailureEpoch"


def refuse_repeats(session: SparkSession) -> None:
    """Ensure that Spark does not retry a failed task. No loss would reveal a second attempt that begins too late.

    Raises: SparkError: `SESSION_SETTINGS_MISSING`.
    """
    attempts = str(session.sparkContext._jsc.sc().taskScheduler().maxTaskFailures())
    if attempts != "1":
        name = "spark.task.maxFailures"
        reason = "a second attempt of a task may begin too late to notice the results of the first"
        missing = MissingSetting(name=name, wanted="1", found=attempts, reason=reason)
        raise unsuitable_session(
            (missing,), f"Start the application with {name}=1, on one machine with a master local[n]."
        )


class Losses:
    """Tracks the executors that Spark has lost since this was made. Make it before the query that it watches starts."""

    def __init__(self, session: SparkSession) -> None:
        self._jvm: Any = session._jvm
        scheduler = session.sparkContext._jsc.sc().dagScheduler()
        record = scheduler.getClass().getDeclaredField(_RECORD)
        record.setAccessible(True)
        self._lost = record.get(scheduler)
        self._before: int = self._lost.size()

    def any(self) -> bool:
        """Return whether an executor was lost."""
        return bool(self._lost.size() > self._before)

    def none_yet(self, value: Column) -> Column:
        """Return `value` in a batch that began before any loss. In later batches, fail the task at its first record."""
        expressions, types = self._jvm.org.apache.spark.sql.catalyst.expressions, self._jvm.org.apache.spark.sql.types
        lost = expressions.Literal(self._lost, types.ObjectType(self._lost.getClass()))
        nothing = self._jvm.PythonUtils.toSeq([])
        # Deterministic, so that it is evaluated in the driver, when a batch is planned.
        count = expressions.objects.Invoke(
            lost, "size", types.DataTypes.IntegerType, nothing, nothing, True, True, True
        )
        now = ClassicColumn(self._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(count))
        return F.when(now > self._before, F.raise_error(F.lit(LOST))).otherwise(value)


class Observations:
    """Positions in the outputs. Each waits until a restore can certainly use it: see theory/positions.py.

    Args: was_lost: returns whether Spark has lost an executor.
    """

    def __init__(self, was_lost: Callable[[], bool]) -> None:
        self.was_lost = was_lost
        self._pending: tuple[BatchId, Positions] | None = None

    def proven(self, last_commit: BatchId, ends: Positions) -> tuple[BatchId, Positions] | None:
        """Add an observation; return an earlier one that can be recorded now, with the first commit that can use it.

        Args: last_commit: the last commit, read after the ends.
        """
        if self.was_lost():  # asked after the reads, so that commits from before any loss stay valid
            self._pending = None
            return None
        before = self._pending
        self._pending = BatchId(last_commit + 1), ends
        return before if before is not None and last_commit >= before[0] else None
