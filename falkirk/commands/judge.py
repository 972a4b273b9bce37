"""Judges an application: compares the outputs that its declaration gives, recomputed, with the published ones.

Spark reads the source topic as a batch and applies the steps before the keyed one. `falkirk.check` recomputes the keyed
step; it shares nothing with the mechanism that it judges.
"""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from falkirk.analysis.determinism import operations, undetermined
from falkirk.check import (
    AggregateFunction,
    AggregateModel,
    Count,
    Guarantee,
    InputRow,
    Latest,
    Max,
    Min,
    RowPlace,
    Space,
    Sum,
    TopicRecord,
    Verdict,
    bounds_now,
    check_keyed,
    check_stateless,
    content_of,
    group_key,
    moved,
    outputs_of,
    read_topic,
    read_typed,
    refuse_unseen,
    types_of,
)
from falkirk.declare.application import Application
from falkirk.declare.nodes import SourceNode, Step, steps_of
from falkirk.declare.parts import Output
from falkirk.declare.policy import Delivery
from falkirk.declare.stream import LatestValue
from falkirk.errors import DefinitionError
from falkirk.errors.conditions.check import ROWS_CHANGED
from falkirk.errors.conditions.commands import NOT_CHECKABLE, NOT_CHECKABLE_KEY
from falkirk.frames import reads
from falkirk.frames import stamped as frames
from falkirk.frames.names import STAMP
from falkirk.frames.stamped import Frame
from falkirk.frames.topics import parse_records, parsing
from falkirk.kafka.connection import Connection
from falkirk.local.spark import kafka_options
from falkirk.plan.recordings import Recordings
from falkirk.runtime.rows import JSON_OPTIONS

_CALL = re.compile(r"^(count|sum|min|max)\((.*)\) AS (\w+)$", re.DOTALL)
_Types = Mapping[str, Callable[[object], object]]
_KINDS = {"count": Count, "sum": Sum, "min": Min, "max": Max}

