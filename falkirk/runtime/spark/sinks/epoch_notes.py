"""Notes: an internal topic with a note about each epoch that a topic has, beside that topic on the same cluster.

The transaction of an epoch writes its note. Compaction keeps the newest note. It also has Kafka's id of the topic, and
the number of its partitions. So Falkirk notices a topic that was deleted and created again. And it has what decided
which rows the topic took. So a retry finds the same rows unfit, whatever the settings are now. And it has the places of
the epoch's records, by which commands find the epoch of a record.

The home has Kafka's id of the topic with the notes, and knows whether there was a note. After a loss of that topic or
of its records, Falkirk does not repeat the epochs.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from falkirk.errors import HomeError, LogError
from falkirk.errors.conditions.epoch_topics import NOTES_LOST, TOPIC_OF_ANOTHER
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.internal import INTERNAL, KEEP, internal_topic
from falkirk.kafka_client.ranges import read_range
from falkirk.kafka_client.topics import Topics
from falkirk.recovery.ownership.folder import Home
from falkirk.theory.ids import EpochNumber, LogId, Offset

#: All notes have this key, and compaction keeps the newest one.
NOTE_KEY = b"epoch"
#: The kinds of decisions: one holds Kafka's id of a topic with notes; the other one says that it had a note.
_ID, _WRITTEN = "topic of notes", "notes"
#: Notes are read backwards. So many first, and then ten times as many.
_BACK = 20
_COMPACTED = {**KEEP, "cleanup.policy": "compact"}
#: A part of the names of topics with notes.
_NAMED = "epochs."


class NotedPlaces(NamedTuple):
    """The records of an epoch in one partition. Args: first, last: their offsets. number: of records."""

    first: Offset
    last: Offset
    number: int

    @property
    def is_whole(self) -> bool:
        """Whether no offset in between belongs to another program."""
        return self.number == self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochNote:
    """A note.

    Args: epoch: it is in the topic. topic: Kafka's id of the topic. partitions: of the topic. limit_bytes: larger
        records were left out, as `too_large` says. is_compacted: records without a key were left out. spans: the places
        of its records, by partition; None: not known.
    """

    epoch: EpochNumber
    topic: str
    partitions: int
    limit_bytes: int
    is_compacted: bool
    spans: Mapping[int, NotedPlaces] | None = None

    def value(self) -> bytes:
        """Return the value of its record."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def of(value: bytes | None) -> "EpochNote | None":
        """Return the note in a record; None: there is none. Other fields are ignored."""
        try:
            found = json.loads(value or b"")
            return EpochNote(
                epoch=EpochNumber(int(found["epoch"])), topic=str(found["topic"]), partitions=int(found["partitions"]),
                limit_bytes=int(found["limit_bytes"]), is_compacted=found["is_compacted"] is True,
                spans=_spans(found.get("spans")),
            )  # fmt: skip
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
            return None


def _spans(found: Any) -> Mapping[int, NotedPlaces] | None:
    """Return the places in a note. Notes of earlier versions have none. Raises: ValueError and others: malformed."""
    return None if found is None else {int(partition): _places(*of) for partition, of in found.items()}


def _places(first: Any, last: Any, number: Any) -> NotedPlaces:
    """Return the places in one partition. Raises: ValueError: there are none such. TypeError."""
    if {type(first), type(last), type(number)} != {int} or not 0 <= first <= last or not 0 < number <= last - first + 1:
        raise ValueError(first, last, number)
    return NotedPlaces(Offset(first), Offset(last), number)


def topic_of_notes(home: Home, sink: str) -> LogId:
    """Return the name of the topic with the notes of a sink."""
    name = sha256(sink.encode()).hexdigest()[:8]  # a topic's name has fewer characters
    return internal_topic(home.application, home.identity, f"{_NAMED}{name}")


