"""A session that runs failed tasks again. It changes the whole JVM: tests of it are in `lanes.OWN_JVM`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession


def scheduler_of(spark: SparkSession, which: str) -> Any:
    """Return a scheduler of Spark's: `taskScheduler` or `dagScheduler`."""
    return getattr(spark.sparkContext._jsc.sc(), which)()


@contextmanager
def tasks_run_again(spark: SparkSession) -> Iterator[None]:
    """Have Spark run a failed task again until the end of the block, as a user's session may do."""
    scheduler = scheduler_of(spark, "taskScheduler")
    attempts = scheduler.getClass().getDeclaredField("maxTaskFailures")
    attempts.setAccessible(True)
    attempts.set(scheduler, 2)
    try:
        yield
    finally:
        attempts.set(scheduler, 1)
