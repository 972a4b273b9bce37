"""Accepted: checks the values that a user gives as sources and as targets."""

from dataclasses import replace
from typing import cast

from falkirk.declare.endpoints import Console, Endpoint, EpochTopic, Files, Kafka, Sql
from falkirk.declare.lake import Delta, Iceberg
from falkirk.declare.record_parts import json_schema
from falkirk.declare.sink import Sink, as_own, is_sink
from falkirk.errors.conditions.clusters import CLUSTER_MISPLACED
from falkirk.errors.conditions.declare import (
    NOT_A_TOPIC,
    NOT_AN_ENDPOINT,
    OPTION_UNKNOWN_METADATA_OF_SINK,
    SCHEMA_MISSING_FILES,
    TOPICS_MISPLACED,
)
from falkirk.errors.location import SourceLocation


def as_endpoint(value: object, where: SourceLocation) -> Endpoint:
    """Return `value` if results can be written to it, and the declaration of a user's sink.

    Raises: DefinitionError: `NOT_AN_ENDPOINT`, `SINK_INVALID`, `OPTION_UNKNOWN`.
    """
    if isinstance(value, Kafka):
        return as_output_topic(value, where)
    if isinstance(value, EpochTopic | Sql | Files | Delta | Iceberg | Console):
        return value
    if not is_sink(value):
        raise NOT_AN_ENDPOINT.error(where=where, shown=_shown(value))
    return as_own(cast(Sink, value), where)


def _shown(value: object) -> str:
    """Return a value that is no target. The text of a user's object may contain a secret."""
    return repr(value) if isinstance(value, str | type) else f"an object of class {type(value).__name__}"


def as_source(value: object, where: SourceLocation) -> Kafka | Files:
    """Return `value` if it can be read.

    Raises: DefinitionError: `NOT_A_TOPIC`; `SCHEMA_MISSING`: a folder of files has no schema.
    """
    if isinstance(value, Kafka):
        return value
    if not isinstance(value, Files):
        return as_topic(value, where)
    if not value.schema:
        raise SCHEMA_MISSING_FILES.error(where=where, path=value.path)
    return value


def as_topic(value: object, where: SourceLocation) -> Kafka:
    """Return `value` if it is one topic.

    Raises: DefinitionError: `NOT_A_TOPIC`, `TOPICS_MISPLACED`.
    """
    if not isinstance(value, Kafka):
        raise NOT_A_TOPIC.error(where=where, value=value)
    if value.several or value.pattern is not None:
        raise TOPICS_MISPLACED.error(where=where, topics=list(value.several) or [value.topic])
    return value


def as_output_topic(value: object, where: SourceLocation) -> Kafka:
    """Return `value` if it is one topic that results can be written to.

    Raises: DefinitionError: `CLUSTER_MISPLACED`, `OPTION_UNKNOWN`, `SCHEMA_INVALID`; as `as_topic`.
    """
    topic = as_topic(value, where)
    if topic.kafka is not None:
        raise CLUSTER_MISPLACED.error(where=where, topic=topic.name)
    if topic.record_columns:
        raise OPTION_UNKNOWN_METADATA_OF_SINK.error(where=where, topic=topic.topic)
    if topic.registry and topic.format == "json" and topic.schema:
        return replace(topic, schema=json_schema(topic.schema, topic.topic, topic.where))
    return topic
