"""Warming: runs the queries of live regions in a standby, so that its JVM has compiled their code before it is needed.

Each query has the region's own steps. It reads the last records of the region's input and those that arrive, and saves
into a scratch checkpoint, once a second. Then it starts again from that checkpoint, as after a death. `MutedWriter`
drops its results, so there is no producer, no transaction and no lane. A warming gets neither the home nor its store,
so it can't write for the home.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import StatusTracker
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from falkirk.errors import FalkirkError
from falkirk.errors.spark import JVM_ERRORS, first_line
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.plan.plan import Plan
from falkirk.plan.region import Region
from falkirk.runtime.spark import rows
from falkirk.runtime.spark.live.losses import Losses
from falkirk.runtime.spark.live.query import begin_query, foreach_writer, results
from falkirk.runtime.spark.live.views import hold_nothing
from falkirk.runtime.spark.rows import Barrier, IncarnationConstants, OutputTopic
from falkirk.spark_setup.spark import kafka_options
from falkirk.steps.sources import reads
from falkirk.theory.channel import Channel, ReleasedTail
from falkirk.theory.ids import Incarnation, LogId, Offset
from falkirk.theory.stamp import Stamp

log = logging.getLogger("falkirk")

#: After this many batches, the code of a batch and of a checkpoint is compiled.
BATCHES = 4
#: The number of batches after the second start, which loads a state.
AGAIN = 2
INTERVAL_S = 1.0
#: How many records to read from the end of each partition: a quiet topic has no others.
_RECORDS = 1_000
#: A key of the right length. It signs nothing that leaves the JVM.
_NO_KEY = bytes(19)


class Warming:
    """The queries of all live regions of a plan. Args: folder: for their checkpoints. Its user deletes it."""

    def __init__(self, plan: Plan, session: SparkSession, connection: Connection, folder: Path) -> None:
        self._plan, self._session, self._folder = plan, session, folder
        self._connection, self._topics = connection, Topics(connection)
        self._queries: list[WarmQuery] = []

    def start(self, interrupted: Callable[[], bool] = lambda: False) -> None:
        """Start the queries. One that can't start stays cold. Args: interrupted: returns whether to start no more."""
        hold_nothing(self._plan.regions, self._session)
        for region in self._plan.regions:
            if interrupted():
                return
            try:
                self._queries.append(self._start(region))
            except (FalkirkError, PySparkException, *JVM_ERRORS) as error:
                log.warning("standby: %s stays cold: %s", region.name, first_line(error))

    def is_done(self) -> bool:
        """Return whether each query has ended. Call it at intervals: it stops each one that has run long enough.

        It also starts them again once.
        """
        done = [self._is_done(query) for query in self._queries]
        return all(done)

    def _is_done(self, query: "WarmQuery") -> bool:
        try:
            return query.is_done()
        except (PySparkException, *JVM_ERRORS) as error:
            log.warning("standby: a query was not started again: %s", first_line(error))
            return True

    def stop(self) -> None:
        """Stop the queries that still run."""
        queries, self._queries = self._queries, []
        for query in queries:
            try:
                query.stop()
            except (PySparkException, *JVM_ERRORS) as error:
                log.warning("standby: a query could not be stopped: %s", first_line(error))

    def _start(self, region: Region) -> "WarmQuery":
        raws, partitions = list[Any](), list[int]()
        for source in region.sources:
            topic = source.topic.log
            options = kafka_options(self._session, self._connection.of_topic(topic)[0])
            ends, first = self._topics.end_positions(topic), self._topics.first_positions(topic)
            begin = {p: Offset(max(first.get(p, 0), end - _RECORDS)) for p, end in ends.items()}
            raws.append(
                reads.stream(self._session, options, topic, begin, headers=source.topic.reads_headers, may_expire=True)
            )
            partitions.append(len(ends))
        frame = results(region, raws, partitions)
        data = rows.rows(frame, region, self._release(region, frame.depth, tuple(partitions)))
        data = data.withColumn("topic", Losses(self._session).none_yet(F.col("topic")))
        writer = foreach_writer(data, self._jvm().org.falkirk.MutedWriter())
        return WarmQuery(
            lambda: begin_query(self._session, writer, str(self._folder / region.name), INTERVAL_S),
            self._session.sparkContext.statusTracker(),
        )

    def _release(self, region: Region, depth: int, source_partitions: tuple[int, ...]) -> IncarnationConstants:
        """Return constants as after a restart, so that the plan has the same form. The barrier drops nothing."""
        none = {
            Channel(source=0, source_partition=0, state_partition=0, output_partition=0): Stamp(
                0, 0, Offset(-1), (0,) * depth
            )
        }
        return IncarnationConstants(
            application="standby",
            incarnation=Incarnation(1),
            source_partitions=source_partitions,
            state_partitions=self._plan.state_partitions if region.stateful else 1,
            main=self._output(region.output.log),
            dead=self._output(region.dead_letter_topic),
            barrier=None if region.repeats else Barrier(main=ReleasedTail(greatest=none), dead=ReleasedTail()),
            main_key=_NO_KEY,
            dead_key=_NO_KEY,
        )

    def _output(self, name: LogId) -> OutputTopic:
        facts = self._topics.facts(name)
        return OutputTopic(name=name, partitions=facts.partitions, size_limit_bytes=facts.max_message_bytes)

    def _jvm(self) -> Any:
        return self._session._jvm


class WarmQuery:
    """The query of one region. Args: begin: starts it. jobs: of Spark."""

    def __init__(self, begin: Callable[[], StreamingQuery], jobs: StatusTracker) -> None:
        self._begin, self._query, self._due, self._is_first = begin, begin(), BATCHES, True
        self._jobs, self._is_stopped = jobs, False

    def is_done(self) -> bool:
        """Return whether it has run long enough and is stopped, or has ended. Call it at intervals: it stops it.

        Each query stops when a job of it runs. So it waits neither for a job of another query nor for others to end.
        """
        if self._is_stopped or not self._query.isActive:
            self.stop()
            return True
        progress = self._query.lastProgress
        if progress is None or int(progress["batchId"]) + 1 < self._due or not self._has_a_job():
            return False
        self.stop()
        if self._is_first:
            self._query, self._due, self._is_first = self._begin(), int(progress["batchId"]) + 1 + AGAIN, False
            self._is_stopped = False
        return self._is_stopped

    def _has_a_job(self) -> bool:
        """Return whether the job of a batch runs. Between two jobs, Spark's thread writes broadcasts for the next one.

        A stop interrupts that thread, and Spark logs an error for each broadcast that it interrupts.
        """
        jobs = self._jobs.getJobIdsForGroup(str(self._query.runId))
        return bool(set(jobs) & set(self._jobs.getActiveJobsIds()))

    def stop(self) -> None:
        """Stop it, unless it is stopped. Raises: PySparkException, Py4JError."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if (error := self._query.exception()) is not None:
            log.warning("standby: a query failed: %s", first_line(error))
        self._query.stop()
