"""Losses: a live region stops writing once Spark has lost an executor.

Spark runs the tasks of a lost executor again. A second attempt that meets a record refuses it (attempts.py). But a
batch of Real-time Mode ends at a time that is fixed when it begins. A second attempt that begins after that time reads
nothing, so it succeeds, and the batch is committed as if the first attempt had sent nothing. The next batch would
send all of it again, in first attempts, within milliseconds.

So no batch that begins after a loss may write. The driver plans each batch anew, and evaluates constants as it does.
One of the constants in a live region's plan is the number of executors that Spark has lost: a call on the scheduler's
own record of them, which the driver enters there before it runs anything again. Where that number has grown since the
query began, every record of the batch fails its task, and the region is restarted behind a new barrier.
"""

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from falkirk.local.spark import MissingSetting, unsuitable
from falkirk.store import Positions

#: What a batch fails with that begins after a loss.
LOST = "an executor was lost, so a batch may have been committed without what it had sent"
#: Of Spark's DAGScheduler: the executors that it has lost, by identity. Identities do not come again.
_RECORD = "executorFailureEpoch"


def refuse_repeats(session: SparkSession) -> None:
    """See that a task that has failed is not run again: no loss would tell of a second attempt that comes too late.

    Raises: SparkError: `SESSION_SETTINGS_MISSING`.
    """
    attempts = str(session.sparkContext._jsc.sc().taskScheduler().maxTaskFailures())
    if attempts != "1":
        name = "spark.task.maxFailures"
        reason = "a second attempt of a task may come too late to know what the first has sent"
        missing = MissingSetting(name=name, wanted="1", found=attempts, reason=reason)
        raise unsuitable((missing,), f"Start the application with {name}=1, on one machine with a master local[n].")


class Losses:
    """Which executors Spark has lost since this was made. Made before the query that it watches is started."""

    def __init__(self, session: SparkSession) -> None:
        self._jvm: Any = session._jvm
        scheduler = session.sparkContext._jsc.sc().dagScheduler()
        record = scheduler.getClass().getDeclaredField(_RECORD)
        record.setAccessible(True)
        self._lost = record.get(scheduler)
        self._before: int = self._lost.size()

    def any(self) -> bool:
        """Tell whether an executor was lost."""
        return bool(self._lost.size() > self._before)

    def none_yet(self, value: Column) -> Column:
        """Return `value` in a batch that began before any loss; in others fail the task when it meets a record."""
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
    """Positions in the outputs, each held back until it is known to serve: see theory/positions.py.

    Args: was_lost: tells whether Spark has lost an executor.
    """

    def __init__(self, was_lost: Callable[[], bool]) -> None:
        self._was_lost = was_lost
        self._pending: tuple[int, Positions] | None = None

    def proven(self, last_commit: int, ends: Positions) -> tuple[int, Positions] | None:
        """Take an observation; return an earlier one that can be recorded now, with the commit that it serves.

        Args: last_commit: seen after the ends were read.
        """
        if self._was_lost():  # asked last: what was committed before any loss keeps its end
            self._pending = None
            return None
        before = self._pending
        self._pending = last_commit + 1, ends
        return before if before is not None and last_commit >= before[0] else None
