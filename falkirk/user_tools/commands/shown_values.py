"""Shown values: the values of an application's topics as text, by the format that it declares for each topic."""

import json
from collections.abc import Mapping
from typing import Any

from falkirk.declare.application import Application
from falkirk.declare.endpoints import Kafka
from falkirk.declare.registry import PREFIX_BYTES, Registry
from falkirk.errors import FalkirkError
from falkirk.kafka_client.schema_registry import SchemaRegistry
from falkirk.theory.ids import LogId
from falkirk.user_tools.commands.avro_values import decode
from falkirk.user_tools.commands.records import as_text

#: A registry must answer within this time, because somebody waits for the output. One that does not is not asked again.
_WAIT_S = 2.0


class ShownValues:
    """The values of all topics of an application as text.

    Args: held: the topic of users, by the name of the internal log whose records are copied there.
    """

    def __init__(self, app: Application, held: Mapping[LogId, str]) -> None:
        topics = [source.topic for source in app.sources.values()]
        topics += [sink.to for sink in app.sinks.values() if isinstance(sink.to, Kafka)]
        self._topics = {topic.log: topic for topic in topics}
        self._topics |= {log: self._topics[LogId(to)] for log, to in held.items() if LogId(to) in self._topics}
        #: By registry and id: a schema, or the condition of the error.
        self._schemas: dict[tuple[str, int], tuple[Any, str]] = {}
        #: The registries that did not answer: ids come from values, so each value may have another one.
        self._away: set[str] = set()
        self._declared: dict[LogId, Any] = {}

    def text(self, log: LogId, value: bytes | None) -> str | None:
        """Return a value as text; Avro as JSON, or in hexadecimal digits if it can't be decoded. None stays None.

        A value with the prefix of a registry is decoded with the schema of its id, any other one with the schema that
        the application declares.
        """
        topic = self._topics.get(log)
        if value is None or topic is None or (topic.format != "avro" and topic.schemas is None):
            return as_text(value)
        schema, number, reason, content = self._declared_of(log, topic), None, "", value
        if topic.schemas is not None and value[:1] == b"\0" and len(value) >= PREFIX_BYTES:
            number, content = int.from_bytes(value[1:PREFIX_BYTES], "big"), value[PREFIX_BYTES:]
        elif topic.schemas is not None:
            schema, reason = None, "without the id of a schema"
        if topic.format != "avro":
            return as_text(content)
        if number is not None and topic.schemas is not None:
            schema, reason = self._registered(topic.schemas, number)
        if schema is not None:
            try:
                return json.dumps(decode(schema, content), ensure_ascii=False)
            except ValueError:
                reason = "that does not fit its schema"
        named = "" if number is None else f" of schema {number}"
        return f"Avro{named} {reason}: 0x{value.hex()}"

    def _declared_of(self, log: LogId, topic: Kafka) -> Any:
        if log not in self._declared:
            self._declared[log] = json.loads(topic.schema) if topic.format == "avro" and topic.schema else None
        return self._declared[log]

    def _registered(self, registry: Registry, number: int) -> tuple[Any, str]:
        """Return the schema of an id; or None, and why it is not known."""
        key = registry.url, number
        if key not in self._schemas:
            if registry.url in self._away:
                return None, _not_returned("REGISTRY_AWAY")
            try:
                asked = SchemaRegistry(
                    registry.url, registry.authorization, registry.ca_location, registry.where, wait_s=_WAIT_S
                )
                self._schemas[key] = json.loads(asked.schema_of(number)), ""
            except ValueError:
                self._schemas[key] = None, "whose schema in the registry is not JSON"
            except FalkirkError as error:
                self._schemas[key] = None, _not_returned(error.condition)
                if error.condition == "REGISTRY_AWAY":
                    self._away.add(registry.url)
        return self._schemas[key]


def _not_returned(condition: str) -> str:
    return f"that the registry did not return ({condition})"
