"""Judge models: the checker's models of the keyed steps of live regions."""

import re
from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import BooleanType, DateType, NumericType, StringType, TimestampNTZType, TimestampType

from falkirk.checker import AggregateFunction, AggregateModel, Count, Latest, Max, Min, Sum
from falkirk.declare.grouped import LatestValue
from falkirk.declare.nodes import Step
from falkirk.declare.parts import DeclaredSink
from falkirk.errors.conditions.commands import NOT_CHECKABLE_KEY
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.aggregates import grouping_of
from falkirk.user_tools.commands.due import not_checkable

#: The checker's models of Spark's aggregate functions of one column.
_KINDS = {"Count": Count, "Sum": Sum, "Min": Min, "Max": Max}


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
    data: DataFrame, keys: tuple[str, ...], aggregates: Sequence[Any], sink: DeclaredSink
) -> tuple[list[Any], AggregateModel]:
    """Return the columns that the aggregates read, and the model that recomputes them.

    Args: data: the rows that they read. Raises: DefinitionError: `NOT_CHECKABLE`.
    """
    columns: list[Any] = []
    parts: dict[str, AggregateFunction] = {}
    for number, aggregate in enumerate(aggregates):
        column = f"__argument{number}"
        if isinstance(aggregate, LatestValue):
            columns.append(frames.key_column(aggregate.column).alias(column))
            parts[aggregate.name] = Latest(column)
            continue
        call = _call(data, F.expr(aggregate) if isinstance(aggregate, str) else aggregate)
        if call is None:
            raise not_checkable(sink, f"{aggregate} is not count, sum, min, max or latest with an alias")
        name, function, argument = call
        if argument is None:
            parts[name] = Count()
            continue
        columns.append(argument.alias(column))
        parts[name] = _KINDS[function](column)
    return columns, AggregateModel(list(keys), parts)


def _call(data: DataFrame, aggregate: Column) -> tuple[str, str, Column | None] | None:
    """Return the name of an aggregate, its function, and the column that it reads; None: all rows. None: it is no call
    that the checker has a model of.

    Spark analyses it: the text of a column, such as `+(n, 1)`, is no SQL.
    """
    plan: Any = data.groupBy().agg(aggregate)._jdf.queryExecution().analyzed()
    if _kind(plan) != "Aggregate" or _kind(named := plan.aggregateExpressions().head()) != "Alias":
        return None
    name, call = str(named.name()), named.child()
    if not re.fullmatch(r"\w+", name) or _kind(call) != "AggregateExpression":
        return None
    function, is_plain = call.aggregateFunction(), not call.isDistinct() and call.filter().isEmpty()
    if not is_plain or _kind(function) not in _KINDS or function.children().size() != 1:
        return None
    argument = function.children().head()
    if _kind(function) == "Count" and not argument.nullable():
        return name, "Count", None
    bridge = data.sparkSession._jvm.org.apache.spark.sql.classic.ExpressionUtils  # type: ignore[union-attr]
    return name, _kind(function), ClassicColumn(bridge.column(argument))


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())
