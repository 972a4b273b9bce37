"""A pattern on a real broker: a home that is started twice, with a new topic in between."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import falkirk as fk
from falkirk.errors import HomeError
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from tests.integration.live import Wire, await_one
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_a_topic_that_appears_between_two_starts_is_read_once(
    spark: "SparkSession", broker: Broker, home: Path, tag: str
) -> None:
    """It has a record before any start knows it. The sink, which the pattern matches too, is never read."""
    wire, connection = Wire(bootstrap=broker.bootstrap, tag=tag), Connection.of(broker.bootstrap)
    eu, out = wire.topic("orders-eu"), wire.topic("orders-out")
    app = fk.App("patterned", home=home)
    pattern = re.compile(f"orders-.*-{re.escape(tag)}")
    app.source("orders", fk.Kafka(pattern, schema="n LONG NOT NULL", metadata="topic"))

    @app.batch(rows=2)
    def seen(orders: "DataFrame") -> "DataFrame":
        return orders

    app.sink("out", seen, fk.Kafka(out))

    def run(first: dict[str, list[int]], count: int) -> list[tuple[str, int]]:
        query = run_here(app, connection)
        try:
            for topic, numbers in first.items():
                wire.send(topic, [{"n": n} for n in numbers])
            await_one(query, lambda: len(wire.rows(out)) >= count, f"{count} results")
        finally:
            query.stop()
        return sorted((row["topic"], row["n"]) for row in wire.rows(out))

    assert run({eu: [1, 2]}, 2) == [(eu, 1), (eu, 2)]
    asia = wire.topic("orders-asia")
    wire.send(asia, [{"n": 3}])
    assert run({eu: [4]}, 4) == [(asia, 3), (eu, 1), (eu, 2), (eu, 4)]
    wire.admin.delete_topics([asia])[asia].result()
    wait_until(lambda: asia not in wire.topics.names(), 30, "the deletion")
    with pytest.raises(HomeError) as refused:
        run_here(app, connection)
    assert refused.value.condition == "APPLICATION_CHANGED"
    assert refused.value.parameters["changed"] == {"reads": (f"{asia}, {eu}", eu)}
