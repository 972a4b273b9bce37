"""Attempts: a task that writes to Kafka refuses to run a second time.

Spark repeats a task whose executor was lost, drained or preempted, and does not count that as a failure, whatever
`spark.task.maxFailures` says. The second attempt begins where the first began, and would send its records again: the
barrier is a constant of the plan and holds what was released before the query was started. So the task asks Spark
which attempt it is, for each record before it is sent, and fails on any but the first. Spark then ends the query, and
the next incarnation begins behind a new barrier. A second attempt that meets no record does harm as well: losses.py.

SQL has no function for the number of an attempt. The expression calls Spark's `TaskContext` in the task's own JVM.
"""

from functools import lru_cache

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

#: What a second attempt fails with, before the numbers of its attempts.
SECOND_ATTEMPT = "a second attempt of this task must not write"
_TASK = "org.apache.spark.TaskContext"


def first_attempt_only(value: Column) -> Column:
    """Return `value`, in a task that Spark runs for the first time; fail any other task when it meets a record.

    A stage that Spark runs again counts as well: its tasks begin anew with attempt 0.
    """
    context = SparkContext._active_spark_context
    assert context is not None, "columns are made in a session"
    return _refusal(context).otherwise(value)


@lru_cache(maxsize=1)
def _refusal(context: SparkContext) -> Column:
    """Return a CASE without its ELSE. Made once for each session: each column costs calls to the JVM."""
    task, stage = _number(context, "attemptNumber"), _number(context, "stageAttemptNumber")
    numbers = F.lit(": task attempt "), task.cast("string"), F.lit(", stage attempt "), stage.cast("string")
    message = F.concat(F.lit(SECOND_ATTEMPT), *numbers)
    return F.when(task + stage > 0, F.raise_error(message))


def _number(context: SparkContext, method: str) -> Column:
    """Return what a method of the running task's context returns; 0 outside of a task."""
    jvm = context._jvm
    assert jvm is not None
    objects, types = jvm.org.apache.spark.sql.catalyst.expressions.objects, jvm.org.apache.spark.sql.types
    task, nothing = jvm.java.lang.Class.forName(_TASK), jvm.PythonUtils.toSeq([])
    # Not deterministic: the optimizer would compute it once, in the driver.
    current = objects.StaticInvoke(
        task, types.ObjectType(task), "get", nothing, nothing, True, True, False, jvm.scala.Option.empty()
    )
    number = objects.Invoke(current, method, types.DataTypes.IntegerType, nothing, nothing, True, True, False)
    return F.coalesce(ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(number)), F.lit(0))
