"""Wire: values in the wire format of a schema registry: a zero byte, the id of a schema in four bytes, the content."""

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from falkirk.declare.endpoints import Kafka
from falkirk.declare.registry import Registered
from falkirk.kafka_client.schema_registry import authorities

#: The column with the content of a value in the reader's schema, or the reason why there is none.
CONTENT = "__falkirk_content"


def with_content(raw: DataFrame, topic: Kafka) -> DataFrame:
    """Return a topic's raw records with the column `CONTENT`. Tasks fetch schemas of writers from the registry.

    Raises: DefinitionError: `SECRET_MISSING`, `REGISTRY_INVALID`.
    """
    registry, jvm = topic.schemas, raw.sparkSession._jvm
    assert registry is not None
    assert jvm is not None
    readers = topic.schema if topic.format == "avro" else None
    trusted = authorities(registry.ca_location, registry.where)
    value: Any = F.col("value")
    content = jvm.org.falkirk.WireFormat.plain(value._jc, registry.url, registry.authorization, trusted, readers)
    return raw.withColumn(CONTENT, ClassicColumn(content))


def reason(other: Column) -> Column:
    """Return why a record is a bad one, or null. Args: other: the reason of its parser."""
    return F.coalesce(F.col(CONTENT).getField("reason"), other)


def prefixed(value: Column, to: Kafka) -> Column:
    """Return a value as a sink writes it: with the id of its schema, if it has a registry."""
    registry = to.schemas
    if registry is None:
        return value
    assert isinstance(registry, Registered), "schemas are registered before the start"
    prefix = F.lit(bytes([0, *registry.number.to_bytes(4, "big")]))
    return F.concat(prefix, value)
