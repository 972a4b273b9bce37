"""Clocks: puts the times of a clock beside records, as rows that all state partitions get.

The records have no time then, so they move none. A time of the clock is a row that the user's steps pass on as a bad
record, like the time rows of EventTime.java. It has the stamp of its own record in the topic of the clock. So what a
timer gives has the stamp of the moment at which it fired.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from falkirk.declare.clock import AT
from falkirk.steps.dataframes.names import BAD, STAMP, TIME, VIEWS
from falkirk.steps.live.stamped import Frame


def with_clock(records: Frame, clock: Frame) -> Frame:
    """Return the frame of records with the times of a clock in `TIME`, in rows of their own.

    Args: clock: the frame of its topic, without further steps.
    """
    known = records.data.schema[BAD].dataType
    assert isinstance(known, StructType), "the reason and the raw record"
    nothing = F.lit(None).cast("bigint").alias(TIME)
    views = [VIEWS] if VIEWS in records.data.columns else []
    own = records.data.select(*[F.col(f"`{name}`") for name in records.columns], STAMP, BAD, *views, nothing)

    def null(name: str) -> Column:
        return F.lit(None).cast(records.data.schema[name].dataType).alias(name)

    is_time = F.col(BAD).isNull()
    of_time = F.struct(*[F.lit(None).cast(field.dataType).alias(field.name) for field in known.fields])
    theirs = clock.data.schema[BAD].dataType
    assert isinstance(theirs, StructType), "as above"
    of_bad = F.struct(*[
        (F.col(f"{BAD}.{f.name}") if f.name in theirs.names else F.lit(None).cast(f.dataType)).alias(f.name)
        for f in known.fields
    ])  # fmt: skip
    times = clock.data.select(
        *[null(name) for name in records.columns],
        F.struct(F.col(f"{STAMP}.*"), *[F.lit(0).alias(f"sub{i}") for i in range(records.depth)]).alias(STAMP),
        F.when(is_time, of_time).otherwise(of_bad).alias(BAD),
        *[null(name) for name in views],
        F.when(is_time, F.unix_micros(AT)).alias(TIME),
    )
    return Frame(data=own.union(times), depth=records.depth, several=True, is_run=records.is_run)
