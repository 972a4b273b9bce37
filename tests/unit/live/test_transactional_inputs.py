"""Transactional inputs: where a region begins, and whether it has read everything, if a producer uses transactions.

The end of a partition is behind the marker of a transaction, and behind the records of one that is not committed.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.runtime.spark.record import first_positions
from falkirk.spark_setup.broker import Broker
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import LogId
from falkirk.theory.times import TopicPartition
from tests.support import wait_until


@pytest.fixture
def producer(broker: Broker, tag: str) -> Iterator[Producer]:
    """A producer in its first transaction."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": tag, "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    yield producer
    producer.abort_transaction(30)


def _send(producer: Producer, topic: str, value: str) -> None:
    producer.produce(topic, value=value, partition=0)
    assert producer.flush(30) == 0


def test_the_newest_position_is_before_an_open_transaction(broker: Broker, tag: str, producer: Producer) -> None:
    """Its records are committed, and thus new, after the first start. The end of the topic would skip them."""
    topics, topic = Topics(Connection.of(broker.bootstrap)), f"latest-{tag}"
    topics.create(topic, 1)
    _send(producer, topic, "old")
    producer.commit_transaction(30)
    producer.begin_transaction()
    _send(producer, topic, "new")
    source = fk.Kafka(topic, schema="value STRING", starting="latest")
    assert first_positions(source, topics) == {0: 2}, "behind the old record and its marker"
    assert topics.end_positions(topic) == {0: 3}


def test_a_region_that_has_read_all_records_has_no_input(broker: Broker, tag: str, producer: Producer) -> None:
    """Its checkpoint covers the last record, and not the marker behind it. It would be suspected of each loss."""
    connection, topic = Connection.of(broker.bootstrap), LogId(f"marked-{tag}")
    topics = Topics(connection)
    topics.create(topic, 1)
    read = 0
    region: Any = SimpleNamespace(
        _context=SimpleNamespace(topics=topics, connection=connection), starts={topic: {0: 0}},
        checkpoints=lambda: (
            SimpleNamespace(read=OffsetFrontier.of({TopicPartition(topic=topic, partition=0): read})),
        ),
    )  # fmt: skip
    assert not LiveRegion.has_input(region)
    _send(producer, topic, "a record")
    producer.commit_transaction(30)
    producer.begin_transaction()
    wait_until(lambda: LiveRegion.has_input(region), 30, "the broker writes the marker after it has answered")
    read = 1
    assert topics.end_positions(topic) == {0: 2}
    assert not LiveRegion.has_input(region)
