"""Values with the ids of a schema registry, in and out, live and in batches, while the registry fails."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from tests.integration.live import Wire
from tests.registries import FakeRegistry, wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OLD = [("id", "string"), ("n", "int")]
NEW = [("n", "long"), ("id", "string"), ("note", ["null", "string"])]
NEWER = [("id", "string"), ("more", "boolean"), ("n", "int")]
RESULT = [("id", "string"), ("n", "long"), ("note", ["null", "string"])]
_DEFAULTS = {"note": {"default": None}}


def schema(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    named = [{"name": name, "type": kind, **_DEFAULTS.get(name, {})} for name, kind in fields]
    return {"type": "record", "name": "event", "fields": named}


def text(word: str) -> bytes:
    return bytes([2 * len(word)]) + word.encode()


def test_values_of_a_registry_go_in_and_out_live_and_in_batches(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_PASSWORD", "hidden")
    topics = Wire(bootstrap=broker.bootstrap, tag=tag)
    events, live, batch = topics.topic("events", partitions=1), topics.topic("live"), topics.topic("batch")
    with FakeRegistry(login="ann:hidden") as registry:
        old, new = (registry.add(f"{events}-value", schema(fields)) for fields in (OLD, NEW))
        at = fk.Registry(registry.url, user="ann", password="env:REGISTRY_PASSWORD")
        app = fk.App(f"registry-{tag}", home=home)
        app.source("events", fk.Kafka(events, format="avro", registry=at))

        @app.stream(fk.Lazy("60 seconds"))  # no result waits for a checkpoint
        def doubled(events: fk.Stream) -> fk.Stream:
            return events.select("id", (F.col("n") * 2).alias("n"), "note")

        @app.stream(fk.Eager())
        def again(events: "DataFrame") -> "DataFrame":
            return events.select("id", (F.col("n") * 2).alias("n"), "note")

        for name, topic in (("doubled", live), ("again", batch)):
            to = fk.Kafka(topic, key="id", format="avro", schema=json.dumps(schema(RESULT)), registry=at)
            app.sink(f"{name}-out", name, to)
        dead = {live: f"{live}.dead-letters", batch: f"registry-{tag}-again.dead-letters"}
        query = run_here(app, Connection.of(broker.bootstrap))
        try:
            topics.send(events, [wire(old, text("ash") + b"\x02"), text("birch") + b"\x04", wire(99, b"")])
            topics.send(events, [wire(new, b"\x06" + text("cedar") + b"\x02" + text("x"))])
            for topic in (live, batch):
                topics.await_count(topic, 2, query)
                topics.await_count(dead[topic], 2, query)
            registry.fault = "error"
            newer = registry.add(f"{events}-value", schema(NEWER))
            topics.send(events, [wire(newer, text("elm") + b"\x01\x08"), wire(old, text("fir") + b"\x0a")])

            def waiting() -> bool:
                details = [each.detail for each in query.status if "schema registry" in each.detail]
                assert not any("hidden" in detail for detail in details)
                return len(details) == 2

            wait_until(waiting, 90, lambda: f"both wait for the registry: {query.status}")
            assert [topics.count(topic) for topic in (live, batch)] == [2, 2]
            registry.fault = None
            for topic in (live, batch):
                topics.await_count(topic, 4, query)
            assert query.exception() is None
        finally:
            query.stop()
        assert [registry.asked[f"GET /schemas/ids/{each}"] for each in (old, new)] == [1, 1]
        numbers = {topic: registry.add(f"{topic}-value", schema(RESULT)) for topic in (live, batch)}
    wanted = [("ash", b"\x04\x00"), ("cedar", b"\x0c\x02" + text("x")), ("elm", b"\x10\x00"), ("fir", b"\x14\x00")]
    for topic in (live, batch):
        found = Counter((record.key, record.value) for record in topics.records(topic))
        assert found == Counter((id.encode(), wire(numbers[topic], text(id) + rest)) for id, rest in wanted)
        letters = sorted((each["reason"], each["offset"]) for each in topics.rows(dead[topic]))
        prefix = "is not in the wire format of a schema registry (byte 0, then a schema id of four bytes)"
        assert letters == [(prefix, 1), ("schema 99 is unknown to the registry", 2)]
