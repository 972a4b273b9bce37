"""Joins: two frames with event time become one, by PySpark's own join while Falkirk plans, and live by the Java module.

Spark's analysis of the same join says which columns the result has, which expressions are equal in a pair, and how far
the times of a pair can be apart. In a query, the records of both frames go to the state partition of their key as one
stream: `LiveJoin.java` keeps them there and pairs them, and `AsOfJoin.java` finds the newest version for each record.

The left frame may be the results of another join with the same key. Both joins then run in one state partition, which
gets the records of all sources (NextJoin.java). The time of a result is that of its left record.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, StringType, StructType

from falkirk.declare.joins import TimedJoin
from falkirk.declare.nodes import Step
from falkirk.errors.conditions.dataframes import COLUMN_MISSING, JOIN_INVALID_KEY, JOIN_UNBOUNDED
from falkirk.steps.dataframes.empty import no_rows_of
from falkirk.steps.dataframes.names import BAD, STAMP, TIME
from falkirk.steps.live.event_time import ALONE, KEY, LATE, JoinKey, as_key, bad, by_key, column_names, joined_by_key
from falkirk.steps.live.stamped import Frame, attempt, is_good

#: Columns between Python and the Java module: a record's side, its columns as those of that side, whether it is late.
_SIDE, _SIDES, _IS_LATE = "__falkirk_side", ("__falkirk_left", "__falkirk_right"), "__falkirk_late"
#: The sub-indexes of a joined stamp before those of its two stamps: the other record's partition and offset.
PLACES = 2
#: The fields of a stamp that are the place of its record.
_PLACE = ("source", "partition", "offset")
_TAGS = ("__falkirk_l_", "__falkirk_r_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """The result of Spark's analysis of a join.

    Args: plan: the optimised plan of the join of all rows of both sides; None: the join is as of the time of a record,
        and has no condition besides its keys. keys: the equal expressions, of both sides. reach_us: how long after the
        time of a row of either side the time of its partners can be at most.
    """

    plan: Any
    keys: Sequence[Sequence[Column]]
    reach_us: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Facts about a join that only its query has.

    Args: partitions: the numbers of partitions of both sources; 0: the left frame is the results of another join.
        source: the number of the right source. key: as `JoinKey.places`.
    """

    partitions: tuple[int, int]
    source: int
    key: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Joined rows, and the columns of a result of them."""

    data: DataFrame
    results: Sequence[Column]


def joined_columns(left: Sequence[str], right: Sequence[str], join: TimedJoin) -> list[str]:
    """Return the columns of a result: those of the left, then those of the right. The key of both occurs once."""
    known = {name.casefold() for name in left}
    others = [name for name in right if name.casefold() not in join.shared]
    return [*left, *(f"right_{name}" if name.casefold() in known else name for name in others)]


def pairs(left: DataFrame, right: DataFrame, join: TimedJoin, how: str) -> DataFrame:
    """Return PySpark's join of two DataFrames, which have the columns of the streams and possibly others of ours."""
    on = list(join.on) if isinstance(join.on, tuple) else join.on
    return left.alias(join.names[0]).join(right.alias(join.names[1]), on, how)


def matching(left: DataFrame, right: DataFrame, join: TimedJoin, where: object) -> Matching:
    """Return Spark's analysis of a join. Args: left, right: with the columns of the streams alone.

    Raises: DefinitionError: `JOIN_INVALID`: nothing is equal in a pair, or keys of one name have different types.
        `JOIN_UNBOUNDED`. PySparkException.
    """
    session: Any = left.sparkSession
    spec, (first, second) = session._jvm.org.falkirk.JoinSpec, join.watermarks
    if isinstance(join.on, tuple):
        _check_types(left, right, join.on, where, join.method)
    analyzed = pairs(left, right, join, "full")._jdf.queryExecution().analyzed()
    keys = [[ClassicColumn(each) for each in spec.keys(analyzed, is_left)] for is_left in (True, False)]
    if not keys[0]:
        reason = "no column of one stream equals one of the other"
        raise JOIN_INVALID_KEY.error(where=where, method=join.method, reason=reason)
    limit = spec.UNBOUNDED if join.within_us is None else join.within_us
    if join.as_of:
        return Matching(plan=None, keys=keys, reach_us=(0, limit))

    def relation(of: DataFrame) -> DataFrame:
        return no_rows_of(session, of._jdf.schema().asNullable())

    whole = pairs(relation(left), relation(right), join, "full")
    plan = whole._jdf.queryExecution().optimizedPlan()
    reach = []
    for is_left, name in zip((True, False), join.names, strict=True):
        reach.append(min(int(spec.reach(plan, is_left, first.column, second.column)), limit))
        if reach[-1] == spec.UNBOUNDED:
            raise JOIN_UNBOUNDED.error(where=where, stream=name, other=join.names[is_left])
    return Matching(plan=plan, keys=keys, reach_us=(reach[0], reach[1]))


