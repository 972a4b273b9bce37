"""A stopped region's producer still holds records: they are flushed before the tail is read, or published twice."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.checker import Guarantee, Verdict
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.runtime.spark import fence, lanes
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import Load, judge_counts
from tests.support import wait_until


@cache
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
    lingers: Callable[[str], bool] = lambda region: True,
) -> tuple[Verdict, int]:
    """Run, stop and run again under load with a producer that delays records; return the verdict.

    Args:
        lingers: called with the name of the region after the first run has stopped. While it returns False, the
            first run is repeated.
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

    with Load(broker.bootstrap, events, rate=100.0) as load:
        while True:
            first = run_here(_app(events, counts, home), connection)
            wait_until(
                lambda first=first: has_committed(first, 1) and released() > 200, 120, "results of the first run"
            )
            region = _region(first)
            wait_until(lambda region=region: _held_bytes(region) > 0, 120, "results that wait in a lane")
            first.stop()
            if lingers(region):
                break
        second = run_here(_app(events, counts, home), connection)
        batch = second.status[0].last_commit
        wait_until(lambda: has_committed(second, batch + 2), 120, "two more checkpoints")
    wait_until(lambda: released() >= load.sent, 120, "all results")
    batch = second.status[0].last_commit
    wait_until(lambda: has_committed(second, batch + 2), 120, "a checkpoint after all records, including the late ones")
    second.stop()
    return judge_counts(broker.bootstrap, events, counts), load.sent


def _region(query: Query) -> str:
    """Return the name by which this JVM knows the only region of a query."""
    return lanes.lanes_key(query._home.identity, query.status[0].name)


def _held_bytes(region: str) -> float:
    """Return the number of bytes that the lanes of a region have not sent yet."""
    spark, held = SparkSession.getActiveSession(), 0.0
    assert spark is not None
    for producer in _producers(spark, region):
        metrics = producer.metrics().entrySet().iterator()
        while metrics.hasNext():
            metric = metrics.next()
            sign = {"buffer-total-bytes": 1, "buffer-available-bytes": -1}.get(metric.getKey().name(), 0)
            held += sign * float(metric.getValue().metricValue()) if sign else 0.0
    return held


def _producers(spark: SparkSession, region: str) -> list[Any]:
    """Return the producers of the open lanes of a region."""
    assert spark._jvm is not None
    found, places = [], _field(spark._jvm.java.lang.Class.forName("org.falkirk.Lanes"), "PLACES", None)
    for name in list(places.keySet()):
        lane = _field(places.get(name).getClass(), "lane", places.get(name))
        if name.startswith(f"{region}/") and lane is not None:
            found.append(_field(lane.getClass(), "producer", lane))
    return found


def _field(of: Any, name: str, instance: Any) -> Any:
    field = of.getDeclaredField(name)
    field.setAccessible(True)
    return field.get(instance)


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
    """The next incarnation's task closes the old lane, which sends its records then."""
    monkeypatch.setattr(LiveRegion, "close_lanes", lambda region: None)
    # It is zero if a checkpoint flushed the lane.
    verdict, _ = _stop_with_lingering_buffers(broker, home, tag, lambda region: _held_bytes(region) > 0)
    assert verdict.guarantee is not Guarantee.EXACTLY_ONCE
    assert verdict.counts.duplicates > 0