def notes_back(
    connection: Connection, topic: LogId, first: Offset, last: Offset
) -> Iterator[tuple[Offset, EpochNote | None]]:
    """Yield the committed notes in [first, last) of their topic, newest first, with their offsets.

    None: the record is malformed. Raises: LogError.
    """
    back = _BACK
    while last > first:
        begin = Offset(max(first, last - back))
        records = list(read_range(connection, topic, {0: begin}, {0: last}, committed=True))
        yield from ((r.offset, EpochNote.of(r.value)) for r in reversed(records) if r.key == NOTE_KEY)
        last, back = begin, back * 10


def all_notes_back(connection: Connection, topics: Topics, topic: LogId) -> Iterator[tuple[Offset, EpochNote | None]]:
    """Yield all committed notes as `notes_back` does. Args: topics: of the same cluster."""
    return notes_back(connection, topic, topics.first_positions(topic)[0], topics.readable_positions(topic)[0])


class EpochNotes:
    """The notes of one sink. Args: address: of the topic that they are about. sink: its name.

    Attributes: topic: the name of their topic. It is also the transactional id of those who send epochs.
    """

    def __init__(self, home: Home, connection: Connection, topics: Topics, address: str, sink: str) -> None:
        self._store, self._connection, self._topics, self._address = home.store, connection, topics, address
        self.topic = topic_of_notes(home, sink)
        self._is_remembered = False

    def exist(self) -> bool:
        """Return whether there may be notes. Raises: HomeError: `NOTES_LOST`. LogError."""
        known, there = self._store.decision(_ID, self.topic, 0), self._id()
        if known is not None and known.content["id"] != there:
            raise self._lost()
        return there is not None

    def create(self) -> None:
        """Create their topic if it is missing, and record its id. Raises: as `exist`."""
        if not self.exist():
            self._topics.create(self.topic, 1, _COMPACTED)
        self._store.record_decision(_ID, self.topic, 0, {"id": self._topics.identity(self.topic)})

    def newest(self) -> EpochNote | None:
        """Return the newest note; None: there is none yet.

        Raises: as `exist`. HomeError: `NOTES_LOST`: it is malformed.
        """
        note, is_whole = self._newest(self.topic) if self.exist() else (None, True)
        if not is_whole:
            raise self._lost()
        if note is None and self._store.decision(_WRITTEN, self.topic, 0) is not None:
            raise self._lost()
        return note

    def remember(self) -> None:
        """Record that there is a note, unless this is known."""
        if not self._is_remembered:
            self._store.record_decision(_WRITTEN, self.topic, 0, {})
            self._is_remembered = True

    def _lost(self) -> HomeError:
        return NOTES_LOST.error(where=self._connection.bootstrap, topic=self._address, notes=self.topic)

    def refuse_others(self, identity: str) -> None:
        """Check that no other home or sink has notes about a topic. Those that this user can't read are left out.

        Args: identity: Kafka's id of the topic. Raises: HomeError: `TOPIC_OF_ANOTHER`. LogError.
        """
        for name in self._topics.names():
            if name.startswith(INTERNAL) and f".{_NAMED}" in name and name != self.topic:
                try:
                    note, _ = self._newest(LogId(name))
                except LogError as error:
                    if error.condition not in ("ACCESS_REFUSED", "TOPIC_MISSING"):
                        raise
                    continue
                if note is not None and note.topic == identity:
                    raise TOPIC_OF_ANOTHER.error(where=self._connection.bootstrap, topic=self._address, notes=name)

    def _id(self) -> str | None:
        try:
            return self._topics.identity(self.topic)
        except LogError as error:
            if error.condition == "TOPIC_MISSING":
                return None
            raise

    def _newest(self, topic: LogId) -> tuple[EpochNote | None, bool]:
        """Return the newest note that can be read, and whether no later record of a note is malformed."""
        is_whole = True
        for _, note in all_notes_back(self._connection, self._topics, topic):
            if note is not None:
                return note, is_whole
            is_whole = False
        return None, is_whole
