"""Attempts: makes a task that writes to Kafka fail if Spark runs it a second time.

Spark repeats a task whose executor was lost, drained or preempted. It does not count such a loss as a failure, so
`spark.task.maxFailures` does not prevent the repetition. The second attempt starts at the same input and would send the
task's records again. The barrier can't drop them: it is a constant of the plan, with only the results published before
the query started. So before each record, the task asks Spark for its attempt number, and fails unless it is the first.
Spark then ends the query, and the next incarnation starts with a new barrier. A second attempt that meets no record
does harm as well: see losses.py.

SQL has no function for the attempt number. The expression calls Spark's `TaskContext` in the task's own JVM.
"""

from functools import lru_cache

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

#: The error text of a second attempt. The attempt numbers follow it.
SECOND_ATTEMPT = "a second attempt of this task must not write"
_TASK = "org.apache.spark.TaskContext"


def first_attempt_only(value: Column) -> Column:
    """Return `value` in the first attempt of a task; fail any other attempt at its first record.

    A stage that Spark runs again fails too, although its tasks start again with attempt 0.
    """
    context = SparkContext._active_spark_context
    assert context is not None, "columns need an active session"
    return _refusal(context).otherwise(value)


@lru_cache(maxsize=1)
def _refusal(context: SparkContext) -> Column:
    """Return a CASE without its ELSE. It is built once per session, because each column costs calls to the JVM."""
    task, stage = _number(context, "attemptNumber"), _number(context, "stageAttemptNumber")
    numbers = F.lit(": task attempt "), task.cast("string"), F.lit(", stage attempt "), stage.cast("string")
    message = F.concat(F.lit(SECOND_ATTEMPT), *numbers)
    return F.when(task + stage > 0, F.raise_error(message))


def _number(context: SparkContext, method: str) -> Column:
    """Return the result of a method of the running task's context; 0 outside of a task."""
    jvm = context._jvm
    assert jvm is not None
    objects, types = jvm.org.apache.spark.sql.catalyst.expressions.objects, jvm.org.apache.spark.sql.types
    task, nothing = jvm.java.lang.Class.forName(_TASK), jvm.PythonUtils.toSeq([])
    # Marked as non-deterministic. Otherwise the optimizer would compute it once, in the driver.
    current = objects.StaticInvoke(
        task, types.ObjectType(task), "get", nothing, nothing, True, True, False, jvm.scala.Option.empty()
    )
    number = objects.Invoke(current, method, types.DataTypes.IntegerType, nothing, nothing, True, True, False)
    return F.coalesce(ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(number)), F.lit(0))
