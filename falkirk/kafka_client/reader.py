"""Reader: reads the committed records of a topic from given positions on."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from falkirk.errors import LogError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.faults import ClientErrors, fault, is_broker_away, quiet_options
from falkirk.kafka_client.ranges import Message
from falkirk.theory.ids import Offset, Offsets

#: The largest number of messages in one read.
_BATCH = 1_000
#: How long the broker may take to return positions.
_TIMEOUT_S = 10.0


class Reader:
    """A consumer of one topic, without a group.

    Args: first: the first position to read in each partition. buffer_kib: how much of it may wait in memory for a
        `poll`, in KiB; None: as much as the client's default.
    Attributes: positions: for each partition, the position below which everything is read.
    """

    def __init__(
        self, connection: Connection, topic: str, first: Mapping[int, Offset], *, buffer_kib: int | None = None
    ) -> None:
        (self._connection, self._topic), self._errors = connection.of_topic(topic), ClientErrors()
        self.positions = dict(first)
        #: An error that came with messages; the next call raises it.
        self._failed: LogError | None = None
        self._consumer = _consumer(self._connection, self._errors, buffer_kib)
        self._consumer.assign([TopicPartition(self._topic, p, o) for p, o in sorted(first.items())])

    def poll(self, timeout_s: float) -> list[Message]:
        """Return the messages that have arrived, as soon as there are any.

        The list is empty after the timeout, or while the broker is away. An error that comes with messages is raised
        by the next call, because the positions have passed these messages.

        Raises: LogError: `ACCESS_REFUSED`, `TOPIC_MISSING`, `KAFKA_REFUSED`.
        """
        if (failed := self._failed) is not None:
            self._failed = None
            raise failed
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        taken, failed = [], None
        for message in cast("list[Message]", [first, *self._consumer.consume(_BATCH, 0)]):
            error = message.error()
            if error is None:
                self.positions[message.partition()] = Offset(message.offset() + 1)
                taken.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                # Markers of transactions may follow the last record.
                self.positions[message.partition()] = max(message.offset(), self.positions[message.partition()])
            elif not is_broker_away(error):
                failed = failed or fault(error, "reading a topic", self._connection, self._errors, self._topic)
        if failed is not None and not taken:
            raise failed
        self._failed = failed
        return taken

    def is_at(self, ends: Mapping[int, Offset]) -> bool:
        """Return whether all records below these positions are read."""
        return all(self.positions.get(p, 0) >= end for p, end in ends.items())

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def read_until(reader: Reader, ends: Mapping[int, Offset], is_over: Callable[[], bool]) -> Iterator[Message]:
    """Yield all messages below these positions; stop early when `is_over` returns true."""
    while not reader.is_at(ends) and not is_over():
        for message in reader.poll(0.2):
            if message.offset() < ends.get(message.partition(), 0):
                yield message


def positions_at(connection: Connection, topic: str, since_ms: int, ends: Mapping[int, Offset]) -> Offsets:
    """Return, per partition, the position of the first record not older than `since_ms`; without one, `ends`.

    Raises: LogError: `BROKER_AWAY`.
    """
    (connection, topic), errors = connection.of_topic(topic), ClientErrors()
    consumer = _consumer(connection, errors)
    try:
        found = consumer.offsets_for_times([TopicPartition(topic, p, max(0, since_ms)) for p in ends], _TIMEOUT_S)
    except KafkaException as error:
        raise fault(error.args[0], "reading a topic's positions", connection, errors, topic) from error
    finally:
        consumer.close()
    return {f.partition: Offset(f.offset) if f.offset >= 0 else ends[f.partition] for f in found}


def _consumer(connection: Connection, errors: ClientErrors, buffer_kib: int | None = None) -> Consumer:
    return Consumer(
        {
            **quiet_options(connection, errors),
            # The client requires a group id. The consumer joins no group and commits nothing.
            "group.id": f"falkirk-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            **({} if buffer_kib is None else {"queued.max.messages.kbytes": buffer_kib}),
        }
    )
