"""Records: reads single records and the last records of an application's topics, and says who wrote each."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice
from typing import Any

from falkirk.errors import LogError
from falkirk.errors.conditions.commands import RECORD_DELETED, RECORD_MISSING, RECORD_NAME_INVALID
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.ranges import LogRecord, read_range
from falkirk.kafka_client.signing import RejectedHeader, VerifiedHeader
from falkirk.kafka_client.topics import Topics
from falkirk.platform.stored import parse_json
from falkirk.platform.terminal import one_line
from falkirk.runtime.spark.context import Storage
from falkirk.theory.ids import EpochNumber, LogId, Offset, Offsets
from falkirk.theory.offsets import PartitionRange, merged_ranges, within
from falkirk.user_tools.commands.epoch_records import EpochRecords

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME = re.compile(r"((?:sink:)?[A-Za-z0-9._-]{1,249})/(\d{1,9})@(\d{1,18})", re.ASCII)
_EPOCH_NAME = re.compile(r"([^/@\s]{1,249})@(\d{1,18})", re.ASCII)
#: Records of a partition that are this close to each other are read at once.
_NEAR = 200
#: A search backwards reads this many records at first, then more at once.
_BLOCKS = (200, 1_000, 5_000)
#: A look at the ends of a topic that has found too few records covers this many times as many offsets next.
_WIDER = 10
#: So many bytes of a key or value are decoded for people.
SHOWN_BYTES_MAX = 2_000


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class RecordPlace:
    """The place of a record, written as `TOPIC/PARTITION@OFFSET`."""

    topic: LogId
    partition: int
    offset: Offset

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlace:
    """The results of an epoch of a batch, written as `BATCH@EPOCH`."""

    batch: str
    epoch: EpochNumber


def place_of_text(text: str) -> RecordPlace | EpochPlace:
    """Return the record or epoch that a text names. Raises: DefinitionError: `RECORD_NAME_INVALID`."""
    if (found := _NAME.fullmatch(text.strip())) is not None:
        return RecordPlace(topic=LogId(found[1]), partition=int(found[2]), offset=Offset(int(found[3])))
    if (found := _EPOCH_NAME.fullmatch(text.strip())) is not None:
        return EpochPlace(batch=found[1], epoch=EpochNumber(int(found[2])))
    raise RECORD_NAME_INVALID.error(text=text[:300])


@dataclass(frozen=True, kw_only=True)
class FoundRecord:
    """A record of a topic.

    Args: writer: the contents of its header, or why this home did not write it. is_void: a rollback or a later
        incarnation has made it invalid. decoded: returns a value of a topic as text.
    """

    at: RecordPlace
    record: LogRecord
    writer: VerifiedHeader | RejectedHeader
    is_void: bool
    decoded: Callable[[LogId, bytes | None], str | None]

    @cached_property
    def text(self) -> str | None:
        """Its value as text, decoded at the first use: most records are only compared by their places or writers."""
        return self.decoded(self.at.topic, self.record.value)

    @property
    def content(self) -> Mapping[str, Any]:
        """The object in its value, which is JSON or decoded Avro; empty if it is none."""
        try:
            found = parse_json(self.text or "null")
        except (ValueError, TypeError):
            return {}
        return found if isinstance(found, dict) else {}

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values; bytes that are not text are replaced."""
        record = self.record
        return {
            "topic": str(self.at.topic), "partition": record.partition, "offset": record.offset,
            "timestamp_ms": record.timestamp_ms, "key": as_text(record.key), "value": self.text,
            "void": self.is_void,
        }  # fmt: skip


def as_text(value: bytes | None) -> str | None:
    """Return a key or value as text, also if it is none; None stays None."""
    return None if value is None else value.decode(errors="replace")


def key_texts(content: Mapping[str, Any], columns: Iterable[str]) -> tuple[str | None, ...]:
    """Return the values of these columns as texts: 1, 1.0 and "1" are equal, as Spark reads them by its schema."""
    return tuple(_text(content.get(column)) for column in columns)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{value}" if isinstance(value, float) else json.dumps(value, sort_keys=True, default=str)


def shortened(text: str | None, most: int) -> str:
    """Return a text on one line, at most so long, without control characters."""
    if text is None:
        return "null"
    line = one_line(text[:SHOWN_BYTES_MAX])
    return line if len(line) <= most and len(text) <= SHOWN_BYTES_MAX else f"{line[: max(1, most - 1)]}…"


