"""A topic as a target that gets each epoch in one Kafka transaction, together with a note about the epoch.

Records of other topics have stamps, by which a retry finds those that are there already. Compaction deletes stamps.
Here the transaction has a note in an internal topic of the same cluster (epoch_notes.py). So the records of an epoch
and its note are both there, or neither is.

A transaction of another process may still end: of one that stood still before its commit, or that was killed after the
broker had accepted its commit. So before notes are read, Falkirk takes the transactional id. The broker then ends such
a transaction. Otherwise a rollback could cancel an epoch that appears in the topic later.

Rows that the topic can't store, because they are too large or have no key in a compacted topic, become dead letters.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from py4j.protocol import Py4JNetworkError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from falkirk.declare.endpoints import EpochTopic
from falkirk.errors import FalkirkError, LogError
from falkirk.errors.conditions.epoch_topics import PARTITIONS_CHANGED_EPOCHS, TOPIC_REPLACED_EPOCHS, TOPIC_UNFIT
from falkirk.errors.conditions.spark import RELEASE_FAILED_STOP, RELEASE_FAILED_TARGET
from falkirk.errors.spark import SPARK_ERRORS
from falkirk.kafka_client.faults import ClientErrors, fault, quiet_options
from falkirk.kafka_client.fencing import take_ids
from falkirk.kafka_client.topics import TopicFacts, Topics
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.rows import NOT_WRITTEN, record_partition, too_large
from falkirk.runtime.spark.sinks.asking import Asking, NoAnswer
from falkirk.runtime.spark.sinks.epoch_notes import NOTE_KEY, EpochNote, EpochNotes, NotedPlaces
from falkirk.runtime.spark.sinks.target import letters, release_failed, sorted_by_place
from falkirk.runtime.spark.sinks.topic import encoded_rows, placing_columns
from falkirk.theory.ids import EpochNumber, Offset

#: Kafka aborts a transaction that is open for longer: so long readers wait at most for a process that was killed and is
#: not started again. An epoch must be sent within this time.
_TRANSACTION_S = 300.0
_PATIENCE_S = 30.0
#: An abort waits at most this long for the broker.
_ABORT_S = 5.0
#: A wait for the broker checks at this interval whether Falkirk stops: while records are sent, and at other requests.
_LOOK_S, _REQUEST_S = 0.1, 1.0
#: The largest batch of records, if the topic takes it, and the largest amount of records that wait for the broker.
_BATCH_BYTES, _QUEUE_KBYTES = 1_000_000, 64 << 10
_NONE = EpochNumber(0)

#: Why a row without a key is not in a compacted topic. The broker takes no such record.
KEYLESS = f"{NOT_WRITTEN}the key is null, and the topic is compacted"


class EpochsGone(Exception):
    """The notes no longer have epochs that the topic had: somebody has deleted them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """A producer, and the topic when it was opened. Args: batch_bytes: the largest batch that it sends."""

    producer: Producer
    identity: str
    partitions: int
    batch_bytes: int


class _Places:
    """The places of the records that the cluster has acknowledged, of one epoch."""

    def __init__(self) -> None:
        self._spans: dict[int, NotedPlaces] = {}
        self._is_known = True

    def add(self, error: KafkaError | None, message: Message) -> None:
        """Add a record, as the client reports it. After an error, the transaction can't be committed."""
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None or offset < 0:
            self._is_known = False  # a repeated request may be acknowledged without an offset
            return
        at = Offset(offset)
        first, last, number = self._spans.get(partition, (at, at, 0))
        self._spans[partition] = NotedPlaces(min(first, at), max(last, at), number + 1)

    @property
    def spans(self) -> Mapping[int, NotedPlaces] | None:
        """The places by partition; None: not all are known."""
        return self._spans if self._is_known else None


