"""Idle partitions: a partition without records for a while holds time up no longer (`withWatermark(idle=)`).

At the end of an epoch, the time of an idle partition becomes the least time of the partitions that are not idle. If all
partitions of a stream are idle, their times stay, except in a join: there they become the least time of the other
stream. The clock only decides which partitions are idle, and is never their time. It is that of the epoch's decision,
which is recorded like the input of the epoch. So a replay decides the same. A later record of such a partition is late
by the partition's new time.

Source: Flink article, §4.1 (out-of-order processing); Apache Flink calls this `withIdleness`.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from falkirk.steps.batch.call import Call
from falkirk.steps.dataframes.names import STAMP

#: When each partition last had a record, by the clock in microseconds.
_SEEN = StructType(
    [StructField("source", StringType()), StructField("partition", IntegerType()), StructField("seen", LongType())]
)
_PLACE = ["source", "partition"]
_IS_IDLE = "__falkirk_idle"


def places(call: Call, sources: Sequence[str]) -> list[tuple[str, int]]:
    """Return all partitions of inputs: the names of their stamps, and numbers. Each topic of a list has its own name.

    Args: sources: the names of the inputs; one that a union has twice counts once.
    """
    known = call.epoch.partitions
    names = [
        name
        for source in dict.fromkeys(sources)
        for name in ([part for part in known if part.startswith(f"{source}/")] or [source])
    ]
    return [(name, partition) for name in names for partition in range(known.get(name, 1))]


def partitions_seen(call: Call, rows: DataFrame, sources: Sequence[str], idle_us: int) -> DataFrame:
    """Return all partitions of a stream, and whether each is idle at the end of the epoch.

    A partition without any record counts from the first epoch on.

    Args: rows: of the epoch, with their stamps. sources: the names of the inputs of the stream.
    """
    slot, now = call.slot("idle-partitions"), F.lit(round(call.epoch.decided_at.timestamp() * 1_000_000))
    before = call.before(slot, _SEEN)
    every = [
        F.struct(F.lit(source).alias("source"), F.lit(partition).alias("partition"))
        for source, partition in places(call, sources)
    ]
    there = rows.sparkSession.range(1).select(F.explode(F.array(*every)).alias("place")).select("place.*")
    new = rows.select(f"{STAMP}.source", f"{STAMP}.partition").distinct().withColumn("now", now)
    known = there.join(F.broadcast(before), _PLACE, "left").join(F.broadcast(new), _PLACE, "left")
    # A time after this epoch's comes from a clock that was set back since.
    seen = known.select(*_PLACE, F.least(F.coalesce("now", "seen", now), now).alias("seen"))
    call.keep(slot, seen)
    return seen.select(*_PLACE, (F.col("seen") <= now - F.lit(idle_us)).alias(_IS_IDLE))


def held_up_by_none(times: DataFrame, partitions: DataFrame) -> DataFrame:
    """Return the times of partitions, in which idle ones have at least the least time of the others.

    Args: times: of the partitions that have any. partitions: of `partitions_seen`.
    """
    known = partitions.join(times, _PLACE, "left")
    is_idle, time = F.col(_IS_IDLE), F.col("time")
    # A partition that is not idle and has no time yet holds the others up.
    waits = F.coalesce(F.bool_or(~is_idle & time.isNull()), F.lit(False))
    least = known.agg(F.when(~waits, F.min(F.when(~is_idle, time))).alias("least"))
    return _raised(known.crossJoin(F.broadcast(least)), is_idle)


def held_up_by_other(times: DataFrame, partitions: DataFrame, others: DataFrame, count: int) -> DataFrame:
    """Return the times of partitions. If all are idle, they have at least the least time of the other stream of a join.

    Args: times: of `held_up_by_none`. others: the times of the other stream, which has `count` partitions.
    """
    known = partitions.join(times, _PLACE, "left")
    all_idle = known.agg(F.coalesce(F.bool_and(_IS_IDLE), F.lit(False)).alias("all_idle"))
    least = others.agg(F.when(F.count("*") >= F.lit(count), F.min("time")).alias("least"))
    return _raised(known.crossJoin(F.broadcast(all_idle.crossJoin(least))), F.col("all_idle"))


def _raised(known: DataFrame, condition: Column) -> DataFrame:
    time = F.when(condition, F.greatest("time", "least")).otherwise(F.col("time"))
    return known.select(*_PLACE, time.alias("time")).where(F.col("time").isNotNull())
