"""Avro values of topics, in and out, live and in batches: encoded in the test, so that both ends are judged. Records
that do not fit are sent again while the application runs."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.kafka_client.connection import Connection
from falkirk.plan.planner import plan_application
from falkirk.plan.shape import read_shape
from falkirk.recovery.ownership.folder import attach_home
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from falkirk.user_tools.commands.redrive import send_again
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENT = {
    "type": "record", "name": "event",
    "fields": [{"name": "id", "type": ["null", "string"]}, {"name": "n", "type": ["null", "int"]}],
}  # fmt: skip
RESULT = {
    "type": "record", "name": "result",
    "fields": [{"name": "ID", "type": "string"}, {"name": "n", "type": ["null", "int"]}],
}  # fmt: skip


def _number(n: int) -> bytes:
    """Encode a small integer: zigzag, seven bits a byte."""
    n, out = (n << 1) ^ (n >> 63), bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def _text(text: str) -> bytes:
    return _number(len(text.encode())) + text.encode()


def _some(value: bytes | None) -> bytes:
    return _number(0) if value is None else _number(1) + value


def event(id: str | None, n: int | None) -> bytes:
    return _some(None if id is None else _text(id)) + _some(None if n is None else _number(n))


def result(id: str, n: int | None) -> bytes:
    return _text(id) + _some(None if n is None else _number(n))


def test_avro_goes_in_and_out_live_and_in_batches(
    spark: "SparkSession", broker: Broker, home: Path, tmp_path: Path, tag: str
) -> None:
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    events, live, batch = wire.topic("events", partitions=1), wire.topic("live"), wire.topic("batch")
    (tmp_path / "result.avsc").write_text(json.dumps(RESULT))
    app = fk.App(f"avro-{tag}", home=home)
    app.source("events", fk.Kafka(events, format="avro", schema=json.dumps(EVENT)))

    @app.stream(fk.Lazy("60 seconds"))  # no result waits for a checkpoint
    def doubled(events: fk.Stream) -> fk.Stream:
        return events.select("id", (F.col("n") * 2).alias("n"))

    @app.stream(fk.Eager())
    def tripled(events: "DataFrame") -> "DataFrame":
        return events.select("id", (F.col("n") * 3).alias("n"))

    for name, topic in (("doubled", live), ("tripled", batch)):
        app.sink(f"{name}-out", name, fk.Kafka(topic, key="id", format="avro", schema=str(tmp_path / "result.avsc")))
    dead = {live: f"{live}.dead-letters", batch: f"avro-{tag}-tripled.dead-letters"}
    query = run_here(app, Connection.of(broker.bootstrap))
    try:
        good = [("ash", 1), ("birch", None), ("ümlaut", -70_000), ("", 2**30 - 1)]
        wire.send(events, [event("ash", 1), b"\xff\xff", b"", event(None, None)])
        wire.send(events, [event(*each) for each in good[1:3]])
        for topic in (live, batch):
            wait_until(lambda topic=topic: wire.count(topic) >= 3, 90, f"results: {query.status}")  # type: ignore[misc]
            wait_until(lambda topic=topic: wire.count(dead[topic]) >= 3, 60, f"dead letters: {query.status}")  # type: ignore[misc]
        # While it runs: two inputs are in the dead letters of both, and two results, which can't be sent again.
        with attach_home(home, app.name) as held:
            shape = read_shape(home)
            assert shape is not None
            report = send_again(app, held, shape, Connection.of(broker.bootstrap))
        assert (report["sent"], report["results"]) == (2, 2)
        for topic in (live, batch):
            wait_until(lambda topic=topic: wire.count(dead[topic]) >= 5, 60, f"they do not fit yet: {query.status}")  # type: ignore[misc]
    finally:
        query.stop()
    for topic, factor in ((live, 2), (batch, 3)):
        found = Counter((r.key, r.value) for r in wire.records(topic))
        wanted = [(id, None if n is None else n * factor) for id, n in good[:3]]
        assert found == Counter((id.encode(), result(id, n)) for id, n in wanted)
        letters = sorted((r["reason"], r.get("offset")) for r in wire.rows(dead[topic]))
        unfit = "not written: column id is null"
        assert letters == [("does not fit the schema", n) for n in (1, 2, 6, 7)] + [
            (unfit, 3 if topic == live else None)
        ]
        told = next(r["value"] for r in wire.rows(dead[topic]) if r["reason"] == unfit)
        assert json.loads(told) == {"id": None, "n": None}, "the row is told as text"


@pytest.mark.parametrize(
    ("columns", "schema", "condition"),
    [
        ("id, n", RESULT, None),
        ("id, n, 'x' AS more", RESULT, "SCHEMA_MISMATCH"),
        ("n", RESULT, "SCHEMA_MISMATCH"),
        ("id, id AS n", RESULT, "SCHEMA_MISMATCH"),
        ("array(id) AS ids", [{"name": "ids", "type": {"type": "array", "items": "string"}}], "SCHEMA_MISMATCH"),
        ("array(coalesce(id, '')) AS ids", [{"name": "ids", "type": {"type": "array", "items": "string"}}], None),
        ("id", [{"name": "id", "type": "strin"}], "SCHEMA_INVALID"),
    ],
)
def test_what_a_sinks_schema_does_not_take_is_told_before_it_runs(
    columns: str, schema: Any, condition: str | None, spark: "SparkSession"
) -> None:
    schema = schema if isinstance(schema, dict) else RESULT | {"fields": schema}
    for live in (True, False):
        app = fk.App("avro")
        app.source("events", fk.Kafka("events", format="avro", schema=json.dumps(EVENT)))

        def chosen(events: Any) -> Any:
            return events.selectExpr(*columns.split(", ")) if "coalesce" not in columns else events.selectExpr(columns)

        (app.stream() if live else app.stream(fk.Eager()))(chosen)
        app.sink("out", chosen, fk.Kafka("out", format="avro", schema=json.dumps(schema)))
        if condition is None:
            plan_application(app, spark, "deadbeef")
            continue
        with pytest.raises(DefinitionError) as refused:
            plan_application(app, spark, "deadbeef")
        assert refused.value.condition == condition
