"""Schemas: completes the topics of an application that have a schema registry, before it is planned.

A source or a sink without a schema gets the newest one of its subject, and a sink gets the id of its schema. A start
records both beside the data of the home, so that each later start uses the same ones and needs no registry.
"""

import copy
import json
from dataclasses import replace
from enum import Enum
from pathlib import Path

from falkirk.declare.application import Application
from falkirk.declare.endpoints import Kafka
from falkirk.declare.record_parts import json_schema
from falkirk.declare.registry import Registry
from falkirk.errors.conditions.registry import HOME_DAMAGED_SCHEMAS, SCHEMAS_UNRECORDED
from falkirk.kafka_client.schema_registry import SchemaKind, SchemaRegistry, SchemaVersion
from falkirk.platform.data import DataPath
from falkirk.platform.stored import parse_json
from falkirk.recovery.ownership.folder import data_folder

#: The file of a home with the schemas and ids of its topics, by subject.
SCHEMAS_FILE = "schemas.json"
_READ, _WRITTEN = "read", "written"


class Use(Enum):
    """The purpose of a completed application.

    PLAN: ids stay unknown, and nothing is recorded. STANDBY: all must be recorded. START: missing schemas and ids are
    looked up, registered and recorded.
    """

    PLAN = "plan"
    STANDBY = "standby"
    START = "start"


def with_schemas(app: Application, home: Path | None, use: Use = Use.PLAN) -> Application:
    """Return the application with the schemas and ids of its topics. `app` stays as it is.

    Args: home: the folder, which may be missing; None: there is none, and its data are nowhere else.
    Raises: LogError: `REGISTRY_AWAY` (maybe), `REGISTRY_REFUSED`, `SCHEMA_UNREGISTERED`. HomeError:
        `SCHEMAS_UNRECORDED`, `HOME_DAMAGED`. DefinitionError: `SCHEMA_INVALID`, `SECRET_MISSING`, `REGISTRY_INVALID`.
        StoreError: `DATA_AWAY`.
    """
    found = copy.copy(app)
    endpoints = *(source.topic for source in app.sources.values()), *(sink.to for sink in app.sinks.values())
    if not any(isinstance(each, Kafka) and each.schemas is not None for each in endpoints):
        return found
    schemas = _Schemas(None if home is None else data_folder(home, app.data), use)
    found.sources = {
        name: replace(source, topic=schemas.of_source(source.topic)) if _lacks(source.topic) else source
        for name, source in app.sources.items()
    }
    found.sinks = {
        name: replace(sink, to=schemas.of_sink(sink.to)) if isinstance(sink.to, Kafka) else sink
        for name, sink in app.sinks.items()
    }
    schemas.record()
    return found


def without_registries(app: Application) -> Application:
    """Return the application as if the values of its sources had no prefix, and with ids for the schemas of its sinks.

    Sources and sinks without a schema are refused later.
    """
    found = copy.copy(app)
    found.sinks = {
        name: replace(sink, to=replace(sink.to, registry=sink.to.schemas.with_id(1)))
        if isinstance(sink.to, Kafka) and sink.to.schemas is not None
        else sink
        for name, sink in app.sinks.items()
    }
    found.sources = {
        name: replace(source, topic=replace(source.topic, registry=None)) if source.topic.registry else source
        for name, source in app.sources.items()
    }
    return found


def _lacks(topic: Kafka) -> bool:
    return topic.format == "avro" and topic.schemas is not None and not topic.schema


class _Schemas:
    """The recorded schemas of a home, and those that are looked up."""

    def __init__(self, home: DataPath | None, use: Use) -> None:
        self._file, self._use = None if home is None else home / SCHEMAS_FILE, use
        self._known = self._recorded()
        self._before = copy.deepcopy(self._known)

    def of_source(self, topic: Kafka) -> Kafka:
        """Return a source's topic with its schema, which was not given."""
        registry = topic.schemas
        assert registry is not None
        subject = registry.subject_of(topic.name)
        known = self._known[_READ].get(subject)
        if known is None:
            known = self._look_up(registry, subject)
            self._known[_READ][subject] = known
        return replace(topic, schema=known["schema"])

    def of_sink(self, topic: Kafka) -> Kafka:
        """Return a sink's topic with its schema, and with the id if it is known or has to be."""
        registry = topic.schemas
        if registry is None:
            return topic
        subject = registry.subject_of(topic.name)
        known = self._known[_WRITTEN].get(subject)
        schema = topic.schema or (known or {}).get("schema")
        if known is None or (known["url"], known["schema"]) != (registry.url, schema):
            if self._use is Use.PLAN and schema is not None:
                return replace(topic, schema=schema)
            known = self._look_up(registry, subject, schema, "JSON" if topic.format == "json" else "AVRO")
            self._known[_WRITTEN][subject] = known
        if topic.format == "json":
            json_schema(known["schema"], topic.topic, topic.where, is_text=True)  # somebody else has registered it
        return replace(topic, schema=known["schema"], registry=registry.with_id(int(known["id"])))

    def _look_up(
        self, registry: Registry, subject: str, schema: str | None = None, kind: SchemaKind = "AVRO"
    ) -> dict[str, str]:
        """Return the newest schema of a subject, or the registered `schema`."""
        if self._use is Use.STANDBY:
            raise SCHEMAS_UNRECORDED.error(where=self._file, subject=subject)
        asked = SchemaRegistry(registry.url, registry.authorization, registry.ca_location, registry.where)
        found: SchemaVersion = asked.latest(subject, kind) if schema is None else asked.register(subject, schema, kind)
        return {"url": registry.url, "id": str(found.number), "schema": found.schema}

    def record(self) -> None:
        """Record in the home the schemas and ids that were looked up for a start."""
        if self._use is Use.START and self._file is not None and self._known != self._before:
            self._file.write_text(json.dumps(self._known, indent=1))

    def _recorded(self) -> dict[str, dict[str, dict[str, str]]]:
        nothing: dict[str, dict[str, dict[str, str]]] = {_READ: {}, _WRITTEN: {}}
        if self._file is None or not self._file.exists():
            return nothing
        try:
            found = parse_json(self._file.read_text())
            for kind in nothing:
                for subject, known in found[kind].items():
                    nothing[kind][subject] = {name: str(known[name]) for name in ("url", "id", "schema")}
                    int(known["id"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise HOME_DAMAGED_SCHEMAS.error(where=self._file, reason=error) from error
        return nothing
