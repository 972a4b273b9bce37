"""Reads exactly the records [first, last) of each partition of a topic, or reports why it can't.

A range is never cut short silently. It is an error if records of the range were deleted or do not exist yet, or if the
broker stops answering. Offsets may have gaps (compaction, markers of transactions). So a partition is finished at the
first record at or after `last`, or when Kafka reports that the partition ends there.
"""

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from falkirk.errors import LogError
from falkirk.errors.conditions.kafka_client import RANGE_EXPIRED, RANGE_MISMATCH, RANGE_NOT_THERE
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.faults import ClientErrors, away, fault, is_broker_away, missing, quiet_options
from falkirk.kafka_client.header import Header, header_value
from falkirk.theory.ids import Offset, Offsets

#: The number of messages in one read. Larger batches were slower, since Python and librdkafka then alternate.
_BATCH = 2_000
#: The longest time for which a read waits to fill its batch.
_BATCH_WAIT_S = 0.02
_FETCH_BYTES = 64 << 20
_TUNING = {
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 128 << 10,
    "fetch.message.max.bytes": 8 << 20,
    "fetch.max.bytes": _FETCH_BYTES,
    "receive.message.max.bytes": _FETCH_BYTES + 1024,
    "fetch.wait.max.ms": 10,
    # With the default, the client waits a second after a full queue before it fetches again.
    "fetch.queue.backoff.ms": 5,
}


class Message(Protocol):
    """A message of librdkafka. The client's own types allow None where a record always has a value."""

    def partition(self) -> int: ...
    def offset(self) -> Offset: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...
    def error(self) -> KafkaError | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """A record of a topic.

    Args: raw_header: the value of Falkirk's header, even if malformed. timestamp_ms: since 1970.
    """

    partition: int
    offset: Offset
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    raw_header: bytes | None = None

    @property
    def header(self) -> Header | None:
        """Falkirk's header, not yet verified; None if there is none, or it is malformed."""
        if self.raw_header is None:
            return None
        try:
            return Header.decode(self.raw_header)
        except LogError:
            return None


def read_range(
    connection: Connection | str,
    topic: str,
    first: Mapping[int, Offset],
    last: Mapping[int, Offset],
    *,
    stall_s: float = 30.0,
    committed: bool = False,
) -> Iterator[LogRecord]:
    """Yield the records [first, last) of each partition; each partition in order.

    Args: committed: as of `read_messages`.
    Raises:
        LogError: `BROKER_AWAY` (maybe) after `stall_s` without progress, `TOPIC_MISSING`, `ACCESS_REFUSED`,
            `RANGE_EXPIRED` when records of the range have been deleted, `RANGE_NOT_THERE` when the topic ends before
            `last`.
        InternalError: `RANGE_MISMATCH`: `first` and `last` name different partitions; one missing from either would be
            skipped silently.
    """
    for message in read_messages(connection, topic, first, last, stall_s=stall_s, committed=committed):
        yield LogRecord(
            partition=message.partition(),
            offset=message.offset(),
            timestamp_ms=message.timestamp()[1],
            key=message.key(),
            value=message.value(),
            raw_header=header_value(message.headers()),
        )


def read_messages(
    connection: Connection | str,
    topic: str,
    first: Mapping[int, Offset],
    last: Mapping[int, Offset],
    *,
    stall_s: float = 30.0,
    committed: bool = False,
) -> Iterator[Message]:
    """Yield the same records as `read_range`, as librdkafka's messages without decoding. Raises the same errors.

    Args: committed: omit records of aborted transactions; `last` must then come from `Topics.readable_positions`.
    """
    reading = _Reading(Connection.of(connection), topic, first, last, stall_s, committed=committed)
    try:
        while reading.open:
            yield from reading.next_batch()
    finally:
        reading.close()


class _Reading:
    """A consumer of the unread part of a range."""

    def __init__(
        self,
        connection: Connection,
        topic: str,
        first: Mapping[int, Offset],
        last: Mapping[int, Offset],
        stall_s: float,
        *,
        committed: bool,
    ) -> None:
        (self._connection, self._topic), self._stall_s = connection.of_topic(topic), stall_s
        self._last = last
        if first.keys() != last.keys():
            raise RANGE_MISMATCH.error(where=topic, first=sorted(first), last=sorted(last))
        self.open = {p for p in first if first[p] < last[p]}
        self._ended: Offsets = {}
        self._errors = ClientErrors()
        self._moved_at = time.monotonic()
        self._consumer = Consumer(
            {
                **quiet_options(self._connection, self._errors),
                **_TUNING,
                # The client requires a group id. The consumer joins no group and commits nothing.
                "group.id": f"falkirk-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        self._check_partitions()
        self._consumer.assign([TopicPartition(self._topic, p, first[p]) for p in sorted(self.open)])

    def _check_partitions(self) -> None:
        """Refuse missing partitions at once: a client that is assigned to one waits silently until it exists."""
        try:
            found = self._consumer.list_topics(self._topic, timeout=self._stall_s).topics[self._topic]
        except KafkaException as error:
            self._consumer.poll(0)
            raise self._fault(error.args[0]) from error
        if found.error is not None and not is_broker_away(found.error):
            raise self._fault(found.error)
        if found.error is None and self.open - found.partitions.keys():
            raise missing(self._connection, self._topic)

    def _fault(self, error: KafkaError) -> LogError:
        return fault(error, "reading a topic", self._connection, self._errors, self._topic)

    def next_batch(self) -> list[Message]:
        """Return the next records of the range; an empty list if none arrives within a short time."""
        taken = []
        batch = cast("list[Message]", self._consumer.consume(_BATCH, _BATCH_WAIT_S))
        for message in batch:
            error = message.error()
            partition = message.partition()
            if error is not None:
                self._note(error, partition, message.offset())
            elif partition in self.open:
                self._moved_at = time.monotonic()
                if message.offset() < self._last[partition]:
                    taken.append(message)
                if message.offset() >= self._last[partition] - 1:
                    self._finish(partition)
        if not taken and self.open and time.monotonic() - self._moved_at > self._stall_s:
            raise self._stalled()
        return taken

    def close(self) -> None:
        self._consumer.close()

    def _finish(self, partition: int) -> None:
        self.open.discard(partition)
        self._consumer.incremental_unassign([TopicPartition(self._topic, partition)])

    def _note(self, error: KafkaError, partition: int, offset: Offset) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self._ended[partition] = offset
            if partition in self.open and offset >= self._last[partition]:
                self._finish(partition)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise RANGE_EXPIRED.error(
                where=f"topic {self._topic} at {self._connection.bootstrap}", topic=self._topic, partition=partition
            )
        elif not is_broker_away(error):
            raise self._fault(error)

    def _stalled(self) -> LogError:
        for partition in sorted(self.open & self._ended.keys()):
            place = TopicPartition(self._topic, partition)
            try:
                _, end = self._consumer.get_watermark_offsets(place, timeout=min(5.0, self._stall_s))
            except KafkaException:
                continue
            if 0 <= end < self._last[partition]:  # negative: the leader does not know its end yet
                return RANGE_NOT_THERE.error(
                    where=f"topic {self._topic} at {self._connection.bootstrap}",
                    topic=self._topic,
                    partition=partition,
                    end=end,
                    last=self._last[partition],
                )
        last = self._errors.last
        if last is not None:
            return self._fault(last)
        return away("reading a topic", self._connection, self._topic, "STALLED", self._errors)
