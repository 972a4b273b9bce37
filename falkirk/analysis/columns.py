"""Columns: which of them a grouping key is, and what their types must bear: to be hashed and to be carried by a hop."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from falkirk.analysis.typed import one_key
from falkirk.errors import DefinitionError
from falkirk.errors.spark import first_line
from falkirk.frames.stamped import Frame, key_column, quiet

#: Of a record's header.
_STAMP_BYTES = 60


def require(wanted: Iterable[str], there: Sequence[str], where: object, says: Callable[[str], str]) -> None:
    """See that columns are there.

    Args: there: all columns. says: returns what to say of one that is missing.
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


def plain_keys(frame: Frame, keys: Sequence[Any]) -> tuple[Any, ...]:
    """Return grouping expressions with those that are just a column, however written, as that column's name."""
    names = {number: name for name, number in expression_ids(frame).items() if re.fullmatch(r"\w+", name)}
    output = frame.data.select(*[key_column(key) for key in keys])._jdf.queryExecution().analyzed().output()
    return tuple(names.get(output.apply(i).exprId().id(), key_column(key)) for i, key in enumerate(keys))


def check_key(frame: Frame, keys: Sequence[Any], where: object) -> None:
    """See that a key can choose a partition.

    Raises: DefinitionError: `KEY_INVALID`.
    """
    try:
        with quiet():
            frame.data.select(F.hash(*[key_column(key) for key in keys], F.lit(0)))
    except PySparkException as error:
        raise DefinitionError(
            "KEY_INVALID",
            f"it can't be a key: {first_line(error)}.",
            where=where,
            hint="Use a column that is no map and has none in it.",
        ) from error


def check_group(frame: Frame, keys: Sequence[Any], where: object) -> None:
    """See that Spark can keep a state by these keys.

    Raises: DefinitionError: `KEY_INVALID`: keys that are equal may be written in several ways, which no state store of
    Spark's takes.
    """
    is_one_key = one_key(frame.data.sparkSession)
    output = frame.data.select(*map(key_column, keys))._jdf.queryExecution().analyzed().output()
    for i in range(output.size()):
        if not is_one_key(output.apply(i).dataType()):
            kind = output.apply(i).dataType().catalogString()
            raise DefinitionError(
                "KEY_INVALID",
                f"a live step groups by {output.apply(i).name()!r}, a {kind}: keys that are equal may have "
                "different bytes, and Spark finds no state by such keys.",
                where=where,
                hint="Group by one spelling: lower(…), or collate(…, 'UTF8_BINARY'); of an interval by its text.",
                column=str(output.apply(i).name()),
                type=str(kind),
            )


def hop_ddl(frame: Frame, where: object) -> str:
    """Return the user's columns as DDL, which a hop's records are read with.

    Raises: DefinitionError: `TYPE_UNSUITABLE`: a type does not survive being written and read again.
    """
    ddl = str(frame.own._jdf.schema().toDDL()).replace(" NOT NULL", "")
    try:
        with quiet():
            frame.data.select(F.from_json(F.lit("{}"), ddl))
    except PySparkException as error:
        raise DefinitionError(
            "TYPE_UNSUITABLE",
            f"a hop is needed here, and a column does not survive it: {first_line(error)}.",
            where=where,
            hint="Turn it into a simpler type first: the keys of a map must be strings.",
        ) from error
    return ddl


def record_bytes(frame: Frame) -> int:
    """Return about how many bytes a record of the user's columns has in a hop: by Spark's default size of each type, as
    JSON, with its stamp."""
    return int(frame.own._jdf.schema().defaultSize()) + sum(len(name) + 4 for name in frame.columns) + _STAMP_BYTES


def expression_ids(frame: Frame) -> dict[str, int]:
    """Return Catalyst's identity of each column: it survives steps that pass a column through, and only those."""
    output = frame.data._jdf.queryExecution().analyzed().output()
    attributes = [output.apply(i) for i in range(output.size())]
    return {a.name(): a.exprId().id() for a in attributes}
