"""Reader: what is committed in a topic, from some positions on, as it comes."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from falkirk.logs.connection import Connection
from falkirk.logs.faults import ClientErrors, fault, is_away, quiet_options
from falkirk.logs.ranges import Message

#: Messages taken at once.
_BATCH = 1_000
#: How long the broker may take to tell positions.
_TIMEOUT_S = 10.0


class Reader:
    """A consumer of one topic that nobody else shares.

    Args: first: where to begin, per partition.
    Attributes: positions: up to where all is read, per partition.
    """

    def __init__(self, connection: Connection, topic: str, first: Mapping[int, int]) -> None:
        self._connection, self._topic, self._errors = connection, topic, ClientErrors()
        self.positions = dict(first)
        self._consumer = _consumer(connection, self._errors)
        self._consumer.assign([TopicPartition(topic, p, o) for p, o in sorted(first.items())])

    def poll(self, timeout_s: float) -> list[Message]:
        """Return what has come, as soon as anything has; nothing after that time, or while the broker is away.

        Raises: LogError: `ACCESS_REFUSED`, `TOPIC_MISSING`, `KAFKA_REFUSED`.
        """
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        taken = []
        for message in cast("list[Message]", [first, *self._consumer.consume(_BATCH, 0)]):
            error = message.error()
            if error is None:
                self.positions[message.partition()] = message.offset() + 1
                taken.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                # Behind the last record there may be markers of transactions.
                self.positions[message.partition()] = max(message.offset(), self.positions[message.partition()])
            elif not is_away(error):
                raise fault(error, "reading a topic", self._connection, self._errors, self._topic)
        return taken

    def is_at(self, ends: Mapping[int, int]) -> bool:
        """Tell whether all before these positions is read."""
        return all(self.positions.get(p, 0) >= end for p, end in ends.items())

    def close(self) -> None:
        """Read no more."""
        self._consumer.close()


def read_until(reader: Reader, ends: Mapping[int, int], is_over: Callable[[], bool]) -> Iterator[Message]:
    """Yield all before these positions; end sooner when it `is_over`."""
    while not reader.is_at(ends) and not is_over():
        for message in reader.poll(0.2):
            if message.offset() < ends.get(message.partition(), 0):
                yield message


def positions_at(connection: Connection, topic: str, since_ms: int, ends: Mapping[int, int]) -> dict[int, int]:
    """Return the positions of the first records that are not older, per partition; where there are none, `ends`.

    Raises: LogError: `BROKER_AWAY`.
    """
    errors = ClientErrors()
    consumer = _consumer(connection, errors)
    try:
        found = consumer.offsets_for_times([TopicPartition(topic, p, max(0, since_ms)) for p in ends], _TIMEOUT_S)
    except KafkaException as error:
        raise fault(error.args[0], "reading a topic's positions", connection, errors, topic) from error
    finally:
        consumer.close()
    return {f.partition: f.offset if f.offset >= 0 else ends[f.partition] for f in found}


def _consumer(connection: Connection, errors: ClientErrors) -> Consumer:
    return Consumer(
        {
            **quiet_options(connection, errors),
            # Required by the client; nobody joins a group, nothing is committed.
            "group.id": f"falkirk-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
