"""Avro: values of topics in Avro's binary encoding, by a schema that their writers and readers have agreed on."""

import json
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from falkirk.declare.endpoints import Kafka
from falkirk.declare.parts import DeclaredSink
from falkirk.errors import DefinitionError
from falkirk.errors.conditions.dataframes import SCHEMA_INVALID_AVRO, SCHEMA_MISMATCH
from falkirk.errors.conditions.declare import SCHEMA_MISSING
from falkirk.errors.spark import SPARK_ERRORS, first_line

#: A field that a reader adds, with a default: Spark makes nulls of records that do not parse, and this tells them from
#: a record whose fields are null.
_READ = "__falkirk_read"


def parsed(topic: Kafka, value: Column) -> tuple[Column, list[str], Column]:
    """Return what a topic's values parse to, the names of its columns, and why a record is a bad one, or null.

    Args: value: the content of a value, without the prefix of a registry.
    Raises: DefinitionError: `SCHEMA_MISSING`.
    """
    if not topic.schema:
        raise SCHEMA_MISSING.error(where=topic.where, topic=topic.topic)
    schema = json.loads(topic.schema)
    reads = {**schema, "fields": [*schema["fields"], {"name": _READ, "type": "boolean", "default": True}]}
    options = {"mode": "PERMISSIVE", "avroSchema": json.dumps(reads)}
    fields = from_avro(value, json.dumps(schema), options)
    reason = F.when(F.col("value").isNull(), F.lit("the value is null")).when(
        F.col("__falkirk_parsed").getField(_READ).isNull(), F.lit("does not fit the schema")
    )
    return fields, [field["name"] for field in schema["fields"]], reason


def written(columns: dict[str, Column], schema: str) -> tuple[Column, Column]:
    """Return the value with these columns, or null, and the reason if the columns do not fit the schema, or null."""
    absent = [
        F.when(column.isNull(), F.lit(f"column {name} is null"))
        for name, column in columns.items()
        if name.casefold() in _required(schema)
    ]
    reason = F.coalesce(*absent) if absent else F.lit(None).cast("string")
    named = F.struct(*[column.alias(name) for name, column in columns.items()])
    return F.when(reason.isNull(), to_avro(named, schema)), reason


def _required(schema: str) -> set[str]:
    """Return the fields that can't be null, in lower case, as Spark looks for them."""
    return {f["name"].casefold() for f in json.loads(schema)["fields"] if not _is_optional(f["type"])}


def _is_optional(kind: Any) -> bool:
    return kind == "null" or (isinstance(kind, list) and "null" in kind)


def check_avro(sink: DeclaredSink, data: DataFrame, columns: list[str]) -> None:
    """See that rows can be written as a sink's schema has them.

    Raises: DefinitionError: `SCHEMA_MISMATCH`, `SCHEMA_INVALID`.
    """
    to = sink.to
    if not isinstance(to, Kafka) or to.format != "avro" or to.schema is None:
        return
    rows = data.select(*[F.col(f"`{name}`") for name in columns])
    try:
        wanted = rows.select(from_avro(F.lit(None).cast("binary"), to.schema).alias("read")).schema["read"].dataType
    except SPARK_ERRORS as error:
        raise SCHEMA_INVALID_AVRO.error(
            where=to.where, schema=to.schema, to=to.topic, reason=first_line(error)
        ) from error
    jvm = rows.sparkSession._jvm
    assert jvm is not None
    try:
        # It looks at the types alone, as it will when it writes the first row.
        parser = jvm.org.apache.avro.Schema.Parser()
        jvm.org.apache.spark.sql.avro.AvroSerializer(rows._jdf.schema(), parser.parse(to.schema), False)
    except Py4JJavaError as error:
        raise _mismatch(sink, to, first_line(error)) from error
    fields = {field.name.casefold(): field.dataType for field in rows.schema.fields}
    assert isinstance(wanted, StructType)
    for field in wanted.fields:
        if (place := _null_within(fields.get(field.name.casefold()), field.dataType)) is not None:
            raise _mismatch(sink, to, f"what is in {field.name}{place} may be null in a row and not in the schema")


def _null_within(have: DataType | None, want: DataType) -> str | None:
    """Return a place within a column that may be null although the schema forbids it; None: there is none."""
    if isinstance(have, ArrayType) and isinstance(want, ArrayType):
        if have.containsNull and not want.containsNull:
            return "[]"
        return _under("[]", _null_within(have.elementType, want.elementType))
    if isinstance(have, MapType) and isinstance(want, MapType):
        if have.valueContainsNull and not want.valueContainsNull:
            return "[]"
        return _under("[]", _null_within(have.valueType, want.valueType))
    if isinstance(have, StructType) and isinstance(want, StructType):
        mine = {field.name.casefold(): field for field in have.fields}
        for field in want.fields:
            found = mine.get(field.name.casefold())
            if found is not None and found.nullable and not field.nullable:
                return f".{field.name}"
            inner = _under(f".{field.name}", _null_within(found.dataType if found else None, field.dataType))
            if inner is not None:
                return inner
    return None


def _under(place: str, inner: str | None) -> str | None:
    return None if inner is None else place + inner


def _mismatch(sink: DeclaredSink, to: Kafka, reason: str) -> DefinitionError:
    return SCHEMA_MISMATCH.error(where=sink.where, sink=sink.name, to=to.topic, reason=reason)