#: The guarantee that the checker must find at least, for each promise.
PROMISES = {
    Delivery.EXACTLY_ONCE: Guarantee.EXACTLY_ONCE,
    Delivery.REPEATED: Guarantee.REPEATED_DELIVERY,
    Delivery.AT_MOST_ONCE: Guarantee.AT_MOST_ONCE,
    Delivery.AT_LEAST_ONCE: Guarantee.AT_LEAST_ONCE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declared:
    """A sink's path from its source: the steps before its keyed step, and the keyed step, if there is one."""

    source: SourceNode
    before: tuple[Step, ...]
    keyed: Step | None


def judge_sink(
    app: Application,
    sink: Output,
    connection: Connection,
    session: SparkSession,
    space: Space | None = None,
    recordings: Recordings | None = None,
) -> Verdict:
    """Return the checker's verdict on one sink, from its topic and its source's. Run it when no record is in flight.

    Rows are streamed from Spark and from the topic, and divided by key within `space`. `recordings` holds the steps of
    the application's streams, for calls with several sinks.

    Raises: DefinitionError: `NOT_CHECKABLE`: the declaration can't be recomputed. LogError: `TOPIC_UNSEEN`: one of the
        topics has, or had, records that can't be read. `ROWS_CHANGED`: one of them was written in the meantime.
    """
    declared = _declared(app, sink, recordings or Recordings())
    if declared.source.name in app.pushed:
        raise _not_checkable(sink, "its source takes requests, which are deleted after a while")
    if sink.topic.format == "avro":
        raise _not_checkable(sink, "its values are Avro")
    if declared.source.topic.starting != "earliest":
        raise _not_checkable(
            sink, f"its source was read from {declared.source.topic.starting}, an offset that is not known"
        )
    source = declared.source.topic
    raw = reads.spark_records(session, kafka_options(session, connection), source.topic, headers=source.reads_headers)
    frame = parse_records(raw, parsing(source))
    for step in declared.before:
        frame = _recomputable(frame, step, sink)
    good = Frame(data=frame.data.where(frames.is_good()), depth=frame.depth)
    config, topics = connection.client_options(), (declared.source.topic.topic, sink.topic.topic)
    bounds = {topic: bounds_now(config, topic) for topic in topics}
    records = _Counted(read_topic(config, sink.topic.topic))
    verdict = _verdict(good, declared, sink, records, space)
    for topic, count in zip(topics, (raw.count(), records.count), strict=True):
        changed = moved(config, topic, bounds[topic])
        if changed is not None:
            raise ROWS_CHANGED.error(changed=changed)
        refuse_unseen(config, topic, bounds[topic], count)
    return verdict


@dataclass(slots=True)
class _Counted:
    """Records, counted while they are read."""

    records: Iterator[TopicRecord]
    count: int = 0

    def __iter__(self) -> Iterator[TopicRecord]:
        for record in self.records:
            self.count += 1
            yield record


def _verdict(good: Frame, declared: _Declared, sink: Output, records: _Counted, space: Space | None) -> Verdict:
    if declared.keyed is None:
        types = types_of(_types(good.data.select(*good.columns)))
        rows = good.data.select(F.to_json(F.struct(*good.columns), JSON_OPTIONS).alias("value"), STAMP)
        outputs = outputs_of(records, decode=lambda value: read_typed(value, types), key=lambda record, values: None)
        return check_stateless(_inputs(rows, (), declared.source, types), outputs, space=space)
    _recomputable(good, declared.keyed, sink)
    keys, aggregates = _keyed(declared.keyed)
    if tuple(sink.topic.keys) != keys:
        raise _not_checkable(sink, f"its key is not that of groupBy({', '.join(keys)})")
    columns, model = _model(keys, aggregates, sink)
    read = good.data.select(*keys, *columns)
    kinds = _types(read)
    _refuse_unordered(read, model, sink)
    aggregated = {name: each for name, each in model.aggregates.items() if not isinstance(each, Count)}
    named = {name: each.column for name, each in aggregated.items() if each.column is not None}
    named |= dict(zip(keys, keys, strict=True))
    results = types_of({name: kinds[column] for name, column in named.items() if column in kinds})
    outputs = outputs_of(
        records, decode=lambda value: read_typed(value, results), key=lambda record, values: _key(values, keys)
    )
    data = good.data.select(F.to_json(F.struct(*keys, *columns), JSON_OPTIONS).alias("value"), STAMP)
    return check_keyed(_inputs(data, keys, declared.source, types_of(kinds)), outputs, model, space=space)


def _types(data: DataFrame) -> dict[str, str]:
    """Return the checker's types for the columns whose type is not visible in JSON."""
    named = {DecimalType: "decimal", DoubleType: "double", FloatType: "double"}
    return {each.name: named[type(each.dataType)] for each in data.schema if type(each.dataType) in named}


def _refuse_unordered(data: DataFrame, model: AggregateModel, sink: Output) -> None:
    """Refuse a minimum or maximum whose order JSON's values do not have, such as that of bytes in Base64."""
    ordered = (NumericType, BooleanType, DateType, TimestampType, TimestampNTZType)
    for name, function in model.aggregates.items():
        if isinstance(function, Min | Max):
            kind = data.schema[function.column].dataType
            if not isinstance(kind, ordered) and kind != StringType():
                raise _not_checkable(sink, f"{name} is in the order of {kind.simpleString()}")


def _declared(app: Application, sink: Output, recordings: Recordings) -> _Declared:
    steps: list[Step] = []
    name = sink.reads
    while name not in app.sources:
        if name in app.lists:
            raise _not_checkable(sink, "it reads several topics")
        processor = app.processors[name]
        if processor.cut is not None:
            raise _not_checkable(sink, f"{name!r} is a batch")
        if len(processor.reads) != 1:
            raise _not_checkable(sink, f"{name!r} reads several streams")
        upstream = processor.reads[0]
        steps[:0] = steps_of(recordings.first(processor).node)
        name = upstream
    if any(step.operation == "dropDuplicates" for step in steps):
        raise _not_checkable(sink, "it has dropDuplicates()")
    if any(step.operation in ("map_rows", "stateful") for step in steps):
        raise _not_checkable(sink, "it calls Python")
    if any(step.operation == "windows" for step in steps):
        raise _not_checkable(sink, "it has windows")
    keyed = [i for i, step in enumerate(steps) if step.operation in ("agg", "count")]
    if keyed and keyed != [len(steps) - 1]:
        raise _not_checkable(sink, "it has steps after its `groupBy`")
    return _Declared(
        source=app.sources[name],
        before=tuple(steps[:-1] if keyed else steps),
        keyed=steps[-1] if keyed else None,
    )


def _recomputable(frame: Frame, step: Step, sink: Output) -> Frame:
    """Return the frame after a step that is deterministic.

    Raises: DefinitionError: `NOT_CHECKABLE`.
    """
    after = frames.apply(frame, step)
    unknown = undetermined(operations(frame.data), operations(after.data))
    if unknown:
        raise _not_checkable(sink, f"{', '.join(unknown)} ({step.where}) may differ each time")
    return after


def _not_checkable(sink: Output, reason: str) -> DefinitionError:
    return NOT_CHECKABLE.error(where=sink.where, sink=sink.name, reason=reason)


def _keyed(step: Step) -> tuple[tuple[str, ...], Sequence[Any]]:
    keys = step.arguments[0]
    if not all(isinstance(key, str) for key in keys):
        raise NOT_CHECKABLE_KEY.error(where=step.where)
    return tuple(keys), step.arguments[1] if step.operation == "agg" else (F.count("*").alias("count"),)


def _model(keys: tuple[str, ...], aggregates: Sequence[Any], sink: Output) -> tuple[list[Any], AggregateModel]:
    """Return the columns that the aggregates read, and the model that recomputes them."""
    columns: list[Any] = []
    parts: dict[str, AggregateFunction] = {}
    for number, aggregate in enumerate(aggregates):
        column = f"__argument{number}"
        if isinstance(aggregate, LatestValue):
            columns.append(frames.key_column(aggregate.column).alias(column))
            parts[aggregate.name] = Latest(column)
            continue
        expression: Any = F.expr(aggregate) if isinstance(aggregate, str) else aggregate
        call = _CALL.match(str(expression._jc.toString()))
        if call is None:
            raise _not_checkable(sink, f"{aggregate} is not count, sum, min, max or latest with an alias")
        function, argument, name = call.groups()
        if argument in ("1", "*"):
            parts[name] = Count()
            continue
        columns.append(F.expr(argument).alias(column))
        parts[name] = _KINDS[function](column)
    return columns, AggregateModel(list(keys), parts)


def _inputs(data: DataFrame, keys: tuple[str, ...], source: SourceNode, types: _Types) -> Iterator[InputRow]:
    counted: dict[tuple[int, int], int] = {}
    for row in data.orderBy(STAMP).toLocalIterator():
        stamp: Row = row[STAMP]
        record = (stamp["partition"], stamp["offset"])
        sub = counted.get(record, 0)
        counted = {record: sub + 1}  # rows arrive in stamp order, so only the present record is counted
        values = read_typed(row["value"].encode(), types)
        place = RowPlace(source.topic.topic, record[0], record[1], sub)
        yield InputRow(key=_key(values, keys), place=place, row=values)


def _key(values: Mapping[str, object], keys: tuple[str, ...]) -> tuple[Hashable, ...] | None:
    return tuple(content_of(group_key(values.get(key))) for key in keys) if keys else None