def _check_types(left: DataFrame, right: DataFrame, on: Sequence[str], where: object, method: str) -> None:
    """Check that both sides have the columns of the key with the same types, because they become one column.

    Raises: DefinitionError: `COLUMN_MISSING`, `JOIN_INVALID`.
    """
    types = [{f.name.casefold(): f.dataType.simpleString() for f in each.schema.fields} for each in (left, right)]
    for name in on:
        for side, known in zip((left, right), types, strict=True):
            if name.casefold() not in known:
                columns = tuple(side.columns)
                raise COLUMN_MISSING.error(where=where, operation=method, missing=f"`{name}`", columns=columns)
        one, other = (each[name.casefold()] for each in types)
        if one != other:
            reason = f"column {name} is {one} in one stream and {other} in the other, so cast() one of them"
            raise JOIN_INVALID_KEY.error(where=where, method=method, reason=reason)


def _check_keys(keys: DataFrame, where: object, method: str) -> None:
    """Check that equal keys have equal bytes, by which a live join finds its rows. `as_key` makes that so of numbers.

    Raises: DefinitionError: `JOIN_INVALID`.
    """
    for each in keys.schema.fields:
        if not isinstance(each.dataType, FloatType | DoubleType) and not _is_one_form(each.dataType):
            reason = f"equal keys of type {each.dataType.simpleString()} may have different bytes"
            raise JOIN_INVALID_KEY.error(where=where, method=method, reason=reason)


def _is_one_form(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_is_one_form(each.dataType) for each in kind.fields)
    if isinstance(kind, ArrayType):
        return _is_one_form(kind.elementType)
    if isinstance(kind, StringType):
        return bool(kind.isUTF8BinaryCollation())
    return not isinstance(kind, FloatType | DoubleType)


def join_frames(left: Frame, right: Frame, step: Step, places: Places | None = None) -> Frame:
    """Return the frame after a join of two frames with event time. The left one may be the results of another join.

    Args: places: in a query.
    Raises: DefinitionError: as `stamped.apply`, and as `matching`.
    """
    join: TimedJoin = step.arguments[1]
    if TIME not in left.data.columns:
        time = F.unix_micros(F.col(f"`{join.watermarks[0].column}`"))
        left = replace(left, data=left.data.withColumn(TIME, F.when(is_good(), time)))

    def made() -> Frame:
        found = matching(left.own, right.own, join, step.where)
        _check_keys(left.own.select(*found.keys[0]), step.where, join.method)
        data = _planned(left, right, join) if places is None else _live(left, right, join, found, places)
        after = Frame(data=data, depth=PLACES + left.depth + right.depth, keyed=True)
        return after if places is not None else replace(after, join_key=_key_after(left, after, found.keys[0]))

    return attempt(left, step, made)


def _key_after(left: Frame, after: Frame, key: Sequence[Column]) -> JoinKey:
    """Return the columns that choose the state partition. Args: key: of the join, in columns of the left frame."""
    names = {number: name for name, number in _identities(left.own)}
    ids = [number for _, number in _identities(left.own.select(*key))]
    former = left.join_key
    wanted = ids if former is None else [*(former.ids or ())]
    columns = tuple(names[number] for number in wanted if number in names)
    numbers = dict(_identities(after.data))
    known = tuple(numbers[name] for name in columns) if wanted and len(columns) == len(wanted) else None
    if former is None:
        return JoinKey(ids=known, names=columns)
    is_in_last = known is not None and set(wanted) <= set(ids)
    places = tuple(ids.index(number) for number in wanted) if is_in_last else ()
    return JoinKey(ids=known, names=former.names, places=places, is_in_last=is_in_last)


def _identities(data: DataFrame) -> list[tuple[str, int]]:
    """Return the names of columns, each with Catalyst's identity."""
    columns = data._jdf.queryExecution().analyzed().output()
    return [(columns.apply(i).name(), int(columns.apply(i).exprId().id())) for i in range(columns.size())]


