"""Reads whole topics, from the beginning to their present end, as an ordinary consumer does.

It never reads headers. Kafka reports the end of a partition. Counting records would be wrong, since transaction markers
and compaction leave holes in the offsets.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from falkirk.checker.run import OutputRow, RowPlace, Values
from falkirk.checker.written import read_json
from falkirk.errors.conditions.checker import TOPIC_MISSING_CHECK, TOPIC_UNREADABLE, TOPIC_UNREADABLE_SILENT

METADATA_TIMEOUT_S = 10.0
_POLL_S = 0.1
BATCH_RECORDS = 5000
#: First offset and end offset of each partition.
OffsetBounds = dict[int, tuple[int, int]]
_NO_LEADER = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """One record of a topic. `timestamp_ms` is None if the broker stores none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None

    @property
    def place(self) -> RowPlace:
        return RowPlace(self.topic, self.partition, self.offset)


def read_topic(
    config: Mapping[str, Any], topic: str, *, silence_s: float = 30.0, bounds: OffsetBounds | None = None
) -> Iterator[TopicRecord]:
    """Yield every record of `topic` up to the present end of its partitions, in order within each partition.

    Args:
        config: confluent_kafka's settings, at least ``bootstrap.servers``. Its ``isolation.level`` decides whether
            records of open and aborted transactions are read; by default they are not.
        silence_s: how long the broker may deliver nothing before reading is given up.
        bounds: is filled, by partition, with the offsets between which everything is read.
    Raises: LogError: the topic does not exist (``TOPIC_MISSING``), or the broker can't be reached or fell silent
        (``TOPIC_UNREADABLE``).
    """
    consumer = Consumer(
        {
            "group.id": f"falkirk-check-{uuid4()}",
            **config,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # If a record is deleted during the reading, the reader must not skip it silently.
            "auto.offset.reset": "error",
        }
    )
    try:
        yield from _read(consumer, topic, silence_s, {} if bounds is None else bounds)
    except KafkaException as cause:
        raise TOPIC_UNREADABLE.error(where=topic, topic=topic, cause=cause) from cause
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str, silence_s: float, ends: OffsetBounds) -> Iterator[TopicRecord]:
    ends.update(bounds_of(consumer, topic))
    unread = {partition for partition, (start, end) in ends.items() if start < end}
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in sorted(unread)])
    deadline = time.monotonic() + silence_s
    while unread:
        messages: list[Any] = consumer.consume(BATCH_RECORDS, timeout=_POLL_S)
        if messages:
            deadline = time.monotonic() + silence_s
        elif time.monotonic() > deadline:
            raise TOPIC_UNREADABLE_SILENT.error(where=topic, topic=topic, unread=sorted(unread), silence_s=silence_s)
        for message in messages:
            partition: int = message.partition()
            offset: int = message.offset()
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                # After the last record there may be markers, or records that are not yet committed.
                unread.discard(partition)
                continue
            end = ends[partition][1]
            if offset < end:
                yield _record(message)
            if offset >= end - 1:
                unread.discard(partition)


def bounds_of(consumer: Consumer, topic: str) -> OffsetBounds:
    """Return first offset and end offset by partition. Raises: LogError: `TOPIC_MISSING`. KafkaException."""
    found = consumer.list_topics(topic, timeout=METADATA_TIMEOUT_S).topics.get(topic)
    if found is not None and found.error is not None and found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise KafkaException(found.error)  # the broker does not say whether it exists
    if found is None or found.error is not None or not found.partitions:
        raise TOPIC_MISSING_CHECK.error(where=topic, topic=topic)
    return {partition: _ends_of(consumer, TopicPartition(topic, partition)) for partition in sorted(found.partitions)}


def _ends_of(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Return first offset and end offset. If the partition is new, wait until it has a leader."""
    deadline_s = time.monotonic() + METADATA_TIMEOUT_S
    while True:
        try:
            found: tuple[int, int] = consumer.get_watermark_offsets(place, timeout=METADATA_TIMEOUT_S)
            return found
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER or time.monotonic() > deadline_s:
                raise
            time.sleep(_POLL_S)


def _record(message: Any) -> TopicRecord:
    kind, timestamp_ms = message.timestamp()
    return TopicRecord(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=timestamp_ms if kind else None,
        key=message.key(),
        value=message.value(),
    )


def decode_json(value: bytes | None) -> Values:
    """Return the fields of a JSON object. Any other value is returned under a name that no column has, so that nothing
    can explain it."""
    return read_json(value)


def decode_key(record: TopicRecord, values: Values) -> Hashable:
    """Return the record's key as text, as bytes if it is not text, or None."""
    try:
        return None if record.key is None else record.key.decode("utf-8")
    except UnicodeDecodeError:
        return record.key


def outputs_of(
    records: Iterable[TopicRecord],
    *,
    decode: Callable[[bytes | None], Values] = decode_json,
    key: Callable[[TopicRecord, Values], Hashable] = decode_key,
) -> Iterator[OutputRow]:
    """Yield the outputs for `check_keyed` and `check_stateless`.

    Args:
        decode: from a record's value to its fields.
        key: from a record and its fields to its output key, such as the value of the grouping column.
    """
    for record in records:
        values = decode(record.value)
        yield OutputRow(key=key(record, values), place=record.place, values=values)
