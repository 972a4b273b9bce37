"""Clocks: constants that are another one on another day: `CAST('now' AS TIMESTAMP)`, `date'today'`, `timestamp'12:30'`.

To the table of functions they are a cast and a literal, and both are pure. Which words Spark takes for the present, and
to what it adds today's date, is not for us to list. A constant is known if it is plainly a date, and only then.

A column that holds such a word is not looked at: Spark reads these words of constants alone.
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from pyspark.sql import DataFrame

from falkirk.analysis.functions import DATED, PRESENT
from falkirk.analysis.python import expressions, replaced
from falkirk.analysis.structure import analyzed

#: What is a date whatever day it is: a year, month and day, and what there may be of a time; or fewer of them.
_DATE = r"\s*[+-]?\d{4,7}(-\d{1,2}(-\d{1,2}([ T][^'\"\\]*)?)?)?\s*"
_IS_DATE = re.compile(_DATE)
#: A literal of SQL with its type in front; a parameter, whose value is Python's.
_LITERAL = re.compile(rf"(date|timestamp|timestamp_ltz|timestamp_ntz)\s*(['\"]){_DATE}\2", re.IGNORECASE)
_PARAMETER = re.compile(r"[:?]")
_TIMES = re.compile(r"\b(date|timestamp(_ltz|_ntz)?)\b")
_TEXTS = re.compile(r"\b(string|char|varchar)\b")
_TIME_IN_TEXT = re.compile(r"\b(date|timestamp)", re.IGNORECASE)
_TIME_OF_DAY = re.compile(r"\btime\(")


def in_plan(node: Any) -> Iterator[str]:
    """Yield `PRESENT` for each text in a plan, or in an expression, as Spark's JSON, that is cast to a time and that is
    not plainly a date."""
    if isinstance(node, Mapping):
        for value in node.values():
            yield from in_plan(value)
    elif isinstance(node, list):
        for each, part in zip_longest(node, node[1:]):
            if _makes_time(each) and _is_literal(part) and not _is_known(part):
                yield PRESENT
            yield from in_plan(each)


def in_constants(data: DataFrame, tree: Any) -> Iterator[str]:
    """Yield `DATED` for each other constant of a DataFrame's plan that may be another one on another day.

    Args: tree: the plan as Spark's JSON, in which types and origins are missing.
    """
    if not _is_of_interest(tree):
        return
    for expression in replaced(data.sparkSession, expressions(analyzed(data))):
        name = str(expression.getClass().getSimpleName())
        if name == "Literal" and _is_dated(expression):
            yield DATED
        if name == "Cast" and _TIMES.search(_kind(expression)) and _is_unclear(expression.child()):
            yield DATED


def is_timeless(table: Any) -> bool:
    """Whether a table in SQL's text has no constant that may be another one on another day. Spark has read them all
    when it has parsed the text, so it is the text that is looked at."""
    origin = table.output().apply(0).origin().sqlText() if table.output().size() else None
    return origin is not None and origin.isDefined() and not _TIME_IN_TEXT.search(str(origin.get()))


def _makes_time(node: Any) -> bool:
    """Whether a node of JSON is a cast to a time, or parses one without a format."""
    if not isinstance(node, Mapping):
        return False
    name = str(node.get("class", "")).rpartition(".")[2]
    if name.startswith("ParseTo"):
        return "format" not in node
    return name == "Cast" and _TIMES.search(json.dumps(node.get("dataType"))) is not None


def _is_literal(node: Any) -> bool:
    return isinstance(node, Mapping) and str(node.get("class", "")).endswith(".Literal")


def _is_known(literal: Mapping[str, Any]) -> bool:
    is_text = _TEXTS.search(json.dumps(literal["dataType"])) is not None
    return not is_text or literal["value"] is None or _IS_DATE.fullmatch(str(literal["value"])) is not None


def _is_of_interest(node: Any) -> bool:
    """Whether there is a literal that is a time, or a cast to one of what is neither a column nor a literal."""
    if isinstance(node, Mapping):
        is_time = _is_literal(node) and _TIMES.search(json.dumps(node["dataType"])) is not None
        return is_time or any(map(_is_of_interest, node.values()))
    if not isinstance(node, list):
        return False
    for each, part in zip_longest(node, node[1:]):
        if _makes_time(each) and not _is_column_with_date(part) and (not _is_literal(part) or _is_time_of_day(part)):
            return True
    return any(map(_is_of_interest, node))


def _is_column_with_date(node: Any) -> bool:
    if not isinstance(node, Mapping) or not str(node.get("class", "")).endswith(".AttributeReference"):
        return False
    return not _is_time_of_day(node)


def _is_time_of_day(node: Mapping[str, Any]) -> bool:
    return _TIME_OF_DAY.search(json.dumps(node["dataType"])) is not None


def _is_dated(literal: Any) -> bool:
    """Whether a literal in the JVM is a time, in a text of SQL, that is not plainly a date there."""
    origin = literal.origin()
    if not _TIMES.search(_kind(literal)) or not origin.sqlText().isDefined():
        return False
    if str(literal.value()) == "0":  # when 1970 began: no present, but a default of Spark's (`time_bucket`)
        return False
    text = str(origin.sqlText().get())[int(origin.startIndex().get()) : int(origin.stopIndex().get()) + 1]
    return not _PARAMETER.match(text) and not _LITERAL.fullmatch(text)


def _is_unclear(value: Any) -> bool:
    """Whether a value in the JVM becomes another time on another day: a time without a date, or a text that has to be
    computed first."""
    kind = _kind(value)
    if _TIME_OF_DAY.search(kind):
        return True
    is_literal = value.getClass().getSimpleName() == "Literal"
    return not is_literal and _TEXTS.search(kind) is not None and bool(value.foldable())


def _kind(expression: Any) -> str:
    return str(expression.dataType().catalogString())
