"""Sinks with Avro or a schema registry in the test kit: readers see the columns, and what does not fit is refused."""

import json
from typing import Any

import pytest

import falkirk as fk
from falkirk.testing import kit

__all__ = ["kit"]
FIELDS = [("id", "string"), ("n", ["null", "int"]), ("at", {"type": "long", "logicalType": "timestamp-millis"})]
AVRO = json.dumps({"type": "record", "name": "row", "fields": [{"name": name, "type": kind} for name, kind in FIELDS]})
JSON = json.dumps({
    "type": "object", "properties": {"id": {"type": "string"}, "n": {"type": ["integer", "null"]}, "at": {}},
    "required": ["id"],
})  # fmt: skip
SINKS = {
    "avro": fk.Kafka("avro", key="id", format="avro", schema=AVRO, registry="http://nowhere:8081"),
    "json": fk.Kafka("json", key="id", schema=JSON, registry="http://nowhere:8081"),
}


def shop(*sinks: str) -> fk.App:
    """Return an application in which a live region and a micro-batch write each of these sinks."""
    app = fk.App("shop")
    app.source("events", fk.Kafka("events", schema="id STRING, n INT, at TIMESTAMP"))
    for name in sinks:
        for engine in ("live", "micro-batch"):
            app.add_processor(f"{engine}-{name}", copied, reads=("events",), policy=fk.Lazy(), engine=engine)
            declared = SINKS[name]
            to = fk.Kafka(
                f"{engine}-{name}", key="id", format=declared.format, schema=declared.schema, registry=declared.registry
            )
            app.sink(f"{engine}-{name}-out", f"{engine}-{name}", to)
    return app


def copied(events: fk.Stream) -> fk.Stream:
    """Keep some events."""
    return events.where("n is null or n > 0")


def test_a_reader_sees_the_columns_and_a_null_is_refused(kit: Any) -> None:
    t = kit(shop(*SINKS))
    at = "2026-01-01T00:00:00.123456Z"
    t.feed("events", [("a", 1, at), ("b", 0, at), (None, 2, at), ("c", None, at)])
    for name in SINKS:
        shown = at if name == "json" else "2026-01-01T00:00:00.123000Z"
        for engine in ("live", "micro-batch"):
            assert t.read(f"{engine}-{name}-out") == [
                {"id": "a", "n": 1, "at": shown}, {"id": "c", "n": None, "at": shown},
            ], (engine, name)  # fmt: skip
    letters = [(each["topic"], each["reason"]) for each in t.dead_letters()]
    assert sorted(letters) == sorted(
        [("events", "not written: column id is null")] * len(SINKS)
        + [(f"micro-batch-{name}", "not written: column id is null") for name in SINKS]
    )
    assert {json.loads(each["value"])["n"] for each in t.dead_letters()} == {2}


def test_a_sink_without_a_known_schema_is_refused(kit: Any) -> None:
    app = fk.App("shop")
    app.source("events", fk.Kafka("events", schema="id STRING"))
    app.stream()(copied)
    app.sink("out", copied, fk.Kafka("out", format="avro", registry="http://nowhere:8081"))
    with pytest.raises(fk.DefinitionError, match="give it as schema=") as refused:
        kit(app)
    assert refused.value.condition == "APPLICATION_UNSUITABLE"
