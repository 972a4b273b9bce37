"""Clocks: finds constants whose value depends on the day: `CAST('now' AS TIMESTAMP)`, `date'today'`,
`timestamp'12:30'`.

In the table of functions they are a cast and a literal, and both are pure. Spark decides which words mean the present
and to which texts it adds today's date, so Falkirk has no list of them. A constant counts as known only if it is
plainly a date.

Columns with such words need no check, because Spark interprets the words only in constants.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame

from falkirk.steps.static_analysis.functions import DATED, PRESENT
from falkirk.steps.static_analysis.python import replaced
from falkirk.steps.static_analysis.structure import Objects

#: A date that does not depend on the day: a year, month and day, perhaps with a time; or only the first of these.
_DATE = r"\s*[+-]?\d{4,7}(-\d{1,2}(-\d{1,2}([ T][^'\"\\]*)?)?)?\s*"
_IS_DATE = re.compile(_DATE)
#: A literal of SQL with its type before it.
_LITERAL = re.compile(rf"(date|timestamp|timestamp_ltz|timestamp_ntz)\s*(['\"]){_DATE}\2", re.IGNORECASE)
_TIMES = re.compile(r"\b(date|timestamp(_ltz|_ntz)?)\b")
_TEXTS = re.compile(r"\b(string|char|varchar)\b")
_TIME_IN_TEXT = re.compile(r"\b(date|timestamp)", re.IGNORECASE)
_TIME_OF_DAY = re.compile(r"\btime\(")


def in_plan(objects: Objects) -> Iterator[str]:
    """Yield `PRESENT` for each text in a plan or an expression that is cast to a time and is not plainly a date.

    Args: objects: those in Spark's JSON of the plan or the expression.
    """
    for each, part in objects:
        if _makes_time(each) and _is_literal(part) and not _is_known(part):
            yield PRESENT


def in_constants(data: DataFrame, objects: Objects) -> Iterator[str]:
    """Yield `DATED` for each other constant of a DataFrame's plan whose value may depend on the day.

    Args: objects: those in Spark's JSON of the plan, which has no types and origins.
    """
    if not _is_of_interest(objects):
        return
    for expression in replaced(data, ("Literal", "Cast")):
        name = str(expression.getClass().getSimpleName())
        if name == "Literal" and _is_dated(expression):
            yield DATED
        if name == "Cast" and _TIMES.search(_kind(expression)) and _is_unclear(expression.child()):
            yield DATED


def is_timeless(table: Any) -> bool:
    """Return whether a table in the text of SQL has no constant whose value may depend on the day.

    Spark evaluates these constants when it parses the text, so this checks the text itself.
    """
    origin = table.output().apply(0).origin().sqlText() if table.output().size() else None
    return origin is not None and origin.isDefined() and not _TIME_IN_TEXT.search(str(origin.get()))


def _makes_time(node: Mapping[str, Any]) -> bool:
    """Return whether a node of JSON is a cast to a time, or parses a time without a format."""
    name = str(node.get("class", "")).rpartition(".")[2]
    if name.startswith("ParseTo"):
        return "format" not in node
    return name == "Cast" and _TIMES.search(json.dumps(node.get("dataType"))) is not None


def _is_literal(node: Any) -> bool:
    return isinstance(node, dict) and str(node.get("class", "")).endswith(".Literal")


def _is_known(literal: Mapping[str, Any]) -> bool:
    is_text = _TEXTS.search(json.dumps(literal["dataType"])) is not None
    return not is_text or literal["value"] is None or _IS_DATE.fullmatch(str(literal["value"])) is not None


def _is_of_interest(objects: Objects) -> bool:
    """Return whether there is a literal that is a time, or a cast to a time of an expression that is not a column."""
    for each, part in objects:
        if _is_literal(each) and _TIMES.search(json.dumps(each["dataType"])):
            return True
        is_cast = part is not ... and _makes_time(each)
        if is_cast and not _is_column_with_date(part) and (not _is_literal(part) or _is_time_of_day(part)):
            return True
    return False


def _is_column_with_date(node: Any) -> bool:
    if not isinstance(node, dict) or not str(node.get("class", "")).endswith(".AttributeReference"):
        return False
    return not _is_time_of_day(node)


def _is_time_of_day(node: Mapping[str, Any]) -> bool:
    return _TIME_OF_DAY.search(json.dumps(node["dataType"])) is not None


def _is_dated(literal: Any) -> bool:
    """Return whether a literal in the JVM is a time whose text in SQL is not plainly a date."""
    origin = literal.origin()
    if not _TIMES.search(_kind(literal)) or not origin.sqlText().isDefined():
        return False
    if str(literal.value()) == "0":  # the beginning of 1970: not the present, but a default of Spark (`time_bucket`)
        return False
    text = str(origin.sqlText().get())[int(origin.startIndex().get()) : int(origin.stopIndex().get()) + 1]
    # A parameter (`?`, `:day`) is not plainly a date: EXECUTE IMMEDIATE takes its value from a variable of SQL.
    return not _LITERAL.fullmatch(text)


def _is_unclear(value: Any) -> bool:
    """Return whether a value in the JVM may become another time on another day.

    This holds for a time without a date, and for a text that is computed without any column of the rows: from
    constants, or by a subquery.
    """
    kind = _kind(value)
    if _TIME_OF_DAY.search(kind):
        return True
    is_literal = value.getClass().getSimpleName() == "Literal"
    return not is_literal and _TEXTS.search(kind) is not None and bool(value.references().isEmpty())


def _kind(expression: Any) -> str:
    return str(expression.dataType().catalogString())
