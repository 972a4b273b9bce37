"""Rows: converts a region's results to rows for its lanes, each with its stamp, after the barrier.

A record that does not fit, or that would exceed the topic's size limit, becomes a dead letter. Each row has a topic
column, so one query can write both. (A record above the limit must never reach the producer, which would retry it
forever.)
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from falkirk.declare.endpoints import Kafka
from falkirk.errors.conditions.spark import STAMP_SHAPE
from falkirk.kafka_client.void import Void
from falkirk.plan.region import Region
from falkirk.runtime.spark.attempts import first_attempt_only
from falkirk.runtime.spark.signed import signed_header
from falkirk.steps.dataframes.names import BAD, STAMP
from falkirk.steps.live import effects
from falkirk.steps.live.stamped import Frame, key_column
from falkirk.steps.sources import avro, wire, written
from falkirk.steps.sources.topics import dead_letter
from falkirk.theory.channel import Channel, ReleasedTail
from falkirk.theory.ids import Incarnation, LogId
from falkirk.theory.stamp import Stamp

#: Bytes of a record batch besides one record's key and value: the headers of batch and record, our stamp header, and a
#: reserve.
OVERHEAD_BYTES = 512
#: Bytes of the raw value that a dead letter keeps. With more, the dead letter itself could be too large.
RAW_BYTES_MAX = 65_536
#: How the reason of a dead letter begins if the record is a result and not an input.
TOO_LARGE, NOT_WRITTEN = "too large: ", "not written: "
#: The JSON format of records: with nulls, in microseconds (Spark's own default is milliseconds), and in a time zone
#: that does not depend on the session. A replay must give the same bytes.
JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTopic:
    """A topic that a region writes: its name, its partitions, and the size limit of a record batch in bytes."""

    name: LogId
    partitions: int
    size_limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """The results that a restarted region must not publish again.

    Args:
        main, dead: per channel, the greatest stamp in the output topic and in the dead letters.
        unsafe_main, unsafe_dead: the published stamps as text, used instead of the greatest stamp after a producer
            error. Then the accepted records need not be a prefix of the sent ones. None: they are a prefix.
    """

    main: ReleasedTail
    dead: ReleasedTail
    unsafe_main: frozenset[str] | None = None
    unsafe_dead: frozenset[str] | None = None

    def is_open(self) -> bool:
        """Return whether no result is published yet, so that the barrier drops nothing."""
        return not (self.main.greatest or self.dead.greatest or self.unsafe_main or self.unsafe_dead)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncarnationConstants:
    """The constants of one incarnation of a region: the writer, the topics, and the published results.

    Args: source_partitions: of each source. main_key, dead_key: the keys with which it signs records of either topic.
    """

    application: str
    incarnation: Incarnation
    source_partitions: tuple[int, ...]
    state_partitions: int
    main: OutputTopic
    dead: OutputTopic
    barrier: Barrier | None
    main_key: bytes = field(repr=False)
    dead_key: bytes = field(repr=False)


def without(raw: DataFrame, void: Void) -> DataFrame:
    """Return Kafka records without the void ones. If `void` has fences, the records must have their headers.

    A forged header can at most hide the record that carries it.
    """
    for partition, first, last in void.ranges:
        raw = raw.where(~((F.col("partition") == partition) & (F.col("offset") >= first) & (F.col("offset") < last)))
    for partition, position, incarnation in void.fences:
        writer = F.split_part(F.get(F.col("headers"), F.lit(0))["value"].cast("string"), F.lit("/"), F.lit(2))
        late = (
            (F.col("partition") == partition) & (F.col("offset") >= position) & (writer.try_cast("int") < incarnation)
        )
        raw = raw.where(~F.coalesce(late, F.lit(False)))
    return raw


def rows(frame: Frame, region: Region, release: IncarnationConstants) -> DataFrame:
    """Return the DataFrame of Kafka rows (topic, partition, key, value, header) that the region publishes."""
    stamp = F.col(STAMP)
    state = F.spark_partition_id() if region.stateful else F.lit(0)
    value, text, unfit = encoded(frame.columns, region.output)
    data = frame.data.select(
        "*",
        value.alias("__value"),
        *([text.alias("__text")] if _text_of(region) == "__text" else []),
        record_key(() if region.hop is not None else region.output.keys).cast("binary").alias("__key"),
        _partition(region, release).alias("__partition"),
        state.alias("__state"),
    )
    oversize = too_large("__value", "__key", release.main.size_limit_bytes)
    data = data.withColumn("__reason", F.coalesce(F.col(f"{BAD}.reason"), unfit, oversize))
    dead = F.col("__reason").isNotNull()
    to = F.when(dead, F.col(f"{STAMP}.partition") % release.dead.partitions).otherwise(F.col("__partition"))
    if release.barrier is not None and not release.barrier.is_open():
        data = data.withColumn("__to", to)
        to = F.col("__to")
        if release.barrier.unsafe_main is not None or release.barrier.unsafe_dead is not None:
            text = F.concat_ws(".", *[stamp[name] for name in _fields(frame.depth)], F.col("__state"))
            data = data.withColumn("__published_as", text)
        data = data.where(~_is_released(frame.depth, dead, release.barrier, release))
    numbers = [stamp[name] for name in _fields(frame.depth)]
    topic = F.when(dead, F.lit(release.dead.name)).otherwise(F.lit(release.main.name))
    signing_key = F.when(dead, F.lit(release.dead_key)).otherwise(F.lit(release.main_key))
    partition = to.cast("int")
    key = F.when(dead, effects.key_of_letter()).otherwise(F.col("__key"))
    value = F.when(dead, _dead_letter(region, frame).cast("binary")).otherwise(F.col("__value").cast("binary"))
    header = signed_header(
        release.application, release.incarnation, numbers, F.col("__state"), signing_key=signing_key,
        partition=partition, record_key=key, value=value,
    )  # fmt: skip
    return data.select(
        first_attempt_only(topic).alias("topic"),
        partition.alias("partition"),
        key.alias("key"),
        value.alias("value"),
        header.alias("header"),
    )


def _text_of(region: Region) -> str:
    """Return the name of the column that has a record's value as readable text."""
    return "__text" if region.output.format == "avro" or region.output.schemas is not None else "__value"


