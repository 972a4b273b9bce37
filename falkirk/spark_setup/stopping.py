"""Stopping: ends a Spark session once no task runs in it.

`StreamingQuery.stop` and a cancelled job return while their tasks still run, because Spark kills tasks asynchronously.
`SparkSession.stop` does not wait for them either. It removes all blocks of memory, also those that a task still holds,
such as the broadcast with the task's own code. Each such task then logs an error with a stack trace, although nothing
is wrong.
"""

import math
import time
from typing import Any

from pyspark.sql import SparkSession

from falkirk.errors.spark import JVM_ERRORS
from falkirk.platform.machine_time import MachineTime

#: A task ends within this time, unless it hangs.
_WAIT_S, _POLL_S = 5.0, 0.02


def stop_session(session: SparkSession, *, until_s: float = math.inf, clock: MachineTime = time) -> None:
    """Stop a session whose queries and jobs are stopped. First wait until their tasks have ended, for 5 s at most.

    Args: until_s: the time of the clock until which the caller may wait. Earlier parts of the stop may have taken long.
    """
    until_s = min(clock.monotonic() + _WAIT_S, until_s)
    try:
        while running_tasks(session) > 0 and clock.monotonic() < until_s:
            clock.sleep(_POLL_S)
    except JVM_ERRORS:  # the JVM has died, and its tasks with it
        pass
    session.stop()


def running_tasks(session: SparkSession) -> int:
    """Return the number of tasks that run in a session, those that are being killed included."""
    jvm: Any = session.sparkContext._jsc
    counts = jvm.sc().taskScheduler().runningTasksByExecutors().valuesIterator()
    running = 0
    while counts.hasNext():
        running += int(counts.next())
    return running
