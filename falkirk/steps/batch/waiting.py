"""Waiting: rows of micro-batches that wait until the watermark of each partition has passed their times.

The rows of a timed join do, and those of `stateful(order=)`. In a live region, LiveJoin.java, AsOfJoin.java and
TimeOrder.java hold them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from falkirk.declare.watermark import Watermark
from falkirk.steps.batch.call import LETTER_SCHEMA, Call, current
from falkirk.steps.batch.idle import held_up_by_other, places
from falkirk.steps.batch.watermarks import NEVER, Times, late_letter
from falkirk.steps.dataframes.names import GREATEST, STAMP, TIME
from falkirk.steps.live.event_time import LATE

#: Whether a row is of this epoch; the least watermark of all partitions.
IS_NEW, LIMIT = "__falkirk_new", "__falkirk_limit"
#: The time and the stamp of a row, as the order of a key's rows.
ORDER = "__falkirk_order"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The rows of a stream, such as one side of a join.

    Args: rows: of `watermarks.timed`, or of another join, with their times. sources: the names of the inputs that it
        reads. times: of `watermarks.timed`. limit: in place of the times, the watermark of the other join, in one row.
            No row of it is late.
    """

    rows: DataFrame
    sources: tuple[str, ...] = ()
    times: Times | None = None
    limit: DataFrame | None = None

    @property
    def columns(self) -> list[str]:
        """The user's columns."""
        return [name for name in self.rows.columns if name not in (STAMP, TIME, GREATEST)]

    def beside(self, other: "Side", call: Call) -> "Side":
        """Return the stream in a join: if all its partitions are idle, the other stream moves their times."""
        if self.times is None or self.times.partitions is None:
            return self
        if other.times is not None:
            others, count = other.times.after, len(places(call, other.sources))
        else:
            assert other.limit is not None, "a stream has times, or a limit"
            known = F.col(LIMIT) > F.lit(NEVER // 2)
            others, count = other.limit.where(known).select(F.col(LIMIT).alias("time")), 1
        after = held_up_by_other(self.times.after, self.times.partitions, others, count)
        call.keep(self.times.slot, after)
        return replace(self, times=replace(self.times, after=after))


def waiting_rows(
    call: Call, slot: str, side: Side, watermark: Watermark, region: str, marks: Sequence[str] = ()
) -> DataFrame:
    """Return the rows of former epochs that wait, and the new ones. Late ones become dead letters.

    Args: marks: the columns that tell what has become of a row. They are false for new rows.
    """
    kept = [*side.columns, STAMP, TIME]
    rows = side.rows
    if side.limit is None:
        is_late = F.col(TIME) < F.col(GREATEST) - F.lit(watermark.delay_us)
        late, rows = rows.where(is_late), rows.where(~is_late)
        letter = late_letter(late.drop(TIME, GREATEST), F.lit(LATE), region)
        call.reject(late.select(F.lit(None).cast(LETTER_SCHEMA["key"].dataType).alias("key"), letter))
    new = rows.select(*columns_of(kept), *[F.lit(False).alias(name) for name in marks])
    more = [StructField(name, BooleanType()) for name in marks]
    schema = StructType([*[side.rows.schema[name] for name in kept], *more])
    old = call.before(slot, schema).withColumn(IS_NEW, F.lit(False))
    return old.unionByName(new.withColumn(IS_NEW, F.lit(True)))


def least_watermark(call: Call, side: Side, watermark: Watermark) -> DataFrame:
    """Return the least watermark of all partitions of a stream, in one row."""
    if side.limit is not None:
        return side.limit
    assert side.times is not None, "a stream has times, or a limit"
    knows_all = F.count("*") >= F.lit(len(places(call, side.sources)))
    least = F.when(knows_all, F.min("time") - F.lit(watermark.delay_us)).otherwise(F.lit(NEVER))
    return side.times.after.agg(least.alias(LIMIT))


def columns_of(names: Sequence[str]) -> list[Column]:
    """Return columns by their names, which may have any characters."""
    return [F.col(f"`{name}`") for name in names]


def in_order(side: Side, watermark: Watermark, region: str) -> DataFrame:
    """Return the rows of this and former epochs that the watermark of each partition has passed, with `ORDER`.

    The others wait for the next epoch. Late rows become dead letters.

    Args: region: for the dead letters.
    """
    call = current("stateful")
    slot = call.slot("stateful-order")
    rows = waiting_rows(call, slot, side, watermark, region).drop(IS_NEW)
    timed = rows.crossJoin(F.broadcast(least_watermark(call, side, watermark)))
    has_passed = F.col(TIME) < F.col(LIMIT)
    call.keep(slot, timed.where(~has_passed).drop(LIMIT))
    order = F.struct(F.col(TIME).alias("time"), F.col(f"{STAMP}.*"))
    return timed.where(has_passed).withColumn(ORDER, order).drop(LIMIT, TIME)
