"""Finds out whether a partition's leader holds records that consumers do not see yet.

Kafka reports the end of a partition as its high watermark: the records that all in-sync replicas have. While a follower
lags, the leader's own log is longer, and the records between become visible later. No client call returns the end of
the leader's log, but a fetch after the high watermark shows it. A leader refuses a fetch from after the end of its log
(OFFSET_OUT_OF_RANGE), and answers one from within its log without records.

Source: Apache Kafka 4.1, LocalLog.read.
"""

import time
import uuid
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, TopicPartition

from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.faults import ClientErrors, fault, is_broker_away, quiet_options
from falkirk.theory.ids import LogId, Offset


def unreplicated(
    connection: Connection, ends: Mapping[LogId, Mapping[int, Offset]], *, timeout_s: float
) -> frozenset[tuple[LogId, int]]:
    """Return the partitions whose leader has not confirmed within `timeout_s` that its log ends at these positions.

    Args: ends: high watermarks, by topic and partition.
    Raises: LogError: `ACCESS_REFUSED`, `TOPIC_MISSING`, `KAFKA_REFUSED`.
    """
    errors = ClientErrors()
    consumer = Consumer(
        {
            **quiet_options(connection, errors),
            "client.rack": "",  # read from the leader: a nearby follower does not know the leader's log
            "group.id": f"falkirk-{uuid.uuid4().hex}",  # required by the client; no group is joined
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
        }
    )
    places = [TopicPartition(topic, p, end + 1) for topic, found in sorted(ends.items()) for p, end in found.items()]
    unconfirmed = {(LogId(place.topic), place.partition) for place in places}
    try:
        consumer.assign(places)
        deadline = time.monotonic() + timeout_s
        while unconfirmed and time.monotonic() < deadline:
            message = consumer.poll(0.05)
            if message is None:
                continue
            error = message.error()
            if error is None:
                break  # a record exists after one of these ends
            if error.code() == KafkaError._AUTO_OFFSET_RESET:
                unconfirmed.discard((LogId(message.topic()), int(message.partition() or 0)))
            elif not is_broker_away(error):
                raise fault(error, "reading the end of a topic", connection, errors, str(message.topic()))
    finally:
        consumer.close()
    return frozenset(unconfirmed)
