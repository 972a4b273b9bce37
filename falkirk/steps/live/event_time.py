"""Event time: the steps `withWatermark` and `dropDuplicates` of live regions, by classes of the Java module.

The time of a source partition is the greatest time of its records so far, so it is a function of a record's place in
the log, and every replay computes the same. `withWatermark` adds a column with a record's time. In a query it also adds
time rows: before a record that moves the time of its partition, a row with the new time, which goes to all state
partitions (EventTime.java). So a keyed step knows the time of a partition from all its records, also from those of keys
in other state partitions, and from those that a later step leaves out.

While Falkirk plans, a DataFrame is not a stream. Then the steps only add the facts for the inference: the columns
that they read.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, StructType

from falkirk.declare.cut import EARLIEST, LATEST
from falkirk.declare.watermark import Watermark
from falkirk.steps.dataframes.names import ARRIVED, BAD, STAMP, TIME
from falkirk.steps.live import effects

#: The reason of the dead letter of a late record.
LATE = "late"
#: How the reasons of unsuitable times begin, with the name of the column.
_REASONS = (
    "column {} is null",
    f"column {{}} is not between the years {EARLIEST.year} and {LATEST.year}",
    "column {} is more than",
)
_OF_TIME = re.compile(r"column .* (?:is not between the years \d+ and \d+$|is more than .* s ahead of the clock$)")
#: Columns between Python and the Java module: a record's state partition, its key, and whether it is late.
_SHARD, KEY, _IS_LATE = "__falkirk_shard", "__falkirk_key", "__falkirk_late"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The keyed steps of a region that follow each other without a hop (Chain.java).

    Args: sharded_by: the places of the columns, in the key of the first of them, that choose the state partition of a
        record. The key of each later step contains them, too. Empty: there is one such step, and its whole key does.
        has_begun: the next step is not the first one.
    """

    sharded_by: tuple[int, ...] = ()
    has_begun: bool = False


#: The chain of a region with one keyed step.
ALONE = Chain()


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinKey:
    """The columns that choose the state partition of joined records: the key of the first join.

    Args: ids: Catalyst's identities of the columns in the results; None: a part of the key is no column of the left
        stream. names: theirs in the results of the first join. places: theirs in the key of the last join, if that is
        another one. is_in_last: the key of the last join has all of them.
    """

    ids: tuple[int, ...] | None
    names: tuple[str, ...]
    places: tuple[int, ...] = ()
    is_in_last: bool = True


def unfit(time: Column, name: str, ahead_us: int, now_us: Column) -> Column:
    """Return why a time is unsuitable, or null. Records with such times move no time.

    Args: time: in microseconds. name: the user's column. now_us: the clock, which is the same in every replay.
    """
    is_null, is_outside, is_ahead = (text.format(name) for text in _REASONS)
    earliest, end = (F.lit(round(t.timestamp()) * 1_000_000) for t in (EARLIEST, LATEST))
    return (
        F.when(time.isNull(), F.lit(is_null))
        .when((time < earliest) | (time >= end), F.lit(is_outside))
        .when(time > now_us + F.lit(ahead_us), F.lit(f"{is_ahead} {ahead_us / 1e6:g} s ahead of the clock"))
    )


def is_of_time(reason: str) -> bool:
    """Return whether the reason of a dead letter is the record's event time."""
    return reason == LATE or _OF_TIME.match(reason) is not None


def timed_records(data: DataFrame, columns: Sequence[str], watermark: Watermark, *, is_alone: bool) -> DataFrame:
    """Return records with their times in `TIME`; in a query, records with an unsuitable time are bad.

    Args: columns: the user's columns. is_alone: see `effects.mark`.
    """
    time = F.unix_micros(F.col(f"`{watermark.column}`"))
    if not data.isStreaming:
        return data.withColumn(TIME, time)
    reason, is_good = "__falkirk_reason", F.col(BAD).isNull()
    why = unfit(time, watermark.column, watermark.ahead_us, F.unix_micros(ARRIVED))
    judged = data.withColumn(reason, F.when(is_good, why))
    fits = is_good & F.col(reason).isNull()
    kept = judged.select(
        *_only_if(fits, columns),
        STAMP,
        bad(judged, F.col(reason).isNotNull(), F.col(reason), columns, is_alone=is_alone),
        F.when(fits, time).alias(TIME),
    )
    return _with_time_rows(kept)


def first_of_key(
    data: DataFrame, columns: Sequence[str], keys: Sequence[str], watermark: Watermark, *, is_alone: bool, chain: Chain
) -> DataFrame:
    """Return the first record of each key within the delay, with its `TIME`; in a query, late records are bad.

    Args: data: with `TIME`. columns: the user's columns. keys: those of the key. is_alone: see `effects.mark`. chain:
        of the frame.
    """
    named = [as_key(data, name) for name in keys]
    if not data.isStreaming:
        reads = F.hash(*named, F.col(TIME), F.col(f"{STAMP}.partition")) >= F.lit(-(2**31))
        return data.where(F.col(BAD).isNotNull() | reads)
    session: Any = data.sparkSession
    operator = session._jvm.org.falkirk.FirstOfKey(column_names(data), KEY, _IS_LATE, watermark.delay_us)
    made, late = by_key(data, named, operator, chain), F.col(_IS_LATE)
    is_bad = bad(made, late, F.lit(LATE), columns, is_alone=is_alone)
    # A late record is a bad one now, and a bad row with a time would be a time row.
    return made.select(*_only_if(~late, columns), STAMP, is_bad, F.when(~late, F.col(TIME)).alias(TIME))


