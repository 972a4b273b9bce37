"""A stopped region's producer still holds records: they are flushed before the tail is read, or published twice."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.check import Guarantee, Verdict
from falkirk.host.query import Query, run_here
from falkirk.kafka.connection import Connection
from falkirk.kafka.topics import Topics
from falkirk.local.broker import Broker
from falkirk.runtime import fence
from tests.chaos.harness import Load, judge_counts
from tests.support import wait_until


def _app(events: str, counts: str, home: Path) -> fk.App:
    app = fk.App("lingering", home=home)
    app.source("events", fk.Kafka(events, schema="word STRING NOT NULL, n INT", key="word"))

    @app.stream(fk.Lazy("3 seconds"))
    def counted(events: fk.Stream) -> fk.Stream:
        return events.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))

    app.sink("counts", counted, fk.Kafka(counts, key="word"))
    return app


def _stop_with_lingering_buffers(
    broker: Broker,
    home: Path,
    tag: str,
    lingers: Callable[[str], bool] = lambda client: True,
    arrive_late: Callable[[], object] = lambda: None,
) -> tuple[Verdict, int]:
    """Run, stop and run again under load with a producer that delays records; return the verdict.

    Args:
        lingers: called with the client id of the first run's producer after that run has stopped. While it returns
            False, the first run is repeated.
        arrive_late: called once the second run processes records.
    """
    connection = Connection.of(broker.bootstrap)
    topics = Topics(connection)
    events, counts = f"events-{tag}", f"counts-{tag}"
    for topic in (events, counts):
        topics.create(topic, 2, {})

    def released() -> int:
        return sum(topics.end_positions(counts).values())

    def has_committed(query: Query, batch: int) -> bool:
        assert query.isActive, query.exception()
        return query.status[0].last_commit >= batch

    with Load(broker.bootstrap, events) as load:
        client = ""
        while not client or not lingers(client):
            first = run_here(_app(events, counts, home), connection)
            wait_until(
                lambda first=first: has_committed(first, 1) and released() > 200, 120, "results of the first run"
            )
            client = _client(first)
            wait_until(lambda client=client: _held_bytes(client) > 0, 120, "results that wait in the producer")
            first.stop()
        second = run_here(_app(events, counts, home), connection)
        batch = second.status[0].last_commit
        wait_until(lambda: has_committed(second, batch + 2), 120, "two more checkpoints")
        arrive_late()
    wait_until(lambda: released() >= load.sent, 120, "all results")
    batch = second.status[0].last_commit
    wait_until(lambda: has_committed(second, batch + 2), 120, "a checkpoint after all records, including the late ones")
    second.stop()
    return judge_counts(broker.bootstrap, events, counts), load.sent


def _client(query: Query) -> str:
    """Return the client id of the producer of a query with one region; this process may have other producers."""
    region = query.status[0]
    return fence.client_id(query._home.identity, region.name, region.incarnation)


def _held_bytes(client: str) -> float:
    """Return the number of bytes that a producer of this process has not sent yet."""
    spark, held = SparkSession.getActiveSession(), 0.0
    assert spark is not None
    for entry in [entry for name, entry in fence._pooled(spark) if name == client]:
        metrics = entry.producer().producer().metrics().entrySet().iterator()
        while metrics.hasNext():
            metric = metrics.next()
            sign = {"buffer-total-bytes": 1, "buffer-available-bytes": -1}.get(metric.getKey().name(), 0)
            held += sign * float(metric.getValue().metricValue()) if sign else 0.0
    return held


@pytest.fixture
def _lingering(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    """Delay records in the producer, so that it always holds some when a region stops.

    The delay is longer than any restart, and the batches do not fill earlier.
    """
    monkeypatch.setitem(fence._PRODUCER, "kafka.linger.ms", "600000")
    monkeypatch.setitem(fence._PRODUCER, "kafka.batch.size", "1000000")


@pytest.mark.usefixtures("_lingering")
def test_lingering_records_are_flushed_before_the_tail_is_read(broker: Broker, home: Path, tag: str) -> None:
    verdict, sent = _stop_with_lingering_buffers(broker, home, tag)
    assert verdict.guarantee is Guarantee.EXACTLY_ONCE, verdict.anomalies
    assert verdict.counts.observed_outputs == sent


@pytest.mark.usefixtures("_lingering")
def test_without_the_fence_lingering_records_come_twice(
    broker: Broker, spark: SparkSession, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = fence.flush_lingering
    monkeypatch.setattr(fence, "flush_lingering", lambda *arguments: None)
    clients: list[str] = []

    def lingers(client: str) -> bool:
        clients.append(client)
        return _held_bytes(client) > 0  # zero if a checkpoint flushed the producer

    def arrive_late() -> None:
        flush(spark, lambda client: client == clients[-1])

    verdict, _ = _stop_with_lingering_buffers(broker, home, tag, lingers, arrive_late)
    assert verdict.guarantee is not Guarantee.EXACTLY_ONCE
    assert verdict.counts.duplicates > 0
