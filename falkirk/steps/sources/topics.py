"""Parsing: turns the raw records of a topic into columns with a stamp each, and marks those that do not fit."""

from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import StructField, StructType

from falkirk.declare.endpoints import Kafka
from falkirk.errors.conditions.dataframes import COLUMN_TWICE_METADATA, SCHEMA_INVALID_TOPIC
from falkirk.errors.spark import first_line
from falkirk.steps.dataframes.names import ARRIVED, BAD, CORRUPT, STAMP, quoted
from falkirk.steps.live.stamped import Frame, check_names
from falkirk.steps.sources import avro, wire

#: The columns of Spark's Kafka source with headers, for analysis without a broker.
KAFKA_DDL = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
#: The timestamp, in milliseconds, of a record that has none.
_NO_TIMESTAMP = -1


@cache
def kafka_schema() -> StructType:
    """Return the columns of a record, as Spark's reader of Kafka gives them."""
    return cast(StructType, StructType.fromDDL(KAFKA_DDL))


@dataclass(frozen=True, kw_only=True)
class Parsing:
    """How a topic's raw records become a frame. Each column costs calls to the JVM, so frequent readers keep it.

    Args: fields, reason: the parsed fields, and the reason why a record does not fit, or null. kept: the columns of
        the frame. prefixed: the topic, if its values have the ids of a registry.
    """

    fields: Column
    reason: Column
    kept: list[Column]
    prefixed: Kafka | None = None


def parsing(topic: Kafka, session: SparkSession, *, planned: bool = False) -> Parsing:
    """Return how a topic's records are parsed. If it `reads_headers`, they must have their headers.

    Bad is: no value, a value that does not parse as the schema or has a wrong type, a null in a NOT NULL column.

    Args: session: of the records; times without a zone are in its zone. planned: there are no records.
        Then values have no prefix of a registry: the plan of steps is the same.
    Raises: DefinitionError: `SCHEMA_INVALID`, `SCHEMA_MISSING`, `COLUMN_TWICE`, `COLUMN_RESERVED`.
    """
    prefixed = topic if topic.schemas is not None and not planned else None
    content = F.col("value") if prefixed is None else F.col(wire.CONTENT).getField("value")
    stamp = F.expr(f"struct(0 AS source, `partition`, `offset`) AS {STAMP}")
    if topic.format == "binary":
        fields, names = F.struct("value"), ["value"]
        reason = F.when(F.col("value").isNull(), F.lit("the value is null"))
    elif topic.format == "text":
        fields, names = F.struct(F.col("value").cast("string").alias("value")), ["value"]
        reason = F.when(F.col("value").isNull(), F.lit("the value is null"))
    elif topic.format == "avro":
        fields, names, reason = avro.parsed(topic, content)
        check_names(names, topic.where)
    else:
        fields, names, reason = _parse_json(topic, content, session)
    reason = reason if prefixed is None else wire.reason(reason)
    fits = "__falkirk_reason IS NULL"
    bad = F.expr(f"CASE WHEN NOT ({fits}) THEN struct(__falkirk_reason AS reason, `key`, `value`) END AS {BAD}")
    values = {name: f"__falkirk_parsed.{quoted(name)}" for name in names}
    values |= {column: _part(part) for part, column in _record_columns(topic, names).items()}
    # As text, a column is one call to the JVM instead of one for each part.
    kept = [F.expr(f"CASE WHEN {fits} THEN {value} END AS {quoted(name)}") for name, value in values.items()]
    return Parsing(fields=fields, reason=reason, kept=[*kept, stamp, bad], prefixed=prefixed)


def _record_columns(topic: Kafka, names: list[str]) -> dict[str, str]:
    """Return the columns of parts of the record itself. Raises: DefinitionError: `COLUMN_TWICE`, `COLUMN_RESERVED`."""
    found, known = topic.record_columns, {name.casefold(): name for name in names}
    for part, name in found.items():
        if (column := known.get(name.casefold())) is not None:
            raise COLUMN_TWICE_METADATA.error(where=topic.where, topic=topic.topic, column=column, part=part, name=name)
    check_names([*found.values()], topic.where)
    return found


