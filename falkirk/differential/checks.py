"""Checks: refuses steps and columns that collections can't support, before anything runs."""

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

from falkirk.analysis.determinism import InBatch
from falkirk.analysis.python import expressions
from falkirk.analysis.structure import KnownLeaves
from falkirk.differential.schemas import timed_schema
from falkirk.errors import DefinitionError
from falkirk.errors.conditions.differential import (
    NON_DETERMINISTIC,
    STEP_INVALID,
    STEP_INVALID_IN_ITERATION,
    STEP_INVALID_STAR,
    TYPE_UNSUITABLE,
    TYPE_UNSUITABLE_COLLATION,
)
from falkirk.errors.location import SourceLocation
from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.frames.empty import no_rows
from falkirk.frames.names import PREFIX
from falkirk.frames.quiet import quiet
from falkirk.frames.stamped import check_names

_UNSUITABLE = (
    ArrayType, MapType, StructType, VariantType, NullType, CalendarIntervalType, YearMonthIntervalType,
)  # fmt: skip


def applied(
    operation: str, how: Callable[[DataFrame], DataFrame], rows: DataFrame, where: SourceLocation, *, is_vouched: bool
) -> DataFrame:  # fmt: skip
    """Return the result of a step on rows, after checking that it works row by row and is deterministic.

    Args: is_vouched: whether the user has declared that everything in the iteration is deterministic.
    Raises: DefinitionError: `STEP_INVALID`, `NON_DETERMINISTIC`, and as `check_names`.
    """
    try:
        with quiet():
            like = how(rows)
            with_ours = how(no_rows(rows.sparkSession, timed_schema(rows.schema, 1)))
            plan = like._jdf.queryExecution().analyzed()
            is_deterministic = bool(plan.deterministic()) and not _has(plan, rows, "CURRENT_LIKE")
    except (*SPARK_ERRORS, TypeError) as error:
        raise STEP_INVALID_IN_ITERATION.error(
            where=where, operation=operation, reason=first_line(error), columns_here=", ".join(rows.columns)
        ) from error
    if any(_has(plan, rows, pattern) for pattern in ("AGGREGATE", "WINDOW", "PLAN_EXPRESSION")):
        raise STEP_INVALID.error(where=where, operation=operation)
    if _sees_ours(with_ours):
        raise STEP_INVALID_STAR.error(where=where, operation=operation, columns_here=", ".join(rows.columns))
    doubtful = sorted(() if is_vouched else InBatch.of(like, KnownLeaves.of({operation: rows})).undetermined)
    if not is_deterministic or doubtful:
        raise NON_DETERMINISTIC.error(
            where=where,
            operation=operation,
            operations=tuple(doubtful),
            named=f" ({names})" if (names := ", ".join(doubtful)) else "",
        )
    check_names(like.columns, where)
    return like


def _sees_ours(rows: DataFrame) -> bool:
    """Whether a step does more with Falkirk's own columns than pass them on."""
    for one in expressions(rows._jdf.queryExecution().analyzed(), into=False):
        names = one.references().toSeq()
        ours = any(names.apply(i).name().startswith(PREFIX) for i in range(names.size()))
        if ours and str(one.getClass().getSimpleName()) != "AttributeReference":
            return True
    return len(set(rows.columns)) != len(rows.columns)


def _has(plan: Any, like: DataFrame, pattern: str) -> bool:
    """Whether Spark's plan contains a tree pattern."""
    jvm: Any = like.sparkSession._jvm
    return bool(plan.containsPattern(getattr(jvm.org.apache.spark.sql.catalyst.trees.TreePattern, pattern)()))


def checked(fields: list[StructField], where: object) -> StructType:
    """Return fields as a schema, all nullable. Raises: DefinitionError: `TYPE_UNSUITABLE`."""
    for f in fields:
        if isinstance(f.dataType, _UNSUITABLE):
            raise TYPE_UNSUITABLE.error(where=where, column=f.name, type=f.dataType.simpleString())
        if isinstance(f.dataType, StringType) and " collate " in f.dataType.simpleString():
            raise TYPE_UNSUITABLE_COLLATION.error(where=where, column=f.name, type=f.dataType.simpleString())
    return StructType([StructField(f.name, f.dataType) for f in fields])


def check_same_columns(first: StructType, other: StructType, says: str, hint: str, where: SourceLocation) -> None:
    """Check that two collections have the same columns, in names, types and order.

    Args: says: the message of the error, with `{first}` and `{other}` in it.
    Raises: DefinitionError: `COLUMNS_DIFFER`.
    """
    if [(f.name, f.dataType) for f in first] != [(f.name, f.dataType) for f in other]:
        raise DefinitionError(
            "COLUMNS_DIFFER",
            says.format(first=_text_of(first), other=_text_of(other)),
            where=where,
            hint=hint,
            columns=tuple(other.names),
        )


def _text_of(schema: StructType) -> str:
    return ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in schema.fields)
