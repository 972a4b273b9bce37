"""Judging an application: what had to come out of it, recomputed from its declaration, against what did.

Spark reads the source topic as a batch and applies the steps before the keyed one; the keyed step is recomputed by
`falkirk.check`, which shares nothing with the mechanism that it judges.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from falkirk.app import App
from falkirk.check import (
    Aggregate,
    AggregateModel,
    Count,
    Guarantee,
    Input,
    Latest,
    Max,
    Min,
    Place,
    Space,
    Sum,
    Verdict,
    check_keyed,
    check_stateless,
    outputs_of,
    read_topic,
)
from falkirk.declared import Sink
from falkirk.errors import DefinitionError
from falkirk.logs.connection import Connection
from falkirk.plan import frames
from falkirk.plan.determinism import operations, undetermined
from falkirk.plan.frames import STAMP, Frame
from falkirk.plan.parsing import parse, parsing
from falkirk.plan.region import steps_of
from falkirk.policy import Delivery
from falkirk.regions.rows import JSON_OPTIONS
from falkirk.stream import Latest as DeclaredLatest
from falkirk.stream import ProcessorNode, SourceNode, Step, Stream

_CALL = re.compile(r"^(count|sum|min|max)\((.*)\) AS (\w+)$", re.DOTALL)
_KINDS = {"count": Count, "sum": Sum, "min": Min, "max": Max}

#: What the checker must find at least for a promise to be kept.
PROMISES = {
    Delivery.EXACTLY_ONCE: Guarantee.EXACTLY_ONCE,
    Delivery.REPEATED: Guarantee.REPEATED_DELIVERY,
    Delivery.AT_MOST_ONCE: Guarantee.AT_MOST_ONCE,
    Delivery.AT_LEAST_ONCE: Guarantee.AT_LEAST_ONCE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declared:
    """A sink's way from its source: the steps before its keyed step, and that step, if it has one."""

    source: SourceNode
    before: tuple[Step, ...]
    keyed: Step | None


def judge_sink(
    app: App, sink: Sink, connection: Connection, session: SparkSession, space: Space | None = None
) -> Verdict:
    """Return the checker's verdict on one sink, from its topic and its source's. Run it when nothing is in flight.

    Rows are streamed from Spark and from the topic, and divided by key within `space`.

    Raises: DefinitionError: `NOT_CHECKABLE`: what is declared can't be recomputed.
    """
    declared = _declared(app, sink)
    if declared.source.name in app.pushed:
        raise _not_checkable(sink, "its source takes requests, which are forgotten after a while")
    if sink.topic.format == "avro":
        raise _not_checkable(sink, "its values are Avro")
    if declared.source.topic.starting != "earliest":
        raise _not_checkable(sink, f"its source was read from {declared.source.topic.starting}, wherever that was")
    reader = session.read.format("kafka").options(**connection.spark_options())
    reader = reader.option("subscribe", declared.source.topic.topic).option("startingOffsets", "earliest")
    raw = reader.option("kafka.isolation.level", "read_committed").load()
    frame = parse(raw, parsing(declared.source.topic))
    for step in declared.before:
        frame = _recomputable(frame, step, sink)
    good = Frame(data=frame.data.where(frames.is_good()), depth=frame.depth)
    records = read_topic(connection.client_options(), sink.topic.topic)
    if declared.keyed is None:
        rows = good.data.select(F.to_json(F.struct(*good.columns), JSON_OPTIONS).alias("value"), STAMP)
        outputs = outputs_of(records, key=lambda record, values: None)
        return check_stateless(_inputs(rows, (), declared.source), outputs, space=space)
    _recomputable(frame, declared.keyed, sink)
    keys, aggregates = _keyed(declared.keyed)
    outputs = outputs_of(records, key=lambda record, values: _key(values, keys))
    if tuple(sink.topic.keys) != keys:
        raise _not_checkable(sink, f"its key is not that of groupBy({', '.join(keys)})")
    columns, model = _model(keys, aggregates, sink)
    data = good.data.select(F.to_json(F.struct(*keys, *columns), JSON_OPTIONS).alias("value"), STAMP)
    return check_keyed(_inputs(data, keys, declared.source), outputs, model, space=space)


def _declared(app: App, sink: Sink) -> _Declared:
    steps: list[Step] = []
    name = sink.reads
    while name not in app.sources:
        processor = app.processors[name]
        if processor.cut is not None:
            raise _not_checkable(sink, f"{name!r} is a batch")
        if len(processor.reads) != 1:
            raise _not_checkable(sink, f"{name!r} reads several streams")
        upstream = processor.reads[0]
        steps[:0] = steps_of(processor.body(Stream(ProcessorNode(name=upstream))).node)
        name = upstream
    keyed = [i for i, step in enumerate(steps) if step.operation in ("agg", "count")]
    if keyed and keyed != [len(steps) - 1]:
        raise _not_checkable(sink, "there are steps behind its keyed step")
    return _Declared(
        source=app.sources[name],
        before=tuple(steps[:-1] if keyed else steps),
        keyed=steps[-1] if keyed else None,
    )


def _recomputable(frame: Frame, step: Step, sink: Sink) -> Frame:
    """Return the frame after a step that gives the same whenever it is computed.

    Raises: DefinitionError: `NOT_CHECKABLE`.
    """
    after = frames.apply(frame, step)
    unknown = undetermined(operations(frame.data), operations(after.data))
    if unknown:
        raise _not_checkable(sink, f"{', '.join(unknown)} ({step.where}) may come out differently each time")
    return after


def _not_checkable(sink: Sink, reason: str) -> DefinitionError:
    return DefinitionError(
        "NOT_CHECKABLE",
        f"sink {sink.name!r} can't be recomputed: {reason}.",
        where=sink.where,
        hint="Use falkirk.check with a model of your own.",
        sink=sink.name,
    )


def _keyed(step: Step) -> tuple[tuple[str, ...], Sequence[Any]]:
    keys = step.arguments[0]
    if not all(isinstance(key, str) for key in keys):
        raise DefinitionError(
            "NOT_CHECKABLE", "groupBy() has an expression as key.", where=step.where, hint="Group by a named column."
        )
    return tuple(keys), step.arguments[1] if step.operation == "agg" else (F.count("*").alias("count"),)


def _model(keys: tuple[str, ...], aggregates: Sequence[Any], sink: Sink) -> tuple[list[Any], AggregateModel]:
    """Return the columns that the aggregates read, and the model that recomputes them."""
    columns: list[Any] = []
    parts: dict[str, Aggregate] = {}
    for number, aggregate in enumerate(aggregates):
        column = f"__argument{number}"
        if isinstance(aggregate, DeclaredLatest):
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


def _inputs(data: DataFrame, keys: tuple[str, ...], source: SourceNode) -> Iterator[Input]:
    counted: dict[tuple[int, int], int] = {}
    for row in data.orderBy(STAMP).toLocalIterator():
        stamp: Row = row[STAMP]
        record = (stamp["partition"], stamp["offset"])
        sub = counted.get(record, 0)
        counted = {record: sub + 1}  # rows come in stamp order, so only the present record is counted
        values = json.loads(row["value"])
        place = Place(source.topic.topic, record[0], record[1], sub)
        yield Input(key=_key(values, keys), place=place, row=values)


def _key(values: Mapping[str, object], keys: tuple[str, ...]) -> tuple[str, ...] | None:
    return tuple(str(values.get(key)) for key in keys) if keys else None