def by_key(data: DataFrame, named: Sequence[Column], operator: Any, chain: Chain) -> DataFrame:
    """Apply an operator of the Java module to the records of each key. All state partitions get the time rows, if the
    data has any.

    Args: named: the columns of the key, which the operator finds in `KEY`. chain: of the frame.
    """
    session: Any = data.sparkSession
    if chain.has_begun:
        keyed = data.withColumn(KEY, F.struct(*named))
        return DataFrame(session._jvm.org.falkirk.Keyed.then(keyed._jdf, operator), session)
    partitions = int(session.conf.get("spark.sql.shuffle.partitions"))
    keyed = _with_shard(data, named, [named[place] for place in chain.sharded_by] or named, partitions)
    return DataFrame(session._jvm.org.falkirk.Keyed.apply(keyed._jdf, _SHARD, partitions, operator), session)


def joined_by_key(
    left: DataFrame, right: DataFrame, named: Sequence[Column], places: Sequence[int], operator: Any
) -> DataFrame:
    """Join the results of a join with the records of a further source, in the same state partitions.

    Args: left: the results, after row steps. right: the same columns. named: the columns of the key. places: those that
        choose the state partition, in the order of the first join's key. operator: of the Java module.
    """
    session: Any = left.sparkSession
    partitions = int(session.conf.get("spark.sql.shuffle.partitions"))
    results = left.withColumn(KEY, F.struct(*named))
    others = _with_shard(right, named, [named[place] for place in places], partitions)
    return DataFrame(session._jvm.org.falkirk.Keyed.join(results._jdf, others._jdf, operator), session)


def _with_shard(data: DataFrame, named: Sequence[Column], sharding: Sequence[Column], partitions: int) -> DataFrame:
    """Return records with their keys and their state partitions. All of these get the time rows."""
    is_bad = F.col(BAD).isNotNull()
    own = F.pmod(F.when(is_bad, F.col(f"{STAMP}.partition")).otherwise(F.hash(*sharding)), F.lit(partitions))
    shard = own.cast("int")
    if TIME in data.columns:
        all_ = F.sequence(F.lit(0), F.lit(partitions - 1))
        shard = F.explode(F.when(is_bad & F.col(TIME).isNotNull(), all_).otherwise(F.array(shard)))
    return data.withColumn(KEY, F.struct(*named)).withColumn(_SHARD, shard)


def _with_time_rows(data: DataFrame) -> DataFrame:
    return DataFrame(column_names(data).withTimeRows(data._jdf), data.sparkSession)


def column_names(data: DataFrame) -> Any:
    """Return the names of our columns for the Java module."""
    session: Any = data.sparkSession
    return session._jvm.org.falkirk.EventTime(STAMP, TIME, BAD)


def as_key(data: DataFrame, name: str) -> Column:
    """Return a column of a key, such that equal keys have equal bytes: 0.0 and -0.0 are equal."""
    column, kind = F.col(f"`{name}`"), data.schema[name].dataType
    if isinstance(kind, DoubleType | FloatType):
        column = F.when(column == F.lit(0).cast(kind), F.lit(0).cast(kind)).otherwise(column)
    return column.alias(name)


def _only_if(condition: Column, columns: Sequence[str]) -> list[Column]:
    return [F.when(condition, F.col(f"`{name}`")).alias(name) for name in columns]


def bad(
    data: DataFrame,
    is_unfit: Column,
    reason: Column,
    columns: Sequence[str],
    text: Column | None = None,
    *,
    is_alone: bool | Column | None = None,
) -> Column:
    """Return `BAD` with the newly unfit records. Their raw record is a text: by default, that of their columns.

    Args: data: with `BAD`, which has tracebacks after a Python function. is_alone: see `effects.mark`; None: no dead
        letter is made of the row.
    """
    raw = F.to_json(F.struct(*[F.col(f"`{name}`") for name in columns])) if text is None else text
    known = data.schema[BAD].dataType
    assert isinstance(known, StructType), "the reason and the raw record"
    more = [F.lit(None).cast(field.dataType).alias(field.name) for field in known.fields[3:]]
    key = F.lit(None).cast("binary") if is_alone is None else effects.mark(is_alone)
    letter = F.struct(reason.alias("reason"), key.alias("key"), raw.cast("binary").alias("value"), *more)
    return F.when(is_unfit, letter).otherwise(F.col(BAD)).alias(BAD)
