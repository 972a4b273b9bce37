"""Typed: what of a batch's plan depends on the order of rows because of the types of what it works on.

Whether a sum is exact, and which of several spellings stands for all, is not to be seen in an operation's name; so
Spark is asked for types.
"""

import json
from collections.abc import Callable, Collection, Iterator
from typing import Any

from pyspark.sql import DataFrame

from falkirk.analysis.functions import ONE_OF_SEVERAL, ONE_SPELLING, OVERFLOWING, Nature, entry_of
from falkirk.analysis.python import expressions, nodes, replaced

#: Types whose values add up to the same in any order. An average adds up whole numbers as floating-point ones, and
#: long ones are soon beyond 2^53, where those are rounded.
_EXACT = ("byte", "short", "integer", "long", "decimal", "interval ")
_EXACT_IN_AVERAGES = ("byte", "short", "integer", "decimal", "interval ")
#: A sum has 10 digits more than what is added, and 38 at most.
_DIGITS_LEFT = 28
#: Simple types of which values that are equal are the same, whatever else they are within.
_ONE_TEXT = (
    "void", "boolean", "byte", "short", "integer", "long", "decimal", "date", "timestamp", "time", "interval ",
    "binary", "string", "char", "varchar",
)  # fmt: skip

#: Relations that put rows together that are equal.
_GROUPING = {"Aggregate", "Distinct", "Deduplicate", "Intersect", "Except"}


def of_types(data: DataFrame, found: Collection[str]) -> Iterator[str]:
    """Yield the operations of a DataFrame's plan that depend on the order of rows, by their types.

    Args: found: all operations in it, by Catalyst's names.
    """
    session: Any = data.sparkSession
    is_stable, is_one_key = stable(session), one_key(session)
    plan = data._jdf.queryExecution().analyzed()
    for node in nodes(plan) if _GROUPING & set(found) else ():
        name = str(node.getClass().getSimpleName())
        if name == "Deduplicate" and not _identities(node.output()) <= _identities(node.keys()):
            yield ONE_OF_SEVERAL  # the other columns say which one was kept
        if name in _GROUPING and not all(map(is_one_key, _grouped(node, name))):
            yield ONE_SPELLING
    for expression in replaced(session, expressions(plan)) if any(map(_is_of_interest, found)) else ():
        name = str(expression.getClass().getSimpleName())
        if entry_of(name).nature is Nature.COMMUTATIVE and _takes_one_of_equals(expression, is_stable):
            yield ONE_SPELLING
        if name == "AggregateExpression" and expression.isDistinct() and _has_interval(*_given(expression)):
            yield ONE_SPELLING
        if entry_of(name).nature is Nature.FLOATING:
            yield from _of_sum(name, expression)


def stable(session: Any) -> Callable[[Any], bool]:
    """Return what says of a type whether values are equal if their bytes are, and only then."""
    is_stable: Callable[[Any], bool] = session._jvm.org.apache.spark.sql.catalyst.util.UnsafeRowUtils.isBinaryStable
    return is_stable


def one_key(session: Any) -> Callable[[Any], bool]:
    """Return what says of a type whether equal values are put into one group, whatever was computed before them.

    Spark groups by bytes, and of an interval of months, days and microseconds that is NULL it keeps the bytes that were
    in its place before.
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
    """Return the types of what an aggregate is given."""
    parts = aggregate.aggregateFunction().children()
    return [parts.apply(i).dataType() for i in range(parts.size())]


def _is_of_interest(name: str) -> bool:
    return entry_of(name).nature in (Nature.COMMUTATIVE, Nature.FLOATING)


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


def _identities(columns: Any) -> set[int]:
    return {int(columns.apply(i).exprId().id()) for i in range(columns.size())}


def _takes_one_of_equals(aggregate: Any, is_stable: Callable[[Any], bool]) -> bool:
    """Whether an aggregate takes one of several values that are equal and not the same: 0.0 and -0.0, spellings.

    Such are the greatest, the least and the middle one. Spark spells what it groups by in one way itself, but collated
    strings.
    """
    parts = [aggregate.children().apply(i) for i in range(aggregate.children().size())]
    taken = [aggregate, *(part for part in parts if not part.foldable())]
    kinds = [each.dataType() for each in taken]
    several = [not is_stable(kind) or not is_one_text(json.loads(str(kind.json()))) for kind in kinds]
    return several[0] and any(several[1:])


def is_one_text(kind: Any) -> bool:
    """Whether values of a type, as Spark's JSON, that are equal are the same."""
    if isinstance(kind, str):
        return kind.startswith(_ONE_TEXT)
    of = kind.get("type")
    if of == "struct":
        return all(is_one_text(one["type"]) for one in kind["fields"])
    return of == "array" and is_one_text(kind["elementType"])


def _of_sum(name: str, aggregate: Any) -> Iterator[str]:
    child = aggregate.children().apply(0)
    if entry_of(str(child.getClass().getSimpleName())).nature is Nature.FLOATING:
        return  # try_sum() stands for a sum, which is looked at itself
    kind = child.dataType()
    of_type = str(kind.typeName())
    if not of_type.startswith(_EXACT if name in ("Sum", "TrySum") else _EXACT_IN_AVERAGES):
        yield name
    mode = _MODES[name](aggregate) if name in _MODES else "TRY"
    adds_up_to = str(aggregate.aggBufferAttributes().apply(0).dataType().typeName())
    # In what is no wider than what is added a few rows overflow; else it takes billions of them.
    is_soon_full = of_type.startswith(("long", "interval ")) and of_type.split()[0] == adds_up_to.split()[0]
    wide = of_type.startswith("decimal") and kind.precision() > _DIGITS_LEFT
    if (mode == "TRY" and is_soon_full) or (mode in ("TRY", "LEGACY") and wide):
        yield OVERFLOWING
