"""Query: builds and starts the query of one incarnation of a live region."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from falkirk.frames import stamped as frames
from falkirk.frames.stamped import Frame
from falkirk.frames.topics import parse, parsing
from falkirk.kafka.void import Range, Void
from falkirk.local.spark import LIVE_POOL, RETAIN, SPARE_BATCHES
from falkirk.plan.region import Region
from falkirk.runtime import fence, lanes, rows
from falkirk.runtime.context import Context
from falkirk.runtime.figures import noted
from falkirk.runtime.live.losses import Losses
from falkirk.runtime.rows import Release, without
from falkirk.theory.ids import Offset


@dataclass(frozen=True, kw_only=True)
class LiveQuery:
    """The query of one incarnation, before it is started.

    Args: checkpoint: Spark's folder. retain: the number of checkpoints whose state Spark keeps. token: by which the
        broker knows the incarnation, see lanes.py; None: it is not fenced. losses: of executors, from before the start.
    """

    region: Region
    context: Context
    release: Release
    checkpoint: Path
    retain: int
    token: str | None
    losses: Losses

    @property
    def lanes(self) -> int:
        """The number of its tasks that write."""
        return self.release.state_partitions if self.region.stateful else self.release.source_partitions

    def start(
        self, begin: Mapping[int, Offset], restored: Mapping[int, Offset], skips: tuple[Range, ...]
    ) -> StreamingQuery:
        """Start it.

        Args: begin: the input that the first incarnation starts with. restored: the input that this one resumes with.
            skips: input that is never processed.
        """
        data = self._rows(begin, restored, skips)
        name = f"{self.context.home.identity}.{self.region.name}"
        conf = self.context.session.conf
        kept = conf.get(RETAIN) or str(SPARE_BATCHES)
        conf.set(RETAIN, str(max(int(kept), self.retain)))  # a query reads it when it is started
        try:
            writer = self._writer(data).queryName(name)
            return begin_query(self.context.session, writer, self.checkpoint, self.region.interval_s)
        finally:
            conf.set(RETAIN, kept)

    def _rows(self, begin: Mapping[int, Offset], restored: Mapping[int, Offset], skips: tuple[Range, ...]) -> DataFrame:
        region, context = self.region, self.context
        source = region.source.topic.log
        late = context.void(source) if region.reads_hop else Void()
        void = Void((*skips, *late.ranges), late.fences).within(restored)
        options = {"includeHeaders": str(bool(void.fences)).lower(), "failOnDataLoss": "true"}
        raw = records(context.session, context.kafka_options(), source, begin, **options)
        data = rows.rows(results(region, noted(without(raw, void), context, region.name)), region, self.release)
        return data.withColumn("topic", self.losses.none_yet(F.col("topic")))

    def _writer(self, data: DataFrame) -> Any:
        """Return the JVM's writer of the query, with its sink."""
        own = lanes.writer(
            self.context, self.region.name, self.release.incarnation, self.lanes, self._producer_options(), self.token
        )
        return writing(data, own)

    def _producer_options(self) -> dict[str, str]:
        release = self.release
        limits = [topic.size_limit_bytes for topic in (release.main, release.dead)]
        return fence.producer_options(self.context, self.region.name, release.incarnation, min(limits), limits[0])


def records(
    session: SparkSession, kafka: Mapping[str, str], topic: str, begin: Mapping[int, Offset], **options: str
) -> DataFrame:
    """Return the records of a topic as they arrive. Args: begin: the first offset to read, per partition."""
    return (
        session.readStream.format("kafka")
        .options(**kafka)
        .option("subscribe", topic)
        .option("startingOffsets", json.dumps({topic: {str(p): o for p, o in begin.items()}}))
        .option("kafka.isolation.level", "read_committed")  # records of an aborted transaction are no input
        .options(**options)
        .load()
    )


def results(region: Region, raw: DataFrame) -> Frame:
    """Return the results of a region's steps on the records of its input."""
    steps = region.steps()
    timed = any(step.operation == "withWatermark" for step in steps)
    frame = parse(raw, parsing(region.source.topic), timed=timed)
    for step in steps:
        frame = frames.apply(frame, step)
    return frame


def writing(data: DataFrame, to: Any) -> Any:
    """Return the JVM's writer of a query. Args: data: as of `rows.rows`. to: a `ForeachWriter` of the Java module."""
    return data.select("topic", "partition", "key", "value", "header")._jdf.writeStream().foreach(to)


def begin_query(session: SparkSession, writer: Any, checkpoint: Path, interval_s: float) -> StreamingQuery:
    """Start a Real-time Mode query in the pool of live regions. Args: writer: as of `writing`."""
    jvm: Any = session._jvm
    trigger = jvm.org.apache.spark.sql.streaming.Trigger.RealTime(f"{round(interval_s * 1000)} milliseconds")
    writer = writer.option("checkpointLocation", str(checkpoint)).outputMode("update").trigger(trigger)
    spark = session.sparkContext
    pool = spark.getLocalProperty("spark.scheduler.pool")
    spark.setLocalProperty("spark.scheduler.pool", LIVE_POOL)  # the query's own thread inherits it
    try:
        return StreamingQuery(writer.start())
    finally:
        spark.setLocalProperty("spark.scheduler.pool", pool)  # type: ignore[arg-type]  # None unsets it
