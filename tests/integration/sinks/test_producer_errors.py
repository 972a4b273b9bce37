"""A producer gives up a record, and the broker accepts later ones: Falkirk publishes the record all the same, also if
nobody has seen the query fail."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.decision_store import Store
from falkirk.recovery.ownership.folder import open_home
from falkirk.recovery.protocol.layout import Layout, Stage
from falkirk.runtime.spark import producers
from falkirk.runtime.spark.application.logs import KafkaLogs
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.sinks import copying, writing
from falkirk.spark_setup.broker import Broker
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.times import TopicPartition
from tests.integration.live import Wire, settle
from tests.stores import void_range
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The record that is given up, and the number of records.
LARGE, COUNT = 5, 400
LIMIT, LOWERED = 200_000, 20_000
_END = Store.end_incarnation


def set_limit(wire: Wire, topic: str, size: int) -> None:
    """Change how large a batch a topic takes."""
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    wire.admin.incremental_alter_configs([resource])[resource].result()
    wait_until(lambda: wire.topics.facts(topic).max_message_bytes == size, 30, "the new limit")


def lose_a_record(wire: Wire, home: Path, patch: pytest.MonkeyPatch) -> list[int]:
    """Let the broker refuse one record for good, so that the query fails, and let nobody record that. Return the
    published results after the region's restart.

    By then the topic takes that record again. On a busy machine Spark may learn of the refusal before it has sent any
    later record: then there is no hole, and the test tries again.
    """
    for attempt in range(5):
        found, out = _refused(wire, home / str(attempt), patch, str(attempt))
        if max(found) > LARGE:
            return out
    raise AssertionError("nothing was accepted behind the refused record")


def _refused(wire: Wire, home: Path, patch: pytest.MonkeyPatch, name: str) -> tuple[list[int], list[int]]:
    """Return the results that are published when the query fails, and those in the end."""
    events, out = wire.topic(f"events{name}", 1), wire.topic(f"out{name}", 1, max_message_bytes=str(LIMIT))
    found: list[list[int]] = []
    real = _END

    def killed(self: Store, region: str, incarnation: int, **how: Any) -> None:
        if found:
            return real(self, region, incarnation, **how)
        assert how["unsafe"], how  # it would have been recorded
        found.append([row["n"] for row in wire.rows(out)])
        return set_limit(wire, out, LIMIT)

    patch.setattr(Store, "end_incarnation", killed)
    stream = fk.read(fk.Kafka(events, schema="n INT NOT NULL, text STRING"))
    query = stream.select("n", "text").write(fk.Kafka(out), kafka=wire.bootstrap, home=str(home), interval="2 seconds")
    wire.send(events, [{"n": -1, "text": ""}])
    wire.await_count(out, 1, query)
    set_limit(wire, out, LOWERED)
    # Larger than a producer's batch, which it has to itself: another would be divided, again and again.
    wire.send(events, [{"n": n, "text": "x" * (50_000 if n == LARGE else 10)} for n in range(COUNT)])
    wait_until(lambda: found, 120, lambda: f"the query to fail: {query.status}")
    assert LARGE not in found[0]
    wait_until(lambda: query.status[0].incarnation > 1, 120, lambda: f"the region to come back: {query.status}")
    settle(query)
    query.stop()
    return found[0], [row["n"] for row in wire.rows(out)]


@pytest.fixture
def wire(spark: "SparkSession", broker: Broker, tag: str) -> Wire:
    """Topics of the test's own on the broker; there is a session."""
    return Wire(bootstrap=broker.bootstrap, tag=tag)


def test_a_record_that_was_given_up_is_released_though_nobody_saw_why(
    wire: Wire, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was lost: the barrier took it as published, because of the last record in the topic."""
    assert sorted(lose_a_record(wire, home, monkeypatch)) == list(range(-1, COUNT))


def test_without_asking_the_broker_it_is_lost(wire: Wire, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "are_whole", lambda *arguments: True)
    assert sorted(lose_a_record(wire, home, monkeypatch)) == [n for n in range(-1, COUNT) if n != LARGE]


def test_a_copy_takes_records_of_any_size_that_the_sink_takes(spark: "SparkSession", wire: Wire, home: Path) -> None:
    """Spark's producer refused a record of more than a megabyte, and the topic a batch of many small ones, each time
    again."""
    held = wire.topic("held", 1, max_message_bytes="3000000")
    wire.send(held, ["x" * 2_000_000])
    wire.send(held, ["y" * 1_000] * 50)
    large, small = wire.topic("large", 1, max_message_bytes="3000000"), wire.topic("small", 1, max_message_bytes="3000")
    with open_home(home, "copied") as opened:
        context = Context(session=spark, connection=Connection.of(wire.bootstrap), home=opened, state_partitions=2)
        copying.copy(context, held, large, {0: 0}, {0: 51})
        copying.copy(context, held, small, {0: 1}, {0: 51})
    assert (wire.count(large), wire.count(small)) == (51, 50)


@pytest.mark.parametrize("is_off", [False, True])
def test_what_a_copy_has_left_out_follows(
    spark: "SparkSession", wire: Wire, home: Path, monkeypatch: pytest.MonkeyPatch, is_off: bool
) -> None:
    """It was left out for good: by the last record of the sink, it was there."""
    held, sink = wire.topic("held"), wire.topic("sink")
    layout = Layout(
        stages={"r": Stage(name="r", inputs=("in",), output=held, deterministic=False)},
        partitions={"in": 1, held: 2, sink: 2},
        held={held: sink},
    )
    if is_off:
        monkeypatch.setattr(KafkaLogs, "_fill", lambda *arguments: None)

    def there() -> list[tuple[int, int]]:
        return sorted((r.partition, json.loads(r.value or b"")) for r in wire.records(sink))

    def upto(*lengths: int) -> OffsetFrontier:
        return OffsetFrontier.of({TopicPartition(topic=held, partition=p): n for p, n in enumerate(lengths)})

    with open_home(home, "copied") as opened:
        context = Context(session=spark, connection=Connection.of(wire.bootstrap), home=opened, state_partitions=2)
        made = partial(KafkaLogs, layout, context, partial(writing.settle, context), partial(copying.copy, context))
        assert made().copied(held, sink) == upto(0, 0)
        for partition, count in enumerate((12, 6)):
            wire.send(held, range(count), partition=partition)
        void_range(opened.store, held, 0, 1, 2)
        for first, last in (((0, 0), (3, 2)), ((5, 2), (6, 2)), ((8, 2), (9, 2))):
            copying.copy(context, held, sink, dict(enumerate(first)), dict(enumerate(last)))
        opened.store.record_release(sink, held, 0, 3)
        opened.store.record_release(sink, held, 1, 2)
        assert [n for p, n in there() if p == 0] == [0, 2, 5, 8]
        logs = made()
        assert logs.copied(held, sink) == upto(9, 2), "so much may be out"
        assert logs.copy(held, sink, upto(3, 2), upto(12, 6)) == upto(12, 6)
        due = [(0, n) for n in range(12) if n != 1] + [(1, n) for n in range(6)]
        assert there() == [d for d in due if not is_off or d not in [(0, 3), (0, 4), (0, 6), (0, 7)]]
        logs = made()  # nobody has taken note of the copy, and the last record in the sink is not the greatest
        assert logs.copied(held, sink) == upto(12, 6)
        assert logs.copy(held, sink, upto(3, 2), upto(12, 6)) == upto(12, 6)
        assert len(there()) == len(due) - 4 * is_off
