"""Observed: rows of which Spark computes aggregates, such as counts, while a job reads them."""

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

#: Spark publishes an observation shortly after the end of its job, within this time.
OBSERVED_S = 5.0


def job() -> Column:
    """Return a column `job` to observe, by which two observations can be compared: do they come from the same job?

    Spark evaluates the current time once per job, to the microsecond. An observation keeps the values of the first job
    that runs it, which may be a job of the user's own inside a batch function.
    """
    return F.unix_micros(F.current_timestamp()).alias("job")  # as a time, JSON would give its whole seconds only


class Observed:
    """Rows that are observed. Spark's `Observation` costs three times as many calls to the JVM.

    Args: columns: the aggregates, with names.

    Attributes: data: the rows.
    """

    def __init__(self, rows: DataFrame, columns: Sequence[Column]) -> None:
        jvm = cast(Any, rows.sparkSession)._jvm
        self._there = jvm.org.falkirk.Observed(rows._jdf, [cast(Any, column)._jc for column in columns])
        self.data = DataFrame(self._there.data(), rows.sparkSession)

    @cached_property
    def name(self) -> str:
        """The name of the observation in plans."""
        return str(self._there.name())

    def values(self) -> dict[str, Any] | None:
        """Return the values of a finished job by name, or None if Spark does not publish them.

        The first job that reads the rows counts, even if that job failed. If a shuffle of the job has given no rows,
        Spark leaves out the rest of the plan, and the observation with it. Then it publishes an empty one.
        """
        found = self._there.values(round(OBSERVED_S * 1000))
        return (None if found is None else json.loads(found)) or None
