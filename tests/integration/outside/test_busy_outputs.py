"""Others write into outputs all the time: their regions wait, independent ones start, and all results come once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.ranges import read_messages
from falkirk.recovery.protocol import down
from falkirk.runtime.spark import settling
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from tests.integration.live import Wire, await_one

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("opened", "repeated", "quiet")


@contextmanager
def open_transaction(wire: Wire, topic: str) -> Iterator[None]:
    """Have another writer's transaction stay open in a topic."""
    # By default the broker ends a transaction after a minute, which is less than a start takes on a busy machine.
    lasts = {"transactional.id": f"mallory-{wire.tag}", "transaction.timeout.ms": 900_000}
    mallory = Producer({"bootstrap.servers": wire.bootstrap, **lasts})
    mallory.init_transactions(30)
    mallory.begin_transaction()
    mallory.produce(topic, b"mine", partition=0)
    mallory.flush(30)
    try:
        yield
    finally:
        mallory.abort_transaction(30)


@contextmanager
def repeated_records(wire: Wire, topic: str) -> Iterator[None]:
    """Copy a signed record of a topic again and again."""
    (first, *_) = read_messages(wire.bootstrap, topic, {0: 0}, {0: 1})
    over, written = threading.Event(), threading.Event()

    def repeat() -> None:
        while not over.wait(0.02):
            wire.producer.produce(topic, first.value(), first.key(), 0, headers=first.headers())
            wire.producer.flush(30)
            written.set()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        assert written.wait(30)
        yield
    finally:
        over.set()
        thread.join()


def test_a_writer_of_an_output_delays_its_region_alone(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the transaction delayed the start of all (`BROKER_AWAY`), and the repetition ended it (`FOREIGN_WRITER`).

    Both again at each start, as long as the writer liked.
    """
    monkeypatch.setattr(settling, "SETTLE_MAX_S", 2.0)
    monkeypatch.setattr(down, "RETRY_S", 1.0)
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    events = wire.topic("events", 1)
    out = {name: wire.topic(name, 1) for name in NAMES}
    app = fk.App(f"busy-{tag}", home=home, state_partitions=1, transactional=True)
    app.source("events", fk.Kafka(events, schema="n INT"))
    for name in NAMES:
        app.add_processor(name, lambda s: s.select("n"), reads=("events",), policy=fk.Lazy("2 seconds"))
        app.sink(name, name, fk.Kafka(out[name]))

    def numbers(name: str) -> set[int]:
        return {row["n"] for row in wire.rows(out[name]) if isinstance(row, dict)}

    query = run_here(app, Connection.of(broker.bootstrap))
    try:
        wire.send(events, [{"n": 0}])
        await_one(query, lambda: all(numbers(name) == {0} for name in NAMES), "the first results")
    finally:
        query.stop()
    with open_transaction(wire, out["opened"]), repeated_records(wire, out["repeated"]):
        query = run_here(app, Connection.of(broker.bootstrap))
        wire.send(events, [{"n": 1}])
        await_one(query, lambda: numbers("quiet") == {0, 1}, "results of the region whose output is quiet")
        due = {
            "opened": ("failed", "SINK_UNSETTLED"), "repeated": ("failed", "SINK_UNSETTLED"),
            "quiet": ("running", ""),
        }  # fmt: skip
        details = dict[str, str]()

        def are_down() -> bool:
            """Return whether both are down, as far as no start is tried now."""
            found = {s.name: (s.state, s.condition, s.detail) for s in query.status}
            details.update({name: detail for name, (*_, detail) in found.items()})
            return {name: (state, condition) for name, (state, condition, _) in found.items()} == due

        await_one(query, are_down, "both to be down")
        assert "transaction has been open since offset" in details["opened"]
        assert out["opened"] in details["opened"]
        assert f"records keep arriving in {out['repeated']!r}" in details["repeated"]
    try:
        await_one(query, lambda: all(numbers(name) == {0, 1} for name in NAMES), "the other results")
        assert {s.name: s.condition for s in query.status} == dict.fromkeys(NAMES, "")
    finally:
        query.stop()
    assert query.exception() is None
    assert [row["n"] for row in wire.rows(out["quiet"])] == [0, 1]
    assert [row["n"] for row in wire.rows(out["repeated"])].count(1) == 1
