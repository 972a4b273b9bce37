"""Reading: follows a topic while a test waits, instead of reading all of it again at each look."""

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

T = TypeVar("T")
#: How long a look waits for records that are on their way.
_LOOK_S = 0.05
#: How long a look lasts at most.
SILENCE_S = 300.0


class Reading(Generic[T]):
    """The committed records of a topic, each read once. Args: parse: makes an entry of a record's value."""

    def __init__(self, bootstrap: str, topic: str, parse: Callable[[bytes], T]) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "reading", "enable.auto.commit": False}
        self._consumer = Consumer({**settings, "enable.partition.eof": True, "log_level": 0})
        partitions = self._consumer.list_topics(topic, timeout=30).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        #: The partitions with records that this object has not read yet, as far as the client knows.
        self._unread = set(partitions)
        self._parse, self._found = parse, list[T]()

    def all(self) -> list[T]:
        """Return what has been read, up to the present end of each partition. The caller does not change it."""
        deadline_s, last = time.monotonic() + SILENCE_S, None
        while True:
            for message in self._consumer.consume(10_000, timeout=_LOOK_S):
                error, partition = message.error(), message.partition()
                if partition is None:
                    last = error
                elif error is None:
                    self._unread.add(partition)
                    self._found.append(self._parse(message.value() or b"{}"))
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._unread.discard(partition)
                else:
                    last = error
            if not self._unread:
                return self._found
            assert time.monotonic() < deadline_s, f"no end of partitions {self._unread} in {SILENCE_S} s: {last}"

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()
