"""Observed: what Spark has counted in passing, while a job ran."""

import time
from typing import Any

from pyspark.sql import Observation

#: Spark tells what it has observed a moment after the job has ended.
OBSERVED_S = 5.0


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
