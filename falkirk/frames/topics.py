"""Parsing: turns the raw records of a topic into columns with a stamp each, and marks those that do not fit."""

from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from falkirk.declare.endpoints import Kafka
from falkirk.errors.conditions.frames import SCHEMA_INVALID_TOPIC
from falkirk.errors.spark import first_line
from falkirk.frames import avro
from falkirk.frames.names import ARRIVED
from falkirk.frames.stamped import BAD, STAMP, Frame, check_names

#: The columns of Spark's Kafka source, for analysis without a broker.
KAFKA_DDL = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
)


@dataclass(frozen=True, kw_only=True)
class Parsing:
    """How a topic's raw records become a frame. Each column costs calls to the JVM, so whoever reads often keeps it.

    Args: names: of the topic's columns. fields, reason: what is parsed, and why it does not fit, or null. kept: what
        the frame consists of.
    """

    names: list[str]
    fields: Column
    reason: Column
    kept: list[Column]


def parsing(topic: Kafka) -> Parsing:
    """Return how a topic's records are parsed.

    Bad is: no value, a value that does not parse as the schema or has a wrong type, a null in a NOT NULL column.
    """
    stamp = F.struct(F.lit(0).alias("source"), "partition", "offset").alias(STAMP)
    if topic.format == "binary":
        fields, names = F.struct("value"), ["value"]
        reason = F.when(F.col("value").isNull(), F.lit("the value is null"))
    elif topic.format == "text":
        fields, names = F.struct(F.col("value").cast("string").alias("value")), ["value"]
        reason = F.when(F.col("value").isNull(), F.lit("the value is null"))
    elif topic.format == "avro":
        fields, names, reason = avro.parsed(topic)
        check_names(names, topic.where)
    else:
        fields, names, reason = _parse_json(topic)
    fits = F.col("__falkirk_reason").isNull()
    bad = F.when(~fits, F.struct(F.col("__falkirk_reason").alias("reason"), "key", "value")).alias(BAD)
    kept = [F.when(fits, F.col("__falkirk_parsed").getField(name)).alias(name) for name in names]
    return Parsing(names=names, fields=fields, reason=reason, kept=[*kept, stamp, bad])


def parse(raw: DataFrame, how: Parsing, *, timed: bool = False) -> Frame:
    """Return the frame of a topic's raw Kafka records: its columns, a stamp each, and the bad ones marked.

    Args: timed: keep the timestamps of the records, with which `withWatermark` compares their times.
    """
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


def _parse_json(topic: Kafka) -> tuple[Column, list[str], Column]:
    schema, required = declared(topic.ddl, f"topic {topic.topic!r}", topic.where)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "__falkirk_corrupt"}
    corrupt = StructField("__falkirk_corrupt", StringType())
    fields = F.from_json(F.col("value").cast("string"), StructType([*schema.fields, corrupt]), options)
    parsed = F.col("__falkirk_parsed")
    reason = (
        F.when(F.col("value").isNull(), F.lit("the value is null"))
        .when(parsed.isNull() | parsed.getField("__falkirk_corrupt").isNotNull(), F.lit("does not fit the schema"))
    )  # fmt: skip
    for name in required:
        reason = reason.when(parsed.getField(name).isNull(), F.lit(f"column {name} is null"))
    return fields, [field.name for field in schema.fields], reason


def dead_letter(reason: Column, region: str, topic: str, value: Column) -> Column:
    """Return what a dead letter says of a record with a stamp, as JSON, which `falkirk redrive` reads."""
    told = F.struct(
        reason.alias("reason"), F.lit(region).alias("region"), F.lit(topic).alias("topic"),
        F.col(f"{STAMP}.partition").alias("partition"), F.col(f"{STAMP}.offset").alias("offset"),
        value.alias("value"),
    )  # fmt: skip
    return F.to_json(told)
