"""Reading: follows a topic while a test waits, instead of reading all of it again at each look."""

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

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
        self._topic = topic
        self._consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        #: The position after the last record or marker that this object has read, by partition.
        self._positions = dict.fromkeys(partitions, 0)
        self._parse, self._found = parse, list[T]()

    def all(self) -> list[T]:
        """Return what has been read, at least up to the end that each partition had when the call began.

        The caller does not change the list.
        """
        deadline_s, last, ends = time.monotonic() + SILENCE_S, None, dict[int, int]()
        # Each end is asked for once: a wait until no partition had a next record would never end under load.
        while unread := {p for p, position in self._positions.items() if p not in ends or position < ends[p]}:
            assert time.monotonic() < deadline_s, f"no end of partitions {unread} in {SILENCE_S} s: {last}"
            for partition in unread - ends.keys():
                try:
                    ends[partition] = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), 10)[
                        1
                    ]
                except KafkaException as error:
                    last = error
            for message in self._consumer.consume(10_000, timeout=_LOOK_S):
                error, partition = message.error(), message.partition()
                if error is None:
                    self._positions[partition] = message.offset() + 1
                    self._found.append(self._parse(message.value() or b"{}"))
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._positions[partition] = max(self._positions[partition], message.offset())
                else:
                    last = error
        return self._found

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()
