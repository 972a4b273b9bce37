"""Checks: what collections refuse, before anything runs."""

from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    MapType,
    NullType,
    StructField,
    StructType,
    VariantType,
    YearMonthIntervalType,
)  # fmt: skip

from falkirk.errors import DefinitionError
from falkirk.location import SourceLocation
from falkirk.plan.frames import check_names, first_line, quiet

_UNSUITABLE = (
    ArrayType, MapType, StructType, VariantType, NullType, CalendarIntervalType, YearMonthIntervalType,
)  # fmt: skip


def applied(operation: str, how: Callable[[DataFrame], DataFrame], rows: DataFrame, where: SourceLocation) -> DataFrame:
    """Return what a step makes of rows, having seen that it is one that goes row by row and always comes out the same.

    Raises: DefinitionError: `STEP_INVALID`, `NON_DETERMINISTIC`, and as `check_names`.
    """
    try:
        with quiet():
            like = how(rows)
            plan = like._jdf.queryExecution().analyzed()
            is_deterministic = bool(plan.deterministic()) and not _has(plan, rows, "CURRENT_LIKE")
    except (PySparkException, Py4JJavaError, TypeError) as error:
        raise DefinitionError(
            "STEP_INVALID",
            f"{operation}(): {first_line(error)}.",
            where=where,
            hint=f"Columns here: {', '.join(rows.columns)}.",
            operation=operation,
        ) from error
    if any(_has(plan, rows, pattern) for pattern in ("AGGREGATE", "WINDOW", "PLAN_EXPRESSION")):
        raise DefinitionError(
            "STEP_INVALID",
            f"{operation}() looks at more than one row at a time.",
            where=where,
            hint="Use groupBy(), or join().",
            operation=operation,
        )
    if not is_deterministic:
        raise DefinitionError(
            "NON_DETERMINISTIC",
            f"{operation}() comes out differently each time, so a row could not be taken away again.",
            where=where,
            hint="Draw lots in front of the iteration: what comes in is recorded.",
            operation=operation,
        )
    check_names(like.columns, where)
    return like


def _has(plan: Any, like: DataFrame, pattern: str) -> bool:
    """Whether a plan of Spark's has something of this kind anywhere in it."""
    jvm: Any = like.sparkSession._jvm
    return bool(plan.containsPattern(getattr(jvm.org.apache.spark.sql.catalyst.trees.TreePattern, pattern)()))


def checked(fields: list[StructField], where: object) -> StructType:
    """Return fields as a schema, all nullable. Raises: DefinitionError: `TYPE_UNSUITABLE`."""
    for f in fields:
        if isinstance(f.dataType, _UNSUITABLE):
            raise DefinitionError(
                "TYPE_UNSUITABLE",
                f"column {f.name!r} is {f.dataType.simpleString()}, which an iteration can't keep.",
                where=where,
                hint="Take it apart into columns of simple types.",
                column=f.name,
            )
    return StructType([StructField(f.name, f.dataType) for f in fields])


def check_same_columns(first: StructType, other: StructType, says: str, hint: str, where: SourceLocation) -> None:
    """See that two collections have the same columns, in names, types and order.

    Args: says: what to say if not, with `{first}` and `{other}` in it.
    Raises: DefinitionError: `COLUMNS_DIFFER`.
    """
    if [(f.name, f.dataType) for f in first] != [(f.name, f.dataType) for f in other]:
        raise DefinitionError(
            "COLUMNS_DIFFER",
            says.format(first=_told(first), other=_told(other)),
            where=where,
            hint=hint,
            columns=tuple(other.names),
        )


def _told(schema: StructType) -> str:
    return ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in schema.fields)
