"""A topic as a target that gets each epoch in one Kafka transaction, together with a note about the epoch.

Records of other topics have stamps, by which a retry finds those that are there already. Compaction deletes stamps.
Here the transaction has a note in an internal topic of the same cluster, so the records of an epoch and its note are
both there, or neither is. A producer with the same transactional id ends the transaction of an earlier one. So only
after that the notes are read, and the epoch is sent if it has no note.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

from confluent_kafka import KafkaException, Producer
from py4j.protocol import Py4JNetworkError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from falkirk.declare.endpoints import EpochTopic
from falkirk.errors import FalkirkError, LogError
from falkirk.errors.conditions.spark import RELEASE_FAILED_TARGET
from falkirk.errors.spark import SPARK_ERRORS
from falkirk.kafka_client.faults import ClientErrors, fault, quiet_options
from falkirk.kafka_client.internal import KEEP, internal_topic
from falkirk.kafka_client.ranges import read_range
from falkirk.kafka_client.topics import TopicFacts, Topics
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.rows import record_partition, too_large
from falkirk.runtime.spark.sinks.asking import Asking, NoAnswer
from falkirk.runtime.spark.sinks.target import letters, release_failed
from falkirk.runtime.spark.sinks.topic import encoded_rows, placing_columns
from falkirk.theory.ids import EpochNumber, Offset

#: Kafka aborts a transaction that is open for longer: so long readers wait at most for a process that was killed and is
#: not started again. An epoch must be sent within this time.
_TRANSACTION_S = 300.0
_PATIENCE_S = 30.0
#: Notes are read backwards. So many first, and then ten times as many.
_BACK = 20
#: All notes have one key, and compaction keeps the newest one.
_KEY, _COMPACTED = b"epoch", {**KEEP, "cleanup.policy": "compact"}
_NONE = EpochNumber(0)


class NotesMissing(Exception):
    """Somebody has deleted notes of epochs that the topic has."""


class EpochTopicTarget:
    """A topic that is written by epochs. Args: to: its declaration. sink: the name of the sink."""

    def __init__(self, to: EpochTopic, place: Storage, sink: str) -> None:
        home = place.home
        self._to, self._confirm = to, home.store.require_charge
        self._connection = place.connection if to.kafka is None else to.cluster
        self._topics = Topics(self._connection)
        name = sha256(sink.encode()).hexdigest()[:8]  # a topic's name has fewer characters
        self._notes = internal_topic(home.application, home.identity, f"epochs.{name}")
        self._asking = Asking(sink, "which epochs it has", self._noted)
        self._producer: Producer | None = None
        #: The epoch up to which the caller knows that the topic has the records. A later one must not hide a loss.
        self._known = _NONE

    def visible(self) -> EpochNumber:
        """See Target. Readers of committed records see nothing of an incomplete epoch."""
        with self._reaching():
            return self._asking.ask()

    def delivered(self) -> EpochNumber:
        """See Target. Raises: SparkError: `RELEASE_FAILED`."""
        self._known = self.visible()
        return self._known

    def deliver(self, epoch: EpochNumber, rows: DataFrame, *, few: bool = False) -> DataFrame | None:
        """See Target. Raises: SparkError: `RELEASE_FAILED`. HomeError: this process does not own the home any more."""
        with self._reaching():
            data, reason = self._encoded(rows, self._facts(), few=few)
            producer = self._opened()
            there = self._noted()
            if there < self._known:
                raise NotesMissing(f"its notes no longer have the epochs from {there} on")
            if there <= epoch:
                self._send(producer, epoch, data.where(reason.isNull()))
            self._known = EpochNumber(max(there, epoch + 1))
            unfit = data.where(reason.isNotNull())
            if unfit.isEmpty():
                return None
            return letters(unfit, F.col("key"), reason, self._to.topic, epoch, F.col("text"))

    def _facts(self) -> TopicFacts:
        """Return the facts about the topic. It and the topic of the notes are created if they are missing."""
        if not self._topics.exists(self._to.topic):
            compacted = {"cleanup.policy": "compact"} if self._to.compacted else {}
            self._topics.create(self._to.topic, self._to.partitions, compacted)
        self._topics.create(self._notes, 1, _COMPACTED)
        return self._topics.facts(self._to.topic)

    def _encoded(self, rows: DataFrame, facts: TopicFacts, *, few: bool) -> tuple[DataFrame, Column]:
        """Return rows in the form of the topic's records, in order, and the reason why a row can't be one, or null."""
        columns = encoded_rows(rows.columns, self._to.record)
        deciding = placing_columns(rows.columns, self._to.record, columns[1])
        partition = record_partition(deciding, facts.partitions).cast("int").alias("partition")
        data = rows.select(*columns, partition)
        ordered = data.coalesce(1).sortWithinPartitions(ROW) if few else data.orderBy(ROW)
        return ordered, F.coalesce("unfit", too_large("value", "key", facts.max_message_bytes))

    def _opened(self) -> Producer:
        """Return a producer. A new one waits for the end of an earlier one's transaction, and fences it off."""
        if self._producer is None:
            errors = ClientErrors()
            producer = Producer({
                **quiet_options(self._connection, errors), "transactional.id": self._notes,
                "transaction.timeout.ms": round(_TRANSACTION_S * 1000),
                "message.max.bytes": 1_000_000_000,  # the topic has its own limit
                "batch.size": 1_000_000,  # the limit above is also that of a batch
            })  # fmt: skip
            try:
                producer.init_transactions(_PATIENCE_S)
            except KafkaException as error:
                raise fault(error.args[0], "opening a transaction", self._connection, errors) from error
            self._producer = producer
        return self._producer

    def _send(self, producer: Producer, epoch: EpochNumber, data: DataFrame) -> None:
        """Send an epoch and its note in one transaction. After an error, the next try has another producer."""
        self._producer = None
        try:
            producer.begin_transaction()
            records = data.select(F.col("key").cast("binary"), F.col("value").cast("binary"), "partition")
            for row in records.toLocalIterator():
                self._produce(producer, self._to.topic, row.partition, row.key, row.value)
            self._produce(producer, self._notes, 0, _KEY, json.dumps({"epoch": epoch}).encode())
            self._confirm()  # the present owner may have cancelled this epoch meanwhile
            producer.commit_transaction(_PATIENCE_S)
        except BaseException:
            producer.purge()
            raise
        self._producer = producer

    def _produce(
        self, producer: Producer, topic: str, partition: int, key: bytes | bytearray | None, value: bytes | bytearray
    ) -> None:
        while True:
            try:
                own_key = None if key is None else bytes(key)
                producer.produce(topic, key=own_key, value=bytes(value), partition=partition)
                producer.poll(0)
                return
            except BufferError:  # the queue is full
                producer.poll(0.1)

    def _noted(self) -> EpochNumber:
        """Return the number after the newest epoch that has a note; 0: none has one."""
        if not self._topics.exists(self._notes):
            return _NONE
        first, last = self._topics.first_positions(self._notes)[0], self._topics.readable_positions(self._notes)[0]
        back = _BACK
        while last > first:
            begin = Offset(max(first, last - back))
            records = read_range(self._connection, self._notes, {0: begin}, {0: last}, committed=True)
            if numbers := [json.loads(record.value or b"{}")["epoch"] for record in records]:
                return EpochNumber(max(numbers) + 1)
            last, back = begin, back * 10
        return _NONE

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Turn an error of the cluster or of Spark into one after which the release is retried."""
        try:
            yield
        except Py4JNetworkError:
            raise  # without Spark there is no retry
        except KafkaException as error:
            raise RELEASE_FAILED_TARGET.error(topic=self._to.address, reason=error.args[0].str()) from error
        except (LogError, NoAnswer, NotesMissing) as error:
            reason = error.message if isinstance(error, LogError) else str(error)
            raise RELEASE_FAILED_TARGET.error(topic=self._to.address, reason=reason) from error
        except FalkirkError:
            raise
        except SPARK_ERRORS as error:
            raise release_failed(self._to.address, error) from error
