"""Avro and schema registries in the test kit: rows go in, readers see the columns, and what does not fit is refused."""

import json
from typing import Any

import pytest

import falkirk as fk
from falkirk.testing import kit

__all__ = ["kit"]


def avro(id: object, precision: str) -> str:
    """Return the schema of a row. Args: id: the type of its first column. precision: of its time."""
    time = {"type": "long", "logicalType": f"timestamp-{precision}"}
    fields = [{"name": "id", "type": id}, {"name": "n", "type": ["null", "int"]}, {"name": "at", "type": time}]
    return json.dumps({"type": "record", "name": "row", "fields": fields})


EVENT, AVRO = avro(["null", "string"], "micros"), avro("string", "millis")
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
    app.source("events", fk.Kafka("events", format="avro", schema=EVENT, registry="http://nowhere:8081"))
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
    t.feed("events", [("a", 1, at), b"no Avro", fk.testing.KafkaRecord({"n": 2, "at": at}, key="k")])
    t.feed("events", [("b", 0, at), ("c", None, at)])
    for name in SINKS:
        shown = at if name == "json" else "2026-01-01T00:00:00.123000Z"
        for engine in ("live", "micro-batch"):
            assert t.read(f"{engine}-{name}-out") == [
                {"id": "a", "n": 1, "at": shown}, {"id": "c", "n": None, "at": shown},
            ], (engine, name)  # fmt: skip
    unfit = [each["reason"] for each in t.dead_letters() if each["value"] == "no Avro"]
    assert unfit == ["does not fit the schema"] * 2 * len(SINKS)
    refused = [each for each in t.dead_letters() if each["value"] != "no Avro"]
    letters = [(each["topic"], each["reason"]) for each in refused]
    assert sorted(letters) == sorted(
        [("events", "not written: column id is null")] * len(SINKS)
        + [(f"micro-batch-{name}", "not written: column id is null") for name in SINKS]
    )
    assert {json.loads(each["value"])["n"] for each in refused} == {2}
    with pytest.raises(fk.DefinitionError, match="does not fit the Avro schema") as invalid:
        t.feed("events", [("a", "many", at)])
    assert invalid.value.condition == "ROW_INVALID"


def test_a_sink_without_a_known_schema_is_refused(kit: Any) -> None:
    app = fk.App("shop")
    app.source("events", fk.Kafka("events", schema="id STRING"))
    app.stream()(copied)
    app.sink("out", copied, fk.Kafka("out", format="avro", registry="http://nowhere:8081"))
    with pytest.raises(fk.DefinitionError, match="give it as schema=") as refused:
        kit(app)
    assert refused.value.condition == "APPLICATION_UNSUITABLE"
