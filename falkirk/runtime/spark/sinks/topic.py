"""A topic as a target. Each record names its epoch and its place in it, and a retry leaves out the records that are
already in the topic. The last record of each partition says which epoch was interrupted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from falkirk.declare.endpoints import Kafka
from falkirk.errors import LogError
from falkirk.errors.conditions.spark import PARTITIONS_CHANGED_SINK
from falkirk.errors.spark import SPARK_ERRORS
from falkirk.kafka_client.topics import TopicFacts
from falkirk.runtime.spark import fence
from falkirk.runtime.spark.attempts import first_attempt_only
from falkirk.runtime.spark.context import Context, Storage
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.epochs.observed import Observed
from falkirk.runtime.spark.epochs.repeated_job import UNFIT, RepeatedJob, job_epoch, job_of
from falkirk.runtime.spark.outputs import last_records, own_back_to
from falkirk.runtime.spark.rows import encoded, record_key, record_partition, too_large
from falkirk.runtime.spark.signed import signed_header
from falkirk.runtime.spark.sinks.target import letters, release_failed
from falkirk.runtime.spark.sinks.writing import run_job, write
from falkirk.spark_setup.observing import tells_observed
from falkirk.theory.ids import EpochNumber, Incarnation, Offsets

_ALL_ROWS = (1 << 63) - 1
#: The number of a row's epoch.
_EPOCH = "__falkirk_epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """The columns that make records of rows which are grouped by partition. Each column costs calls to the JVM.

    Args: reason: why a row can't be a record, or null. fits, unfit: whether it can be one, or can't. counts: observed
        meanwhile. sent: as `write` takes them.
    """

    reason: Column
    fits: Column
    unfit: Column
    counts: list[Column]
    sent: list[Column]


class TopicTarget:
    """A Kafka topic.

    Args: to: the topic. settle: returns where a topic ends, once no record of an earlier attempt can still arrive
        there. encoded: rows are already (key, value).
    """

    def __init__(
        self, place: Storage, to: Kafka, settle: Callable[[str], Offsets], *, encoded: bool = False
    ) -> None:  # fmt: skip
        self._place, self._topic, self._to, self._settle, self._encoded = place, to.topic, to, settle, encoded
        self._last: dict[int, tuple[EpochNumber, int]] | None = None
        self._ends: Offsets = {}
        self._partitions: int | None = None
        #: The largest batch that the topic accepted when rows were last sent.
        self._limit_bytes: int | None = None
        #: The columns by whether rows already have places, and by the topic's limit. All epochs use them.
        self._parting: dict[bool, list[Column]] = {}
        self._columns: dict[int, _Columns] = {}

    def visible(self) -> EpochNumber:
        """See Target."""
        return EpochNumber(max((epoch + 1 for epoch, _ in self._found().values()), default=0))

    @property
    def topic(self) -> str:
        """Its name."""
        return self._topic

    def end(self) -> Offsets:
        """Return the position after the last record of each partition that Kafka has acknowledged."""
        return self._place.topics.end_positions(self._topic)

    def delivered(self) -> None:
        """See Target. Epochs without rows leave nothing in a topic, and old records expire."""

    def _found(self) -> dict[int, tuple[EpochNumber, int]]:
        """Return the (epoch, row) of each partition's last record.

        Raises: LogError: `FOREIGN_WRITER`. SparkError: `RELEASE_FAILED`: others write there.
        """
        if self._last is None:
            try:
                self._ends = self._settle(self._topic)
            except LogError as error:
                if error.condition != "SINK_UNSETTLED":
                    raise
                raise release_failed(self._topic, error) from error
            last = last_records(self._place, self._topic, self._ends)
            self._last = {partition: (EpochNumber(stamp.offset), stamp.sub[0]) for partition, stamp in last}
        return self._last

    def deliver(self, epoch: EpochNumber, rows: DataFrame, *, few: bool = False) -> DataFrame | None:
        """See Target. Records that are too large never reach Spark's producer, which would retry them forever.

        Raises: SparkError: `RELEASE_FAILED`: some records may be there, in order.
        """
        facts = self._facts()
        parted = self._parted(F.lit(str(epoch)), rows, facts, few=few)
        try:
            return self._deliver(epoch, parted.sortWithinPartitions("partition", ROW), facts)
        except SPARK_ERRORS as error:
            raise release_failed(self._topic, error) from error

    def deliver_computed(self, epoch: EpochNumber, rows: DataFrame, *, few: bool = False) -> DataFrame | None:
        """Deliver an epoch like `deliver`, from rows that are in no file and have no order.

        A row's content decides its place, so another computation of the same rows gives them the same places.

        Raises: LogError: as `deliver`. Errors of the computation, which the topic has not caused.
        """
        facts = self._facts()
        placed = self._parted(F.lit(str(epoch)), rows, facts, few=few).withColumn(ROW, self._by_content)
        return self._deliver(epoch, placed, facts)

    def job(self, result: DataFrame, rows: DataFrame, observed: Sequence[str]) -> RepeatedJob | None:
        """Return the job that delivers each epoch of these rows like `deliver_computed`; None: there is no such job.

        Args: result: as of `RepeatedJob`. rows: its columns. observed: the observations in `rows`.
        Raises: LogError: as `deliver`.
        """
        facts = self._facts()
        placed = self._parted(job_epoch(rows), rows, facts, few=True).withColumn(ROW, self._by_content)
        columns = self._columns_for(facts)
        counted = placed.observe(UNFIT, *columns.counts).where(columns.fits)
        return job_of(result, counted.select(*columns.sent), [*observed, UNFIT], facts)

    def deliver_repeated(self, epoch: EpochNumber, ranges: str, job: RepeatedJob) -> dict[str, dict[str, Any]] | None:
        """Deliver an epoch with a job that has delivered earlier ones; return what it has observed.

        Args: ranges: as of `RepeatedJob.run`.
        Returns: None: nothing was delivered. An earlier attempt may have left rows of the epoch, or the topic changed.
        Raises: as `deliver_computed`.
        """
        there = self._last
        if there is None or any(last >= (epoch, 0) for last in there.values()) or self._facts() != job.facts:
            return None
        self._last, self._limit_bytes = None, job.facts.max_message_bytes  # as in `_send`
        found = run_job(
            self._context, self._topic, job.facts.max_message_bytes, lambda options: job.run(ranges, options)
        )
        self._last = _after(epoch, there, job.facts)
        return found

    @cached_property
    def _by_content(self) -> Column:
        return F.row_number().over(Window.partitionBy("partition").orderBy("key", "value")).cast("long")

    def _facts(self) -> TopicFacts:
        """Return the facts about the topic. Raises: LogError: `PARTITIONS_CHANGED`."""
        facts = self._context.topics.facts(self._topic)
        if facts.partitions != (self._partitions or facts.partitions):
            raise PARTITIONS_CHANGED_SINK.error(
                where=self._to.where, topic=self._topic, before=self._partitions, now=facts.partitions
            )
        self._partitions = facts.partitions
        return facts

    @property
    def _context(self) -> Context:
        assert isinstance(self._place, Context), "an application at rest releases nothing"
        return self._place

    def _parted(self, epoch: Column, rows: DataFrame, facts: TopicFacts, *, few: bool) -> DataFrame:
        """Return rows in the form of the topic's records, grouped by partition."""
        placed = ROW in rows.columns
        if placed not in self._parting:
            made = _as_they_are() if self._encoded else encoded_rows(rows.columns, self._to)
            deciding = [F.col(ROW)] if self._encoded else placing_columns(rows.columns, self._to, made[1])
            self._parting[placed] = [*made, record_partition(deciding, facts.partitions).cast("int").alias("partition")]
        data = rows.select(*self._parting[placed], epoch.alias(_EPOCH))
        return data.coalesce(1) if few else data.repartition(facts.partitions, "partition")

    def _deliver(self, epoch: EpochNumber, data: DataFrame, facts: TopicFacts) -> DataFrame | None:
        columns = self._columns_for(facts)
        counted = Observed(data, columns.counts)
        self._send(epoch, counted.data.where(columns.fits), facts)
        found = counted.values() if tells_observed(data.sparkSession) else None
        if data.where(columns.unfit).isEmpty() if found is None else found["unfit"] == 0:
            return None
        return letters(data.where(columns.unfit), F.col("key"), columns.reason, self._topic, epoch, F.col("text"))

    def _columns_for(self, facts: TopicFacts) -> _Columns:
        limit = facts.max_message_bytes
        if limit not in self._columns:
            reason = F.coalesce("unfit", too_large("value", "key", limit))
            unfit = reason.isNotNull()
            stamp = [F.lit(0), F.lit(0), F.col(_EPOCH), F.col(ROW)]
            signing_key = F.lit(self._context.signing_key.of(self._topic, fence.RELEASE))
            key, value = F.col("key").cast("binary"), F.col("value").cast("binary")
            header = signed_header(
                self._context.home.identity, Incarnation(1), stamp, F.lit(0), signing_key=signing_key,
                partition=F.col("partition"), record_key=key, value=value,
            ).alias("header")  # fmt: skip
            to = first_attempt_only(F.lit(self._topic)).alias("topic")
            self._columns[limit] = _Columns(
                reason=reason, fits=~unfit, unfit=unfit, counts=[F.count_if(unfit).alias("unfit")],
                sent=[to, F.col("partition"), key.alias("key"), value.alias("value"), header],
            )  # fmt: skip
        return self._columns[limit]

    def _send(self, epoch: EpochNumber, data: DataFrame, facts: TopicFacts) -> None:
        """Send the rows of an epoch that are not in the topic yet, in order: (key, value, partition, ROW, _EPOCH)."""
        if self._limit_bytes not in (None, facts.max_message_bytes):
            self._last = None  # rows that were too large may fit now
        there = self._found()
        # Until the job has finished, only the topic has the position.
        self._last, self._limit_bytes = None, facts.max_message_bytes
        all_out = [p for p, last in there.items() if last >= (epoch, _ALL_ROWS)]
        data = data.where(~F.col("partition").isin(all_out)) if all_out else data
        if cut_off := [p for p, last in there.items() if (epoch, 0) <= last < (epoch, _ALL_ROWS)]:
            data = self._without_those_there(data, epoch, cut_off)
        write(self._context, self._topic, data.select(*self._columns_for(facts).sent), facts.max_message_bytes)
        self._last = _after(epoch, there, facts)

    def _without_those_there(self, data: DataFrame, epoch: EpochNumber, partitions: Sequence[int]) -> DataFrame:
        """Return an epoch's rows without those that an earlier attempt has left in these partitions.

        The last record alone is not enough, because a producer may have given up a record before it.
        """
        own = own_back_to(self._place, self._topic, self._ends, lambda p, stamp: stamp.offset < epoch)
        there = [(p, stamp.sub[0]) for p in partitions for stamp in own[p] if EpochNumber(stamp.offset) == epoch]
        out = pa.table({"partition": pa.array([p for p, _ in there], pa.int32()), ROW: [row for _, row in there]})
        left = data.join(F.broadcast(data.sparkSession.createDataFrame(out)), ["partition", ROW], "left_anti")
        return left.select(*data.columns).sortWithinPartitions("partition", ROW)  # a join does not keep the order