class EpochTopicTarget:
    """A topic that is written by epochs.

    Args: to: its declaration. sink: the name of the sink. runs_elsewhere: another process runs the application, so this
        one only reads.
    """

    def __init__(self, to: EpochTopic, place: Storage, sink: str, *, runs_elsewhere: bool = False) -> None:
        store = place.home.store
        self._to, self._confirm, self._runs_elsewhere = to, store.require_charge, runs_elsewhere
        self._clock, self._sink = place.clock, sink
        self._connection = to.connection(place.connection)
        self._topics = Topics(self._connection)
        self._notes = EpochNotes(place.home, self._connection, self._topics, to.address, sink)
        self._asking = Asking(sink, "which epochs it has", self._asked, lambda: (store.generation, self._sends))
        #: Held while an epoch is sent, and while the notes are read: to take the id would end the transaction.
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        #: None: another process may have begun a transaction that still ends.
        self._opened: _Opened | None = None
        #: How many epochs it has begun to send. An answer from before a send does not count after it.
        self._sends = 0
        #: The newest note that is known. A later epoch must not hide a loss.
        self._note: EpochNote | None = None
        #: When the current transaction must have ended.
        self._until_s = 0.0

    def visible(self) -> EpochNumber:
        """See Target. Readers of committed records see nothing of an incomplete epoch.

        Raises: SparkError: `RELEASE_FAILED`. HomeError: `NOTES_LOST`, `TOPIC_REPLACED`, `PARTITIONS_CHANGED`.
        """
        with self._reaching():
            found = self._asking.ask()
        # A broker answers a commit before readers of committed records see it.
        return max(_after(found), _after(self._note))

    def delivered(self) -> EpochNumber:
        """See Target. While its producer is open, the broker is not asked. Raises: as `visible`."""
        if self._opened is None:
            with self._reaching():
                found = self._asking.ask()
            if _after(found) > _after(self._note):
                self._note = found
        return _after(self._note)

    def deliver(self, epoch: EpochNumber, rows: DataFrame, *, few: bool = False) -> DataFrame | None:
        """See Target.

        Raises: as `visible`. HomeError: this process does not own the home any more; `TOPIC_UNFIT`, `TOPIC_OF_ANOTHER`.
        """
        with self._reaching(), self._lock:
            opened, facts = self._ready()
            note = self._note
            if note is not None and note.epoch >= epoch:
                # The settings may have changed since, so the note decides again which rows are letters. If it is about
                # a later epoch, the letters of this one are there already.
                data, reason = self._encoded(rows, note)
                is_any = not data.where(reason.isNotNull()).isEmpty()
            else:
                note = EpochNote(
                    epoch=epoch, topic=opened.identity, partitions=facts.partitions,
                    limit_bytes=min(facts.max_message_bytes, _QUEUE_KBYTES << 10),
                    is_compacted="compact" in facts.cleanup_policy,
                )  # fmt: skip
                data, reason = self._encoded(rows, note)
                is_any = self._send(opened, note, data, reason, few=few)
            unfit = data.where(reason.isNotNull())
            if not is_any:
                return None
            return letters(unfit, F.col("key"), reason, self._to.topic, epoch, F.col("text"), self._sink)

    def stop(self) -> None:
        """End a transaction that waits for the broker. Nothing is sent afterwards."""
        self._stopping.set()

    def _asked(self) -> EpochNote | None:
        with self._lock:
            if not self._notes.exist():
                return None  # a former owner makes them before it confirms that it still owns the home
            if self._opened is None and not self._runs_elsewhere:
                # Each time: another process may have begun a transaction before this one became the owner.
                take_ids(self._connection, [self._notes.topic])
            note = self._notes.newest()
            if note is not None:
                self._facts(note.topic, note.partitions, _after(note))
            return note

    def _facts(self, identity: str, partitions: int, epoch: EpochNumber) -> TopicFacts:
        """Return the facts about the topic, if it is the one that has the epochs below `epoch`.

        Args: identity, partitions: those of the topic then. Raises: HomeError: `TOPIC_REPLACED`, `PARTITIONS_CHANGED`.
        """
        if self._identity() != identity:
            raise TOPIC_REPLACED_EPOCHS.error(where=self._to.where, topic=self._to.address, epoch=epoch)
        facts = self._topics.facts(self._to.topic)
        if facts.partitions != partitions:
            raise PARTITIONS_CHANGED_EPOCHS.error(
                where=self._to.where, topic=self._to.address, before=partitions, now=facts.partitions
            )
        return facts

    def _identity(self) -> str | None:
        return self._topics.identity(self._to.topic) if self._topics.exists(self._to.topic) else None

    def _ready(self) -> tuple[_Opened, TopicFacts]:
        """Return a producer whose batches the topic takes, and the facts about the topic."""
        if (opened := self._opened) is not None:
            facts = self._facts(opened.identity, opened.partitions, _after(self._note))
            if opened.batch_bytes <= facts.max_message_bytes:
                return opened, facts
        self._opened = None
        self._notes.create()
        limit_bytes = _BATCH_BYTES
        if self._topics.exists(self._to.topic):
            limit_bytes = min(_BATCH_BYTES, self._topics.facts(self._to.topic).max_message_bytes)
        producer = self._producer(limit_bytes)
        note = self._notes.newest()  # nobody else has sent an epoch since, or this producer can't send one
        if (there := _after(note)) < _after(self._note):
            raise EpochsGone(f"its notes no longer have the epochs from {there} on")
        self._note = note
        if note is not None:
            self._notes.remember()
        facts = self._first_facts() if note is None else self._facts(note.topic, note.partitions, there)
        identity = self._topics.identity(self._to.topic)
        self._opened = _Opened(
            producer=producer, identity=identity, partitions=facts.partitions, batch_bytes=limit_bytes
        )
        return self._ready()  # a new topic may take less than was assumed

    def _first_facts(self) -> TopicFacts:
        """Return the facts about a topic that has no epoch yet. It is created if it is missing."""
        if not self._topics.exists(self._to.topic):
            compacted = {"cleanup.policy": "compact"} if self._to.compacted else {}
            self._topics.create(self._to.topic, self._to.partitions, compacted)
        self._notes.refuse_others(self._topics.identity(self._to.topic))
        return self._topics.facts(self._to.topic)

    def _producer(self, batch_bytes: int) -> Producer:
        """Return a new producer. It waits for the end of an earlier one's transaction, and fences that one off."""
        errors = ClientErrors()
        producer = Producer({
            **quiet_options(self._connection, errors), "transactional.id": self._notes.topic,
            "transaction.timeout.ms": round(_TRANSACTION_S * 1000),
            "message.max.bytes": 1_000_000_000,  # the topic has its own limit
            "batch.size": batch_bytes,  # the limit above is also that of a batch
            "queue.buffering.max.kbytes": _QUEUE_KBYTES,
        })  # fmt: skip
        try:
            self._request(producer.init_transactions)
        except KafkaException as error:
            raise fault(error.args[0], "opening a transaction", self._connection, errors) from error
        return producer

    def _encoded(self, rows: DataFrame, note: EpochNote) -> tuple[DataFrame, Column]:
        """Return rows in the form of the topic's records, and the reason why a row can't be one, or null.

        Args: note: says what the topic takes, or took when it got the rows.
        """
        if note.is_compacted and not self._to.keys:
            raise TOPIC_UNFIT.error(where=self._to.where, topic=self._to.address)
        columns = encoded_rows(rows.columns, self._to.record)
        deciding = placing_columns(rows.columns, self._to.record, columns[1])
        partition = record_partition(deciding, note.partitions).cast("int").alias("partition")
        keyless = F.when(F.col("key").isNull() & F.lit(note.is_compacted), F.lit(KEYLESS))
        reason = F.coalesce("unfit", keyless, too_large("value", "key", note.limit_bytes))
        return rows.select(*columns, partition), reason

    def _send(self, opened: _Opened, note: EpochNote, data: DataFrame, reason: Column, *, few: bool) -> bool:
        """Send an epoch and its note in one transaction; return whether the topic can't have some rows.

        After an error, the next try has another producer.
        """
        producer, fits, is_any_unfit, places = opened.producer, reason.isNull(), False, _Places()
        self._opened, self._until_s = None, self._clock.monotonic() + _TRANSACTION_S
        self._sends += 1
        sent = [F.when(fits, F.col(name).cast("binary")).alias(name) for name in ("key", "value")]
        rows = sorted_by_place(data.select(*sent, "partition", fits.alias("fits"), ROW), few=few)
        try:
            producer.begin_transaction()
            for row in rows.toLocalIterator():
                if row.fits:
                    self._produce(producer, self._to.topic, row.partition, row.key, row.value, places.add)
                else:
                    is_any_unfit = True
            self._flush(producer)
            note = replace(note, spans=places.spans)
            self._produce(producer, self._notes.topic, 0, NOTE_KEY, note.value())
            self._flush(producer)
            self._confirm()  # the present owner may have cancelled this epoch meanwhile
            self._request(producer.commit_transaction)
        except BaseException:
            producer.purge()
            with suppress(KafkaException):  # otherwise readers of committed records would wait for its timeout
                producer.abort_transaction(_ABORT_S)
            raise
        self._opened, self._note = opened, note
        self._notes.remember()
        return is_any_unfit

    def _flush(self, producer: Producer) -> None:
        while producer.flush(_LOOK_S):
            self._require_running()

    def _produce(
        self, producer: Producer, topic: str, partition: int, key: bytes | bytearray | None, value: bytes | bytearray,
        told: Callable[[KafkaError | None, Message], None] | None = None,
    ) -> None:  # fmt: skip
        """Send a record. Args: told: gets the place of the record."""
        own_key = None if key is None else bytes(key)
        while True:
            self._require_running()
            try:
                producer.produce(topic, key=own_key, value=bytes(value), partition=partition, on_delivery=told)
                producer.poll(0)
                return
            except BufferError:  # the queue is full
                producer.poll(_LOOK_S)

    def _request(self, call: Callable[[float], None]) -> None:
        """Make a request of a producer. If it takes longer than a look at a stop may wait, the next call continues it.

        Args: call: gets how long it may wait. Raises: KafkaException. SparkError: Falkirk stops.
        """
        until_s = self._clock.monotonic() + _PATIENCE_S
        while True:
            self._refuse_stop()
            try:
                call(_REQUEST_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or self._clock.monotonic() > until_s:
                    raise

    def _require_running(self) -> None:
        """Refuse to continue the transaction. Raises: SparkError: Falkirk stops; the transaction takes too long."""
        self._refuse_stop()
        if self._clock.monotonic() > self._until_s:
            reason = f"an epoch was not sent within {_TRANSACTION_S:g} s"
            raise RELEASE_FAILED_TARGET.error(topic=self._to.address, reason=reason)

    def _refuse_stop(self) -> None:
        if self._stopping.is_set():
            raise RELEASE_FAILED_STOP.error(what=f"the transaction of an epoch for {self._to.address}")

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Turn an error of the cluster or of Spark into one after which the release is retried."""
        try:
            yield
        except Py4JNetworkError:
            raise  # without Spark there is no retry
        except KafkaException as error:
            raise RELEASE_FAILED_TARGET.error(topic=self._to.address, reason=error.args[0].str()) from error
        except (LogError, NoAnswer, EpochsGone) as error:
            reason = error.message if isinstance(error, LogError) else str(error)
            raise RELEASE_FAILED_TARGET.error(topic=self._to.address, reason=reason) from error
        except FalkirkError:
            raise
        except SPARK_ERRORS as error:
            raise release_failed(self._to.address, error) from error


def _after(note: EpochNote | None) -> EpochNumber:
    return _NONE if note is None else EpochNumber(note.epoch + 1)
