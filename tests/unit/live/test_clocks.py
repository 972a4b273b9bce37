"""Clocks of a running application: their records, the intervals, and the deletion of old records."""

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

import falkirk as fk
from falkirk.declare.clock import Clock, ClockTopic
from falkirk.errors import LogError
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.spark import rows
from falkirk.runtime.spark.live import query
from falkirk.runtime.spark.live.query import LiveQuery
from falkirk.runtime.supervision import clocks
from falkirk.runtime.supervision.clocks import Clocks, time_text, write_times
from falkirk.steps.sources import reads
from falkirk.theory.ids import LogId, Offset

ENOUGH = 5


class Written:
    """A producer that asks the writer to stop after enough records."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings

    def produce(self, topic: str, *, value: bytes, partition: int) -> None:
        if topic == "full":
            raise BufferError
        if topic == "unknown":
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC))
        records.append((topic, json.loads(value)["at"], partition))
        if len(records) >= ENOUGH:
            stopping.set()

    def poll(self, timeout_s: float) -> None:
        """Do nothing."""

    def flush(self, timeout_s: float) -> None:
        """Do nothing."""


records: list[tuple[str, str, int]] = []
stopping = threading.Event()


def _topic(name: str, every_s: float) -> ClockTopic:
    return ClockTopic(name, schema="at TIMESTAMP NOT NULL", every_s=every_s)


def test_each_topic_gets_the_time_at_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "Producer", Written)
    records.clear()
    stopping.clear()
    now_s = iter(range(1000, 2000))
    topics = [_topic("seldom", 3600), *[_topic(name, 0.01) for name in ("full", "unknown", "often")]]
    write_times(topics, Connection.of("broker:9092"), lambda: next(now_s), stopping)
    assert [topic for topic, _, _ in records] == ["seldom", *["often"] * (ENOUGH - 1)]
    assert {partition for *_, partition in records} == {0}
    times = [datetime.fromisoformat(at).timestamp() for _, at, _ in records]
    assert times == sorted(times)
    assert times[0] == 1000


def test_a_time_out_of_turn_is_written_to_each_topic_before_the_call_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, written = list[Any](), list[tuple[str, bytes]]()
    refused: KafkaError | None = None

    class Asked:
        """A producer that answers when it is flushed."""

        def __init__(self, settings: dict[str, Any]) -> None:
            assert settings["message.timeout.ms"] < 10_000, "a broker that is away must not keep the host"

        def produce(self, topic: str, *, value: bytes, partition: int, on_delivery: Any) -> None:
            waiting.append((topic, value, on_delivery))

        def flush(self) -> None:
            while waiting:
                topic, value, on_delivery = waiting.pop(0)
                written.append((topic, value))
                on_delivery(refused, None)

    monkeypatch.setattr(clocks, "Producer", Asked)
    context: Any = SimpleNamespace(connection=Connection.of("broker:9092"), clock=SimpleNamespace(time=lambda: 7.0))
    Clocks((), context).tick()
    running = Clocks([_topic("often", 0.01), _topic("seldom", 3600)], context)
    running.tick()
    assert written == [("often", time_text(7.0)), ("seldom", time_text(7.0))]
    for code, condition in ((KafkaError._MSG_TIMED_OUT, "BROKER_AWAY"), (KafkaError._UNKNOWN_TOPIC, "TOPIC_MISSING")):
        refused = KafkaError(code)
        with pytest.raises(LogError) as caught:
            running.tick()
        assert caught.value.condition == condition


def test_a_time_has_microseconds_and_a_zone() -> None:
    assert time_text(1.25) == b'{"at": "1970-01-01T00:00:01.250000+00:00"}'
    assert datetime.fromisoformat(json.loads(time_text(0))["at"]) == datetime(1970, 1, 1, tzinfo=UTC)


def test_old_times_are_deleted_as_far_as_no_replay_reads_them() -> None:
    deleted, condition = [], ""

    def delete_below(topic: str, below: Any) -> None:
        deleted.append((topic, below))
        if condition:
            raise LogError(condition, "no")

    topic = Clock("1 second").topic("shop", "deadbeef", "clock")
    context: Any = SimpleNamespace(topics=SimpleNamespace(delete_below=delete_below), clock=SimpleNamespace(time=None))
    upto = SimpleNamespace(length=lambda edge: 7)
    layout = SimpleNamespace(sequences=lambda log: (SimpleNamespace(partition=0),))
    recovery: Any = SimpleNamespace(acknowledged=lambda log: upto, layout=layout)
    running = Clocks((topic,), context)
    running.delete(recovery)
    assert deleted == [(LogId("falkirk.shop.deadbeef.clock"), {0: 7})]
    condition = "ACCESS_REFUSED"
    running.delete(recovery)  # nothing depends on it
    condition = "BROKER_AWAY"
    with pytest.raises(LogError):
        running.delete(recovery)


def test_a_region_skips_the_times_that_were_deleted_while_it_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another region has read them. A missing time does no harm, and missing records of a topic do."""
    clock = Clock("1 second").topic("shop", "deadbeef", "clock")
    skips = dict[LogId, tuple[bool, bool]]()

    def read(session: Any, options: Any, topic: LogId, first: Any, *, headers: bool, **may: bool) -> str:
        skips[topic] = (may["may_expire"], may["skips_deleted"])
        return "records"

    monkeypatch.setattr(reads, "stream", read)
    monkeypatch.setattr(query, "results", lambda *given: None)
    monkeypatch.setattr(query, "note_timestamps", lambda data, *given, crosses: data)
    monkeypatch.setattr(query, "without", lambda data, void: data)
    monkeypatch.setattr(rows, "rows", lambda *given: SimpleNamespace(withColumn=lambda name, column: None))
    sources = [SimpleNamespace(topic=topic, is_hop=False) for topic in (fk.Kafka("orders", schema="n INT"), clock)]
    region: Any = SimpleNamespace(name="r", sources=sources, stateful=False)
    context: Any = SimpleNamespace(session=None, kafka_options=lambda topic: {})
    losses: Any = SimpleNamespace(none_yet=lambda column: column)
    monkeypatch.setattr(query.F, "col", lambda name: name)
    live = LiveQuery(
        region=region, context=context, release=cast(Any, SimpleNamespace(source_partitions=(1, 1))), checkpoint=Path(),
        retain=1, lanes=cast(Any, None), losses=losses,
    )  # fmt: skip
    began = {topic.topic.log: {0: Offset(0)} for topic in sources}
    live._rows(began, began, ())
    assert skips == {LogId("orders"): (False, False), clock.log: (True, True)}


def test_without_clocks_nothing_runs() -> None:
    context: Any = SimpleNamespace(clock=SimpleNamespace(time=None))
    running = Clocks((), context)
    running.update(None)  # type: ignore[arg-type]
    running.stop()
    assert not any(thread.name == "falkirk-clocks" for thread in threading.enumerate())
