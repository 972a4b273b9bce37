"""Event time: sorts rows into slices of time, and refuses rows that are too late for their slice.

Each partition has *watermarks*. The watermark at a row is the greatest time before it in its partition, less the
allowed lateness. A row is late if its slice ends at or before that watermark. So lateness depends only on the log,
wherever epochs are cut, and so does the content of a slice. A slice is complete once the watermarks of all partitions
have passed its end; every later row of it is late.

A row is refused if its time is outside the range, or further ahead of the clock than the user allows. It moves no
watermark. The clock is that of the epoch's decision, so a replay treats the row in the same way.

A partition without rows delays nothing. Its first rows may be late for a slice that was already complete. That depends
on the cuts of epochs, and is recorded with them.

Source: Flink article, §4 (event time, out-of-order processing); Falkirk Wheel, §3.3 (completion by watermark).
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from falkirk.declare.cut import SLICE, ByTime
from falkirk.steps.batch.call import LETTER_SCHEMA, current
from falkirk.steps.batch.python import KIND
from falkirk.steps.dataframes.names import STAMP
from falkirk.steps.live.event_time import LATE, unfit
from falkirk.steps.sources.topics import dead_letter

#: The mark with which an epoch records up to which time, in microseconds, slices are complete.
COMPLETE = "complete"


def sort(rows: DataFrame, by: ByTime, region: str, topic: str) -> DataFrame:
    """Return the rows that are not late, with their slices. Refuse late rows, and rows with an unsuitable time.

    Args: rows: with their stamps. region, topic: for the dead letters.
    """
    call = current("sort")
    time = F.unix_micros(F.col(f"`{by.column}`"))
    decided_us = F.lit(round(call.epoch.decided_at.timestamp() * 1_000_000))  # the same in every replay
    bad = unfit(time, by.column, by.ahead_us, decided_us)
    partition = F.col(f"{STAMP}.partition")
    before = Window.partitionBy(partition).orderBy(F.col(f"{STAMP}.offset"), F.col(f"{STAMP}.row"))
    before = before.rowsBetween(Window.unboundedPreceding, -1)
    newest = F.greatest(F.max(F.when(bad.isNull(), time)).over(before), _of_partition(call.marks, partition))
    complete = F.greatest(newest - F.lit(by.late_us), F.lit(call.marks.get(COMPLETE)).cast("long"))
    number = F.floor(time / F.lit(by.every_us)).cast("long")
    reason = F.when(bad.isNotNull(), bad).when((number + 1) * F.lit(by.every_us) <= complete, F.lit(LATE))
    row = F.to_json(F.struct(*[F.col(f"`{c}`") for c in rows.columns if c != STAMP]))
    content = dead_letter(reason, region, topic, row)
    result = F.struct(*[F.col(f"`{c}`") for c in rows.columns], number.alias(SLICE))
    letter = F.struct(F.lit(None).cast(StringType()).alias("key"), content.alias("value"))
    judged = rows.select(
        F.when(reason.isNull(), F.lit("result")).otherwise(F.lit("letter")).alias(KIND),
        F.when(reason.isNull(), result).alias("result"), F.when(reason.isNotNull(), letter).alias("letter"),
    )  # fmt: skip
    schema = judged.schema["result"].dataType
    assert isinstance(schema, StructType)
    parts = call.split(judged, {"result": schema, "letter": LETTER_SCHEMA}, determined_by=rows)
    call.reject(parts["letter"])
    return parts["result"]


def _of_partition(marks: Mapping[str, int], partition: Column) -> Column:
    """Return the greatest time in former epochs of a row's partition."""
    found = F.lit(None).cast("long")
    for name, time in marks.items():
        if name != COMPLETE:
            found = F.when(partition == F.lit(int(name)), F.lit(time)).otherwise(found)
    return found


def marks_after(before: Mapping[str, int], newest: Mapping[str, int], by: ByTime) -> dict[str, int]:
    """Return an epoch's marks for the next one. Args: newest: the greatest time of each partition in its rows."""
    greatest = {p: max(t, before.get(p, t)) for p, t in newest.items()}
    marks = {**{p: t for p, t in before.items() if p != COMPLETE}, **greatest}
    if not marks:
        return {}
    complete = min(marks.values()) - by.late_us
    return {**marks, COMPLETE: max(complete, before.get(COMPLETE, complete))}