def record_time(timestamp_ms: int) -> str:
    """Return the time of a record in the time zone of this machine; anyone may choose it, so it may be none."""
    try:
        return f"{datetime.fromtimestamp(timestamp_ms / 1000).astimezone():%Y-%m-%d %H:%M:%S.%f}"[:-3]
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


def event_time_text(micros: int) -> str:
    """Return a time as results have it."""
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat(timespec="microseconds")
    except OverflowError:
        return f"{micros} us"


class TopicRecords:
    """The records of the topics of one application. It only reads, and keeps the ends of a topic from the first look.

    Args: place: of the home. text: returns a value of a topic as text. by_epochs: the topics of `fk.EpochTopic`.
    """

    def __init__(
        self, place: Storage, text: Callable[[LogId, bytes | None], str | None] = lambda topic, value: as_text(value),
        by_epochs: Mapping[LogId, EpochRecords] | None = None,
    ) -> None:  # fmt: skip
        self._place, self._text, self._by_epochs = place, text, by_epochs or {}
        self._bounds: dict[LogId, tuple[Offsets, Offsets]] = {}

    def bounds(self, topic: LogId) -> tuple[Offsets, Offsets]:
        """Return where the partitions of a topic begin, and where they end for readers of committed records.

        Raises: LogError.
        """
        if topic not in self._bounds:
            _, topics, name = self._at(topic)
            self._bounds[topic] = (topics.first_positions(name), topics.readable_positions(name))
        return self._bounds[topic]

    def exists(self, topic: LogId) -> bool:
        """Return whether a topic exists. Raises: LogError."""
        _, topics, name = self._at(topic)
        return topics.exists(name)

    def _at(self, topic: LogId) -> tuple[Connection, Topics, str]:
        """Return the cluster of a topic, and its name there."""
        if (there := self._by_epochs.get(topic)) is not None:
            return there.connection, there.topics, there.topic
        return self._place.connection, self._place.topics, topic

    def one(self, at: RecordPlace) -> FoundRecord:
        """Return a record. Raises: LogError: `RECORD_DELETED`, `RECORD_MISSING`, and as `bounds`."""
        found = self.get([at])[at]
        if isinstance(found, FoundRecord):
            return found
        begin = self.bounds(at.topic)[0].get(at.partition) if self.exists(at.topic) else None
        if begin is not None and at.offset < begin:
            raise RECORD_DELETED.error(record=str(at), partition=at.partition, begin=begin)
        raise RECORD_MISSING.error(record=str(at), reason=found)

    def get(self, places: Iterable[RecordPlace]) -> dict[RecordPlace, FoundRecord | str]:
        """Return each record, or why it is not there. Raises: LogError."""
        asked = frozenset(places)
        wanted = sorted(asked)
        topics = dict.fromkeys(at.topic for at in wanted)
        there = {topic for topic in topics if self.exists(topic)}  # one question to the broker for each
        found: dict[RecordPlace, FoundRecord | str] = {at: why for at in wanted if (why := self._why_not(at, there))}
        for topic in topics:
            ranges = _ranges(at for at in wanted if at.topic == topic and at not in found)
            while ranges:  # at once one range of each partition
                part = {p: several.pop(0) for p, several in ranges.items()}
                first, last = {p: r[0] for p, r in part.items()}, {p: r[1] for p, r in part.items()}
                found |= {r.at: r for r in self._read(topic, first, last) if r.at in asked}
                ranges = {p: several for p, several in ranges.items() if several}
        gap = "the offset has no record: it is a marker of a transaction, or the record was aborted or compacted away"
        return {at: found.get(at) or self._why_not(at, there) or gap for at in wanted}

    def _why_not(self, at: RecordPlace, there: Collection[LogId]) -> str:
        if at.topic not in there:
            return "the topic does not exist any more"
        begin, end = (bound.get(at.partition) for bound in self.bounds(at.topic))
        if begin is None or end is None:
            return f"the topic has no partition {at.partition}"
        if at.offset < begin:
            return f"it was deleted: the partition now begins at {begin}"
        return f"the partition ends at {end} for readers" if at.offset >= end else ""

    def back(self, topic: LogId, partition: int, below: Offset, lowest: Offset, most: int) -> Iterator[FoundRecord]:
        """Yield at most this many records of a partition below an offset, newest first, down to `lowest`.

        Raises: LogError.
        """
        return islice(self._back(topic, partition, below, lowest), most)

    def _back(self, topic: LogId, partition: int, below: Offset, lowest: Offset) -> Iterator[FoundRecord]:
        begin, end = self.bounds(topic)
        lowest, below = max(lowest, begin.get(partition, Offset(0))), min(below, end.get(partition, Offset(0)))
        blocks = iter(_BLOCKS)
        while below > lowest:
            size = next(blocks, _BLOCKS[-1])
            first = max(lowest, Offset(below - size))
            yield from reversed(list(self._read(topic, {partition: first}, {partition: below})))
            below = first

    def forward(self, topic: LogId, first: Offsets, last: Offsets) -> Iterator[FoundRecord]:
        """Yield the records [first, last) of each partition that still exist. Raises: LogError."""
        begin, end = self.bounds(topic)
        last = {p: min(o, end[p]) for p, o in last.items() if p in end}
        return self._read(topic, within(first, begin, last), last)

    def first(self, topic: LogId, number: int) -> list[FoundRecord]:
        """Return the oldest records of a topic by their times, at most so many. Raises: LogError."""
        begin, end = self.bounds(topic)
        return self._within(lambda size: self._read(topic, begin, _at_most(begin, end, size)), topic, number)[:number]

    def last(self, topic: LogId, number: int) -> list[FoundRecord]:
        """Return the newest records of a topic by their times, at most so many, oldest first. Raises: LogError."""
        begin, end = self.bounds(topic)

        def newest(size: int) -> Iterator[FoundRecord]:
            return self._read(topic, {p: max(begin[p], Offset(o - size)) for p, o in end.items()}, end)

        return self._within(newest, topic, number)[-number:]

    def _within(self, read: Callable[[int], Iterator[FoundRecord]], topic: LogId, number: int) -> list[FoundRecord]:
        """Return the records in an end of each partition that has enough of them: some offsets have no record."""
        begin, end = self.bounds(topic)
        size, longest = number, max((end[p] - begin[p] for p in end), default=0)
        while True:
            found = sorted(read(size), key=lambda r: (r.record.timestamp_ms, r.at))
            if len(found) >= number or size >= longest:
                return found
            size *= _WIDER

    def _read(self, topic: LogId, first: Offsets, last: Offsets) -> Iterator[FoundRecord]:
        if all(first[p] >= last[p] for p in last):
            return
        judge = self._judge(topic)
        for record in self._records(topic, first, last):
            writer, is_void = judge(record)
            yield FoundRecord(
                at=RecordPlace(topic=topic, partition=record.partition, offset=record.offset),
                record=record,
                writer=writer,
                is_void=is_void,
                decoded=self._text,
            )

    def _judge(self, topic: LogId) -> Callable[[LogRecord], tuple[VerifiedHeader | RejectedHeader, bool]]:
        """Return a function that says who wrote a record of a topic, and whether it is invalid."""
        if (there := self._by_epochs.get(topic)) is not None:
            return lambda record: ((writer := there.writer(record)), there.is_void(writer))
        verifier, void = self._place.verifier(topic), self._place.void(topic)

        def judge(record: LogRecord) -> tuple[VerifiedHeader | RejectedHeader, bool]:
            writer = verifier.verify_record(record)
            incarnation = None if isinstance(writer, RejectedHeader) else writer.incarnation
            return writer, void.has(record.partition, record.offset, incarnation)

        return judge

    def _records(self, topic: LogId, first: Offsets, last: Offsets) -> Iterator[LogRecord]:
        """Yield the records [first, last) that still exist: a running application deletes those of internal logs."""
        left, (connection, topics, name) = dict(first), self._at(topic)
        while any(left[p] < last[p] for p in last):
            try:
                for record in read_range(connection, name, dict(left), last, committed=True):
                    left[record.partition] = Offset(record.offset + 1)
                    yield record
                return
            except LogError as error:
                begin = topics.first_positions(name) if error.condition == "RANGE_EXPIRED" else {}
                behind = {p: min(begin[p], last[p]) for p, o in left.items() if o < begin.get(p, Offset(0))}
                if not behind:
                    raise
                left |= behind
                self._bounds[topic] = (begin, self.bounds(topic)[1])


def _at_most(begin: Offsets, end: Offsets, size: int) -> Offsets:
    return {p: min(o, Offset(begin[p] + size)) for p, o in end.items()}


def _ranges(places: Iterable[RecordPlace]) -> dict[int, list[tuple[Offset, Offset]]]:
    """Return places of one topic as ranges by partition; close places are in one range."""
    found: dict[int, list[tuple[Offset, Offset]]] = {}
    for partition, first, last in merged_ranges(
        (PartitionRange(p.partition, p.offset, Offset(p.offset + 1)) for p in places), gap=_NEAR
    ):
        found.setdefault(partition, []).append((first, last))
    return found
