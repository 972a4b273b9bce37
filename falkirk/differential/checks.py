"""Checks: what collections refuse, before anything runs."""

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    VariantType,
    YearMonthIntervalType,
)  # fmt: skip

from falkirk.differential.rows import OURS
from falkirk.differential.schemas import timed
from falkirk.errors import DefinitionError
from falkirk.location import SourceLocation
from falkirk.plan.determinism import InBatch
from falkirk.plan.frames import check_names, quiet
from falkirk.plan.inference.python import expressions
from falkirk.plan.inference.structure import Leaves
from falkirk.spark_errors import SPARK_ERRORS, first_line

_UNSUITABLE = (
    ArrayType, MapType, StructType, VariantType, NullType, CalendarIntervalType, YearMonthIntervalType,
)  # fmt: skip


def applied(
    operation: str, how: Callable[[DataFrame], DataFrame], rows: DataFrame, where: SourceLocation, *, is_vouched: bool
) -> DataFrame:  # fmt: skip
    """Return what a step makes of rows, having seen that it is one that goes row by row and always comes out the same.

    Args: is_vouched: by who has said so of all that the iteration does.
    Raises: DefinitionError: `STEP_INVALID`, `NON_DETERMINISTIC`, and as `check_names`.
    """
    try:
        with quiet():
            like = how(rows)
            with_ours = how(rows.sparkSession.createDataFrame([], timed(rows.schema, 1)))
            plan = like._jdf.queryExecution().analyzed()
            is_deterministic = bool(plan.deterministic()) and not _has(plan, rows, "CURRENT_LIKE")
    except (*SPARK_ERRORS, TypeError) as error:
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
    if _sees_ours(with_ours):
        raise DefinitionError(
            "STEP_INVALID",
            f"{operation}() has a * within an expression, which would see Falkirk's own columns.",
            where=where,
            hint=f"Name the columns: {', '.join(rows.columns)}.",
            operation=operation,
        )
    doubtful = sorted(() if is_vouched else InBatch.of(like, Leaves.of({operation: rows})).undetermined)
    if not is_deterministic or doubtful:
        raise DefinitionError(
            "NON_DETERMINISTIC",
            f"{operation}() may come out differently each time{f' ({told})' if (told := ', '.join(doubtful)) else ''}, "
            "so a row could not be taken away again.",
            where=where,
            hint="Draw lots in front of the iteration: what comes in is recorded. Of a function that always gives the "
            "same, say so with fk.deterministic.",
            operation=operation,
            operations=tuple(doubtful),
        )
    check_names(like.columns, where)
    return like


def _sees_ours(rows: DataFrame) -> bool:
    """Whether a step does more with the columns of ours than to pass them on."""
    for one in expressions(rows._jdf.queryExecution().analyzed(), into=False):
        names = one.references().toSeq()
        ours = any(names.apply(i).name().startswith(OURS) for i in range(names.size()))
        if ours and str(one.getClass().getSimpleName()) != "AttributeReference":
            return True
    return len(set(rows.columns)) != len(rows.columns)


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
        if isinstance(f.dataType, StringType) and " collate " in f.dataType.simpleString():
            raise DefinitionError(
                "TYPE_UNSUITABLE",
                f"column {f.name!r} is {f.dataType.simpleString()}, and an iteration compares texts byte by byte.",
                where=where,
                hint="Compare what is equal in all: lower(…), for one. Or cast it to STRING.",
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
