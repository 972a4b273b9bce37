"""Columns: finds the columns of a grouping key, and checks that types can be hashed and carried by a hop."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from falkirk.errors import DefinitionError
from falkirk.errors.conditions.static_analysis import KEY_INVALID_EXPRESSION, KEY_INVALID_TYPE, TYPE_UNSUITABLE_HOP
from falkirk.errors.spark import first_line
from falkirk.steps.dataframes.quiet import quiet
from falkirk.steps.dataframes.schemas import jvm_schema, own_schema
from falkirk.steps.live.stamped import Frame, key_column
from falkirk.steps.static_analysis.structure import output_of
from falkirk.steps.static_analysis.typed import one_key

#: The size of a record's header.
_STAMP_BYTES = 60


def require_columns(wanted: Iterable[str], there: Sequence[str], where: object, says: Callable[[str], str]) -> None:
    """Check that columns exist.

    Args: there: all columns. says: returns the message about a missing column.
    Raises: DefinitionError: `COLUMN_MISSING`.
    """
    missing = next((name for name in wanted if name not in there), None)
    if missing is not None:
        raise DefinitionError(
            "COLUMN_MISSING",
            says(missing),
            where=where,
            hint=f"Columns here: {', '.join(there)}.",
            column=missing,
            columns=tuple(there),
        )


def plain_keys(frame: Frame, keys: Sequence[Any], selected: DataFrame | None = None) -> tuple[Any, ...]:
    """Return grouping expressions. Each that is only a column, however it is written, becomes the column's name.

    Args: selected: the keys of the frame, as of `check_group`, if there are any.
    """
    names = {number: name for name, number in expression_ids(frame).items() if re.fullmatch(r"\w+", name)}
    grouped = output_of(frame.data.select(*map(key_column, keys)) if selected is None else selected)
    return tuple(names.get(number, key_column(key)) for (_, number), key in zip(grouped, keys, strict=False))


def key_label(keys: Sequence[Any]) -> str:
    """Return a grouping key as part of a name. An expression is called "key"."""
    named = [re.sub("[^A-Za-z0-9_]+", "-", key).strip("-") for key in keys if isinstance(key, str)]
    return "-".join(filter(None, named)) if len(named) == len(keys) and any(named) else "key"


def check_partition_key(frame: Frame, keys: Sequence[Any], where: object) -> None:
    """Check that a key can choose a partition.

    Raises: DefinitionError: `KEY_INVALID`.
    """
    if not keys:
        return
    try:
        with quiet():
            frame.data.select(F.hash(*[key_column(key) for key in keys], F.lit(0)))
    except PySparkException as error:
        raise KEY_INVALID_EXPRESSION.error(where=where, reason=first_line(error)) from error


def check_group(frame: Frame, keys: Sequence[Any], where: object) -> DataFrame:
    """Check that Spark can keep a state by these keys, and return them.

    Raises: DefinitionError: `KEY_INVALID`: equal keys may have different bytes, which no state store of Spark supports.
    """
    is_one_key = one_key(frame.data.sparkSession)
    selected = frame.data.select(*map(key_column, keys))
    output = selected._jdf.queryExecution().analyzed().output()
    for i in range(output.size()):
        if not is_one_key(output.apply(i).dataType()):
            kind = output.apply(i).dataType().catalogString()
            raise KEY_INVALID_TYPE.error(where=where, column=str(output.apply(i).name()), type=str(kind))
    return selected


def hop_ddl(frame: Frame, where: object) -> str:
    """Return the user's columns as DDL, with which the records of a hop are read.

    Raises: DefinitionError: `TYPE_UNSUITABLE`: a type can't be written and read again.
    """
    ddl = str(_own_schema(frame).toDDL()).replace(" NOT NULL", "")
    try:
        with quiet():
            frame.data.select(F.from_json(F.lit("{}"), ddl))
    except PySparkException as error:
        raise TYPE_UNSUITABLE_HOP.error(where=where, reason=first_line(error)) from error
    return ddl


def record_bytes(frame: Frame) -> int:
    """Return the approximate size of a record in a hop in bytes: JSON with Spark's default sizes, and the stamp."""
    return int(_own_schema(frame).defaultSize()) + sum(len(name) + 4 for name in frame.columns) + _STAMP_BYTES


def _own_schema(frame: Frame) -> Any:
    """Return the types of the user's columns, in the JVM."""
    return jvm_schema(frame.data.sparkSession, own_schema(frame.data.schema))


def expression_ids(frame: Frame) -> dict[str, int]:
    """Return Catalyst's identity of each column. Only steps that pass a column through keep it."""
    return dict(output_of(frame.data))
