"""Quick: computes the results of a live region in this process, in milliseconds, if the results are the same as
Spark's.

The row steps are evaluated on Arrow tables as in loops (`steps/differential/expressions.py`); here are `explode` of a
column, `map_rows`, and the aggregates count, sum, min, max and `latest_value` of simple types. For anything else, for
records whose values don't have the types of the schema, and for those on which a function fails, `Unsuitable` is
raised, and Spark computes the results.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from falkirk.declare.grouped import LatestValue
from falkirk.declare.nodes import Step
from falkirk.plan.region import Region
from falkirk.runtime.spark.rows import OVERHEAD_BYTES
from falkirk.steps.dataframes.empty import no_rows
from falkirk.steps.dataframes.names import BAD, STAMP
from falkirk.steps.dataframes.schemas import own_schema
from falkirk.steps.dataframes.user_function import Fit, results_of
from falkirk.steps.differential.expressions import Steps, Unsuitable
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.aggregates import grouping_of
from falkirk.steps.live.python_steps import schema_of
from falkirk.steps.live.stamped import Frame
from falkirk.steps.sources.topics import declared
from falkirk.theory.ids import Offset
from falkirk.user_tools.testkit.place import RECORD_BYTES_MAX
from falkirk.user_tools.testkit.world import MemoryRecord

_Values = dict[str, Any]
_Stamped = tuple[tuple[int, ...], _Values]
"""A row with its stamp: the offset of its record, and its sub-indexes."""
_BITS: Mapping[type[DataType], int] = {ByteType: 7, ShortType: 15, IntegerType: 31, LongType: 63}
#: How a value is combined with the next one that is not null.
_COMBINE: Mapping[str, Callable[[Any, Any], Any]] = {"sum": lambda a, b: a + b, "min": min, "max": max}
_CALL = re.compile(r"^(count|sum|min|max)\((\w+|\*)\) AS (\w+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickState:
    """The state of a region. Args: groups: the aggregates by key. history: all records so far, for Spark."""

    groups: Mapping[tuple[Any, ...], tuple[Any, ...]]
    history: tuple[tuple[Offset, MemoryRecord], ...]


class QuickSteps:
    """The steps of one region. Raises: Unsuitable: Spark has to compute them."""

    def __init__(self, region: Region, session: SparkSession) -> None:
        source, self._output = region.source.topic, region.output
        if region.others:
            raise Unsuitable("several topics")
        if source.format != "json" or self._output.format != "json":
            raise Unsuitable("Avro" if "avro" in (source.format, self._output.format) else source.format)
        if self._output.schemas is not None:
            raise Unsuitable("a schema registry")
        if source.record_columns:
            raise Unsuitable(f"metadata={[*source.record_columns]}")
        self._schema, self._required = declared(source.ddl, "", source.where)
        self._session, self._keys = session, () if region.hop is not None else self._output.keys
        self._frame, self._stages = self._begin(self._schema, ()), list[Callable[..., Any]]()
        self.keyed: _Aggregation | None = None
        for step in region.steps():
            self._add(step)
        self._end_rows()
        self._columns = self._frame.columns
        kinds = {field.name: type(field.dataType) for field in self._frame.data.schema.fields}
        if any(kinds[name] is DoubleType for name in self._keys):
            raise Unsuitable("a key of type DOUBLE")

    # -- before records come ------------------------------------------------------------------------------------------

    def _begin(self, schema: StructType, grouped_by: tuple[str, ...]) -> Frame:
        for field in schema.fields:
            kind = field.dataType.elementType if isinstance(field.dataType, ArrayType) else field.dataType
            if not isinstance(kind, tuple(_BITS)) and kind not in (StringType(), DoubleType(), BooleanType()):
                raise Unsuitable(field.dataType.simpleString())
        ours = [StructField(STAMP, LongType()), StructField(BAD, BooleanType())]
        self._given = StructType([*schema.fields, *ours])
        data = no_rows(self._session, self._given)
        return Frame(data=data, keyed=bool(grouped_by), grouped_by=grouped_by)

    def _add(self, step: Step) -> None:
        if step.operation == "explode":
            column, name = step.arguments
            if not isinstance(column, str):
                raise Unsuitable("an expression in explode")
            self._end_rows()
            kind = self._frame.data.schema[column].dataType
            if not isinstance(kind, ArrayType):
                raise Unsuitable(kind.simpleString())
            kept = [c for c in self._frame.columns if c.casefold() != name.casefold()]
            self._stages.append(_Exploded(column, name, kept))
            schema = self._frame.data.schema
            self._frame = self._begin(StructType([*(schema[c] for c in kept), StructField(name, kind.elementType)]), ())
        elif step.operation == "map_rows":
            self._end_rows()
            function, options = step.arguments
            returns = schema_of(options["returns"], "returns", step.where)
            self._stages.append(_Mapped(function, self._frame.columns, returns))
            self._frame = self._begin(returns, ())
        elif step.operation in ("agg", "count"):
            if self.keyed is not None:
                raise Unsuitable("two steps with a state")
            self._end_rows()
            planned = frames.apply(self._spark_frame(), step)
            self.keyed = _Aggregation(step, self._frame.data.schema, planned)
            self._stages.append(self.keyed)
            self._frame = self._begin(own_schema(planned.data.schema), planned.grouped_by)
        else:
            self._frame = frames.apply(self._frame, step)

    def _spark_frame(self) -> Frame:
        """Return the frame with stamps as Spark has them, for the analysis of an aggregation."""
        stamp = F.struct(F.lit(0).alias("source"), F.lit(0).alias("partition"), F.lit(0).alias("offset"))
        return frames.good(self._frame.own.withColumn(STAMP, stamp))

    def _end_rows(self) -> None:
        """End a sequence of row steps, which are evaluated together."""
        self._stages.append(_Rows(self._given, self._frame.data))
        self._frame = self._begin(own_schema(self._frame.data.schema), self._frame.grouped_by)

    # -- records ------------------------------------------------------------------------------------------------------

    def compute(
        self, records: Sequence[tuple[Offset, MemoryRecord]], state: QuickState | None
    ) -> tuple[list[tuple[tuple[int, ...], bytes | None, bytes]], QuickState]:
        """Return the results, each with its stamp, key and value, and the state after them. Raises: Unsuitable."""
        rows: Iterable[_Stamped] = [((offset,), self._read(record.value)) for offset, record in records]
        before = QuickState(groups={}, history=()) if state is None else state
        groups = dict(before.groups)
        try:
            for stage in self._stages:
                rows = stage(rows, groups)
        except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
            raise Unsuitable(str(error)) from error
        history = (*before.history, *records) if self.keyed is not None else ()
        return [self._written(*row) for row in rows], QuickState(groups=groups, history=history)

    def _read(self, value: bytes | None) -> _Values:
        try:
            found = json.loads(value or b"", object_pairs_hook=_once, parse_constant=_refuse)
        except ValueError as error:
            raise Unsuitable(str(error)) from error
        if not isinstance(found, dict) or any(found.get(name) is None for name in self._required):
            raise Unsuitable("a bad record")
        return {f.name: _typed(found.get(f.name), f.dataType) for f in self._schema.fields}

    def _written(self, stamp: tuple[int, ...], row: _Values) -> tuple[tuple[int, ...], bytes | None, bytes]:
        if any(isinstance(v, float) and not math.isfinite(v) for v in row.values()):
            raise Unsuitable("a number without JSON")
        value, keys = _json({name: row[name] for name in self._columns}), [row[name] for name in self._keys]
        key = None if not keys else _json(dict(zip(self._keys, keys, strict=True))) if keys[1:] else _cast(keys[0])
        if len(value) + len(key or b"") > RECORD_BYTES_MAX - OVERHEAD_BYTES:
            raise Unsuitable("a large record")
        return stamp, key, value


class _Rows:
    """Row steps. Args: given: the columns before them, with ours. data: made by them from an empty DataFrame."""

    def __init__(self, given: StructType, data: DataFrame) -> None:
        self._steps, self._given = Steps.of(data), to_arrow_schema(given)
        self._columns = [name for name in data.columns if name not in (STAMP, BAD)]

    def __call__(self, rows: Iterable[_Stamped], groups: object) -> list[_Stamped]:
        stamps, values = list[tuple[int, ...]](), list[_Values]()
        for stamp, row in rows:
            values.append({**row, STAMP: len(stamps), BAD: None})
            stamps.append(stamp)
        made = self._steps(pa.Table.from_pylist(values, schema=self._given))
        columns = [made.column(name).to_pylist() for name in self._columns]
        places = made.column(STAMP).to_pylist()
        return [
            (stamps[place], dict(zip(self._columns, row, strict=True)))
            for place, row in zip(places, zip(*columns, strict=True), strict=True)
        ]


class _Exploded:
    """The step `explode` of a column."""

    def __init__(self, column: str, name: str, kept: Sequence[str]) -> None:
        self._column, self._name, self._kept = column, name, kept

    def __call__(self, rows: Iterable[_Stamped], groups: object) -> Iterator[_Stamped]:
        return (
            ((*stamp, place), {**{c: row[c] for c in self._kept}, self._name: value})
            for stamp, row in rows
            for place, value in enumerate(row[self._column] or ())
        )


class _Mapped:
    """The step `map_rows`, on records on which the function does not fail."""

    def __init__(self, function: Callable[[Row], object], given: Sequence[str], returns: StructType) -> None:
        self._function, self._given, self._make = function, given, Row(*given)
        self._kinds = {field.name: field.dataType for field in returns.fields}
        self._fit = Fit("result", returns)

    def __call__(self, rows: Iterable[_Stamped], groups: object) -> Iterator[_Stamped]:
        for stamp, row in rows:
            try:
                found = results_of(self._function(self._make(*[row[name] for name in self._given])))
                results = [self._fit(each) for each in found]
            except Exception as error:
                raise Unsuitable(str(error)) from error
            for place, result in enumerate(results):
                yield (*stamp, place), {name: _typed(result[name], kind) for name, kind in self._kinds.items()}


class _Aggregation:
    """A keyed step: an updated result for each row. Args: planned: the frame after it, by Spark's analysis."""

    def __init__(self, step: Step, given: StructType, planned: Frame) -> None:
        keys, aggregates = grouping_of(step.arguments)
        if not all(isinstance(key, str) and key in given.names for key in keys):
            raise Unsuitable("a key that is an expression")
        self._keys, self._names = [*keys], planned.columns
        if any(isinstance(given[key].dataType, DoubleType | ArrayType) for key in keys):
            raise Unsuitable("a key of another type")
        self._functions = [_function(aggregate, given) for aggregate in aggregates]

    def __call__(self, rows: Iterable[_Stamped], groups: dict[tuple[Any, ...], tuple[Any, ...]]) -> list[_Stamped]:
        found = []
        for stamp, row in rows:
            key = tuple(row[name] for name in self._keys)
            before = groups.get(key) or (None,) * len(self._functions)
            after = tuple(add(value, row) for add, value in zip(self._functions, before, strict=True))
            if any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in after):
                raise Unsuitable("an overflow")
            groups[key] = after
            found.append((stamp, dict(zip(self._names, (*key, *after), strict=True))))
        return found