def _part(part: str) -> str:
    if part != "timestamp":
        return quoted(part)
    return f"CASE WHEN NOT (`timestamp` = timestamp_millis({_NO_TIMESTAMP})) THEN `timestamp` END"


def parse_records(raw: DataFrame, how: Parsing, *, timed: bool = False) -> Frame:
    """Return the frame of a topic's raw Kafka records: its columns, a stamp each, and the bad ones marked.

    Args: timed: keep the timestamps of the records, with which `withWatermark` compares their times.
    """
    raw = raw if how.prefixed is None else wire.with_content(raw, how.prefixed)
    data = raw.withColumn("__falkirk_parsed", how.fields).withColumn("__falkirk_reason", how.reason)
    return Frame(data=data.select(*how.kept, *([F.col("timestamp").alias(ARRIVED)] if timed else [])))


def declared(ddl: str, of: str, where: object) -> tuple[StructType, list[str]]:
    """Return the columns that a source declares, all nullable, and the names of those that must not be null.

    Args: of: the owner of the schema.
    Raises: DefinitionError: `SCHEMA_INVALID`, and as `check_names`.
    """
    try:
        schema = StructType.fromDDL(ddl)
        if not isinstance(schema, StructType):  # a type alone is DDL as well
            schema = StructType([StructField("value", schema)])
    except PySparkException as error:
        raise SCHEMA_INVALID_TOPIC.error(where=where, schema=ddl, of=of, reason=first_line(error)) from error
    check_names([field.name for field in schema.fields], where)
    required = [field.name for field in schema.fields if not field.nullable]
    return StructType([StructField(field.name, field.dataType) for field in schema.fields]), required


def _parse_json(topic: Kafka, content: Column, session: SparkSession) -> tuple[Column, list[str], Column]:
    schema, required = declared(topic.ddl, f"topic {topic.topic!r}", topic.where)
    fields = from_json(content.cast("string"), schema, session)
    parsed = F.col("__falkirk_parsed")
    reason = (
        F.when(F.col("value").isNull(), F.lit("the value is null"))
        .when(parsed.isNull() | parsed.getField(CORRUPT).isNotNull(), F.lit("does not fit the schema"))
    )  # fmt: skip
    for name in required:
        reason = reason.when(parsed.getField(name).isNull(), F.lit(f"column {name} is null"))
    return fields, [field.name for field in schema.fields], reason


def from_json(text: Column, schema: StructType, session: SparkSession) -> Column:
    """Return texts as structs, as `F.from_json` does in its mode PERMISSIVE. Their last column is `CORRUPT`.

    Args: schema: of the other columns. session: of the texts. The thread that calls this may have another one, or none,
        in the JVM.
    """
    zone, jvm = session.conf.get("spark.sql.session.timeZone"), cast(Any, session._jvm)
    return ClassicColumn(jvm.org.falkirk.JsonRecords.parsed(text._jc, schema.json(), CORRUPT, zone))


def dead_letter(
    reason: Column,
    region: str,
    topic: str | Column,
    value: Column,
    traceback: Column | None = None,
    resend: Column | None = None,
) -> Column:
    """Return the content of a dead letter for a record with a stamp, as JSON, which `falkirk redrive` reads.

    Args: traceback: the one of the function that failed on the record. resend: see steps/live/effects.py.
    """
    read = F.lit(topic) if isinstance(topic, str) else topic
    fields = F.struct(
        reason.alias("reason"), F.lit(region).alias("region"), read.alias("topic"),
        F.col(f"{STAMP}.partition").alias("partition"), F.col(f"{STAMP}.offset").alias("offset"),
        value.alias("value"), *([] if traceback is None else [traceback.alias("traceback")]),
        *([] if resend is None else [resend.alias("resend")]),
    )  # fmt: skip
    return F.to_json(fields)
