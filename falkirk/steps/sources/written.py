"""Written: sees that the results of a sink fit the schema of its topic, before anything is written.

For Avro, avro.py decides. A JSON Schema is read as far as it says which fields an object has and which types: `type`,
`properties`, `required`, `additionalProperties`, `items`, `anyOf` and `oneOf`. Other rules, such as `pattern` and
`$ref`, are taken as fulfilled.
"""

import json
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StructType,
    VariantType,
)

from falkirk.declare.endpoints import Kafka
from falkirk.declare.parts import DeclaredSink
from falkirk.errors.conditions.dataframes import SCHEMA_MISMATCH
from falkirk.steps.sources import avro

#: A schema that takes every value.
_ANY = True


def check_written(sink: DeclaredSink, data: DataFrame, columns: list[str]) -> None:
    """See that rows can be written as a sink's schema has them.

    Raises: DefinitionError: `SCHEMA_MISMATCH`, `SCHEMA_INVALID`.
    """
    to = sink.to
    if not isinstance(to, Kafka) or to.format != "json" or to.schemas is None or to.schema is None:
        avro.check_avro(sink, data, columns)
        return
    reason = mismatch(to.schema, data.select(*[F.col(f"`{name}`") for name in columns]).schema)
    if reason is not None:
        raise SCHEMA_MISMATCH.error(where=sink.where, sink=sink.name, to=to.topic, reason=reason)


def mismatch(schema: str, row: StructType) -> str | None:
    """Return which column of rows does not fit a JSON Schema, and why; None: all fit, unless one is null in a row."""
    return _mismatch(json.loads(schema), row, "", own=True)


def null_forbidden(columns: dict[str, Column], schema: str) -> Column:
    """Return why a row can't be written as an object of a JSON Schema, or null: a column is null, which it forbids."""
    content = json.loads(schema)
    absent = [
        F.when(column.isNull(), F.lit(f"column {name} is null"))
        for name, column in columns.items()
        if not _takes(_field(content, name), "null")
    ]
    return F.coalesce(*absent) if absent else F.lit(None).cast("string")


def _mismatch(schema: Any, found: DataType, place: str, *, own: bool = False) -> str | None:
    """Return where values of a Spark type do not fit a schema, and why; None: they fit.

    Args: place: of the values in a row. own: they are the row itself, in which a column that is null is found later.
    """
    kinds = _kinds(found)
    if kinds is not None and not any(_takes(schema, kind) for kind in kinds):
        return f"{place or 'the row'} is {kinds[0]} and not {_shown(schema)}"
    branches = [each for name in ("anyOf", "oneOf") for each in _part(schema, name, [])]
    reasons = [_mismatch(each, found, place, own=own) for each in branches]
    if reasons and None not in reasons:
        return next(filter(None, reasons))
    if isinstance(found, StructType):
        return _mismatch_of_fields(schema, found, place, own=own)
    if isinstance(found, ArrayType):
        return _mismatch_within(_part(schema, "items", _ANY), found.elementType, f"{place}[]", null=found.containsNull)
    if isinstance(found, MapType):
        values = _part(schema, "additionalProperties", _ANY)
        return _mismatch_within(values, found.valueType, f"{place}[]", null=found.valueContainsNull)
    return None


def _mismatch_of_fields(schema: Any, found: StructType, place: str, *, own: bool) -> str | None:
    names = {field.name for field in found.fields}
    for name in _part(schema, "required", []):
        if name not in names:
            return f"{_under(place, name)} is required and missing"
    for field in found.fields:
        given, within = _field(schema, field.name), _under(place, field.name)
        if given is False:
            return f"{within} is not in the schema"
        reason = _mismatch_within(given, field.dataType, within, null=field.nullable and not own)
        if reason is not None:
            return reason
    return None


def _mismatch_within(schema: Any, found: DataType, place: str, *, null: bool) -> str | None:
    """Return where the values in a column do not fit. Args: null: one of them may be null."""
    if null and not _takes(schema, "null"):
        return f"{place} may be null in a row and not in the schema"
    return _mismatch(schema, found, place)


def _under(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _part(schema: Any, name: str, other: Any) -> Any:
    return schema.get(name, other) if isinstance(schema, dict) else other


def _field(schema: Any, name: str) -> Any:
    """Return the schema of a field of an object; False: there may be no such field."""
    given = _part(schema, "properties", {})
    if name in given:
        return given[name]
    return _ANY if _part(schema, "patternProperties", {}) else _part(schema, "additionalProperties", _ANY)


def _takes(schema: Any, kind: str) -> bool:
    """Return whether a schema takes values of a type of JSON, as far as its types say."""
    if not isinstance(schema, dict):
        return schema is not False
    types = schema.get("type", kind)
    if kind not in ([types] if isinstance(types, str) else types):
        return False
    choices = [schema[name] for name in ("anyOf", "oneOf") if name in schema]
    return all(any(_takes(each, kind) for each in several) for several in choices)


def _kinds(found: DataType) -> tuple[str, ...] | None:
    """Return the types of JSON of which one must be allowed, the narrowest first; None: values may have any type."""
    if isinstance(found, StructType | MapType):
        return ("object",)
    if isinstance(found, ArrayType):
        return ("array",)
    if isinstance(found, BooleanType):
        return ("boolean",)
    if isinstance(found, ByteType | ShortType | IntegerType | LongType):
        return "integer", "number"
    if isinstance(found, DecimalType) and found.scale == 0:
        return "integer", "number"
    if isinstance(found, DecimalType | FloatType | DoubleType):
        return ("number",)
    if isinstance(found, NullType):
        return ("null",)
    return None if isinstance(found, VariantType) else ("string",)


def _shown(schema: Any) -> str:
    types = _part(schema, "type", "as the schema has it")
    return types if isinstance(types, str) else " or ".join(map(str, types))
