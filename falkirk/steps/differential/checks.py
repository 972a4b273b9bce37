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
from falkirk.steps.dataframes.names import PREFIX
from falkirk.steps.dataframes.quiet import quiet
from falkirk.steps.differential.tried import Tried
from falkirk.steps.live.stamped import check_names
from falkirk.steps.static_analysis.python import NON_DETERMINISTIC_PLAN, patterns
from falkirk.steps.static_analysis.structure import class_name, output_of, plan_tree

_UNSUITABLE = (
    ArrayType, MapType, StructType, VariantType, NullType, CalendarIntervalType, YearMonthIntervalType,
)  # fmt: skip


#: Spark's patterns of steps that do not work row by row, and of clocks.
_SEVERAL_ROWS, _CLOCK = frozenset({"AGGREGATE", "WINDOW", "PLAN_EXPRESSION"}), "CURRENT_LIKE"


def applied(
    operation: str, how: Callable[[DataFrame], DataFrame], rows: DataFrame, given: DataFrame, where: SourceLocation, *,
    is_vouched: bool,
) -> tuple[DataFrame, Tried]:  # fmt: skip
    """Return the result of a step on rows, after checking that it works row by row and is deterministic.

    Args: given: no rows with the same columns, and Falkirk's. is_vouched: whether the user has declared that everything
        in the iteration is deterministic.
    Raises: DefinitionError: `STEP_INVALID`, `NON_DETERMINISTIC`, and as `check_names`.
    """
    try:
        with quiet():
            like = how(rows)
            tried = Tried.on(given, how)
    except (*SPARK_ERRORS, TypeError) as error:
        raise STEP_INVALID_IN_ITERATION.error(
            where=where, operation=operation, reason=first_line(error), columns_here=", ".join(rows.columns)
        ) from error
    found = patterns(tried.made, {*_SEVERAL_ROWS, _CLOCK})
    if found & _SEVERAL_ROWS:
        raise STEP_INVALID.error(where=where, operation=operation)
    if _sees_ours(tried.made):
        raise STEP_INVALID_STAR.error(where=where, operation=operation, columns_here=", ".join(rows.columns))
    doubtful = sorted(() if is_vouched else tried.content.undetermined)
    if found & {_CLOCK, NON_DETERMINISTIC_PLAN} or doubtful:
        raise NON_DETERMINISTIC.error(
            where=where,
            operation=operation,
            operations=tuple(doubtful),
            named=f" ({names})" if (names := ", ".join(doubtful)) else "",
        )
    check_names(like.columns, where)
    return like, tried


def _sees_ours(rows: DataFrame) -> bool:
    """Whether a step does more with Falkirk's own columns than pass them on."""
    names = [name for name, _ in output_of(rows)]
    return len(set(names)) != len(names) or _computes_with_ours(plan_tree(rows))


def _computes_with_ours(tree: Any, *, is_part: bool = False) -> bool:
    """Whether a plan, as Spark's JSON, has a column of Falkirk's within an expression.

    Args: is_part: whether this is one of several nodes of an expression.
    """
    if isinstance(tree, list):
        return any(_computes_with_ours(each, is_part=len(tree) > 1) for each in tree)
    if not isinstance(tree, dict):
        return False
    if is_part and class_name(tree) == "AttributeReference" and tree["name"].startswith(PREFIX):
        return True
    return any(map(_computes_with_ours, tree.values()))


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
