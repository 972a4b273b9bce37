"""Watermarks: the steps `withWatermark` and `dropDuplicates`, and windows, of streams in micro-batches.

They mean the same as in a live region (steps/live/event_time.py): the time of a partition is the greatest time of its
records so far, and everything about a record depends on the records before it in its partition. The times of
partitions, the known keys and the open windows are states of the epoch.

If records of a key come from several partitions, which only micro-batches allow, a known key expires by the time of the
partition of its first record. Windows then close by the least time of all partitions at the end of an epoch, and a
record is late by that time at the end of the former epoch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from falkirk.declare.nodes import Step
from falkirk.declare.watermark import Expiry, Timers, Watermark
from falkirk.declare.windows import split_windows
from falkirk.steps.batch import window_stamps
from falkirk.steps.batch.ages import AGES, END, Age
from falkirk.steps.batch.call import LETTER_SCHEMA, Call, current
from falkirk.steps.batch.idle import held_up_by_none, partitions_seen
from falkirk.steps.batch.python import KIND
from falkirk.steps.dataframes.names import AGE, GREATEST, OUR_COLUMNS, STAMP, TIME
from falkirk.steps.live import windows
from falkirk.steps.live.aggregates import aggregates_of
from falkirk.steps.live.event_time import LATE, as_key, unfit
from falkirk.steps.live.stamped import Frame, key_column

_TIMES = StructType(
    [StructField("source", StringType()), StructField("partition", IntegerType()), StructField("time", LongType())]
)
_KNOWN = StructType(
    [StructField("time", LongType()), StructField("source", StringType()), StructField("partition", IntegerType())]
)
_OPEN = StructType([
    StructField("start", LongType()), StructField("end", LongType()), StructField("buffers", BinaryType()),
])  # fmt: skip
_ORIGIN = StructType([StructField("source", StringType()), StructField("partition", IntegerType())])
_TIME = StructType([StructField("time", LongType())])
#: Before all times, even after a delay is subtracted.
NEVER = -(2**62)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The times of all partitions, before and after an epoch.

    Args: rows: those that move the times, with `GREATEST`. slot: of the times. partitions: see `idle.py`; None: no
        partition counts as idle.
    """

    before: DataFrame
    after: DataFrame
    rows: DataFrame
    slot: str
    partitions: DataFrame | None = None


def timed_rows(rows: DataFrame, watermark: Watermark, region: str, sources: Sequence[str]) -> tuple[DataFrame, Times]:
    """Return the rows with a suitable time, with `TIME` and `GREATEST`; and the times of all partitions.

    Args: rows: with their stamps. region: for the dead letters. sources: the names of the inputs that they come from.
    """
    call = current("withWatermark")
    slot = call.slot("watermark")
    before = call.before(slot, _TIMES)
    time = F.unix_micros(F.col(f"`{watermark.column}`"))
    arriving, arrived_us = call.arrived(rows)
    own = F.col(STAMP)
    partition = Window.partitionBy(own["source"], own["partition"]).orderBy(STAMP)
    so_far = partition.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    old = F.broadcast(before.select(*[F.col(name).alias(f"__old_{name}") for name in _TIMES.names]))
    same = (own["source"] == F.col("__old_source")) & (own["partition"] == F.col("__old_partition"))
    judged = arriving.join(old, same, "left").withColumn(
        "__reason", unfit(time, watermark.column, watermark.ahead_us, arrived_us)
    )
    fits = F.col("__reason").isNull()
    greatest = F.greatest(F.max(F.when(fits, time)).over(so_far), F.col("__old_time"))
    columns = [F.col(f"`{c}`") for c in rows.columns if c not in (TIME, GREATEST)]
    result = F.struct(*columns, time.alias(TIME), greatest.alias(GREATEST))
    # The stamps of all rows tell who is idle, and reading the rows again would cost as much as the epoch itself.
    stamp = [] if watermark.idle_us is None else [own]
    letter = F.struct(F.lit(None).cast(StringType()).alias("key"), late_letter(rows, F.col("__reason"), region), *stamp)
    divided = judged.select(
        F.when(fits, F.lit("result")).otherwise(F.lit("letter")).alias(KIND),
        F.when(fits, result).alias("result"), F.when(~fits, letter).alias("letter"),
    )  # fmt: skip
    kinds = {kind: divided.schema[kind].dataType for kind in ("result", "letter")}
    parts = call.split(divided, kinds, determined_by=rows)  # type: ignore[arg-type]  # structs
    found, rejected = parts["result"], parts["letter"]
    call.reject(rejected)  # and not another DataFrame of it: the call knows whether it has rows
    newest = found.select(f"{STAMP}.source", f"{STAMP}.partition", F.col(GREATEST).alias("time"))
    after = before.unionByName(newest).groupBy("source", "partition").agg(F.max("time").alias("time"))
    partitions = None
    if watermark.idle_us is not None:
        partitions = partitions_seen(
            call, found.select(STAMP).unionByName(rejected.select(STAMP)), sources, watermark.idle_us
        )
        after = held_up_by_none(after, partitions)
    call.keep(slot, after)
    return found, Times(before=before, after=after, rows=found, slot=slot, partitions=partitions)


