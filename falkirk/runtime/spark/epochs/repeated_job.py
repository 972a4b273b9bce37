"""Repeated jobs: jobs that are planned once, and run for each epoch of a batch.

Each plan of Spark would contain the offsets and the number of one epoch. The plan of a repeated job has neither: tasks
read them from a property of the job (`JobEpoch.java`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn

from falkirk.kafka_client.topics import TopicFacts
from falkirk.runtime.spark.epochs.log import Epoch
from falkirk.spark_setup.lists import text_map
from falkirk.theory.ids import topic_name

#: The observation of the rows that are too large for their topic, or that can't be written for another reason.
UNFIT = "falkirk-unfit"


@dataclass(frozen=True, kw_only=True)
class RepeatedJob:
    """A job that sends the results of epochs to a topic. Args: there: it in the JVM. facts: about the topic."""

    there: Any
    session: SparkSession
    facts: TopicFacts

    def computes(self, result: DataFrame) -> bool:
        """Return whether a batch's function has returned the same result as when the job was planned."""
        return bool(self.there.computes(cast(Any, result)._jdf))

    def run(self, ranges: str, options: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Run it for an epoch; return the observed values, by the names of the observations.

        Args: ranges: as of `ranges_of`. options: of the lanes.
        """
        return dict(json.loads(self.there.run(ranges, text_map(self.session, options))))


def job_of(result: DataFrame, records: DataFrame, observed: Sequence[str], facts: TopicFacts) -> RepeatedJob | None:
    """Return a job; None: its plan is not one that can run again.

    Args: result: the result of the batch's function. records: of it, as `writing.write` takes them. observed: the
        names of the observations in them. facts: about the topic.
    """
    jvm: Any = records.sparkSession._jvm
    there = jvm.org.falkirk.RepeatedJob.of(cast(Any, result)._jdf, cast(Any, records)._jdf, ",".join(observed))
    return None if there is None else RepeatedJob(there=there, session=records.sparkSession, facts=facts)


def job_epoch(rows: DataFrame) -> Column:
    """Return the number of the epoch of a job as a column STRING. Args: rows: of the session."""
    return ClassicColumn(cast(Any, rows.sparkSession)._jvm.org.falkirk.JobEpoch.number())


def ranges_of(epoch: Epoch) -> str:
    """Return the number of an epoch, and what it reads of each partition, as `JobEpoch.java` reads it."""
    parts = [
        f"{topic_name(log)}/{partition}/{epoch.first.get(log, {}).get(partition, 0)}/{last}"
        for log, ends in sorted(epoch.last.items())
        for partition, last in sorted(ends.items())
    ]
    return " ".join((str(epoch.number), *parts))