def tagged(data: DataFrame, columns: Sequence[str], ours: Sequence[str], number: int) -> DataFrame:
    """Return the columns of one side of `together`: the user's, and those of ours under the names of `ours_of`."""
    own = [F.col(f"`{name}`") for name in columns]
    return data.select(*own, *[F.col(name).alias(ours_of(name, number)) for name in ours])


def ours_of(name: str, number: int) -> str:
    """Return the name that a column of ours of one side has in `together`."""
    return f"{_TAGS[number]}{name}"


def join_sides(
    sides: tuple[DataFrame, DataFrame], left: Sequence[str], right: Sequence[str], join: TimedJoin, how: str
) -> Columns:
    """Return the join of both sides with the columns of a result and ours.

    Args: sides: of `tagged`. left, right: the user's columns. how: its kind.
    """
    both = pairs(sides[0], sides[1], join, how)
    is_ours = [name.startswith(_TAGS) for name in both.columns]
    users = [name for name, ours in zip(both.columns, is_ours, strict=True) if not ours]
    # By place, because two columns may have one name.
    names = iter([f"__falkirk_c{i}" for i in range(len(users))])
    renamed = both.toDF(*[n if ours else next(names) for n, ours in zip(both.columns, is_ours, strict=True)])
    order = _places(left, users, join)
    found = [F.col(f"__falkirk_c{i}").alias(n) for i, n in zip(order, joined_columns(left, right, join), strict=True)]
    return Columns(data=renamed, results=found)


def _planned(left: Frame, right: Frame, join: TimedJoin) -> DataFrame:
    """Return the join of frames without rows. Its condition reads the times, like the state of the live join."""
    first, second = (tagged(each.data, each.columns, (STAMP, TIME), n) for n, each in enumerate((left, right)))
    both = join_sides((first, second), left.columns, right.columns, join, join.how)
    stamps = [ours_of(STAMP, number) for number in (0, 1)]
    times = [F.col(ours_of(TIME, number)) for number in (0, 1)]
    reads = F.hash(*times, *[F.col(f"{each}.partition") for each in stamps])
    stamp = joined_stamp(F.col(stamps[0]), F.col(stamps[1]), (_subs(left.depth), _subs(right.depth)))
    return both.data.where(reads >= F.lit(-(2**31))).select(
        *both.results, _numbered(stamp, (left, right)).alias(STAMP),
        F.lit(None).cast("struct<reason: string, key: binary, value: binary>").alias(BAD),
    )  # fmt: skip


def _places(left: Sequence[str], users: Sequence[str], join: TimedJoin) -> list[int]:
    """Return the places of the result's columns in PySpark's: with names in `on`, these come first there."""
    if not isinstance(join.on, tuple):
        return list(range(len(users)))
    first = {name.casefold(): place for place, name in enumerate(users[: len(join.on)])}
    rest = iter(range(len(join.on), len(users)))
    mine = [first[name.casefold()] if name.casefold() in first else next(rest) for name in left]
    return [*mine, *rest]


def joined_stamp(
    left: Column, right: Column, subs: tuple[Sequence[str], Sequence[str]], place: Sequence[str] = _PLACE,
    texts: Sequence[str] = (),
) -> Column:  # fmt: skip
    """Return the stamp of a pair, or of a left row without a partner: see `Stamps.java`.

    Args: right: null without a partner. subs: the names of the other fields of both stamps. place: those of the place
        of a row, with which the stamp begins. texts: the fields of the right stamp that are texts.
    """
    values = [left[name] for name in place]
    values += [F.coalesce(right["partition"] + F.lit(1), F.lit(0)), F.coalesce(right["offset"], F.lit(0))]
    values += [left[name] for name in subs[0]]
    values += [F.coalesce(right[name], F.lit("" if name in texts else 0)) for name in subs[1]]
    names = [*place, *[f"sub{i}" for i in range(PLACES + len(subs[0]) + len(subs[1]))]]
    return F.struct(*[value.alias(name) for value, name in zip(values, names, strict=True)])


def _subs(depth: int) -> list[str]:
    return [f"sub{i}" for i in range(depth)]


def _numbered(stamp: Column, frames: Sequence[Frame]) -> Column:
    """Return a joined stamp with the names and types of its fields. Those of former joins have offsets, too."""
    types = ["int", "bigint"]
    for frame in frames:
        known = frame.data.schema[STAMP].dataType
        assert isinstance(known, StructType), "a stamp"
        is_joined = frame.keyed
        types += [known[f"sub{i}"].dataType.simpleString() if is_joined else "int" for i in range(frame.depth)]
    subs = [f"sub{i}: {kind}" for i, kind in enumerate(types)]
    return stamp.cast(f"struct<source: int, partition: int, offset: bigint, {', '.join(subs)}>")