def encoded(columns: Sequence[str], to: Kafka) -> tuple[Column, Column, Column]:
    """Return a record's value in the topic's format, the value as text, and the reason for a missing value or null."""
    text = F.to_json(F.struct(*[F.col(f"`{c}`") for c in columns]), JSON_OPTIONS)
    if to.schema is None or (to.format != "avro" and to.schemas is None):
        return text, text, F.lit(None).cast("string")
    named = {c: F.col(f"`{c}`") for c in columns}
    if to.format == "avro":
        value, reason = avro.written(named, to.schema)
    else:
        reason = written.null_forbidden(named, to.schema)
        value = F.when(reason.isNull(), text.cast("binary"))
    return wire.prefixed(value, to), text, F.concat(F.lit(NOT_WRITTEN), reason)


def record_key(keys: Sequence[str]) -> Column:
    """Return a record's key as text: the value of its only key column, or several as JSON; null without any."""
    if not keys:
        return F.lit(None).cast("string")
    parts = [F.col(f"`{key}`") for key in keys]
    return parts[0].cast("string") if len(parts) == 1 else F.to_json(F.struct(*parts), JSON_OPTIONS)


def record_partition(parts: Sequence[Column], partitions: int) -> Column:
    """Return the partition of a record from the columns that decide it, such as its key."""
    return F.pmod(F.hash(*parts), F.lit(partitions))


def too_large(value: str, key: str, limit_bytes: int) -> Column:
    """Return the reason why a record does not fit a topic; null if it fits. Args: limit_bytes: of a record batch."""
    size, limit = F.octet_length(value) + F.coalesce(F.octet_length(key), F.lit(0)), limit_bytes - OVERHEAD_BYTES
    return F.when(size > limit, F.concat(F.lit(TOO_LARGE), size.cast("string"), F.lit(f" bytes, {limit} fit")))


def _fields(depth: int) -> list[str]:
    return ["source", "partition", "offset", *[f"sub{i}" for i in range(depth)]]


def _partition(region: Region, release: IncarnationConstants) -> Column:
    """Return the output partition. It is a function of the record, so that a replay uses the same channel."""
    keys = [key_column(key) for key in region.hop.keys] if region.hop else [F.col(f"`{k}`") for k in region.output.keys]
    if keys:
        return record_partition(keys, release.main.partitions)
    place = F.spark_partition_id() if region.stateful else F.col(f"{STAMP}.partition")
    return F.pmod(place, F.lit(release.main.partitions))


