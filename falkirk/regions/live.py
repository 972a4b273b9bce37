"""Live regions: one Real-time Mode query each, from a Kafka log to a Kafka log, exactly once.

The life of an incarnation, in this order and no other:
  1. open: record its number;
  2. fence: see falkirk/regions/fence.py; then record where each output partition ends;
  3. barrier: read the outputs from a position observed no later than the start of the batch after the restored
  checkpoint up
     to the fence, and keep the greatest released stamp per channel;
  4. run: start the query with that as a constant filter;
  5. watch: observe output positions and commits, so that step 3 stays short next time.
A crash between any two of them leaves the records of the steps before, and the next incarnation begins at 1.
"""

import json
import logging
import re
import time
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from falkirk.coordinator.store import RegionRecord, TailRecord
from falkirk.errors import LogError, SparkError
from falkirk.local.spark import LIVE_POOL
from falkirk.logs.tail import Tail
from falkirk.plan import frames
from falkirk.plan.region import Region
from falkirk.policy import Delivery
from falkirk.regions import checkpoint, fence, rows
from falkirk.regions.context import Context
from falkirk.regions.outputs import Outputs
from falkirk.regions.record import record_of
from falkirk.regions.rows import Release
from falkirk.theory.delivery import skip_ranges, touched
from falkirk.theory.positions import is_caught_up

log = logging.getLogger("falkirk")