def _live(left: Frame, right: Frame, join: TimedJoin, found: Matching, places: Places) -> DataFrame:
    session: Any = left.data.sparkSession
    frames = (left, right)
    types = [_nullable(frame.own) for frame in frames]
    java = session._jvm.org.falkirk
    sides = [
        java.JoinSpec.Side(watermark.delay_us if count else 0, reach, alone, count, frame.depth)
        for frame, watermark, reach, alone, count in zip(
            frames, join.watermarks, found.reach_us, join.keeps, places.partitions, strict=True
        )
    ]
    one, other = (_side(frames, number, types, found.keys[number], places.source) for number in (0, 1))
    both = one.unionByName(other)
    keys = [as_key(both, f"{KEY}{i}") for i in range(len(found.keys[0]))]
    columns = java.JoinColumns(column_names(both), KEY, _SIDE, *_SIDES, _IS_LATE)
    if join.as_of:
        operator = java.AsOfJoin(columns, *sides)
    else:
        within = java.JoinSpec.UNBOUNDED if join.within_us is None else join.within_us
        operator = java.LiveJoin(columns, java.JoinSpec.of(found.plan, within, *sides))
    if places.key:
        one, other = (_as(each, both.schema) for each in (one, other))
        made = joined_by_key(one, other, keys, places.key, operator)
    else:
        made = by_key(both, keys, operator, ALONE)
    late = F.col(_IS_LATE)
    text = F.when(F.col(_SIDE) == 0, F.to_json(F.col(_SIDES[0]))).otherwise(F.to_json(F.col(_SIDES[1])))
    is_alone = F.when(F.col(_SIDE) == 0, F.lit(left.is_alone)).otherwise(F.lit(right.is_alone))
    letter = bad(made, late, F.lit(LATE), (), text, is_alone=is_alone)
    return made.select(*_results(left.columns, right.columns, join), STAMP, letter)


def _nullable(data: DataFrame) -> StructType:
    """Return the columns of a DataFrame, all parts of which may be null."""
    java: Any = data._jdf
    return StructType.fromJson(json.loads(java.schema().asNullable().json()))


def _as(rows: DataFrame, schema: StructType) -> DataFrame:
    return rows.select(*[F.col(field.name).cast(field.dataType) for field in schema.fields])


def _side(
    frames: tuple[Frame, Frame], number: int, types: Sequence[StructType], keys: Sequence[Column], source: int
) -> DataFrame:
    """Return the records of one side, in the columns of both. Args: source: the number of the right source."""
    frame, depths = frames[number], [each.depth for each in frames]
    own = F.struct(*[F.col(f"`{name}`") for name in frame.columns]).cast(types[number])
    subs = [F.col(STAMP)[f"sub{i}"] for i in range(frame.depth)]
    nothing = [F.lit(0)] * depths[1 - number]
    before = [F.col(STAMP)["partition"], F.col(STAMP)["offset"], F.lit(0), F.lit(0)]
    of = F.lit(source) if number else F.col(STAMP)["source"]  # of a former join, also a bad record of its right source
    stamp = F.struct(of, *before, *((*subs, *nothing) if number == 0 else (*nothing, *subs)))
    columns = [own, F.lit(None).cast(types[1 - number])]
    return frame.data.select(
        F.lit(number).alias(_SIDE),
        *[each.alias(name) for each, name in zip(columns if number == 0 else columns[::-1], _SIDES, strict=True)],
        *[key.alias(f"{KEY}{i}") for i, key in enumerate(keys)],
        _numbered(stamp, frames).alias(STAMP), BAD, TIME,
    )  # fmt: skip


def _results(left: Sequence[str], right: Sequence[str], join: TimedJoin) -> list[Column]:
    """Return the columns of a result, of the rows of its sides."""
    shared = join.shared
    theirs = {name.casefold(): F.col(_SIDES[1])[name] for name in right}
    mine = {name: F.col(_SIDES[0])[name] for name in left}
    found = [F.coalesce(each, theirs[n.casefold()]) if n.casefold() in shared else each for n, each in mine.items()]
    found += [each for name, each in theirs.items() if name not in shared]
    return [each.alias(name) for each, name in zip(found, joined_columns(left, right, join), strict=True)]
