"""Typed: what of a batch's plan depends on the order of rows because of the types of what it works on.

Whether a sum is exact, and which of several spellings stands for all, is not to be seen in an operation's name; so
Spark is asked for types.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any

from pyspark.sql import DataFrame

from falkirk.plan.inference.functions import ONE_OF_SEVERAL, ONE_SPELLING, OVERFLOWING, Nature, entry_of
from falkirk.plan.inference.python import expressions, nodes

#: Types whose values add up to the same in any order. An average adds up whole numbers as floating-point ones, and
#: long ones are soon beyond 2^53, where those are rounded.
_EXACT = ("byte", "short", "integer", "long", "decimal", "interval ")
_EXACT_IN_AVERAGES = ("byte", "short", "integer", "decimal", "interval ")
#: Where a sum of them overflows, all is lost to NULL under try_sum(); of smaller ones it takes billions of rows.
_SOON_FULL = ("long", "interval ")
#: A sum has 10 digits more than what is added, and 38 at most.
_DIGITS_LEFT = 28

#: Relations that put rows together that are equal.
_GROUPING = {"Aggregate", "Distinct", "Deduplicate", "Intersect", "Except"}
#: Aggregates that take one of several values that are equal.
_EXTREMES = {"Max", "Min"}


def of_types(data: DataFrame, found: Collection[str]) -> Iterator[str]:
    """Yield the operations of a DataFrame's plan that depend on the order of rows, by their types.

    Args: found: all operations in it, by Catalyst's names.
    """
    session: Any = data.sparkSession
    is_stable = session._jvm.org.apache.spark.sql.catalyst.util.UnsafeRowUtils.isBinaryStable
    plan = data._jdf.queryExecution().analyzed()
    for node in nodes(plan) if _GROUPING & set(found) else ():
        name = str(node.getClass().getSimpleName())
        if name == "Deduplicate" and node.keys().size() < node.output().size():
            yield ONE_OF_SEVERAL  # the other columns say which one was kept
        if name in _GROUPING and not all(map(is_stable, _grouped(node, name))):
            yield ONE_SPELLING
    for expression in expressions(plan) if any(map(_is_of_interest, found)) else ():
        name = str(expression.getClass().getSimpleName())
        if name in _EXTREMES and not is_stable(expression.dataType()):
            yield ONE_SPELLING
        if entry_of(name).nature is Nature.FLOATING:
            yield from _of_sum(name, expression)


def _is_of_interest(name: str) -> bool:
    return name in _EXTREMES or entry_of(name).nature is Nature.FLOATING


#: What becomes of what overflows, by Spark's `EvalMode`.
_MODES: dict[str, Callable[[Any], str]] = {
    "Sum": lambda aggregate: str(aggregate.evalContext().evalMode().toString()),
    "Average": lambda aggregate: str(aggregate.evalMode().toString()),
}


def _grouped(node: Any, name: str) -> list[Any]:
    """Return the types of the columns by which a relation puts rows together."""
    by = {"Aggregate": "groupingExpressions", "Deduplicate": "keys"}.get(name, "output")
    columns = getattr(node, by)()
    return [columns.apply(i).dataType() for i in range(columns.size())]


def _of_sum(name: str, aggregate: Any) -> Iterator[str]:
    child = aggregate.children().apply(0)
    if entry_of(str(child.getClass().getSimpleName())).nature is Nature.FLOATING:
        return  # try_sum() stands for a sum, which is looked at itself
    kind = child.dataType()
    of_type = str(kind.typeName())
    if not of_type.startswith(_EXACT if name in ("Sum", "TrySum") else _EXACT_IN_AVERAGES):
        yield name
    mode = _MODES[name](aggregate) if name in _MODES else "TRY"
    wide = of_type.startswith("decimal") and kind.precision() > _DIGITS_LEFT
    if (mode == "TRY" and name != "Average" and of_type.startswith(_SOON_FULL)) or (mode in ("TRY", "LEGACY") and wide):
        yield OVERFLOWING
