"""Typed: finds the operations of a batch's plan that depend on the order of rows because of their types.

The name of an operation does not show whether a sum is exact, or whether equal values may have several spellings. So
this module asks Spark for the types.
"""

import json
from collections.abc import Callable, Collection, Iterator
from typing import Any

from pyspark.sql import DataFrame

from falkirk.steps.static_analysis.functions import (
    ONE_OF_SEVERAL,
    ONE_SPELLING,
    OVERFLOWING,
    Nature,
    entry_of,
    names_of,
)
from falkirk.steps.static_analysis.python import nodes_of, replaced

#: Types whose sums do not depend on the order. An average adds integers as floating-point numbers, and sums of long
#: integers soon exceed 2^53, from where on these are rounded.
_EXACT = ("byte", "short", "integer", "long", "decimal", "interval ")
_EXACT_IN_AVERAGES = ("byte", "short", "integer", "decimal", "interval ")
#: A sum has 10 digits more than its argument, and at most 38.
_DIGITS_LEFT = 28
#: Simple types whose equal values are the same, also within other types.
_ONE_TEXT = (
    "void", "boolean", "byte", "short", "integer", "long", "decimal", "date", "timestamp", "time", "interval ",
    "binary", "string", "char", "varchar",
)  # fmt: skip

#: Aggregates whose dependence on the order of rows shows in their types, and the expressions to look at for them.
_OF_INTEREST = names_of(Nature.COMMUTATIVE, Nature.FLOATING)
_LOOKED_AT = _OF_INTEREST | {"AggregateExpression"}
#: Relations that group equal rows.
_GROUPING = {"Aggregate", "Distinct", "Deduplicate", "Intersect", "Except"}


def of_types(data: DataFrame, found: Collection[str]) -> Iterator[str]:
    """Yield the operations of a DataFrame's plan that depend on the order of rows, by their types.

    Args: found: all operations in it, by Catalyst's names.
    """
    session: Any = data.sparkSession
    is_stable, is_one_key = stable(session), one_key(session)
    for node in nodes_of(data, _GROUPING) if _GROUPING & set(found) else ():
        name = str(node.getClass().getSimpleName())
        if name == "Deduplicate" and not _identities(node.output()) <= _identities(node.keys()):
            yield ONE_OF_SEVERAL  # the other columns show which row was kept
        if not all(map(is_one_key, _grouped(node, name))):
            yield ONE_SPELLING
    for expression in replaced(data, _LOOKED_AT) if _OF_INTEREST & set(found) else ():
        name = str(expression.getClass().getSimpleName())
        if entry_of(name).nature is Nature.COMMUTATIVE and _takes_one_of_equals(expression, is_stable):
            yield ONE_SPELLING
        if name == "AggregateExpression" and expression.isDistinct() and _has_interval(*_given(expression)):
            yield ONE_SPELLING
        if entry_of(name).nature is Nature.FLOATING:
            yield from _of_sum(name, expression)


def stable(session: Any) -> Callable[[Any], bool]:
    """Return a function that says whether values of a type are equal exactly if their bytes are equal."""
    is_stable: Callable[[Any], bool] = session._jvm.org.apache.spark.sql.catalyst.util.UnsafeRowUtils.isBinaryStable
    return is_stable


def one_key(session: Any) -> Callable[[Any], bool]:
    """Return a function that says whether equal values of a type always come into one group.

    Spark groups by bytes. A NULL interval of months, days and microseconds keeps the bytes that were in its place
    before.
    """
    is_stable = stable(session)
    return lambda kind: bool(is_stable(kind)) and not _has_interval(kind)


def _has_interval(*kinds: Any) -> bool:
    return any("interval" in _simple(json.loads(str(kind.json()))) for kind in kinds)


def _simple(kind: Any) -> Iterator[str]:
    """Yield the simple types within a type, as Spark's JSON."""
    if isinstance(kind, str):
        yield kind
    elif isinstance(kind, dict):
        for part in (*kind.get("fields", ()), kind.get("elementType"), kind.get("keyType"), kind.get("valueType")):
            yield from _simple(part)
        yield from _simple(kind.get("type"))


def _given(aggregate: Any) -> list[Any]:
    """Return the types of an aggregate's arguments."""
    parts = aggregate.aggregateFunction().children()
    return [parts.apply(i).dataType() for i in range(parts.size())]


#: Functions that return the behaviour of an aggregate on overflow, as Spark's `EvalMode`.
_MODES: dict[str, Callable[[Any], str]] = {
    "Sum": lambda aggregate: str(aggregate.evalContext().evalMode().toString()),
    "Average": lambda aggregate: str(aggregate.evalMode().toString()),
}


def _grouped(node: Any, name: str) -> list[Any]:
    """Return the types of the columns by which a relation groups rows."""
    by = {"Aggregate": "groupingExpressions", "Deduplicate": "keys"}.get(name, "output")
    columns = getattr(node, by)()
    return [columns.apply(i).dataType() for i in range(columns.size())]


def _identities(columns: Any) -> set[int]:
    return {int(columns.apply(i).exprId().id()) for i in range(columns.size())}


def _takes_one_of_equals(aggregate: Any, is_stable: Callable[[Any], bool]) -> bool:
    """Return whether an aggregate takes one of several values that are equal but not the same, such as 0.0 and -0.0.

    Examples are the maximum, the minimum and the median. For grouping keys, Spark itself uses one spelling, except for
    strings with a collation.
    """
    parts = [aggregate.children().apply(i) for i in range(aggregate.children().size())]
    taken = [aggregate, *(part for part in parts if not part.foldable())]
    kinds = [each.dataType() for each in taken]
    several = [not is_stable(kind) or not is_one_text(json.loads(str(kind.json()))) for kind in kinds]
    return several[0] and any(several[1:])


def is_one_text(kind: Any) -> bool:
    """Return whether equal values of a type, given as Spark's JSON, are the same."""
    if isinstance(kind, str):
        return kind.startswith(_ONE_TEXT)
    of = kind.get("type")
    if of == "struct":
        return all(is_one_text(one["type"]) for one in kind["fields"])
    return of == "array" and is_one_text(kind["elementType"])


def _of_sum(name: str, aggregate: Any) -> Iterator[str]:
    child = aggregate.children().apply(0)
    if entry_of(str(child.getClass().getSimpleName())).nature is Nature.FLOATING:
        return  # try_sum() contains a sum, which is checked itself
    kind = child.dataType()
    of_type = str(kind.typeName())
    if not of_type.startswith(_EXACT if name in ("Sum", "TrySum") else _EXACT_IN_AVERAGES):
        yield name
    mode = _MODES[name](aggregate) if name in _MODES else "TRY"
    adds_up_to = str(aggregate.aggBufferAttributes().apply(0).dataType().typeName())
    # If the sum has the same width as its argument, a few rows can overflow it; otherwise billions are needed.
    is_soon_full = of_type.startswith(("long", "interval ")) and of_type.split()[0] == adds_up_to.split()[0]
    wide = of_type.startswith("decimal") and kind.precision() > _DIGITS_LEFT
    if (mode == "TRY" and is_soon_full) or (mode in ("TRY", "LEGACY") and wide):
        yield OVERFLOWING
