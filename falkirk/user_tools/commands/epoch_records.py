"""Epoch records: the topic of an `fk.EpochTopic` as commands read it, and the epoch of each of its records.

Its records have no header, and the topic may be on another cluster. The note about an epoch has the places of its
records. Kafka may have deleted the notes of old epochs, and those of earlier versions have no places. Then the epoch of
a record is unknown. The commands never call it foreign.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property

from falkirk.declare.application import Application
from falkirk.declare.endpoints import EpochTopic
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.ranges import LogRecord
from falkirk.kafka_client.signing import RejectedHeader, VerifiedHeader
from falkirk.kafka_client.topics import Topics
from falkirk.plan.region import BatchLogs
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.sinks.epoch_notes import EpochNote, notes_back, topic_of_notes
from falkirk.theory.ids import EpochNumber, Incarnation, LogId, Offset
from falkirk.user_tools.commands.written import Writer

#: No note has the place of a record, and all notes are there.
NO_EPOCH = RejectedHeader("a place that no epoch of this application has")
_OPEN = "the newest epoch is not complete yet"
_DAMAGED = "a note can't be read"


class UnknownEpoch(RejectedHeader):
    """Why nobody can say which epoch has written a record, or whether one has."""


class EpochRecords:
    """A topic that is written by epochs. It only reads. Use it for one answer: it reads the notes once.

    Args: to: its declaration. sink: its name. batch: writes it.
    Attributes: connection, topics: its cluster. topic: its name there.
    """

    def __init__(self, to: EpochTopic, sink: str, batch: BatchLogs, place: Storage) -> None:
        self.topic = to.topic
        self.connection: Connection = to.connection(place.connection)
        self.topics = place.topics if to.kafka is None else Topics(self.connection)
        self._notes_topic, self._log, self._store = topic_of_notes(place.home, sink), batch.log, place.home.store
        #: The notes about this topic that were read so far, newest first. None: it is malformed.
        self._known: list[EpochNote | None] = []

    def writer(self, record: LogRecord) -> VerifiedHeader | RejectedHeader:
        """Return the epoch of a record as a header would name it, or why it has none. Raises: LogError."""
        if self._identity is None:
            return NO_EPOCH
        partition, offset, later = record.partition, record.offset, ""
        is_newest = True  # no known epoch has a later record in the partition
        for note in self._notes():
            if note is None:
                later = _DAMAGED
                continue
            if note.spans is None:
                later = f"the note about epoch {note.epoch} does not have the places of its records"
                continue
            span = note.spans.get(partition)
            if span is None:
                continue
            if offset < span.first:
                later, is_newest = "", False
                continue
            if offset <= span.last and span.is_whole:
                return _written(partition, note.epoch)
            if offset <= span.last:
                return UnknownEpoch(f"another program wrote between the records of epoch {note.epoch}")
            if is_newest and self._is_open:
                later = _OPEN
            return UnknownEpoch(later) if later else NO_EPOCH
        if not later and is_newest and self._is_open:
            later = _OPEN
        if not later and not self._has_all:
            known = [note.epoch for note in self._known if note is not None]
            oldest = f"the oldest one is about epoch {known[-1]}" if known else "no note is there"
            later = f"the note about its epoch was deleted ({oldest})"
        return UnknownEpoch(later) if later else NO_EPOCH

    def is_void(self, writer: VerifiedHeader | RejectedHeader) -> bool:
        """Return whether a rollback has made the epoch of a record invalid."""
        if isinstance(writer, RejectedHeader):
            return False
        number = writer.numbers[-1]
        return any(void.covers(number) for void in self._store.voided_ranges(self._log))

    @cached_property
    def _identity(self) -> str | None:
        return self.topics.identity(self.topic) if self.topics.exists(self.topic) else None

    @cached_property
    def _bounds(self) -> tuple[Offset, Offset, Offset]:
        """Where the notes begin, end for readers of committed records, and end. Without notes, all are 0."""
        if not self.topics.exists(self._notes_topic):
            return Offset(0), Offset(0), Offset(0)
        # In this order: a note that is committed in between makes them differ.
        end = self.topics.end_positions(self._notes_topic)[0]
        readable = self.topics.readable_positions(self._notes_topic)[0]
        return self.topics.first_positions(self._notes_topic)[0], min(readable, end), end

    @property
    def _is_open(self) -> bool:
        """Whether a transaction was open when the notes were read. Its records may be readable before its note."""
        return self._bounds[1] < self._bounds[2]

    @cached_property
    def _unread(self) -> Iterator[EpochNote | None]:
        first, readable, _ = self._bounds
        self._lowest: Offset = readable
        for at, note in notes_back(self.connection, self._notes_topic, first, readable):
            self._lowest = at
            if note is None or note.topic == self._identity:
                yield note

    def _notes(self) -> Iterator[EpochNote | None]:
        """Yield the notes about this topic, newest first. Further ones are read when they are needed."""
        place = 0
        while place < len(self._known) or self._read_one():
            yield self._known[place]
            place += 1

    def _read_one(self) -> bool:
        for note in self._unread:
            self._known.append(note)
            return True
        return False

    @property
    def _has_all(self) -> bool:
        """Whether the first note is still there: compaction keeps offsets. All notes must have been read."""
        return self._bounds[2] > 0 and self._lowest == 0


def _written(partition: int, epoch: EpochNumber) -> VerifiedHeader:
    return VerifiedHeader(incarnation=Incarnation(1), numbers=(0, partition, epoch), state="", signed=False)


def epoch_records(app: Application, writers: Mapping[LogId, Writer], place: Storage) -> dict[LogId, EpochRecords]:
    """Return the topics of an application that are written by epochs."""
    found = {}
    for log, writer in writers.items():
        to = app.sinks[writer.sink].to if writer.sink is not None else None
        if isinstance(to, EpochTopic) and writer.sink is not None and writer.batch is not None:
            found[log] = EpochRecords(to, writer.sink, writer.batch, place)
    return found