def _dead_letter(region: Region, frame: Frame) -> Column:
    raw = F.coalesce(F.col(f"{BAD}.value"), F.col(_text_of(region)).cast("binary"))
    value = F.substring(raw, 1, RAW_BYTES_MAX).cast("string")
    names = [each.topic.topic for each in region.sources]
    topic = F.element_at(F.array(*map(F.lit, names)), F.col(f"{STAMP}.source") + 1) if names[1:] else names[0]
    has_traceback = "traceback" in frame.data.schema[BAD].dataType.fieldNames()  # type: ignore[attr-defined]
    traceback = F.col(f"{BAD}.traceback") if has_traceback else None
    resend = _resend(region) if has_traceback or any(s.operation == "withWatermark" for s in region.steps()) else None
    return dead_letter(F.col("__reason"), region.name, topic, value, traceback, resend)


def _resend(region: Region) -> Column:
    return effects.resend(F.col("__reason"), inside=_hops(region), of_function=resend_after_failure(region))


def resend_after_failure(region: Region) -> str:
    """Return the field `resend` of a record on which a function failed, if it has had no other effect.

    A recovery cancels the dead letters of a region whose own steps may differ, if no checkpoint covers their input.
    There are exceptions. Results that may be repeated are not cancelled. If records wait for others, their letters come
    after the checkpoint that covers them. If another region takes results back, even a checkpoint may become invalid.
    """
    if region.deterministic and not region.varying and region.undetermined is None:
        return effects.SAFE
    is_cancelled = not (region.deterministic or region.repeats or region.reorders or _hops(region))
    return effects.ONCE_COVERED if is_cancelled else effects.MAY_CHANGE


def _hops(region: Region) -> tuple[int, ...]:
    return tuple(number for number, source in enumerate(region.sources) if source.is_hop)


def _is_released(depth: int, dead: Column, barrier: Barrier, release: IncarnationConstants) -> Column:
    in_main = _released(depth, barrier.main, barrier.unsafe_main, release, release.main)
    in_dead = _released(depth, barrier.dead, barrier.unsafe_dead, release, release.dead)
    return F.when(dead, in_dead).otherwise(in_main)


def _released(
    depth: int, tail: ReleasedTail, unsafe: frozenset[str] | None, release: IncarnationConstants, topic: OutputTopic
) -> Column:
    """Return the condition that a row is already published: its stamp is at most the greatest of its channel."""
    if unsafe is not None:
        return _is_one_of("__published_as", unsafe)
    greatest = tail.greatest
    if not greatest:
        return F.lit(False)
    shape = (len(release.source_partitions), max(release.source_partitions), release.state_partitions, topic.partitions)
    table = _table(greatest, shape, depth)
    subs = "".join(f",sub{i}:int" for i in range(depth))
    index = F.lit(0)
    for size, place in zip(
        shape,
        (F.col(f"{STAMP}.source"), F.col(f"{STAMP}.partition"), F.col("__state"), F.col("__to")),
        strict=True,
    ):
        index = index * size + place
    # One literal, which the optimizer folds once. A look-up by index costs the same for 4 channels as for 40,000.
    last = F.get(F.from_json(F.lit(json.dumps(table)), f"array<struct<offset:bigint{subs}>>"), index)
    mine = F.struct(*[F.col(STAMP)[name].alias(name) for name in _fields(depth)[2:]])
    return F.coalesce(mine <= last, F.lit(False))


def _is_one_of(column: str, stamps: frozenset[str]) -> Column:
    """Return whether a column is one of many stamps. As SQL they are one call to the JVM. The optimiser makes a set."""
    return F.expr(f"{column} IN ({', '.join(map(repr, sorted(stamps)))})") if stamps else F.lit(False)


def _table(greatest: Mapping[Channel, Stamp], shape: Sequence[int], depth: int) -> list[dict[str, int] | None]:
    cells = 1
    for size in shape:
        cells *= size
    table: list[dict[str, int] | None] = [None] * cells
    for channel, stamp in sorted(greatest.items()):
        if len(stamp.sub) != depth:
            raise STAMP_SHAPE.error(where=str(channel), sub=len(stamp.sub), depth=depth)
        index = 0
        places = (channel.source, channel.source_partition, channel.state_partition, channel.output_partition)
        for size, place in zip(shape, places, strict=True):
            index = index * size + place
        table[index] = {"offset": stamp.offset, **{f"sub{i}": s for i, s in enumerate(stamp.sub)}}
    return table
