"""Values: the rows that a test feeds, as the values of records, and the rows that it reads."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.types import StructType

from falkirk.declare.endpoints import Files, Kafka
from falkirk.declare.registry import PREFIX_BYTES
from falkirk.errors.conditions.testkit import (
    ROW_INVALID,
    ROW_INVALID_AVRO,
    ROW_INVALID_FORMAT,
    ROW_INVALID_LENGTH,
)
from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.runtime.spark.rows import JSON_OPTIONS
from falkirk.user_tools.testkit.world import MemoryRecord

_ALL = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A row to feed, with the other parts of its record.

    Args: value: as `feed` takes it: a mapping, a sequence, bytes, a text or None. key: a text is encoded as UTF-8.
        headers: names and values. timestamp: when the record was produced; by default the time of the test.
    """

    value: object
    key: bytes | str | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: datetime | None = None


def memory_records(
    session: SparkSession, rows: Iterable[object], topic: Kafka, now_s: float
) -> list[MemoryRecord]:  # fmt: skip
    """Return the records of rows. Raises: DefinitionError: `ROW_INVALID`."""
    records = [row if isinstance(row, KafkaRecord) else KafkaRecord(row) for row in rows]
    if topic.format == "avro":
        columns = [place for place, row in enumerate(records) if not isinstance(row.value, bytes | str | None)]
        values = _avro(session, [records[place].value for place in columns], topic)
        for place, value in zip(columns, values, strict=True):
            records[place] = replace(records[place], value=value)
    return [memory_record(record, topic, now_s) for record in records]


def _avro(session: SparkSession, rows: Sequence[object], topic: Kafka) -> list[bytes]:
    """Return rows of a source as Avro, without the prefix of a registry. Raises: DefinitionError: `ROW_INVALID`."""
    if not rows:
        return []
    assert topic.schema is not None, "the planner refuses a source without a schema"
    frame = session.createDataFrame([(json_of(row, topic).decode(),) for row in rows], "value STRING").coalesce(1)
    nothing = from_avro(F.lit(None).cast("binary"), topic.schema)
    kind = frame.select(nothing.alias("row")).schema["row"].dataType
    assert isinstance(kind, StructType), "the planner has parsed it"
    parsed = F.from_json("value", kind, {"mode": "FAILFAST"})
    try:
        found = frame.select(to_avro(parsed, topic.schema).alias("value")).collect()
    except SPARK_ERRORS as error:
        raise ROW_INVALID_AVRO.error(where=topic.where, place=topic.address, reason=first_line(error)) from error
    return [bytes(row["value"]) for row in found]


def memory_record(row: KafkaRecord, topic: Kafka, now_s: float) -> MemoryRecord:
    """Return the record of a row. Raises: DefinitionError: `ROW_INVALID`."""
    at_s = now_s if row.timestamp is None else row.timestamp.timestamp()
    return MemoryRecord(
        key=row.key.encode() if isinstance(row.key, str) else row.key,
        value=value_of(row.value, topic),
        timestamp_us=round(at_s * 1e3) * 1000,  # Kafka keeps milliseconds
        headers=tuple((name, value) for name, value in row.headers),
    )


def value_of(row: object, topic: Kafka) -> bytes | None:
    """Return the value of a record.

    Args: row: a mapping, or values in the order of the schema; bytes, a text or None are the value itself.
    Raises: DefinitionError: `ROW_INVALID`.
    """
    if row is None or isinstance(row, bytes):
        return row
    if isinstance(row, str):
        return row.encode()
    if topic.format != "json":
        raise ROW_INVALID_FORMAT.error(where=topic.where, topic=topic.topic, format=topic.format, row=repr(row))
    return json_of(row, topic)


def json_of(row: object, source: Kafka | Files) -> bytes:
    """Return a row of a source as JSON: a mapping, or values in the order of the schema.

    Raises: DefinitionError: `ROW_INVALID`.
    """
    return json.dumps(_named(row, source), default=_plain).encode()


def schema_names(source: Kafka | Files) -> list[str]:
    """Return the names of the columns in a source's schema."""
    if source.format == "avro":
        return [str(field["name"]) for field in json.loads(source.schema or "")["fields"]]
    schema = StructType.fromDDL(source.ddl if isinstance(source, Kafka) else source.schema or "")
    assert isinstance(schema, StructType), "the planner has parsed it"
    return schema.names


def _named(row: object, source: Kafka | Files) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        return row
    if hasattr(row, "asDict"):  # a Row of PySpark
        named: Mapping[str, Any] = row.asDict(recursive=True)
        return named
    if not isinstance(row, Sequence):
        raise ROW_INVALID.error(where=source.where, place=source.address, row=repr(row))
    names = schema_names(source)
    if len(row) != len(names):
        raise ROW_INVALID_LENGTH.error(
            where=source.where, place=source.address, row=repr(row), columns=", ".join(names)
        )  # fmt: skip
    return dict(zip(names, row, strict=True))


def _plain(value: object) -> object:
    """Return a value as Spark's JSON has it."""
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"a value of {type(value).__name__} has no JSON")


def decoded(value: bytes | str | None) -> Any:
    """Return the value of a result: the columns of a row, by name."""
    return None if value is None else json.loads(value)


def shown(value: Column, topic: Kafka) -> Column:
    """Return the value of a record of a sink as the JSON of its columns, whatever its format."""
    content = value if topic.schemas is None else F.substring(value, 1 + PREFIX_BYTES, _ALL)
    if topic.format != "avro":
        return content.cast("string")
    assert topic.schema is not None, "a sink has a schema before the start"
    return F.to_json(from_avro(content, topic.schema), JSON_OPTIONS)


def read_records(session: SparkSession, values: Sequence[bytes | None], topic: Kafka) -> list[Any]:
    """Return the values of records of a sink, in their order."""
    if topic.format != "avro" and topic.schemas is None:
        return [decoded(value) for value in values]
    rows = session.createDataFrame([(value,) for value in values], "value BINARY").coalesce(1)
    return [decoded(row["shown"]) for row in rows.select(shown(F.col("value"), topic).alias("shown")).collect()]
