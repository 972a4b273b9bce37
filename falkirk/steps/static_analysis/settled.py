"""Settled: finds operations that depend on the order of rows, but only where the order is fixed or does not matter.

`rank()` gives equal rows the same number. `count(*) OVER (PARTITION BY s)` counts all rows of a group. A list that is
sorted at once does not depend on the order in which it was collected. Rows that are sorted by a unique key have one
order. An operation is settled if such a rule holds everywhere in the plan.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame

from falkirk.steps.static_analysis.functions import SAME_IN_BATCH, entry_of
from falkirk.steps.static_analysis.python import nodes
from falkirk.steps.static_analysis.typed import is_one_text, stable

#: Functions of a window that give the same value to rows that are equal in its order.
_OF_PEERS = {"Rank", "DenseRank", "PercentRank", "CumeDist"}
#: Functions of a window that depend only on the order of its rows.
_IN_ORDER = {"RowNumber", "NTile", "Lead", "Lag", "NthValue", "First", "Last", "AnyValue", "CollectList"}
_LIMITS = {"GlobalLimit", "LocalLimit", "Offset"}
#: Operators between a limit and the sort of its rows that keep the order.
_KEEPING = _LIMITS | {"Project", "SubqueryAlias"}
_GATHERING = {"CollectList", "CollectSet"}
#: Functions whose result does not depend on the order of collected values. For the first set, equal values must be the
#: same.
_SORTING, _COUNTING = {"SortArray", "ArrayMax", "ArrayMin"}, {"Size", "ArraySize", "Cardinality"}
_BY = {"MaxBy", "MinBy"}
_WINDOW = {"Window", "WindowExpression"} | _OF_PEERS | _IN_ORDER
#: All operations that may be settled.
MAY_BE = _WINDOW | _LIMITS | _GATHERING | _BY


def settled(data: DataFrame, doubtful: Collection[str], named: Mapping[str, int]) -> frozenset[str]:
    """Return the operations that give the same result everywhere in a DataFrame's plan.

    Args: doubtful: operations. named: how often each operation is in the plan's JSON. An operation that is in a place
        where it is not found here is not settled.
    """
    if MAY_BE.isdisjoint(doubtful):
        return frozenset()
    session: Any = data.sparkSession
    is_stable = stable(session)

    def is_one(kind: Any) -> bool:
        return bool(is_stable(kind)) and is_one_text(json.loads(str(kind.json())))

    usual = session._jvm.org.apache.spark.sql.catalyst.expressions.ArraySort.defaultComparator()
    found = Counter(_found(data._jdf.queryExecution().analyzed(), is_one, _unresolved(usual)))
    return frozenset(name for name in MAY_BE & set(doubtful) if found[name] == named.get(name, 0))


def _found(plan: Any, is_one: Callable[[Any], bool], usual: str) -> Iterator[str]:
    """Yield the name of an operation for each place where it is settled.

    Args: is_one: equal values of a type are the same. usual: the default comparison of `array_sort`.
    """
    for node in nodes(plan):
        name = _name(node)
        if name in _LIMITS and _is_sorted(node, is_one):
            yield name
        elif name == "Window":
            yield from _of_window(node, is_one)
        for expression in _several(node.expressions()):
            yield from _of_aggregates(expression, is_one, usual)


def _is_sorted(limit: Any, is_one: Callable[[Any], bool]) -> bool:
    """Return whether the input rows of a limit have one order."""
    below = limit
    while _name(below) in _KEEPING:
        below = below.child()
    return (
        _name(below) == "Sort" and bool(getattr(below, "global")()) and _is_total(below.order(), below.child(), is_one)
    )


def _is_total(orders: Any, rows: Any, is_one: Callable[[Any], bool], *more: Any) -> bool:
    """Return whether rows have one order: rows with equal sort keys do not exist, or are the same.

    Args: more: further expressions in which the compared rows are equal.
    """
    by = [*(order.child() for order in _several(orders)), *more]

    def has_all(columns: Any) -> bool:
        return all(any(column.semanticEquals(one) for one in by) for column in columns)

    if any(has_all(_several(key.toSeq())) for key in _several(rows.distinctKeys().toSeq())):
        return True
    output = _several(rows.output())
    return not more and all(is_one(column.dataType()) for column in output) and has_all(output)


def _of_window(window: Any, is_one: Callable[[Any], bool]) -> Iterator[str]:
    """Yield the settled functions of a window, and the window itself if all its functions are settled."""
    is_total = _is_total(window.orderSpec(), window.child(), is_one, *_several(window.partitionSpec()))
    open_ = 0
    for expression in _parts(window.windowExpressions()):
        if _name(expression) != "WindowExpression":
            continue
        function = expression.windowFunction()
        inner = function.aggregateFunction() if _name(function) == "AggregateExpression" else function
        if _is_settled(_name(inner), expression.windowSpec().frameSpecification(), is_total):
            yield "WindowExpression"
            yield _name(inner)
        else:
            open_ += 1
    if not open_:
        yield "Window"


def _is_settled(function: str, frame: Any, is_total: bool) -> bool:
    if function in _OF_PEERS:
        return True
    is_known = entry_of(function).nature in SAME_IN_BATCH
    if is_total:
        return is_known or function in _IN_ORDER
    bounds = [_name(frame.lower()), _name(frame.upper())]
    is_whole = bounds == ["UnboundedPreceding$", "UnboundedFollowing$"]
    return is_known and (is_whole or _name(frame.frameType()) == "RangeFrame$")


def _of_aggregates(top: Any, is_one: Callable[[Any], bool], usual: str) -> Iterator[str]:
    """Yield the aggregates of an expression that are settled by the surrounding expression or by their arguments."""
    waiting = [(top, top)]
    while waiting:
        expression, above = waiting.pop()
        if _name(expression) == "AggregateExpression":
            aggregate = expression.aggregateFunction()
            if _is_forgotten(aggregate, above, is_one, usual) or _is_of_its_order(aggregate, is_one):
                yield _name(aggregate)
        waiting += [(part, expression) for part in _several(expression.children())]


def _is_forgotten(aggregate: Any, above: Any, is_one: Callable[[Any], bool], usual: str) -> bool:
    """Return whether the surrounding expression does not depend on the order of an aggregate's collected values."""
    name = _name(above)
    if _name(aggregate) not in _GATHERING or name in _COUNTING:
        return _name(aggregate) in _GATHERING
    sorts = name in _SORTING or (name == "ArraySort" and _unresolved(above.function()) == usual)
    return sorts and is_one(aggregate.dataType().elementType())


def _unresolved(function: Any) -> str:
    """Return a lambda's text without the resolution of its variables."""
    return re.sub(r"#\d+|'", "", str(function.toString()))


def _is_of_its_order(aggregate: Any, is_one: Callable[[Any], bool]) -> bool:
    """Return whether an aggregate takes the value with the greatest or least key, and the value is part of the key."""
    if _name(aggregate) not in _BY or not is_one(aggregate.dataType()):
        return False
    value, order = _several(aggregate.children())[:2]
    compared = [order, *(_several(order.valExprs()) if _name(order) == "CreateNamedStruct" else ())]
    return any(value.semanticEquals(part) for part in compared)


def _parts(several: Any) -> Iterator[Any]:
    waiting = _several(several)
    while waiting:
        expression = waiting.pop()
        yield expression
        waiting += _several(expression.children())


def _several(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def _name(value: Any) -> str:
    return str(value.getClass().getSimpleName())