def _after(
    epoch: EpochNumber, there: Mapping[int, tuple[EpochNumber, int]], facts: TopicFacts
) -> dict[int, tuple[EpochNumber, int]]:
    """Return the last record of each partition after a whole epoch was sent. Args: there: those before."""
    # If this is an older epoch that is sent again, the topic may already have later ones.
    return {p: max(there.get(p, (epoch, 0)), (epoch, _ALL_ROWS)) for p in range(facts.partitions)}


def _as_they_are() -> list[Column]:
    """Return the same columns as `encoded_rows`, for rows of (key, value, ROW)."""
    unfit = F.lit(None).cast("string").alias("unfit")
    return [F.col("key"), F.col("value"), F.col("value").alias("text"), unfit, F.col(ROW)]


def encoded_rows(names: Sequence[str], to: Kafka) -> list[Column]:
    """Return the columns (key, value, text, unfit), and ROW if rows have it.

    `text` is the value as text. `unfit` is the reason why there is no value.
    """
    value, text, unfit = encoded([c for c in names if c != ROW], to)
    row = [F.col(ROW)] if ROW in names else []
    return [
        record_key(to.keys).alias("key"), value.alias("value"), text.alias("text"), unfit.alias("unfit"), *row,
    ]  # fmt: skip


def placing_columns(names: Sequence[str], to: Kafka, value: Column) -> list[Column]:
    """Return the columns that decide a row's partition: its key, or else its place or content."""
    return [F.col(f"`{key}`") for key in to.keys] or [F.col(ROW) if ROW in names else value]
