"""Running: computes the `groupBy` of a live region on records in memory, for the test kit and `falkirk why`.

In a query, Spark gives an updated result for each record. Here the Java module computes the same aggregate functions
record by record, in a window of time that never ends.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from falkirk.declare.nodes import NEWEST_ROW, Step
from falkirk.errors.conditions.testkit import APPLICATION_UNSUITABLE_AGGREGATE
from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.steps.batch.python import KIND
from falkirk.steps.dataframes.names import BAD, STAMP
from falkirk.steps.live import latest, windows
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.aggregates import aggregates_of, grouping_of
from falkirk.steps.live.stamped import Frame, key_column

#: The size of a window that holds all records, in microseconds.
_FOREVER = 1 << 60
_NEWEST = "__falkirk_newest"
_OPEN = StructType([
    StructField("start", LongType()), StructField("end", LongType()), StructField("buffers", BinaryType()),
])  # fmt: skip
#: The steps that are computed so.
RUNNING = ("agg", "count", NEWEST_ROW)


def updated(frame: Frame, step: Step, before: Callable[[StructType], DataFrame]) -> tuple[Frame, DataFrame]:
    """Return the frame after a step, with a result for each row in the order of the stamps, and the state after it.

    Args: before: returns the state before the rows; no rows at first. It gets the schema of a state.
    Raises: DefinitionError: as `frames.apply`; `APPLICATION_UNSUITABLE`: the aggregate can't be computed so.
    """
    if step.operation == NEWEST_ROW:
        grouping = latest.grouping(frame.columns, *step.arguments)
        made, left = _updated(frame, frames.after_agg(frame, *grouping), replace(step, arguments=grouping), before)
        return replace(made, data=latest.of_records(made.data, frame.columns, made.carried)), left
    return _updated(frame, frames.apply(frame, step), step, before)  # it reports the user's mistakes


def _updated(
    frame: Frame, planned: Frame, step: Step, before: Callable[[StructType], DataFrame]
) -> tuple[Frame, DataFrame]:
    """Return the same for an aggregation. Args: planned: the frame after the step, which names the columns."""
    session = frame.data.sparkSession
    keys, users = grouping_of(step.arguments)
    keyed, named = windows.with_key(frame.data.where(frames.is_good()), [key_column(key) for key in keys])
    columns = [F.col(f"`{c}`") for c in frame.data.columns]
    zero = F.lit(0).cast("long")
    new = keyed.select(
        F.struct(*named).alias("key"), F.lit(None).cast(_OPEN).alias("open"), zero.alias("time"),
        zero.alias("greatest"), zero.alias("after"), F.lit(None).cast("string").alias("origin"),
        F.struct(*columns).alias("row"),
    )  # fmt: skip
    kept = StructType([StructField("key", new.schema["key"].dataType), StructField("open", _OPEN)])
    old = before(kept).select(
        "key", "open", *[F.lit(None).cast(new.schema[n].dataType).alias(n) for n in ("time", "greatest")],
        zero.alias("after"), *[F.lit(None).cast(new.schema[n].dataType).alias(n) for n in ("origin", "row")],
    )  # fmt: skip
    order = (F.col("key"), F.col("row").isNotNull(), F.col(f"row.{STAMP}"))
    ready = new.unionByName(old).coalesce(1).sortWithinPartitions(*order)
    made: Any = _java(session).WindowsInEpoch.of(ready._jdf, KIND, _spec(frame, step, users))
    done = DataFrame(made, session).localCheckpoint(eager=True)
    left = done.where(F.col(KIND) == "state").select("state.key", F.struct(*[
        F.col(f"state.{name}") for name in _OPEN.names
    ]).alias("open"))  # fmt: skip
    results = done.where(F.col(KIND) == "result").select("result.*")
    return _with_bad(frame, planned, results, len(keys)), left


def _with_bad(frame: Frame, planned: Frame, results: DataFrame, keys: int) -> Frame:
    names = planned.columns
    values = [F.col("key").getField(f"__falkirk_key{i}").alias(name) for i, name in enumerate(names[:keys])]
    values += [F.col("values").getField(name).alias(name) for name in names[keys:]]
    stamp = F.col("values").getField(_NEWEST)
    bad_type = frame.data.schema[BAD].dataType
    good = results.select(*values, stamp.alias(STAMP), F.lit(None).cast(bad_type).alias(BAD))
    nulls = [F.lit(None).cast(planned.data.schema[name].dataType).alias(name) for name in names]
    bad = frame.data.where(~frames.is_good()).select(*nulls, STAMP, BAD)
    return Frame(
        data=good.unionByName(bad), depth=frame.depth, keyed=True, grouped_by=planned.grouped_by, is_run=True,
        several=frame.several,
    )  # fmt: skip


def _spec(frame: Frame, step: Step, users: Sequence[Any]) -> Any:
    """Return the aggregates for the Java module, and with them the stamp of the newest record."""
    aggregates: list[Column] = [*aggregates_of(users), F.max(F.col(STAMP)).alias(_NEWEST)]
    try:
        made = windows.aggregates_for_java(frame.data, aggregates)
    except SPARK_ERRORS as error:
        raise APPLICATION_UNSUITABLE_AGGREGATE.error(where=step.where, reason=first_line(error)) from error
    return _java(frame.data.sparkSession).WindowSpec(_FOREVER, _FOREVER, 0, 0, True, made)


def _java(session: SparkSession) -> Any:
    untyped: Any = session
    return untyped._jvm.org.falkirk
