"""Due timed: computes the steps with event time of a live region again, from all records of its sources.

Lateness is a window function of Spark's SQL over each source partition. `falkirk.checker.timed` decides which rows
`dropDuplicates` keeps and which rows each window has. Spark's batch aggregation and PySpark's `join` compute the
results. None of this runs the Java operators of live regions, which are under judgement. Shared with them are the parts
that Falkirk plans with: plain steps, which times are unsuitable (`steps/live/event_time.py`), and by how much the times
of a pair can differ (`steps/live/joins.py`).
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import Window as SqlWindow
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StructField, StructType

from falkirk.checker.timed import Late, Place, TimedRow, WindowResult, WindowShape, first_rows, window_results
from falkirk.declare.joins import TimedJoin
from falkirk.declare.nodes import Step
from falkirk.declare.watermark import Watermark
from falkirk.declare.windows import Window, split_windows, window_of
from falkirk.runtime.spark.rows import JSON_OPTIONS
from falkirk.steps.dataframes.empty import no_rows
from falkirk.steps.dataframes.names import ARRIVED, BAD, GREATEST, STAMP, TIME
from falkirk.steps.live.aggregates import aggregates_of
from falkirk.steps.live.event_time import LATE, as_key, bad, unfit
from falkirk.steps.live.joins import Matching, join_sides, joined_columns, matching, ours_of, tagged
from falkirk.steps.live.stamped import Frame, is_good, key_column
from falkirk.steps.live.windows import with_key

_REASON, PLACE, _KIND = "__falkirk_reason", "__falkirk_place", "__falkirk_kind"
_RESULT, _RANK, _START, _END = (f"__falkirk_{name}" for name in ("result", "rank", "start", "end"))
_CAUSE = tuple(f"__falkirk_cause{number}" for number in range(4))
_NEWEST, _THEIRS = "__falkirk_newest", "__falkirk_theirs"
#: Whether a row of a join may be published, but need not be yet.
_IS_OPEN = "__falkirk_is_open"
#: The stamp of a result of a window.
_OF_WINDOW = "struct<source: int, partition: int, offset: bigint, sub0: int>"
_OF_BAD = "struct<reason: string, key: binary, value: binary>"
#: A live join may keep a row without a partner until the watermark has passed its end, rounded up to this
#: (`GRAIN_US` of LiveJoin.java). Whether it is published in between depends on the order of arrival.
_GRAIN_US = 100_000
#: The fields of the place of a record in a stamp, and the one with the stamps of the rows of a join.
_PLACE_NAMES, _ROWS = ("source", "partition", "offset"), "rows"
#: Numbers that say what becomes of a row, and the place of the row.
_Decision = tuple[tuple[int, ...], Place]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionRows:
    """The rows that a region must have published, and its bad records.

    Args: maybe: rows that it may have published. times: the records by which the time of each partition moves; None:
        there are none after a join. limit: of a join: no later result has a time before it. ordered_by: the columns of
        the key by which a step with event time orders its results; None: they have no order. Empty: there was no such
        step, so rows have the order of their source partitions. windows: after windows, each by the place of its
        result.
    """

    frame: Frame
    maybe: Frame | None = None
    times: DataFrame | None = None
    limit: int | None = None
    ordered_by: tuple[str, ...] | None = ()
    windows: Mapping[Place, WindowResult] = field(default_factory=dict)


def timed(due: RegionRows, step: Step) -> RegionRows:
    """Return the rows with their times, and the time of their partition. Rows with an unsuitable time are bad."""
    frame, watermark = due.frame, step.arguments[0]
    time = F.unix_micros(F.col(f"`{watermark.column}`"))
    why = F.when(is_good(), unfit(time, watermark.column, watermark.ahead_us, F.unix_micros(ARRIVED)))
    judged = frame.data.drop(TIME, GREATEST).withColumn(_REASON, why)
    is_unfit = F.col(_REASON).isNotNull()
    fits = is_good() & ~is_unfit
    partition = SqlWindow.partitionBy(f"{STAMP}.source", f"{STAMP}.partition").orderBy(STAMP)
    so_far = partition.rowsBetween(SqlWindow.unboundedPreceding, SqlWindow.currentRow)
    data = judged.select(
        *_only_if(fits, frame.columns), STAMP, bad(judged, is_unfit, F.col(_REASON), frame.columns), ARRIVED,
        F.when(fits, time).alias(TIME),
    ).withColumn(GREATEST, F.max(TIME).over(so_far))  # fmt: skip
    made = replace(frame, data=data)
    return replace(due, frame=made, times=data.where(is_good()).select(STAMP, GREATEST))


def deduplicated(due: RegionRows, step: Step) -> RegionRows:
    """Return the rows after `dropDuplicates`. Late rows are bad."""
    frame, (keys, watermark) = due.frame, step.arguments
    rows = _rows(frame, [as_key(frame.data, name) for name in keys], watermark)
    decided = [((int(isinstance(each, Late)),), each.place) for each in first_rows(rows)]
    chosen = placed(frame, decided, [_KIND])
    known = frame.data.join(chosen, F.col(STAMP) == F.col(PLACE), "left")
    rest, is_late = known.where(~is_good() | F.col(PLACE).isNotNull()), F.coalesce(F.col(_KIND) == 1, F.lit(False))
    data = rest.select(
        *_only_if(~is_late, frame.columns), STAMP, bad(rest, is_late, F.lit(LATE), frame.columns), TIME, GREATEST
    )
    return RegionRows(frame=replace(frame, data=data), times=due.times, ordered_by=tuple(keys))


def windows(due: RegionRows, step: Step, planned: Frame) -> RegionRows:
    """Return the results of windows. Rows that are late for all their windows are bad.

    Args: planned: the frame after the step, by Spark's analysis.
    """
    frame, (keys, aggregates, mode, watermark) = due.frame, step.arguments
    [window], others = split_windows(keys)
    keyed, named = with_key(frame.data, [key_column(key) for key in others])
    rows = _rows(replace(frame, data=keyed), named, watermark)
    moves = _moves(due, watermark) if mode == "append" else ()
    found: list[WindowResult] = []
    late: list[_Decision] = []
    shape = _shape(frame.data.sparkSession, window, mode)
    for each in window_results(heapq.merge(moves, rows, key=lambda row: row.place), shape):
        if isinstance(each, WindowResult):
            found.append(each)
        else:
            late.append(((), each.place))
    types = [planned.data.schema[name].dataType for name in planned.columns]
    grouped = _aggregated(replace(frame, data=keyed), found, named, aggregates, planned.columns[len(keys) :])
    bounds = F.struct(F.timestamp_micros(_START).alias("start"), F.timestamp_micros(_END).alias("end"))
    parts = iter(_keys(len(others)))
    columns = [bounds if window_of(key) is not None else F.col(next(parts)) for key in keys]
    columns += [F.col(f"`{name}`") for name in planned.columns[len(keys) :]]
    results = grouped.select(
        *[each.alias(name) for each, name in zip(columns, planned.columns, strict=True)],
        F.struct(*map(F.col, _CAUSE)).cast(_OF_WINDOW).alias(STAMP), F.lit(None).cast(_OF_BAD).alias(BAD),
    )  # fmt: skip
    marked = frame.data.join(placed(frame, late, []), F.col(STAMP) == F.col(PLACE), "left")
    is_late = F.col(PLACE).isNotNull()
    stamp = F.struct(*[F.col(f"{STAMP}.{n}") for n in ("source", "partition", "offset")], F.lit(0)).cast(_OF_WINDOW)
    refused = marked.where(~is_good() | is_late).select(
        *[F.lit(None).cast(t).alias(n) for t, n in zip(types, planned.columns, strict=True)], stamp.alias(STAMP),
        bad(marked, is_late, F.lit(LATE), frame.columns),
    )  # fmt: skip
    ordered = [name for name, key in zip(planned.columns, keys, strict=False) if window_of(key) is None]
    return RegionRows(
        frame=replace(frame, data=results.unionByName(refused), depth=1, keyed=True), ordered_by=tuple(ordered),
        windows={each.cause: each for each in found},
    )  # fmt: skip


def _shape(session: Any, window: Window, mode: str) -> WindowShape:
    micros = session._jvm.org.apache.spark.sql.catalyst.expressions.TimeWindow.getIntervalInMicroSeconds
    size, slide, offset = (int(micros(t)) if t else 0 for t in (window.size, window.slide, window.offset))
    return WindowShape(size=size, slide=slide, offset=offset, updates=mode == "update")


def _aggregated(
    frame: Frame, found: Sequence[WindowResult], keys: Sequence[Column], aggregates: Sequence[Any], names: Sequence[str]
) -> DataFrame:
    """Return the aggregates of windows, with their bounds, keys and causes. Args: names: of the aggregates."""
    members = [
        ((number, rank, each.start, each.end, *each.cause), member)
        for number, each in enumerate(found)
        for rank, member in enumerate(each.members)
    ]
    chosen = placed(frame, members, [_RESULT, _RANK, _START, _END, *_CAUSE])
    of = frame.data.join(chosen, F.col(STAMP) == F.col(PLACE))
    # Aggregates such as collect_list get the rows in this order.
    ordered = of.repartition(F.col(_RESULT)).sortWithinPartitions(_RESULT, _RANK)
    ours = (_START, _END, *_CAUSE)
    firsts = [F.first(each) for each in (*map(F.col, ours), *keys)]
    grouped = ordered.groupBy(_RESULT).agg(*firsts, *aggregates_of(aggregates))
    return grouped.toDF(_RESULT, *ours, *_keys(len(keys)), *names)


def _keys(count: int) -> list[str]:
    return [f"__falkirk_k{number}" for number in range(count)]


def joined(left: RegionRows, right: RegionRows, step: Step, partitions: tuple[int, int]) -> RegionRows:
    """Return the results of a join. Late rows of both sides are bad. The left rows may be results of another join.

    The time of a result is that of its left row, and no result is late.

    Args: partitions: the numbers of partitions of both sources.
    """
    join: TimedJoin = step.arguments[1]
    left = left if left.times is not None else _finished(left)
    found = matching(left.frame.own, right.frame.own, join, step.where)
    sides = [
        _Side.of(due, by, count) for due, by, count in zip((left, right), join.watermarks, partitions, strict=True)
    ]
    results = _as_of(sides, join) if join.as_of else _pairs(sides, join, found)
    results = results.withColumn(BAD, F.lit(None).cast(_OF_BAD))
    limits = [side.limit for side in sides]
    limit = None
    if limits[0] is not None and limits[1] is not None:
        kept = 0 if join.as_of else found.reach_us[0] + (_GRAIN_US if join.keeps[0] else 0)
        limit = min(limits[0], limits[1] - kept)
    data = results.where(~F.col(_IS_OPEN)).drop(_IS_OPEN)
    for side in sides:
        nothing = [F.lit(None).cast(data.schema[name].dataType).alias(name) for name in data.columns]
        none = F.lit(None).cast(data.select(f"{STAMP}.{_ROWS}").schema[_ROWS].dataType)
        place = F.struct(*[F.col(f"{STAMP}.{n}") for n in _PLACE_NAMES], none.alias(_ROWS))
        ours = {STAMP: place.alias(STAMP), BAD: F.col(BAD)}
        columns = [ours.get(name, each) for name, each in zip(data.columns, nothing, strict=True)]
        data = data.unionByName(side.refused.select(*columns))
    may_be_open = left.maybe is not None or (any(join.keeps) and not join.as_of)
    maybe = Frame(data=results.where(_IS_OPEN).drop(_IS_OPEN)) if may_be_open else None
    return RegionRows(frame=Frame(data=data), maybe=maybe, limit=limit, ordered_by=None)


def _finished(due: RegionRows) -> RegionRows:
    """Return the same rows, computed. Spark 4.3.0 fails on some plans of two joins."""

    def of(frame: Frame) -> Frame:
        return replace(frame, data=frame.data.localCheckpoint())

    return replace(due, frame=of(due.frame), maybe=None if due.maybe is None else of(due.maybe))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """A side of a join.

    Args: rows: those that are not late, with `_IS_OPEN`. limit: no later row has a time before it; None: not known.
    """

    columns: list[str]
    rows: DataFrame
    refused: DataFrame
    limit: int | None

    @classmethod
    def of(cls, due: RegionRows, watermark: Watermark, partitions: int) -> "_Side":
        frame, limit = due.frame, due.limit
        marked = frame.data
        if due.times is not None:
            is_late = is_good() & (F.col(TIME) < F.col(GREATEST) - F.lit(watermark.delay_us))
            marked = frame.data.withColumn(BAD, bad(frame.data, is_late, F.lit(LATE), frame.columns))
            newest = due.times.groupBy(f"{STAMP}.partition").agg(F.max(GREATEST)).collect()
            limit = min(row[1] for row in newest) - watermark.delay_us if len(newest) == partitions else None

        def rows(data: DataFrame, *, is_open: bool) -> DataFrame:
            own = [F.col(f"`{c}`") for c in frame.columns]
            return data.where(is_good()).select(*own, STAMP, TIME, F.lit(is_open).alias(_IS_OPEN))

        every = rows(marked, is_open=False)
        if due.maybe is not None:
            every = every.unionByName(rows(due.maybe.data, is_open=True))
        return cls(columns=frame.columns, rows=every, refused=marked.where(~is_good()), limit=limit)


def _pairs(sides: Sequence[_Side], join: TimedJoin, found: Matching) -> DataFrame:
    """Return all pairs and the rows that can't have a partner any more. These are open for a moment."""
    left, right = sides
    one, other = (tagged(side.rows, side.columns, (STAMP, TIME, _IS_OPEN), n) for n, side in enumerate(sides))
    both = join_sides((one, other), left.columns, right.columns, join, "inner")
    stamps, times, open_ = ([ours_of(name, n) for n in (0, 1)] for name in (STAMP, TIME, _IS_OPEN))
    data = both.data
    if join.within_us is not None:
        data = data.where(F.abs(F.col(times[0]) - F.col(times[1])) <= F.lit(join.within_us))
    pairs = data.select(
        *both.results, *stamps, F.col(times[0]).alias(TIME), (F.col(open_[0]) | F.col(open_[1])).alias(_IS_OPEN)
    )
    results = pairs.withColumn(STAMP, _stamp(F.col(stamps[0]), F.col(stamps[1]))).drop(*stamps)
    for number, side in enumerate(sides):
        limit = sides[1 - number].limit
        if not join.keeps[number] or limit is None:
            continue
        alone = side.rows.join(pairs, F.col(STAMP) == F.col(stamps[number]), "left_anti")
        ends = F.col(TIME) + F.lit(found.reach_us[number])
        rounded = ends + F.pmod(-ends, F.lit(_GRAIN_US))
        rows = alone.where(ends < F.lit(limit)).withColumn(_IS_OPEN, F.col(_IS_OPEN) | (rounded >= F.lit(limit)))
        results = results.unionByName(_alone(rows, number, sides, join, results))
    return results


