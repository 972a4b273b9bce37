"""Observed: what Spark has counted in passing, while a job ran."""

import time
from typing import Any

from pyspark.sql import Column, Observation
from pyspark.sql import functions as F

#: Spark tells what it has observed a moment after the job has ended.
OBSERVED_S = 5.0


def job() -> Column:
    """Return a column `job` to observe, by which two observations can be compared: do they come from the same job?

    Spark evaluates the current time once per job, to the microsecond. An observation keeps the values of the first job
    that runs it, which may be a job of the user's own inside a batch function.
    """
    return F.current_timestamp().alias("job")


def observed(observation: Observation) -> dict[str, Any] | None:
    """Return what was observed in a job that has ended, or None when Spark does not tell.

    The first job counts in which it was observed, also if that one failed.
    """
    future = observation._jo.future()  # type: ignore[union-attr]  # it was used
    deadline = time.monotonic() + OBSERVED_S
    while not future.isCompleted():
        if time.monotonic() > deadline:
            return None
        time.sleep(0.005)
    return observation.get
