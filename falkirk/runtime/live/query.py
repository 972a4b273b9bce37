"""Query: builds and starts the query of one incarnation of a live region."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from falkirk.frames import stamped as frames
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
        writer: Any = self._writer(data).option("checkpointLocation", str(self.checkpoint)).queryName(name)
        trigger = self._jvm().org.apache.spark.sql.streaming.Trigger
        trigger = trigger.RealTime(f"{round(self.region.interval_s * 1000)} milliseconds")
        spark, conf = self.context.session.sparkContext, self.context.session.conf
        pool = spark.getLocalProperty("spark.scheduler.pool")
        spark.setLocalProperty("spark.scheduler.pool", LIVE_POOL)  # the query's own thread inherits it
        kept = conf.get(RETAIN) or str(SPARE_BATCHES)
        conf.set(RETAIN, str(max(int(kept), self.retain)))  # a query reads it when it is started
        try:
            return StreamingQuery(writer.outputMode("update").trigger(trigger).start())
        finally:
            conf.set(RETAIN, kept)
            spark.setLocalProperty("spark.scheduler.pool", pool)  # type: ignore[arg-type]  # None unsets it

    def _rows(self, begin: Mapping[int, Offset], restored: Mapping[int, Offset], skips: tuple[Range, ...]) -> DataFrame:
        region, context = self.region, self.context
        source = region.source.topic.log
        late = context.void(source) if region.reads_hop else Void()
        void = Void((*skips, *late.ranges), late.fences).within(restored)
        reader = (
            context.session.readStream.format("kafka")
            .options(**context.kafka_options())
            .option("subscribe", source)
            .option("startingOffsets", json.dumps({source: {str(p): o for p, o in begin.items()}}))
            .option("kafka.isolation.level", "read_committed")  # records of an aborted transaction are no input
            .option("includeHeaders", str(bool(void.fences)).lower())
            .option("failOnDataLoss", "true")
        )
        steps = region.steps()
        timed = any(step.operation == "withWatermark" for step in steps)
        raw = noted(without(reader.load(), void), context, region.name)
        frame = parse(raw, parsing(region.source.topic), timed=timed)
        for step in steps:
            frame = frames.apply(frame, step)
        data = rows.rows(frame, region, self.release)
        return data.withColumn("topic", self.losses.none_yet(F.col("topic")))

    def _writer(self, data: DataFrame) -> Any:
        """Return the JVM's writer of the query, with its sink."""
        own = lanes.writer(
            self.context, self.region.name, self.release.incarnation, self.lanes, self._producer_options(), self.token
        )
        return data.select("topic", "partition", "key", "value", "header")._jdf.writeStream().foreach(own)

    def _producer_options(self) -> dict[str, str]:
        release = self.release
        limits = [topic.size_limit_bytes for topic in (release.main, release.dead)]
        return fence.producer_options(self.context, self.region.name, release.incarnation, min(limits), limits[0])

    def _jvm(self) -> Any:
        return self.context.session._jvm