def _alone(rows: DataFrame, number: int, sides: Sequence[_Side], join: TimedJoin, results: DataFrame) -> DataFrame:
    """Return rows of one side as results, with nulls in the columns of the other side."""
    names = joined_columns(sides[0].columns, sides[1].columns, join)
    mine = dict(zip(sides[0].columns, sides[0].columns, strict=True))
    if number == 1:
        theirs = {name.casefold(): name for name in sides[1].columns}
        others = [name for name in sides[1].columns if name.casefold() not in join.shared]
        mine = {name: theirs[name.casefold()] for name in names if name.casefold() in join.shared}
        mine |= dict(zip(names[len(sides[0].columns) :], others, strict=True))
    columns = [F.col(f"`{mine[name]}`") if name in mine else F.lit(None) for name in names]
    cast = [c.cast(results.schema[n].dataType).alias(n) for c, n in zip(columns, names, strict=True)]
    stamps = [F.col(STAMP) if n == number else F.lit(None).cast(_type(s.rows)) for n, s in enumerate(sides)]
    return rows.select(*cast, _stamp(stamps[0], stamps[1], place=F.col(STAMP)).alias(STAMP), TIME, _IS_OPEN)


def _as_of(sides: Sequence[_Side], join: TimedJoin) -> DataFrame:
    """Return the rows that the watermark of the table has passed, each with the newest version that is not later."""
    left, right = sides
    keys = _keys(len(join.on))
    records = left.rows.select("*", *[F.col(f"`{name}`").alias(key) for name, key in zip(join.on, keys, strict=True)])
    version = F.struct(*[F.col(f"`{name}`") for name in right.columns], STAMP)
    place = F.struct(F.col(TIME).alias("time"), F.col(STAMP).alias("stamp"))
    versions = right.rows.select(
        place.alias(PLACE), version.alias(_THEIRS),
        *[F.col(f"`{name}`").alias(f"{key}_") for name, key in zip(join.on, keys, strict=True)],
    )  # fmt: skip
    condition = F.col(f"{PLACE}.time") <= F.col(TIME)
    if join.within_us is not None:
        condition &= F.col(f"{PLACE}.time") >= F.col(TIME) - F.lit(join.within_us)
    for key in keys:
        condition &= F.col(key) == F.col(f"{key}_")
    newest = records.join(versions, condition).groupBy(F.col(STAMP).alias(_RESULT))
    chosen = newest.agg(F.max_by(_THEIRS, PLACE).alias(_NEWEST))
    has_key = F.lit(True)
    for key in keys:
        has_key &= F.col(key).isNotNull()
    # A record without a key waits for no version.
    passed = ~has_key if right.limit is None else ~has_key | (F.col(TIME) < F.lit(right.limit))
    met = records.where(passed).join(chosen, F.col(STAMP) == F.col(_RESULT), "left" if join.keeps[0] else "inner")
    others = [name for name in right.columns if name.casefold() not in join.shared]
    columns = [*[F.col(f"`{name}`") for name in left.columns], *[F.col(_NEWEST)[name] for name in others]]
    names = joined_columns(left.columns, right.columns, join)
    ours = [_stamp(F.col(STAMP), F.col(_NEWEST)[STAMP]).alias(STAMP), F.col(TIME), F.col(_IS_OPEN)]
    return met.select(*[each.alias(name) for each, name in zip(columns, names, strict=True)], *ours)


