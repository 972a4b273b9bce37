"""Record parts: checks which parts of a record a source has as columns, and the schema of its values."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from falkirk.errors.conditions.declare import SCHEMA_INVALID, SCHEMA_MISSING
from falkirk.errors.conditions.registry import SCHEMA_INVALID_JSON
from falkirk.errors.location import SourceLocation

#: The parts of a record, beside its value, that a source can have as columns. The names are those of Spark's source.
RECORD_PARTS = ("key", "timestamp", "topic", "partition", "offset", "headers")


def names_parts(metadata: object) -> bool:
    """Return whether `metadata` names parts of a record, and a column for each."""
    if isinstance(metadata, Mapping):
        return all(part in RECORD_PARTS and isinstance(c, str) and c for part, c in metadata.items())
    parts = (metadata,) if isinstance(metadata, str) else metadata
    return isinstance(parts, Sequence) and all(part in RECORD_PARTS for part in parts)


def avro_schema(given: str | None, topic: str, where: SourceLocation) -> str:
    """Return an Avro schema, given as JSON or as the name of a file.

    Raises: DefinitionError: `SCHEMA_MISSING`, `SCHEMA_INVALID`.
    """
    if not given:
        raise SCHEMA_MISSING.error(where=where, topic=topic)
    try:
        text = _text_of(given)
        content = json.loads(text)
        if content["type"] != "record" or not [field["name"] for field in content["fields"]]:
            raise ValueError("it is not a record with fields")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SCHEMA_INVALID.error(where=where, topic=topic, reason=error) from error
    return text


def json_schema(given: str, topic: str, where: SourceLocation, *, is_text: bool = False) -> str:
    """Return the JSON Schema of an object, given as JSON or as the name of a file.

    Args: is_text: it is no name of a file. Raises: DefinitionError: `SCHEMA_INVALID`.
    """
    try:
        text = given if is_text else _text_of(given)
        reason = _mistake(json.loads(text))
    except (OSError, ValueError, RecursionError) as error:
        raise SCHEMA_INVALID_JSON.error(where=where, topic=topic, reason=error) from error
    if reason is not None:
        raise SCHEMA_INVALID_JSON.error(where=where, topic=topic, reason=reason)
    return text


def _text_of(given: str) -> str:
    return given if given.lstrip().startswith("{") else Path(given).read_text(encoding="utf-8")


def _mistake(schema: object) -> str | None:
    """Return why a schema, or one within it, can't be used; None: it can. It is looked at as written.py reads it."""
    if isinstance(schema, bool):
        return None
    if not isinstance(schema, dict):
        return f"{json.dumps(schema)[:40]} is not a schema"
    types = schema.get("type", [])
    if not (isinstance(types, str) or (isinstance(types, list) and all(isinstance(each, str) for each in types))):
        return "type is neither a name nor a list of names"
    required, properties = schema.get("required", []), schema.get("properties", {})
    names = isinstance(required, list) and all(isinstance(each, str) for each in required)
    if not names or not isinstance(properties, dict):
        return "required is a list of names, and properties an object"
    within = [*properties.values(), *(schema[name] for name in ("items", "additionalProperties") if name in schema)]
    for name in ("anyOf", "oneOf"):
        if not isinstance(choices := schema.get(name, []), list):
            return f"{name} is not a list"
        within += choices
    return next(filter(None, map(_mistake, within)), None)