_Add = Callable[[Any, _Values], Any]


def _function(aggregate: Any, given: StructType) -> _Add:
    """Return the function that adds a row to a value of an aggregate, which is None before the first row."""
    if isinstance(aggregate, LatestValue):
        column = aggregate.column
        if not isinstance(column, str) or column not in given.names:
            raise Unsuitable("an expression in latest_value")
        return lambda value, row: row[column]
    expression: Any = F.expr(aggregate) if isinstance(aggregate, str) else aggregate
    call = _CALL.match(str(expression._jc.toString()))
    if call is None:
        raise Unsuitable(str(aggregate))
    function, name, _ = call.groups()
    if function == "count" and name in ("1", "*"):
        return lambda value, row: (value or 0) + 1
    if name not in given.names or isinstance(given[name].dataType, ArrayType):
        raise Unsuitable(str(aggregate))
    if function == "sum" and isinstance(given[name].dataType, StringType | BooleanType):
        raise Unsuitable(str(aggregate))
    if function == "count":
        return lambda value, row: (value or 0) + (row[name] is not None)
    return _ignoring_nulls(_COMBINE[function], name)


def _ignoring_nulls(combine: Callable[[Any, Any], Any], name: str) -> _Add:
    def add(value: Any, row: _Values) -> Any:
        return value if row[name] is None else row[name] if value is None else combine(value, row[name])

    return add