def _stamp(left: Column, right: Column, *, place: Column | None = None) -> Column:
    """Return the stamp of a result of a join: the place of a record, and the stamps of its rows.

    Args: left, right: null without such a row. place: the stamp of the record; None: that of the left row.
    """
    of = left if place is None else place
    rows = F.struct(left.alias("left"), right.alias("right"))
    return F.struct(*[of[name].alias(name) for name in _PLACE_NAMES], rows.alias(_ROWS))


def _type(rows: DataFrame) -> DataType:
    return rows.schema[STAMP].dataType


def _rows(frame: Frame, keys: Sequence[Column], watermark: Watermark) -> Iterator[TimedRow]:
    """Yield the good rows of a frame in the order of their places."""
    rows = frame.data.where(is_good()).select(
        STAMP, TIME, (F.col(GREATEST) - F.lit(watermark.delay_us)).alias(GREATEST),
        F.to_json(F.struct(*keys), JSON_OPTIONS).alias("key"),
    )  # fmt: skip
    for row in rows.orderBy(STAMP).toLocalIterator():
        yield TimedRow(place=_place(row), watermark=row[GREATEST], time=row[TIME], key=row["key"])


def _moves(due: RegionRows, watermark: Watermark) -> Iterator[TimedRow]:
    """Yield the moves of time, also by records that later steps have left out."""
    assert due.times is not None, "windows need withWatermark"
    for row in due.times.orderBy(STAMP).toLocalIterator():
        yield TimedRow(place=_place(row), watermark=row[GREATEST] - watermark.delay_us)


def _place(row: Row) -> Place:
    return tuple(row[STAMP])


def placed(frame: Frame, decisions: Sequence[_Decision], names: Sequence[str]) -> DataFrame:
    """Return decisions about rows of a frame, with their numbers and `PLACE`. Args: names: of the numbers."""
    place, session = frame.data.schema[STAMP].dataType, frame.data.sparkSession
    assert isinstance(place, StructType), "a stamp"
    if not decisions:
        return no_rows(session, StructType([*[StructField(n, LongType()) for n in names], StructField(PLACE, place)]))
    parts = [f"{PLACE}{number}" for number in range(len(place.fields))]
    rows = zip(*[(*numbers, *at) for numbers, at in decisions], strict=True)
    table = pa.table({name: pa.array(each, pa.int64()) for name, each in zip((*names, *parts), rows, strict=True)})
    made = session.createDataFrame(table)
    fields = [F.col(part).cast(f.dataType).alias(f.name) for part, f in zip(parts, place.fields, strict=True)]
    return made.select(*names, F.struct(*fields).alias(PLACE))


def _only_if(condition: Column, columns: Sequence[str]) -> list[Column]:
    return [F.when(condition, F.col(f"`{name}`")).alias(name) for name in columns]
