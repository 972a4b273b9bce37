"""Results as JSON with the id of a registered JSON Schema, live and in batches."""

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
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from falkirk.user_tools.commands.judge import LiveJudge
from falkirk.user_tools.commands.judge_places import output_place
from tests.integration.live import Wire
from tests.registries import FakeRegistry, wire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: `id` may not be null, and `n` may be.
RESULT = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"id": {"type": "string"}, "n": {"type": ["integer", "null"]}},
        "required": ["id", "n"],
        "additionalProperties": False,
    }
)


def test_json_goes_out_with_the_id_of_its_schema(spark: "SparkSession", broker: Broker, home: Path, tag: str) -> None:
    topics = Wire(bootstrap=broker.bootstrap, tag=tag)
    events, live, batch = topics.topic("events", partitions=1), topics.topic("live"), topics.topic("batch")
    with FakeRegistry() as registry:
        registry.add("another", RESULT)
        app = fk.App(f"json-{tag}", home=home)
        app.source("events", fk.Kafka(events, schema="id STRING, n INT"))

        @app.stream(fk.Lazy("60 seconds"))  # no result waits for a checkpoint
        def doubled(events: fk.Stream) -> fk.Stream:
            return events.select("id", (F.col("n") * 2).alias("n"))

        @app.stream(fk.Eager())
        def again(events: "DataFrame") -> "DataFrame":
            return events.select("id", (F.col("n") * 2).alias("n"))

        for name, topic in (("doubled", live), ("again", batch)):
            app.sink(f"{name}-out", name, fk.Kafka(topic, key="id", schema=RESULT, registry=registry.url))
        dead = {live: f"{live}.dead-letters", batch: f"json-{tag}-again.dead-letters"}
        query = run_here(app, Connection.of(broker.bootstrap))
        try:
            topics.send(events, [{"id": "ash", "n": 1}, {"n": 2}, {"id": "ümlaut", "n": None}])
            for topic in (live, batch):
                topics.await_count(topic, 2, query)
                topics.await_count(dead[topic], 1, query)
        finally:
            query.stop()
        numbers = {topic: registry.add(f"{topic}-value", RESULT, schemaType="JSON") for topic in (live, batch)}
        assert set(numbers.values()) == {2}, "it is registered as one of JSON, and its id is that of both subjects"
    for topic in (live, batch):
        found = Counter((record.key, record.value) for record in topics.records(topic))
        rows = [("ash", '{"id":"ash","n":2}'), ("ümlaut", '{"id":"ümlaut","n":null}')]
        assert found == Counter((id.encode(), wire(numbers[topic], value.encode())) for id, value in rows)
        (letter,) = topics.rows(dead[topic])
        assert letter["reason"] == "not written: column id is null"
        assert json.loads(letter["value"]) == {"id": None, "n": 4}, "the row is told as text"


def choosing(columns: str, *, live: bool) -> fk.App:
    app = fk.App("json")
    app.source("events", fk.Kafka("events", schema="id STRING, n INT"))

    def chosen(events: Any) -> Any:
        return events.selectExpr(*columns.split(", "))

    (app.stream() if live else app.stream(fk.Eager()))(chosen)
    app.sink("out", chosen, fk.Kafka("out", schema=RESULT, registry="http://127.0.0.1:1"))
    return app


@pytest.mark.parametrize(
    ("columns", "condition"),
    [
        ("id, n", None),
        ("id", "SCHEMA_MISMATCH"),
        ("id, n, 'x' AS more", "SCHEMA_MISMATCH"),
        ("n AS id, n", "SCHEMA_MISMATCH"),
    ],
)
def test_what_a_sinks_json_schema_does_not_take_is_told_before_it_runs(
    columns: str, condition: str | None, spark: "SparkSession"
) -> None:
    for live in (True, False):
        app = choosing(columns, live=live)
        if condition is None:
            plan_application(app, spark, "deadbeef")
            continue
        with pytest.raises(DefinitionError) as refused:
            plan_application(app, spark, "deadbeef")
        assert refused.value.condition == condition


def test_what_reads_no_ids_refuses_such_a_sink(spark: "SparkSession") -> None:
    app, connection = choosing("id, n", live=True), Connection.of("nowhere:1")
    with pytest.raises(DefinitionError, match="its values have ids of a schema registry") as refused:
        LiveJudge(app, connection, spark).judge_sink(app.sinks["out"])
    assert refused.value.condition == "NOT_CHECKABLE"
    (batch,) = plan_application(choosing("id, n", live=False), spark, "deadbeef").batches
    assert output_place(app.sinks["out"].to, batch, spark, connection) == "its values have ids of a schema registry"