def first_rows_of_key(
    rows: DataFrame, keys: Sequence[str], watermark: Watermark, region: str, times: Times
) -> DataFrame:
    """Return the first row of each key within the delay. Late rows become dead letters.

    Args: rows: of `timed`, with its columns. region: for the dead letters. times: of `timed`.
    """
    call = current("dropDuplicates")
    slot = call.slot("dropDuplicates")
    key = StructType([StructField(name, rows.schema[name].dataType) for name in keys])
    before = call.before(slot, StructType([StructField("key", key), StructField("known", _KNOWN)]))
    columns = [F.col(f"`{c}`") for c in rows.columns]
    is_late = F.col(TIME) < F.col(GREATEST) - F.lit(watermark.delay_us)
    letter = F.when(is_late, late_letter(rows.drop(TIME, GREATEST), F.lit(LATE), region))
    new = rows.select(
        F.struct(*[as_key(rows, name) for name in keys]).alias("key"),
        F.lit(None).cast(_with_time(_KNOWN)).alias("known"), F.col(TIME).alias("time"),
        F.col(GREATEST).alias("greatest"), F.col(f"{STAMP}.source").alias("source"),
        F.col(f"{STAMP}.partition").alias("partition"), F.struct(*columns).alias("row"), letter.alias("letter"),
    )  # fmt: skip
    now = F.broadcast(times.before.select("source", "partition", F.col("time").alias("greatest")))
    flat = before.select("key", "known.*").join(now, ["source", "partition"])
    fields = [F.col(name) for name in (*_KNOWN.names, "greatest")]
    old = flat.select(
        "key", F.struct(*fields).alias("known"),
        *[F.lit(None).cast(new.schema[name].dataType).alias(name) for name in new.columns[2:]],
    )  # fmt: skip
    order = (F.col("key"), F.col("row").isNotNull(), F.col(f"row.{STAMP}"))
    grouped = new.unionByName(old).repartition("key").sortWithinPartitions(*order)
    session: Any = rows.sparkSession
    made = session._jvm.org.falkirk.FirstOfKeyInEpoch.of(grouped._jdf, KIND, watermark.delay_us)
    done = DataFrame(made, session)
    kinds = {kind: done.schema[kind].dataType for kind in ("result", "state", "letter")}
    parts = call.split(done, kinds, determined_by=rows)  # type: ignore[arg-type]  # structs
    call.reject(parts["letter"])
    call.keep(slot, _unexpired(parts["state"], times.after, watermark))
    return parts["result"]


def _unexpired(states: DataFrame, times: DataFrame, watermark: Watermark) -> DataFrame:
    """Return the states of keys that are still known."""
    now = F.broadcast(times.select("source", "partition", F.col("time").alias("__greatest")))
    same = (F.col("known.source") == now["source"]) & (F.col("known.partition") == now["partition"])
    known = F.col("known.time") >= F.col("__greatest") - F.lit(watermark.delay_us)
    return states.join(now, same).where(known).select("key", "known")


def _with_time(known: StructType) -> StructType:
    return StructType([*known.fields, StructField("greatest", LongType())])


def aged(
    rows: DataFrame, by: Watermark, expiry: Expiry | None, timers: Timers | None, region: str, times: Times
) -> tuple[DataFrame, Age]:
    """Return the rows that are not late, with their ages, for a state that expires or has timers. Late rows become dead
    letters.

    Args: rows: of `timed`, with its columns. by: their watermark. region: for the dead letters. times: of `timed`.
    """
    call, watermark = current("stateful"), F.col(GREATEST) - F.lit(by.delay_us)
    is_late, plain = F.col(TIME) < watermark, rows.drop(TIME, GREATEST)
    age = F.struct(
        F.col(TIME).alias("time"), F.col(f"{STAMP}.source"), F.col(f"{STAMP}.partition"), watermark.alias("watermark")
    ).cast(AGES)
    letter = F.struct(F.lit(None).cast("string").alias("key"), late_letter(plain, F.lit(LATE), region))
    result = F.struct(*[F.col(f"`{c}`") for c in plain.columns], age.alias(AGE))
    divided = rows.select(
        F.when(is_late, F.lit("letter")).otherwise(F.lit("result")).alias(KIND),
        F.when(~is_late, result).alias("result"), F.when(is_late, letter).alias("letter"),
    )  # fmt: skip
    schema = divided.schema["result"].dataType
    assert isinstance(schema, StructType)
    parts = call.split(divided, {"result": schema, "letter": LETTER_SCHEMA}, determined_by=rows)
    call.reject(parts["letter"])
    now = times.after.select("source", "partition", (F.col("time") - F.lit(by.delay_us)).alias(END))
    on_timer, after_us = None if timers is None else timers.function, None if expiry is None else expiry.after_us
    return parts["result"], Age(after_us=after_us, on_timer=on_timer, watermarks=now)


