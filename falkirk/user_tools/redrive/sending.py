"""Sending: returns inputs that did not fit to their topics, in Kafka transactions.

Each transaction contains some inputs and a note that lists them. The notes are in a topic of the home. So the sent
records and the notes always agree, wherever a failure interrupts the process. If a process dies during a transaction,
the next process has the same transactional id and aborts it. Falkirk's regions never read the aborted records, and no
record of the dead process can arrive later.

A record is sent as it is in its topic, to its original partition. If it has expired, it is taken from the dead letter,
provided that the letter contains all of it.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast, get_args

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from falkirk.errors.conditions.redrive import REDRIVE_TAKEN_OVER, REDRIVE_TIMED_OUT
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.faults import ClientErrors, away, fault, is_broker_away, quiet_options
from falkirk.kafka_client.header import HEADER_KEY, Header
from falkirk.kafka_client.internal import KEEP, internal_topic
from falkirk.kafka_client.ranges import read_messages
from falkirk.kafka_client.signing import NO_HEADER, Foreign, ForeignTally, RejectedHeader, Verifier, tag_of
from falkirk.platform.stored import parse_json
from falkirk.runtime.spark.context import Storage
from falkirk.theory.ids import Incarnation, Offset
from falkirk.theory.stamp import Stamp
from falkirk.user_tools.redrive.letters import Letter, LetterKind, Origin

#: The header of a record that was sent again: the dead letter's origin, ``topic/partition/offset``.
ORIGIN_HEADER = "falkirk-redriven"
#: The incarnation with which notes are signed.
_WRITER = Incarnation(0)
_STAMP = Stamp(source=0, partition=0, offset=Offset(0))
#: The maximum number of records in one transaction.
AT_ONCE = 200
#: The consumer reads on to a record at most this many offsets away, and seeks a more distant one.
_NEAR = 500
_PATIENCE_S = 30.0
#: Kafka aborts a transaction that is open for longer, at its next check (every 10 s, unless the broker's
#: `transaction.abort.timed.out.transaction.cleanup.interval.ms` says otherwise). If this process is killed, readers of
#: committed records wait until then.
TRANSACTION_S = 10.0
_TAKEN_OVER = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """A record in its original form."""

    origin: Origin
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Notes:
    """The notes in the home's own topic: which inputs have been sent again. Notes are signed as results are.

    Attributes: topic. foreign: the number of records in the topic that this home did not write, at the last `read`.
    """

    def __init__(self, place: Storage) -> None:
        home = place.home
        self.topic = internal_topic(home.application, home.identity, "redriven")
        self._place, self.foreign = place, 0
        header = Header(application=home.identity, incarnation=_WRITER, stamp=_STAMP, state_partition=0)
        self._header = header.encode() + b"/"

    def read(self) -> frozenset[Origin]:
        """Return the inputs that were sent again. Raises: LogError."""
        topics, foreign = self._place.topics, ForeignTally()
        if not topics.exists(self.topic):
            return frozenset()
        first, last = topics.first_positions(self.topic), topics.readable_positions(self.topic)
        verifier, found = self._verifier(), set[Origin]()
        for message in read_messages(self._place.connection, self.topic, first, last, committed=True):
            reason = verifier.verify_message(message)
            # Notes of earlier versions have no header.
            is_old = reason is NO_HEADER and verifier.is_old(message.partition(), message.offset())
            is_ours = is_old or not isinstance(reason, RejectedHeader)
            origins = parse_note(message.value()) if is_ours else None
            if origins is None:
                why = reason if isinstance(reason, RejectedHeader) else NO_HEADER
                foreign.add(Foreign(partition=message.partition(), offset=message.offset(), reason=why))
            else:
                found |= origins
        self._place.note_foreign(self.topic, foreign, refuse=False)
        self.foreign = foreign.count
        return frozenset(found)

    def _verifier(self) -> Verifier:
        return self._place.verifier(self.topic)

    def prepare(self) -> None:
        """Create the topic if it does not exist. Notes are kept for ever, as the dead letters are."""
        self._place.topics.create(self.topic, 1, KEEP)

    def begin(self) -> None:
        """Record, after the fence, that each later note is signed. Raises: LogError."""
        self._place.sign_from(self.topic, self._place.topics.readable_positions(self.topic))

    def note(self, origins: Sequence[Origin]) -> tuple[bytes, list[tuple[str, str | bytes | None]]]:
        """Return the value and the headers of a note."""
        value = json.dumps(list(origins)).encode()
        tag = tag_of(self._place.signing_key.of(self.topic, _WRITER), self._header, 0, None, value)
        return value, [(HEADER_KEY, self._header + tag.encode())]


def parse_note(value: bytes | None) -> set[Origin] | None:
    """Return the inputs that a note names; None if the value is not a note."""
    try:
        places = [(topic, partition, offset) for topic, partition, offset in parse_json(value or b"[]")]
    except (ValueError, TypeError):
        return None
    known = all(isinstance(t, str) and isinstance(p, int) and isinstance(o, int) for t, p, o in places)
    return set(places) if known else None


class Originals:
    """Reads single records of topics, requested in order. A context manager."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._errors = connection, ClientErrors()
        self._consumer = Consumer(
            {
                **quiet_options(connection, self._errors),
                "group.id": "falkirk-redrive",  # required by the client; it has no members and commits nothing
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
            }
        )
        self._place: TopicPartition | None = None

    def __enter__(self) -> "Originals":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self, origin: Origin) -> Original | None:
        """Return a record, or None if it no longer exists. Raises: LogError."""
        topic, partition, offset = origin
        here = self._place
        if here is None or (here.topic, here.partition) != (topic, partition) or not 0 <= offset - here.offset < _NEAR:
            self._consumer.assign([TopicPartition(topic, partition, offset)])
        message = self._next(topic, partition, offset)
        if message is None:
            self._place = None  # the client would wait there for a record that never arrives
            return None
        self._place = TopicPartition(topic, partition, offset + 1)
        headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
        return Original(
            origin=origin,
            key=message.key(),
            value=message.value(),
            headers=tuple(h for h in headers if h[0] != ORIGIN_HEADER),
        )

    def _next(self, topic: str, partition: int, offset: Offset) -> Message | None:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            message = self._consumer.poll(0.1)
            if message is None or (message.topic(), message.partition()) != (topic, partition):
                continue
            error = message.error()
            if error is None:
                found = message.offset()
                assert found is not None
                if found >= offset:
                    return message if found == offset else None
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._PARTITION_EOF):
                return None
            elif not is_broker_away(error):
                raise fault(error, "reading a record", self._connection, self._errors, topic)
        raise away("reading a record", self._connection, topic, "STALLED", self._errors)


