"""Timed joins: joins of two streams with event time in micro-batches, which mean the same as live ones.

The time of a row's partition decides whether the row is late. All rows that are not late meet all their partners: a row
is kept until the watermark of each partition of the other source has passed the times of its possible partners. A row
that then has met none is a result by itself, if the kind of the join wants it. So results do not depend on the ends of
epochs.

In a join as of the time of a record, a left row waits until that watermark of the right source has passed it, and then
meets the newest right row of its key that is not later.

The results of a join may be rows of another one. The time of a result is that of its left row, and no result is late.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from falkirk.declare.joins import TimedJoin
from falkirk.declare.nodes import Step
from falkirk.steps.batch.call import Call, current
from falkirk.steps.batch.python import KIND
from falkirk.steps.batch.waiting import IS_NEW, LIMIT, Side, columns_of, least_watermark, waiting_rows
from falkirk.steps.dataframes.names import STAMP, TIME
from falkirk.steps.live.joins import join_sides, joined_columns, joined_stamp, matching, ours_of, tagged

#: Whether a row has made a pair.
_PAIRED = "__falkirk_paired"
#: The least watermarks of both sides, in a join as of a time.
_OF_LEFT, _OF_RIGHT = "__falkirk_limit_left", "__falkirk_limit_right"
#: A left row, or a right one; the newest right row that is not later; the time of the next one.
_RECORD, _VERSION, _NEWEST, _NEXT = "__falkirk_record", "__falkirk_version", "__falkirk_newest", "__falkirk_next"
#: The fields of a stamp that are the place of its row.
_PLACE = ("source", "partition", "offset", "row")
#: The stamps of the rows of a pair.
_STAMPS = ("__falkirk_s0", "__falkirk_s1")


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedRows:
    """The results of a join. Args: limit: no later result has a time before this, in one row."""

    rows: DataFrame
    limit: DataFrame


def timed_join(left: Side, right: Side, step: Step, region: str, *, are_joined: bool) -> JoinedRows:
    """Return the results of an epoch. Late rows become dead letters.

    Args: region: for the dead letters. are_joined: the results are rows of another join. So they have stamps and times.
    Raises: DefinitionError: as `matching`. PySparkException.
    """
    call, join = current("join"), step.arguments[1]
    sides = (left.beside(right, call), right.beside(left, call))
    left, right = sides
    one, other = (each.rows.select(*columns_of(each.columns)) for each in sides)
    found = matching(one, other, join, step.where)
    if join.as_of:
        return _as_of(call, sides, step, region, are_joined=are_joined)
    slots = [call.slot("join-left"), call.slot("join-right")]
    waiting = tuple(
        waiting_rows(call, slot, side, watermark, region, marks=(_PAIRED,))
        for slot, side, watermark in zip(slots, sides, join.watermarks, strict=True)
    )
    ours = (STAMP, TIME, IS_NEW)
    one, other = (tagged(waiting[n], sides[n].columns, ours, n) for n in (0, 1))
    inner = join_sides((one, other), left.columns, right.columns, join, "inner")
    is_new = F.col(ours_of(IS_NEW, 0)) | F.col(ours_of(IS_NEW, 1))
    stamps = [F.col(ours_of(STAMP, number)).alias(_STAMPS[number]) for number in (0, 1)]
    time = [F.col(ours_of(TIME, 0)).alias(TIME)] if are_joined else []
    made = inner.data.where(is_new & _is_within(join)).select(*inner.results, *stamps, *time)
    # Spark 4.3.0 fails on some plans of two joins (key not found: id#…), so the next one reads finished rows.
    pairs = call.once(made) if any(join.keeps) or are_joined else made
    if are_joined:
        stamp = _stamp(F.col(_STAMPS[0]), F.col(_STAMPS[1]), sides)
        results = pairs.withColumn(STAMP, stamp).drop(*_STAMPS)
    else:
        results = pairs.drop(*_STAMPS)
    limits = [least_watermark(call, side, by) for side, by in zip(sides, join.watermarks, strict=True)]
    for number in (0, 1):
        rows = _marked(waiting[number], pairs.select(_STAMPS[number])) if join.keeps[number] else waiting[number]
        ends = F.col(TIME) + F.lit(found.reach_us[number])
        timed = rows.drop(IS_NEW).crossJoin(F.broadcast(limits[1 - number]))
        if join.keeps[number]:
            gone = timed.where((ends < F.col(LIMIT)) & ~F.col(_PAIRED))
            results = results.unionByName(_alone(gone, number, sides, join, results.schema))
        call.keep(slots[number], timed.where(ends >= F.col(LIMIT)).drop(LIMIT))
    of_left = F.least(_OF_LEFT, F.col(_OF_RIGHT) - F.lit(found.reach_us[0]))
    return JoinedRows(rows=results, limit=_moment(limits).select(of_left.alias(LIMIT)))


def _moment(limits: Sequence[DataFrame]) -> DataFrame:
    """Return the least watermarks of both sides, in one row."""
    return limits[0].toDF(_OF_LEFT).crossJoin(limits[1].toDF(_OF_RIGHT))


def _stamp(left: Column, right: Column, sides: Sequence[Side]) -> Column:
    """Return the stamp of a result. Args: left, right: those of its rows, of which the right one may be null."""
    return joined_stamp(left, right, (_subs(sides[0]), ["source", "row", *_subs(sides[1])]), _PLACE, _texts(sides[1]))


def _subs(side: Side) -> list[str]:
    return _stamp_type(side).fieldNames()[len(_PLACE) :]


def _texts(side: Side) -> list[str]:
    """Return the fields of stamps that are names of sources."""
    return [field.name for field in _stamp_type(side).fields if isinstance(field.dataType, StringType)]


def _stamp_type(side: Side) -> StructType:
    kind = side.rows.schema[STAMP].dataType
    assert isinstance(kind, StructType), "a stamp"
    return kind


def _as_of(call: Call, sides: tuple[Side, Side], step: Step, region: str, *, are_joined: bool) -> JoinedRows:
    """Return the results of an epoch of a join as of the time of a record. Late rows become dead letters."""
    join, (left, right) = step.arguments[1], sides
    slots = [call.slot("join-left"), call.slot("join-right")]
    records, versions = (
        waiting_rows(call, slot, side, watermark, region).drop(IS_NEW)
        for slot, side, watermark in zip(slots, sides, join.watermarks, strict=True)
    )
    limits = [least_watermark(call, side, by) for side, by in zip(sides, join.watermarks, strict=True)]
    moment = F.broadcast(_moment(limits))
    both = _in_one(records, versions, join).crossJoin(moment)
    # Only versions need an order among equal times. The stamps of records may have other fields, after an `explode`.
    over = f"OVER (PARTITION BY {', '.join(_keys(join))} ORDER BY {TIME}, {_RECORD} IS NOT NULL, {_VERSION}.{STAMP})"
    met = both.selectExpr(
        "*", f"last({_VERSION}, true) {over} AS {_NEWEST}", f"lead({_VERSION}.{TIME}) IGNORE NULLS {over} AS {_NEXT}"
    )
    is_record, newest, waits = F.col(_RECORD).isNotNull(), F.col(_NEWEST), F.col(TIME) >= F.col(_OF_RIGHT)
    floor, is_known = F.least(_OF_LEFT, _OF_RIGHT), newest.isNotNull()
    next_, is_young = F.col(_NEXT), F.lit(True)
    if join.within_us is not None:
        is_known &= newest[TIME] + F.lit(join.within_us) >= F.col(TIME)
        is_young = F.col(TIME) + F.lit(join.within_us) >= floor
    gives = F.lit(True) if join.keeps[0] else is_known
    met_version = F.when(is_known, newest)
    ours = [
        _stamp(F.col(_RECORD)[STAMP], met_version[STAMP], sides).alias(STAMP), F.col(_RECORD)[TIME].alias(TIME),
    ] if are_joined else []  # fmt: skip
    result = F.struct(*_results(left.columns, right.columns, join, met_version), *ours)
    kinds = {
        "waiting": (is_record & waits, F.col(_RECORD)),
        "result": (is_record & ~waits & gives, result),
        "version": (~is_record & is_young & (next_.isNull() | (next_ > floor)), F.col(_VERSION)),
    }
    kind = F.coalesce(*[F.when(holds, F.lit(name)) for name, (holds, _) in kinds.items()])
    divided = met.select(kind.alias(KIND), *[F.when(holds, row).alias(n) for n, (holds, row) in kinds.items()])
    types = {name: divided.schema[name].dataType for name in kinds}
    parts = call.split(divided.where(F.col(KIND).isNotNull()), types, determined_by=both)  # type: ignore[arg-type]
    call.keep(slots[0], parts["waiting"])
    call.keep(slots[1], parts["version"])
    least = F.least(_OF_LEFT, _OF_RIGHT).alias(LIMIT)
    return JoinedRows(rows=parts["result"], limit=_moment(limits).select(least))


def _in_one(records: DataFrame, versions: DataFrame, join: TimedJoin) -> DataFrame:
    """Return the rows of both sides with their keys and times. A version without a key is left out."""
    with_key = " AND ".join(f"`{name}` IS NOT NULL" for name in join.on)
    rows = {_RECORD: records, _VERSION: versions.where(with_key)}
    types = {name: StructType(each.schema.fields) for name, each in rows.items()}
    found = [
        each.select(
            *[F.col(f"`{column}`").alias(key) for column, key in zip(join.on, _keys(join), strict=True)], TIME,
            *[
                (F.struct(*columns_of(each.columns)) if n == name else F.lit(None)).cast(types[n]).alias(n)
                for n in rows
            ],
        )
        for name, each in rows.items()
    ]  # fmt: skip
    return found[0].unionByName(found[1])


def _keys(join: TimedJoin) -> list[str]:
    return [f"__falkirk_k{number}" for number in range(len(join.on))]


def _results(left: Sequence[str], right: Sequence[str], join: TimedJoin, newest: Column) -> list[Column]:
    """Return the columns of a result of a record and its version, which may be null."""
    others = [name for name in right if name.casefold() not in join.shared]
    columns = [*[F.col(_RECORD)[name] for name in left], *[newest[name] for name in others]]
    return [each.alias(name) for each, name in zip(columns, joined_columns(left, right, join), strict=True)]


def _is_within(join: TimedJoin) -> Column:
    if join.within_us is None:
        return F.lit(True)
    return F.abs(F.col(ours_of(TIME, 0)) - F.col(ours_of(TIME, 1))) <= F.lit(join.within_us)


def _marked(rows: DataFrame, paired: DataFrame) -> DataFrame:
    """Return rows of one side, marked if they have made a pair in this epoch."""
    (name,) = paired.columns
    known = rows.join(paired.distinct(), F.col(STAMP) == F.col(name), "left")
    return known.withColumn(_PAIRED, F.col(_PAIRED) | F.col(name).isNotNull()).drop(name)


def _alone(rows: DataFrame, number: int, sides: Sequence[Side], join: TimedJoin, schema: StructType) -> DataFrame:
    """Return rows of one side as results, with nulls in the columns of the other side."""
    left, right = sides
    names = joined_columns(left.columns, right.columns, join)
    mine = dict(zip(left.columns, left.columns, strict=True))
    if number == 1:
        shared = join.shared
        theirs = [name for name in right.columns if name.casefold() not in shared]
        keys = {
            n: next(r for r in right.columns if r.casefold() == n.casefold()) for n in names if n.casefold() in shared
        }
        mine = {**keys, **dict(zip(names[len(left.columns) :], theirs, strict=True))}
    ours = []
    if STAMP in schema.names:
        nothing = F.lit(None).cast(right.rows.schema[STAMP].dataType)
        ours = [F.col(TIME), _stamp(F.col(STAMP), nothing, sides).cast(schema[STAMP].dataType).alias(STAMP)]
    return rows.select(*[
        (F.col(f"`{mine[name]}`") if name in mine else F.lit(None)).cast(schema[name].dataType).alias(name)
        for name in names
    ], *ours)  # fmt: skip
