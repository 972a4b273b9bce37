"""Record parts: checks which parts of a record a source has as columns, and the Avro schema of its values."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from falkirk.errors.conditions.declare import SCHEMA_INVALID, SCHEMA_MISSING
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
        text = given if given.lstrip().startswith("{") else Path(given).read_text(encoding="utf-8")
        content = json.loads(text)
        if content["type"] != "record" or not [field["name"] for field in content["fields"]]:
            raise ValueError("it is not a record with fields")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SCHEMA_INVALID.error(where=where, topic=topic, reason=error) from error
    return text
