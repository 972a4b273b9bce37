"""Windows by session and by count: groups of a key's rows. Each group is returned once, when it is complete."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from falkirk.declare.keys import key_columns
from falkirk.declare.policy import Duration, duration_s
from falkirk.errors.conditions.batch import CUT_INVALID_SESSIONS, CUT_INVALID_SIZE
from falkirk.errors.location import caller
from falkirk.steps.batch.call import Call, current
from falkirk.steps.batch.functions import STAMP_COLUMN, check_columns, columns_by_name, join_on
from falkirk.steps.batch.python import KIND


def sessions(rows: DataFrame, *, key: str | Sequence[str], time: str, gap: Duration) -> DataFrame:
    """Return the rows of complete sessions, with a column `session`, a struct of (begin, end).

    A session is a series of a key's rows with less than `gap` between successive rows. It ends `gap` after its last
    row, and is complete when event time has passed its end.

    Args: rows: a batch's rows, whose epochs are cut by event time in the column `time`.
    Raises: DefinitionError: `OUTSIDE_OF_BATCH`, `COLUMN_MISSING`, `DURATION_MALFORMED`; `CUT_INVALID`: the batch's
        epochs are cut in another way.
    """
    call, where = current("sessions"), caller()
    keys = key_columns(key)
    check_columns(rows, [*keys, time], where)
    if call.epoch.ends is None:
        raise CUT_INVALID_SESSIONS.error(where=where, time=time)
    gap_us, slot = round(duration_s(gap) * 1_000_000), call.slot("sessions")
    open_ = call.before(slot, rows.schema).unionByName(rows)
    at = F.unix_micros(F.col(f"`{time}`"))
    of_key = Window.partitionBy(*columns_by_name(keys)).orderBy("__at")
    timed = open_.withColumn("__at", at)
    begins = F.coalesce(F.col("__at") - F.lag("__at").over(of_key) >= F.lit(gap_us), F.lit(True))
    numbered = timed.withColumn("__begins", begins.cast("long")).withColumn("__number", F.sum("__begins").over(of_key))
    of_session = Window.partitionBy(*columns_by_name(keys), "__number")
    end = F.max("__at").over(of_session) + F.lit(gap_us)
    whole = numbered.withColumn("__end", end).withColumn("__begin", F.min("__at").over(of_session))
    bounds = F.struct(F.timestamp_micros("__begin").alias("begin"), F.timestamp_micros("__end").alias("end"))
    complete = F.col("__end") <= F.lit(round(call.epoch.ends.timestamp() * 1_000_000))
    return _divided(call, rows, whole, complete, bounds.alias("session"), slot)


def counted(rows: DataFrame, size: int, *, key: str | Sequence[str], order: str = STAMP_COLUMN) -> DataFrame:
    """Return the rows of each key's complete groups of `size` rows, with a column `group`, a number from 0.

    Args: rows: of a batch. order: the column that orders a key's rows. The default is their stamps, which a parameter
        marked `Stamped` has.
    Raises: DefinitionError: `OUTSIDE_OF_BATCH`, `COLUMN_MISSING`, `STAMP_MISSING`, `CUT_INVALID`.
    """
    call, where = current("counted"), caller()
    keys = key_columns(key)
    check_columns(rows, [*keys, order], where)
    if not isinstance(size, int) or size < 1:
        raise CUT_INVALID_SIZE.error(where=where, size=size)
    slots = call.slot("counted"), call.slot("groups")
    of_key = Window.partitionBy(*columns_by_name(keys))
    count = StructType([*[rows.schema[k] for k in keys], StructField("__groups", LongType())])
    groups = call.before(slots[1], count)
    waiting = call.before(slots[0], rows.schema).unionByName(rows)
    known = join_on(waiting, groups, keys, "left").select(
        *[waiting[f"`{c}`"] for c in waiting.columns], F.coalesce("__groups", F.lit(0)).alias("__groups")
    )
    place = F.row_number().over(of_key.orderBy(F.col(f"`{order}`"))) - F.lit(1)
    whole = known.withColumn("__place", place).withColumn("__all", F.count("*").over(of_key))
    group = (F.col("__groups") + F.floor(F.col("__place") / F.lit(size))).alias("group")
    complete = F.floor(F.col("__place") / F.lit(size)) < F.floor(F.col("__all") / F.lit(size))
    # Rows with equal values in a column of the user have no fixed order, so either may be the last one of a group.
    result = _divided(call, rows, whole, complete, group, slots[0], vouched=order == STAMP_COLUMN)
    mine = result.groupBy(*columns_by_name(keys)).agg((F.max("group") + 1).alias("__groups"))
    newer = groups.unionByName(mine).groupBy(*columns_by_name(keys))
    call.keep(slots[1], newer.agg(F.max("__groups").alias("__groups")))
    return result


def _divided(
    call: Call, rows: DataFrame, whole: DataFrame, complete: Column, extra: Column, slot: str, *, vouched: bool = True
) -> DataFrame:
    """Return complete rows with one more column, and keep the others. Both come from rows that are computed once."""
    own = columns_by_name(rows.columns)
    divided = whole.select(
        F.when(complete, F.lit("result")).otherwise(F.lit("state")).alias(KIND),
        F.when(complete, F.struct(*own, extra)).alias("result"), F.when(~complete, F.struct(*own)).alias("state"),
    )  # fmt: skip
    kinds = {kind: divided.schema[kind].dataType for kind in ("result", "state")}
    parts = call.split(divided, kinds, determined_by=rows if vouched else None)  # type: ignore[arg-type]  # structs
    call.keep(slot, parts["state"])
    return parts["result"]
