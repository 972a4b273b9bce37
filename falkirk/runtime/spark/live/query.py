"""Query: builds and starts the query of one incarnation of a live region."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from falkirk.declare.clock import ClockTopic
from falkirk.declare.nodes import SourceNode, Step, steps_of
from falkirk.kafka_client.void import Void
from falkirk.plan.region import Region
from falkirk.runtime.spark import fence, rows
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.figures import note_timestamps
from falkirk.runtime.spark.live.losses import Losses
from falkirk.runtime.spark.live.region_lanes import RegionLanes
from falkirk.runtime.spark.rows import IncarnationConstants, without
from falkirk.spark_setup.spark import LIVE_POOL, RETAIN, SPARE_BATCHES
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.joins import Places, join_frames
from falkirk.steps.live.stamped import Frame
from falkirk.steps.live.unions import after, number_source
from falkirk.steps.sources import reads
from falkirk.steps.sources.topics import parse_records, parsing
from falkirk.theory.ids import Positions
from falkirk.theory.offsets import PartitionRange


@dataclass(frozen=True, kw_only=True)
class LiveQuery:
    """The query of one incarnation, before it is started. The former writers of the region are fenced.

    Args: checkpoint: as of `begin_query`. retain: the number of checkpoints whose state Spark keeps. lanes: of the
        region. losses: of executors, from before the start. role: distinguishes its name from those of the region's
        others.
    """

    region: Region
    context: Context
    release: IncarnationConstants
    checkpoint: str
    retain: int
    lanes: RegionLanes
    losses: Losses
    role: str = ""

    @property
    def _tasks(self) -> int:
        """The number of its tasks that write."""
        return self.release.state_partitions if self.region.stateful else sum(self.release.source_partitions)

    def start(self, begin: Positions, restored: Positions, skips: tuple[PartitionRange, ...]) -> StreamingQuery:
        """Start it.

        Args: begin: the input that the first incarnation starts with. restored: the input that this one resumes with.
            skips: input that is never processed.
        """
        data = self._rows(begin, restored, skips)
        name = f"{self.context.home.identity}.{self.region.name}{self.role}"
        conf = self.context.session.conf
        kept = conf.get(RETAIN) or str(SPARE_BATCHES)
        conf.set(RETAIN, str(max(int(kept), self.retain)))  # a query reads it when it is started
        try:
            writer = self._writer(data).queryName(name)
            return begin_query(self.context.session, writer, self.checkpoint, self.region.interval_s)
        finally:
            conf.set(RETAIN, kept)

    def start_twin(
        self, begin: Positions, restored: Positions, skips: tuple[PartitionRange, ...], checkpoint: Path
    ) -> StreamingQuery:
        """Start another query of the same incarnation. Args: checkpoint: its folder. See `start`, twin.py."""
        return replace(self, checkpoint=str(checkpoint), retain=SPARE_BATCHES, role=".twin").start(
            begin, restored, skips
        )

    def _rows(self, begin: Positions, restored: Positions, skips: tuple[PartitionRange, ...]) -> DataFrame:
        region, context, raws = self.region, self.context, list[DataFrame]()
        for number, each in enumerate(region.sources):
            topic, source = each.topic, each.topic.log
            late = context.void(source) if each.is_hop else Void()
            void = Void((*skips, *late.ranges), late.fences).within(restored[source])
            headers = bool(void.fences) or topic.reads_headers
            raw = reads.stream(
                context.session, context.kafka_options(source), source, begin[source], headers=headers,
                # While this region was left out of the application, another one may have read the times of a clock.
                may_expire=isinstance(topic, ClockTopic), skips_deleted=isinstance(topic, ClockTopic),
            )  # fmt: skip
            raws.append(note_timestamps(without(raw, void), context, region.name, number, crosses=region.stateful))
        data = rows.rows(results(region, raws, self.release.source_partitions), region, self.release)
        return data.withColumn("topic", self.losses.none_yet(F.col("topic")))

    def _writer(self, data: DataFrame) -> Any:
        """Return the JVM's writer of the query, with its sink."""
        own = self.lanes.writer(self.release.incarnation, self._tasks, self._producer_options())
        own = own.joined(len(self.region.joined))
        return foreach_writer(data, own.twins(not self.region.stateful) if self.region.twins else own)

    def _producer_options(self) -> dict[str, str]:
        release = self.release
        limits = [topic.size_limit_bytes for topic in (release.main, release.dead)]
        return fence.producer_options(self.context, self.region.name, release.incarnation, min(limits), limits[0])


def results(region: Region, raws: Sequence[DataFrame], partitions: Sequence[int]) -> Frame:
    """Return the results of a region's steps. Args: raws, partitions: the records and partitions of its sources."""
    if region.others:
        return after(region.node, lambda source: _numbered(region, raws, source))
    begun = _begun(raws[0], region.source, region.steps())
    frame = replace(begun, partitions=partitions[0], sharded_by=region.sharded_by)
    number = 0
    for step in region.steps():
        if not region.joined or step.operation != "timedJoin":
            frame = frames.apply(frame, step)
            continue
        number += 1
        theirs = steps_of(step.arguments[0].node)
        right = _begun(raws[number], region.sources[number], theirs)
        for each in theirs:
            right = frames.apply(right, each)
        left, key = (partitions[0], ()) if number == 1 else (0, region.join_places[number - 2])
        frame = join_frames(frame, right, step, Places(partitions=(left, partitions[number]), source=number, key=key))
    return frame


def _numbered(region: Region, raws: Sequence[DataFrame], source: SourceNode) -> Frame:
    number = region.sources.index(source)
    return number_source(_begun(raws[number], source, ()), number)


def _begun(raw: DataFrame, source: SourceNode, steps: Sequence[Step]) -> Frame:
    timed = any(step.operation == "withWatermark" for step in steps)
    return parse_records(raw, parsing(source.topic, raw.sparkSession), timed=timed)


def foreach_writer(data: DataFrame, to: Any) -> Any:
    """Return the JVM's writer of a query. Args: data: as of `rows.rows`. to: a `ForeachWriter` of the Java module."""
    return data.select("topic", "partition", "key", "value", "header")._jdf.writeStream().foreach(to)


def begin_query(session: SparkSession, writer: Any, checkpoint: str, interval_s: float) -> StreamingQuery:
    """Start a Real-time Mode query in the pool of live regions.

    Args: writer: as of `writing`. checkpoint: the location of Spark's checkpoint, see `CheckpointFiles`.
    """
    jvm: Any = session._jvm
    trigger = jvm.org.apache.spark.sql.streaming.Trigger.RealTime(f"{round(interval_s * 1000)} milliseconds")
    writer = writer.option("checkpointLocation", checkpoint).outputMode("update").trigger(trigger)
    spark = session.sparkContext
    pool = spark.getLocalProperty("spark.scheduler.pool")
    spark.setLocalProperty("spark.scheduler.pool", LIVE_POOL)  # the query's own thread inherits it
    try:
        return StreamingQuery(writer.start())
    finally:
        spark.setLocalProperty("spark.scheduler.pool", pool)  # type: ignore[arg-type]  # None unsets it
