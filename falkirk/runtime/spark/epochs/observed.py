"""Observed: reads the counts that Spark makes while it runs a job."""

import time
from typing import Any

from pyspark.sql import Column, Observation
from pyspark.sql import functions as F

#: Spark publishes an observation shortly after the end of its job, within this time.
OBSERVED_S = 5.0


def job() -> Column:
    """Return a column `job` to observe, by which two observations can be compared: do they come from the same job?

    Spark evaluates the current time once per job, to the microsecond. An observation keeps the values of the first job
    that runs it, which may be a job of the user's own inside a batch function.
    """
    return F.current_timestamp().alias("job")


def observed(observation: Observation) -> dict[str, Any] | None:
    """Return the observation of a finished job, or None if Spark does not publish it.

    The first job with the observation counts, even if that job failed. If a shuffle of the job has given no rows, Spark
    leaves out the rest of the plan, and the observation with it. Then it publishes an empty one.
    """
    future = observation._jo.future()  # type: ignore[union-attr]  # it was used
    deadline = time.monotonic() + OBSERVED_S
    while not future.isCompleted():
        if time.monotonic() > deadline:
            return None
        time.sleep(0.005)
    jvm_observation: Any = observation._jo
    return observation.get if jvm_observation.getRow().length() else None
