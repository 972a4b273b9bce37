"""A record that a fenced incarnation sent and that comes late: every reader of a log of ours skips it."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.host.query import Query, run_here
from falkirk.kafka.connection import Connection
from falkirk.kafka.ranges import Message, read_messages
from falkirk.kafka.void import Void
from falkirk.local.broker import Broker
from falkirk.runtime.context import Storage
from tests.integration.live import Wire, await_one

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _app(wire: Wire, home: Path) -> fk.App:
    """Count words that come from several partitions: so they pass through a hop by word."""
    app = fk.App("late", home=home)
    app.source("events", fk.Kafka(f"events-{wire.tag}", schema="word STRING NOT NULL, n INT"))

    @app.stream(fk.Lazy("2 seconds"))
    def counted(events: fk.Stream) -> fk.Stream:
        return events.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))

    app.sink("counts", counted, fk.Kafka(f"counts-{wire.tag}", key="word"))
    return app


def _append_late(wire: Wire, topic: str, late: Message) -> None:
    """Append the request of a killed writer: an unchanged copy of a record."""
    producer = Producer({"bootstrap.servers": wire.bootstrap, "log_level": 0})
    producer.produce(topic, key=late.key(), value=late.value(), partition=late.partition(), headers=late.headers())
    assert producer.flush(30) == 0


def _counts_with_a_late_record(wire: Wire, home: Path) -> Counter[tuple[str, int]]:
    """Run, run again, let a record of the first run arrive late in the hop, and return the released results."""
    events, counts = wire.topic("events"), wire.topic("counts")
    connection = Connection.of(wire.bootstrap)

    def released(query: Query, expected: int) -> Callable[[], object]:
        return lambda: wire.count(counts) >= expected

    first = run_here(_app(wire, home), connection)
    (hop,) = first.hops
    wire.send(events, [{"word": "a", "n": n} for n in range(3)], partition=0)
    await_one(first, released(first, 3), "the first results")
    first.stop()
    *_, late = read_messages(connection, hop, wire.topics.first_positions(hop), wire.topics.end_positions(hop))
    second = run_here(_app(wire, home), connection)
    _append_late(wire, hop, late)
    wire.send(events, [{"word": "a", "n": n} for n in range(3, 6)], partition=1)
    await_one(second, released(second, 6), "the results of the second run")
    await_one(second, lambda: any(row["n"] == 5 for row in wire.rows(counts)), "the last result")
    second.stop()
    return Counter((row["word"], row["version"]) for row in wire.rows(counts))


@pytest.fixture
def wire(spark: "SparkSession", broker: Broker, tag: str) -> Wire:
    """Topics of the test's own on the broker; there is a session."""
    return Wire(bootstrap=broker.bootstrap, tag=tag)


def test_a_late_record_in_a_hop_counts_once(wire: Wire, home: Path) -> None:
    assert _counts_with_a_late_record(wire, home) == Counter(("a", version) for version in range(1, 7))


def test_without_the_fence_of_its_writer_it_counts_twice(
    wire: Wire, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Storage, "void", lambda *_: Void())
    assert _counts_with_a_late_record(wire, home) == Counter(("a", version) for version in range(1, 8))