# -- values ------------------------------------------------------------------------------------------------------------


def _once(pairs: list[tuple[str, Any]]) -> _Values:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a name twice")
    return dict(pairs)


def _refuse(text: str) -> None:
    raise ValueError(text)


def _typed(value: Any, kind: DataType) -> Any:
    """Return a value of JSON if it has its column's type. Raises: Unsuitable: Spark decides."""
    if value is None:
        return None
    if isinstance(kind, ArrayType) and isinstance(value, list):
        return [_typed(each, kind.elementType) for each in value]
    if isinstance(value, bool):
        fits = isinstance(kind, BooleanType)
    elif isinstance(value, int):
        bits = _BITS.get(type(kind))
        if isinstance(kind, DoubleType) and abs(value) < 2**53:
            return float(value)
        fits = bits is not None and -(2**bits) <= value < 2**bits
    elif isinstance(value, float):
        fits = isinstance(kind, DoubleType) and math.isfinite(value) and (value != 0 or math.copysign(1, value) > 0)
    else:
        fits = isinstance(value, str) and isinstance(kind, StringType) and value.isprintable()
    if not fits:
        raise Unsuitable(f"{value!r} for {kind.simpleString()}")
    return value


def _json(row: _Values) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


def _cast(value: Any) -> bytes | None:
    """Return a value as Spark casts it to a text."""
    if value is None:
        return None
    return (str(value).lower() if isinstance(value, bool) else str(value)).encode()