def originals(letters: Iterable[Letter], connection: Connection) -> tuple[list[Original], int]:
    """Return the records of dead letters, by their places, and the number of lost records. Raises: LogError."""
    found, gone = [], 0
    with Originals(connection) as reader:
        for letter in letters:
            assert letter.origin is not None, "only an input has an origin"
            record = reader.read(letter.origin)
            if record is None and letter.is_whole:
                text = None if letter.value is None else letter.value.encode()
                record = Original(origin=letter.origin, key=letter.key, value=text)
            if record is None:
                gone += 1
            else:
                found.append(record)
    return found, gone


class RedriveSender:
    """Sends records again, with their notes.

    Args: identity: of the home. Of all processes that send for a home, only the newest may send. After a refused record
        this one becomes the newest again, so it then omits what others have sent meanwhile.
    Attributes: refused: the number of records that their topics refused.
    Raises: LogError: from all methods: `REDRIVE_TAKEN_OVER`, `REDRIVE_TIMED_OUT`, `BROKER_AWAY` and others. Records
        that were not committed by then are not in the topics.
    """

    def __init__(self, connection: Connection, notes: Notes, identity: str) -> None:
        self._connection, self._notes, self._errors = connection, notes, ClientErrors()
        self._refused: dict[Origin, KafkaError] = {}
        self._sent = frozenset[Origin]()
        self.refused = 0
        self._began_s = math.inf  # no transaction yet
        self._settings = {
            **quiet_options(connection, self._errors),
            "transactional.id": f"falkirk-redrive-{identity}",
            "transaction.timeout.ms": round(TRANSACTION_S * 1000),
            "message.max.bytes": 1_000_000_000,  # each topic has its own limit
            "batch.num.messages": 1,  # the limit above is that of a batch
        }
        self._open()

    def _open(self) -> None:
        """Make a producer that fences off the others of this home: their open transactions are aborted."""
        self._producer = Producer(self._settings)
        self._do(lambda: self._producer.init_transactions(_PATIENCE_S))

    def send(self, records: Sequence[Original]) -> int:
        """Send records and their note in one transaction; return the number of sent records.

        Records that their topic refuses are omitted, and those that another process has sent since the first refusal.
        """
        taken = [r for r in records if r.origin not in self._sent]
        while taken and not self._commit(taken):
            self.refused += len(self._refused)
            self._sent = self._notes.read()  # the former producer was fenced if another process has sent since
            taken = [r for r in taken if r.origin not in self._refused and r.origin not in self._sent]
        return len(taken)

    def _commit(self, records: Sequence[Original]) -> bool:
        """Return whether the transaction was committed. If not, some records were refused."""
        self._refused = {}
        self._do(lambda: self._produce(records))
        if self._refused:
            # An abort would wait for the client's records in flight.
            self._producer.purge()
            self._open()
            return False
        self._do(lambda: self._producer.commit_transaction(_PATIENCE_S))
        return True

    def _produce(self, records: Sequence[Original]) -> None:
        self._producer.begin_transaction()
        self._began_s = time.monotonic()
        for record in records:
            topic, partition, offset = record.origin
            self._producer.produce(
                topic, partition=partition, key=record.key, value=record.value,
                headers=[*record.headers, (ORIGIN_HEADER, f"{topic}/{partition}/{offset}".encode())],
                on_delivery=partial(self._note, record.origin),
            )  # fmt: skip
        note, headers = self._notes.note([r.origin for r in records])
        self._producer.produce(self._notes.topic, partition=0, value=note, headers=headers)
        # After a refused record, no further record is sent.
        deadline = self._began_s + TRANSACTION_S
        while len(self._producer) and not self._refused and time.monotonic() < deadline:
            self._producer.poll(0.1)

    def _note(self, origin: Origin, error: KafkaError | None, _message: Message) -> None:
        if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            self._refused[origin] = error

    def _do(self, call: Callable[[], object]) -> None:
        try:
            call()
        except KafkaException as error:
            reason = self._cause(error.args[0])
            if reason.code() in _TAKEN_OVER and time.monotonic() - self._began_s > TRANSACTION_S:
                raise REDRIVE_TIMED_OUT.error(where=self._notes.topic, transaction_s=TRANSACTION_S) from error
            if reason.code() in _TAKEN_OVER:
                raise REDRIVE_TAKEN_OVER.error(where=self._notes.topic) from error
            raise fault(reason, "sending dead letters again", self._connection, self._errors) from error

    def _cause(self, error: KafkaError) -> KafkaError:
        """Return the error that has ended the client, if a call says only that it has ended."""
        if error.code() != KafkaError._FATAL:
            return error
        try:
            self._producer.poll(0)
        except KafkaException as told:
            return cast(KafkaError, told.args[0])
        return error


def letters_to_send(letters: Iterable[Letter], sent: frozenset[Origin]) -> list[Letter]:
    """Return the inputs to send, each once, by their places. Of several letters about one input, take a whole one."""
    found: dict[Origin, Letter] = {}
    for letter in letters:
        if letter.origin is not None and letter.origin not in sent:
            known = found.get(letter.origin)
            if known is None or (letter.is_whole and not known.is_whole):
                found[letter.origin] = letter
    return [found[origin] for origin in sorted(found)]


def count_by_kind(letters: Iterable[Letter]) -> Mapping[str, int]:
    """Return the number of letters of each kind."""
    found = dict.fromkeys(get_args(LetterKind), 0)
    for letter in letters:
        found[letter.kind] += 1
    return found