def of_windows(
    rows: DataFrame,
    step: Step,
    planned: Frame,
    watermark: Watermark,
    region: str,
    times: Times,
    *,
    is_own: bool,
    depth: int | None = None,
) -> DataFrame:
    """Return the results of windows. Late rows become dead letters.

    Args: rows: of `timed`, with its columns. planned: the frame after the step, by Spark's analysis. region: for the
        dead letters. times: of `timed`. is_own: all records of a key are in one partition. depth: how many sub-indexes
        the stamps of rows have, if results need stamps. Then all rows come from one partition.
    """
    call, (keys, aggregates, mode, _) = current("windows"), step.arguments
    slot, ([window], others) = call.slot("windows"), split_windows(keys)
    records = rows.drop(TIME, GREATEST)
    users = [*aggregates_of(aggregates), *call.also_aggregated(), *([] if depth is None else [window_stamps.newest()])]
    spec = windows.spec_of(records, window, watermark, users, mode)
    keyed, named = windows.with_key(rows, [key_column(key) for key in others])
    source = F.struct(F.col(f"{STAMP}.source"), F.col(f"{STAMP}.partition"))
    new = keyed.select(
        F.struct(*named).alias("key"), F.lit(None).cast(_OPEN).alias("open"), F.col(TIME).alias("time"),
        F.col(GREATEST).alias("greatest"), (source if is_own else F.lit(None)).cast(_ORIGIN).alias("origin"),
        F.struct(*[F.col(f"`{c}`") for c in records.columns]).alias("row"),
    )  # fmt: skip
    key = StructField("key", new.schema["key"].dataType)
    before = call.before(slot, StructType([key, *_OPEN.fields, StructField("origin", _ORIGIN)]))
    old = before.select(
        "key", F.struct(*_OPEN.names).alias("open"), F.lit(None).cast("long").alias("time"),
        F.lit(None).cast("long").alias("greatest"), "origin", F.lit(None).cast(new.schema["row"].dataType).alias("row"),
    )  # fmt: skip
    both = _with_after(call, new.unionByName(old), times, is_own=is_own)
    order = (F.col("key"), F.col("row").isNotNull(), F.col(f"row.{STAMP}"))
    ready = both.select("key", "open", "time", "greatest", "after", "origin", "row")
    session: Any = rows.sparkSession
    sorted_ = ready.repartition("key").sortWithinPartitions(*order)
    done = DataFrame(session._jvm.org.falkirk.WindowsInEpoch.of(sorted_._jdf, KIND, spec), session)
    letter = F.struct(F.lit(None).cast("string").alias("key"), late_letter(records, F.lit(LATE), region, "letter."))
    found = done.select(KIND, "result", "state", F.when(F.col("letter").isNotNull(), letter).alias("letter"))
    kinds = {kind: found.schema[kind].dataType for kind in ("result", "state", "letter")}
    parts = call.split(found, kinds, determined_by=rows)  # type: ignore[arg-type]  # structs
    call.reject(parts["letter"])
    call.keep(slot, parts["state"].select("key", *_OPEN.names, "origin"))
    bounds = (F.col("start"), F.col("end"))
    columns = windows.result(planned.columns, keys, F.col("key"), bounds, F.col("values"))
    if depth is None:
        return parts["result"].select(*columns)
    moves = None if mode == "update" else times.rows.select(STAMP, (F.col(GREATEST) - watermark.delay_us).alias("upto"))
    return window_stamps.stamped_windows(parts["result"], moves, depth).select(*columns, STAMP)


def _with_after(call: Call, rows: DataFrame, times: Times, *, is_own: bool) -> DataFrame:
    """Return rows with the time at the end of the epoch, and with that by which they may be late, in `greatest`."""
    if is_own:
        now = F.broadcast(times.after.select("source", "partition", F.col("time").alias("after")))
        same = (F.col("origin.source") == now["source"]) & (F.col("origin.partition") == now["partition"])
        return rows.join(now, same).drop("source", "partition")
    slot = call.slot("time")
    known = call.before(slot, _TIME).agg(F.coalesce(F.max("time"), F.lit(NEVER)).alias("known"))
    least = times.after.agg(F.min("time").alias("least"))
    after = F.greatest("known", "least").alias("after")
    call.keep(slot, known.crossJoin(least).select(after.alias("time")))
    moment = F.broadcast(known.crossJoin(least).select(F.col("known").alias("greatest"), after))
    return rows.drop("greatest").crossJoin(moment)


def late_letter(rows: DataFrame, reason: Column, region: str, within: str = "") -> Column:
    """Return the dead letter of a row: as that of a row on which a function failed. Args: within: where it is."""
    own = F.to_json(F.struct(*[F.col(f"{within}`{c}`") for c in rows.columns if c not in OUR_COLUMNS]))
    place = [F.col(f"{within}{STAMP}.{name}") for name in ("source", "partition", "offset")]
    fields = F.struct(reason.alias("reason"), F.lit(region).alias("region"), own.alias("value"), *place)
    return F.to_json(fields).alias("value")
