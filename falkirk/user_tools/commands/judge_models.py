"""Judge models: the checker's models of the keyed steps of live regions."""

import re
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DateType, NumericType, StringType, TimestampNTZType, TimestampType

from falkirk.checker import AggregateFunction, AggregateModel, Count, Latest, Max, Min, Sum
from falkirk.declare.grouped import LatestValue
from falkirk.declare.nodes import Step
from falkirk.declare.parts import DeclaredSink
from falkirk.errors.conditions.commands import NOT_CHECKABLE_KEY
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.aggregates import grouping_of
from falkirk.user_tools.commands.due import not_checkable

_CALL = re.compile(r"^(count|sum|min|max)\((.*)\) AS (\w+)$", re.DOTALL)
_KINDS = {"count": Count, "sum": Sum, "min": Min, "max": Max}


def refuse_unordered(data: DataFrame, model: AggregateModel, sink: DeclaredSink) -> None:
    """Refuse a minimum or maximum whose order JSON's values do not have, such as that of bytes in Base64."""
    ordered = (NumericType, BooleanType, DateType, TimestampType, TimestampNTZType)
    for name, function in model.aggregates.items():
        if isinstance(function, Min | Max):
            kind = data.schema[function.column].dataType
            if not isinstance(kind, ordered) and kind != StringType():
                raise not_checkable(sink, f"{name} is in the order of {kind.simpleString()}")


def grouped(step: Step) -> tuple[tuple[str, ...], Sequence[Any]]:
    """Return the key and the aggregates of a `groupBy`.

    Raises: DefinitionError: `NOT_CHECKABLE`: the key is computed.
    """
    keys, aggregates = grouping_of(step.arguments)
    if not all(isinstance(key, str) for key in keys):
        raise NOT_CHECKABLE_KEY.error(where=step.where)
    return tuple(keys), aggregates


def aggregate_model(
    keys: tuple[str, ...], aggregates: Sequence[Any], sink: DeclaredSink
) -> tuple[list[Any], AggregateModel]:
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
            raise not_checkable(sink, f"{aggregate} is not count, sum, min, max or latest with an alias")
        function, argument, name = call.groups()
        if argument in ("1", "*"):
            parts[name] = Count()
            continue
        columns.append(F.expr(argument).alias(column))
        parts[name] = _KINDS[function](column)
    return columns, AggregateModel(list(keys), parts)
