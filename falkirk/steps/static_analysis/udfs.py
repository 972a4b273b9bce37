"""UDFs: describes the user-defined functions (UDFs) of Python in a column, analysed or not, and in a plan."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from falkirk.declare.asserting import DeterminismAssertion, assertion_of
from falkirk.declare.grouped import LatestValue
from falkirk.steps.static_analysis import python

#: Catalyst's class of a UDF. Others are aggregates and tables.
CALL = "PythonUDF"
#: Spark's kinds of UDFs that compute one row at a time: with pickled values, and through Arrow.
ONE_BY_ONE = (100, ARROW := 101)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownUdf:
    """A UDF of Python.

    Args: identity: Catalyst's, of this call. name: the user's. kind: Spark's. function: None: it can't be unpickled.
        is_random: the user has called `asNondeterministic()`. needs_broadcasts: it uses broadcast variables, or is so
        large that Spark sends it as one. types: of the arguments and the result, as JSON; empty before the analysis.
    """

    identity: int
    name: str
    kind: int
    function: Any
    is_random: bool
    needs_broadcasts: bool
    types: tuple[str, ...] = ()

    @property
    def assertion(self) -> DeterminismAssertion | None:
        """The user's assertion that it is deterministic."""
        return None if self.is_random else assertion_of(self.function)


def of_values(value: Any) -> tuple[KnownUdf, ...]:
    """Return the UDFs in the arguments of a step. A function that SQL knows by a name is not found there."""
    return tuple(_known(udf) for column in _columns(value) for udf in _in_column(column))


def of_plan(data: DataFrame) -> tuple[KnownUdf, ...]:
    """Return the UDFs in a DataFrame's plan."""
    return tuple(_known(udf, _types(udf)) for udf in python.replaced(data, [CALL]))


def _columns(value: Any) -> Iterator[Any]:
    if isinstance(value, LatestValue):
        yield from _columns(value.column)
    elif isinstance(value, dict):
        yield from _columns([*value.values()])
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _columns(each)
    elif hasattr(value, "_jc"):
        yield value._jc


def _in_column(column: Any) -> Iterator[Any]:
    node = column.node()
    if "ExpressionColumnNode(" in str(node.toString()):  # a walk costs a call to the JVM for each part
        yield from _in_node(node)


def _in_node(node: Any) -> Iterator[Any]:
    """Yield the UDFs in a node of a column, or in an expression."""
    kind = str(node.getClass().getSimpleName())
    if kind == CALL:
        yield node
    if kind in ("ExpressionColumnNode", "ColumnNodeExpression"):
        yield from _in_node(node.expression() if kind == "ExpressionColumnNode" else node.node())
        return
    parts = node.children()
    for i in range(parts.size()):
        yield from _in_node(parts.apply(i))


def _known(udf: Any, types: tuple[str, ...] = ()) -> KnownUdf:
    return KnownUdf(
        identity=int(udf.resultId().id()),
        name=str(udf.name()),
        kind=int(udf.evalType()),
        function=python.function_of(udf),
        is_random=not udf.udfDeterministic(),
        needs_broadcasts=not udf.func().broadcastVars().isEmpty(),
        types=types,
    )


def _types(udf: Any) -> tuple[str, ...]:
    parts = udf.children()
    of = [parts.apply(i) for i in range(parts.size())]
    named = [each.value() if each.getClass().getSimpleName() == "NamedArgumentExpression" else each for each in of]
    return tuple(str(each.dataType().json()) for each in (*named, udf))