#: The guarantee rests on these: a batch that expired would leave a hole below a released stamp.
PRODUCER_OPTIONS = {
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.delivery.timeout.ms": "2147483647",
    "kafka.max.block.ms": "9223372036854775807",
    "kafka.linger.ms": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What is known once the fence stands and the tail is read: where the incarnation begins and what it suppresses."""

    record: RegionRecord
    incarnation: int
    restored_batch: int
    release: Release
    released: int
    skips: tuple[tuple[int, int, int], ...]


class LiveRegion:
    """One region of an application, with at most one running query."""

    def __init__(self, region: Region, context: Context) -> None:
        self.region, self._context = region, context
        self._store = context.home.store
        self._checkpoint = context.home.checkpoint(region.name)
        self._outputs = Outputs(region, context)
        self.query: StreamingQuery | None = None
        self.opening: Opening | None = None
        self._reached: dict[tuple[int, int], int] = {}
        #: Since this home was made, as of the last `observe`.
        self.dead_letters = 0
        self._dead_before = 0
        #: Checkpoints that were found damaged, and those whose state Spark refused.
        self.damaged = 0
        self._distrusted: set[int] = set()

    # -- 1 to 4: starting ---------------------------------------------------------------------------------------------

    def start(self) -> Opening:
        """Run steps 1 to 4 and return what was found. The region must not be running.

        Raises: HomeError, LogError, SparkError: nothing was started.
        """
        region, context = self.region, self._context
        output = {t.name: t for t in self._outputs.topics()}
        self._check_source()
        record = record_of(region, context, output, self._checkpoint)
        restored = self._settle_on_checkpoint()
        first = min(self._store.tails(region.name), key=lambda tail: tail.valid_from_commit)
        self._dead_before = sum(first.positions[region.dead_letter_topic].values())
        incarnation = self._store.open_incarnation(region.name, restored)
        self._store.forget_tails_after(region.name, restored)
        fence.flush_lingering(context.session, self._is_mine)
        ends = self._outputs.settled_ends(tuple(output))
        tails = {name: self._outputs.tail(name, ends, restored) for name in output}
        main, dead = tails[region.output.topic], tails[region.dead_letter_topic]
        start = self._restored_offsets(record, restored)
        released = sum(
            stamp.offset >= start.get(stamp.partition, 0)
            for tail in (main, dead) for _, stamp in tail.released_set or ()
        )  # fmt: skip
        self._store.record_fence(
            region.name, incarnation, fence=ends, replayed_from=self._outputs.position(restored).positions,
            suppressible=released,
        )  # fmt: skip
        skips = self._skip(main, dead, start)
        self._reached = touched(main.released.merge(dead.released))
        release = Release(
            application=context.home.identity,
            incarnation=incarnation,
            source_partitions=record.partitions[region.source.topic.topic],
            state_partitions=context.state_partitions if region.stateful else 1,
            main=output[region.output.topic],
            dead=output[region.dead_letter_topic],
            barrier=None if region.delivery is Delivery.REPEATED else self._outputs.barrier(main, dead, restored),
        )
        self.opening = Opening(
            record=record,
            incarnation=incarnation,
            restored_batch=restored,
            release=release,
            released=released,
            skips=skips,
        )
        try:
            self.query = self._run(self.opening, record)
        except PySparkException as error:
            raise SparkError(
                "QUERY_NOT_STARTED",
                f"Spark does not start region {region.name!r}: {frames.first_line(error)}.",
                where=region.where,
                region=region.name,
            ) from error
        return self.opening

    def _settle_on_checkpoint(self) -> int:
        """Return the newest checkpoint that is whole, having dropped those that are not.

        An older one only means a longer replay: all that was released since is in the output, and is not sent again.
        """
        topic, found = self.region.source.topic.topic, -1
        for batch in reversed(checkpoint.committed_batches(self._checkpoint)):
            wrong = checkpoint.damage(self._checkpoint, batch, topic)
            if batch in self._distrusted:
                wrong = "Spark could not load its state"
            if wrong is None:
                found = batch
                break
            log.warning("%s: checkpoint %d is damaged (%s); going on from an older one", self.region.name, batch, wrong)
            self.damaged += 1
        checkpoint.rewind(self._checkpoint, found)
        return found

    def distrust_checkpoint(self) -> None:
        """Never go on again from the checkpoint that this incarnation began with: its state can't be loaded."""
        if self.opening is not None and self.opening.restored_batch >= 0:
            self._distrusted.add(self.opening.restored_batch)

    def _check_source(self) -> None:
        source = self.region.source.topic
        if "compact" in self._context.topics.facts(source.topic).cleanup_policy:
            raise LogError(
                "INPUT_COMPACTED",
                f"topic {source.topic!r} is compacted, so a replay would not find what was read before.",
                where=source.where,
                hint="Set its cleanup.policy to delete, or copy it to a topic that is not compacted.",
                topic=source.topic,
            )

    def _restored_offsets(self, record: RegionRecord, restored: int) -> dict[int, int]:
        topic = self.region.source.topic.topic
        if restored < 0:
            return record.start_offsets[topic]
        return checkpoint.end_offsets(self._checkpoint, restored, topic)

    def _skip(self, main: Tail, dead: Tail, start: dict[int, int]) -> tuple[tuple[int, int, int], ...]:
        """Return the input that is never processed; on at-most-once, add what waited while the region was down."""
        name = self.region.name
        if self.region.delivery is Delivery.AT_MOST_ONCE and len(self._store.incarnations(name)) > 1:
            ends = {(0, p): o for p, o in self._context.topics.end_positions(self.region.source.topic.topic).items()}
            reached = touched(main.released.merge(dead.released))
            ranges = skip_ranges(reached, {(0, p): o for p, o in start.items()}, ends)
            self._store.skip_input(name, tuple((r.partition, r.first, r.last_exclusive) for r in ranges))
        return self._store.skipped_input(name)

    def _is_mine(self, client: str) -> bool:
        prefix = fence.client_id(self._context.home.identity, self.region.name, 0).removesuffix("0")
        return client.startswith(prefix) and client.removeprefix(prefix).isdigit()

    def _run(self, opening: Opening, record: RegionRecord) -> StreamingQuery:
        region, context = self.region, self._context
        source = region.source.topic.topic
        start = {source: {str(p): o for p, o in record.start_offsets[source].items()}}
        reader = (
            context.session.readStream.format("kafka")
            .options(**context.connection.spark_options())
            .option("subscribe", source)
            .option("startingOffsets", json.dumps(start))
            .option("kafka.isolation.level", "read_committed")  # what a transaction took back is no input
            .option("failOnDataLoss", "true")
        )
        raw = reader.load()
        voided = context.home.store.voided_ranges(source) if region.reads_hop else ()
        ranges = (*opening.skips, *[(v.partition, v.first, v.last_exclusive) for v in voided])
        for partition, first, last in ranges:
            raw = raw.where(
                ~((F.col("partition") == partition) & (F.col("offset") >= first) & (F.col("offset") < last))
            )
        frame = frames.parse(raw, region.source.topic)
        for step in region.steps():
            frame = frames.apply(frame, step)
        data = rows.rows(frame, region, opening.release)
        writer = (
            data.writeStream.format("kafka")
            .options(**context.connection.spark_options())
            .options(**PRODUCER_OPTIONS)
            .option("kafka.client.id", fence.client_id(context.home.identity, region.name, opening.incarnation))
            .option("kafka.max.request.size", str(opening.release.main.size_limit_bytes + rows.RAW_BYTES_MAX * 2))
            .option("includeHeaders", "true")
            .option("checkpointLocation", str(self._checkpoint))
            .queryName(f"{context.home.identity}.{region.name}")
            .outputMode("update")
        )
        interval = f"{round(region.interval_s * 1000)} milliseconds"
        spark = context.session.sparkContext
        pool = spark.getLocalProperty("spark.scheduler.pool")
        spark.setLocalProperty("spark.scheduler.pool", LIVE_POOL)  # the query's own thread inherits it
        try:
            query: StreamingQuery = writer.trigger(realTime=interval).start()  # type: ignore[call-overload]  # not in its stubs
        finally:
            spark.setLocalProperty("spark.scheduler.pool", pool)  # type: ignore[arg-type]  # None unsets it
        return query

    # -- 5: watching --------------------------------------------------------------------------------------------------

    def observe(self) -> int:
        """Record the outputs' present ends for a later barrier; return the last committed batch.

        The commits are looked at after the ends were read: only so is the position no later than the next batch's
        start. Nothing is recorded until the commits cover all that former incarnations had released: a position
        that lies behind outputs that a restore would replay overlooks them.
        """
        region, opening = self.region, self.opening
        assert opening is not None, "a region that was not started can't be observed"
        topics = (region.output.topic, region.dead_letter_topic)
        ends = {name: self._context.topics.end_positions(name) for name in topics}
        self.dead_letters = sum(ends[region.dead_letter_topic].values()) - self._dead_before
        last = checkpoint.last_committed_batch(self._checkpoint)
        if self._reached:
            covered = {(0, p): o for p, o in self._restored_offsets(opening.record, last).items()}
            if not is_caught_up(self._reached, covered):
                return last
            self._reached = {}
        record = TailRecord(valid_from_commit=last + 1, incarnation=opening.incarnation, positions=ends)
        self._store.observe_tail(region.name, record)
        return last

    def checkpoint_age_s(self) -> float | None:
        """Return the seconds since the last commit, or None before the first."""
        last = checkpoint.last_committed_batch(self._checkpoint)
        return None if last < 0 else time.time() - checkpoint.committed_at_s(self._checkpoint, last)

    def last_ended(self) -> str | None:
        """Return why the last incarnation ended, or None when there was none or nobody saw it end."""
        incarnations = self._store.incarnations(self.region.name)
        return str(incarnations[-1].ended) if incarnations and incarnations[-1].ended is not None else None

    def failure(self) -> Exception | None:
        """Return what ended the query, or None while it runs or when it was stopped."""
        if self.query is None or self.query.isActive:
            return None
        return self.query.exception() or LogError("QUERY_ENDED", f"the query of {self.region.name!r} ended.")

    def end(self, reason: str) -> None:
        """Stop the query if it runs, and record why this incarnation ended."""
        if self.query is None or self.opening is None:
            return
        unsafe = False
        try:
            error = self.query.exception()
            unsafe = error is not None and _is_producer_error(str(error))
            self.query.stop()
        except (PySparkException, Py4JError) as error:  # Py4J's own: the JVM is gone
            log.warning("%s: stopping said: %s", self.region.name, frames.first_line(error))
        self._store.end_incarnation(self.region.name, self.opening.incarnation, ended=reason, unsafe=unsafe)
        self.query = None


#: Errors of Kafka's that come from reading or from asking, and so say nothing about what was sent. After any other one
#: what was accepted need not be a prefix of what was sent.
_HARMLESS_ERRORS = ("OffsetOutOfRangeException", "UnknownTopicOrPartitionException", "WakeupException")
_KAFKA_ERROR = re.compile(r"org\.apache\.kafka\.(?:common|clients)\.[\w.$]*?(\w+Exception)\b")


def _is_producer_error(text: str) -> bool:
    return any(name not in _HARMLESS_ERRORS for name in _KAFKA_ERROR.findall(text))
