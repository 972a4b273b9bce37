"""Context: the home, the broker and the Spark session, which all regions of an application share."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession

from falkirk.errors import LogError, is_away
from falkirk.errors.conditions.spark import FOREIGN_WRITER
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.internal import internal_topic
from falkirk.kafka_client.signing import Foreign, ForeignTally, SigningKey, Verifier
from falkirk.kafka_client.topics import Topics
from falkirk.kafka_client.void import Void, late_behind
from falkirk.platform.machine_time import MachineTime
from falkirk.platform.parallel import Looks
from falkirk.platform.traced import OFF, Recorder
from falkirk.recovery.ownership.folder import Home
from falkirk.spark_setup.spark import kafka_options
from falkirk.steps.sources import reads
from falkirk.theory.ids import Incarnation, LogId, Offset, Offsets, cluster_of
from falkirk.theory.offsets import offsets_from_json, offsets_to_json

log = logging.getLogger("falkirk")

#: Another cluster that has not answered within this time, in seconds, is away.
_ANSWER_S = 1.0
#: The kind of decision that holds Kafka's id of the topic with this name.
TOPIC = "topic"
#: The kind of decision that holds the positions from which all records of this home in a topic are signed.
SIGNED = "signed"
#: The kind of decision with which an operator declares doubtful records, up to a position, as written by others.
DISOWNED = "disowned"


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The durable parts of an application: its home and its broker."""

    home: Home
    connection: Connection
    #: The runs of batches get the same one.
    clock: MachineTime = time
    topics: Topics = field(init=False)
    #: For each topic, the records that others have written there.
    foreign: dict[str, ForeignTally] = field(init=False, default_factory=dict)
    #: The topics whose ends are not settled (settling.py), and when their writers were fenced for the first time.
    unsettled: dict[tuple[LogId, ...], float] = field(init=False, default_factory=dict)
    #: Topics that this process has not written to yet: when it looked at each, by `clock.monotonic`, and the ends then.
    first_looks: dict[LogId, tuple[float, Offsets]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", Topics(self.connection))
        for topic, content in self.home.store.decisions_of(TOPIC).items():
            self.topics.expect(topic, str(content["id"]))

    def hold(self, topics: Iterable[str]) -> None:
        """Record Kafka's id of each topic before anything depends on it.

        From then on, each look at the topic refuses another topic of the same name.

        Raises: LogError: `TOPIC_MISSING`, `TOPIC_REPLACED`.
        """
        for topic in topics:
            identity = self.topics.identity(topic)
            if not self.topics.expects(topic):
                self.home.store.record_decision(TOPIC, topic, 0, {"id": identity})
                self.topics.expect(topic, identity)

    def oldest(self, topic: LogId) -> Offsets:
        """Return the position of the oldest remaining record of an input, per partition."""
        return self.topics.first_positions(topic)

    def void(self, topic: LogId) -> Void:
        """Return the void records of a topic.

        Late records are void only in the internal logs of this home. In any other topic, users may have read them, so
        they stay valid and must not be sent again.
        """
        store, ours = self.home.store, internal_topic(self.home.application, self.home.identity, "")
        return Void(store.voided_ranges(topic), late_behind(store.fences(topic)) if topic.startswith(ours) else ())

    # -- signatures ---------------------------------------------------------------------------------------------------

    @cached_property
    def signing_key(self) -> SigningKey:
        """The secret by which this home signs its records."""
        return self.home.store.signing_key()

    def verifier(
        self, topic: str, explains: Callable[[tuple[int, ...], str], bool] = lambda numbers, state: True
    ) -> Verifier:
        """Return the verifier that recognizes this home's records in a topic. Args: explains: as in `Verifier`."""
        key = self.signing_key
        signed = None if key.since_birth else self.home.store.decision(SIGNED, topic, 0)
        below = None if signed is None else offsets_from_json(signed.content)
        return Verifier(topic, self.home.identity, key, unsigned_below=below, explains=explains)

    def sign_from(self, topic: str, ends: Mapping[int, Offset]) -> None:
        """Record that all later records of this home in the topic are signed.

        Called before this version of Falkirk writes to the topic.

        Args: ends: the ends of the topic, once no record of an earlier version can still arrive.
        """
        store = self.home.store
        if not self.signing_key.since_birth and store.decision(SIGNED, topic, 0) is None:
            store.record_decision(SIGNED, topic, 0, offsets_to_json(ends))

    def note_foreign(self, topic: str, found: ForeignTally, *, refuse: bool = True) -> None:
        """Note records that others wrote into a topic of this home. They are void, and the status shows them.

        Args: refuse: raise an error if a record may be this home's: to ignore it would repeat results.
        Raises: LogError: `FOREIGN_WRITER`: a record may be this home's, if the home is an older copy.
        """
        if (first := found.first) is None:
            return
        reason = first.reason.text
        if refuse and first.reason.may_be_ours and not self._is_disowned(topic, first):
            raise FOREIGN_WRITER.error(
                where=f"topic {topic}", topic=topic, partition=first.partition, offset=first.offset, reason=reason
            )
        known = self.foreign.get(topic)
        if known is None or found.count >= 2 * known.count:
            log.warning(
                "%r has %d records that this home did not write. They are ignored. The first one, at offset %d of "
                "partition %d, has %s", topic, found.count, first.offset, first.partition, reason,
            )  # fmt: skip
        self.foreign[topic] = found

    def foreign_records(self) -> list[dict[str, object]]:
        """Return the records that others have written into topics of this home, as plain values."""
        return [
            {
                "topic": topic,
                "count": tally.count,
                "partition": tally.first.partition,
                "offset": tally.first.offset,
                "reason": tally.first.reason.text,
            }
            for topic, tally in sorted(self.foreign.items())
            if tally.first is not None
        ]

    def disown(self, topic: str) -> Offsets:
        """Record that all doubtful records now in a topic were written by others; return the topic's ends."""
        store, ends = self.home.store, self.topics.end_positions(topic)
        last = store.newest_decision(DISOWNED, topic)
        store.record_decision(DISOWNED, topic, 0 if last is None else last.number + 1, offsets_to_json(ends))
        return ends

    def _is_disowned(self, topic: str, record: Foreign) -> bool:
        decided = self.home.store.newest_decision(DISOWNED, topic)
        return decided is not None and record.offset < int(decided.content.get(str(record.partition), 0))


@dataclass(slots=True, kw_only=True)
class Writers:
    """An incarnation of the writers of a topic. Args: token: see lanes.py, or None. jobs: their number."""

    incarnation: Incarnation
    lanes: int
    token: str | None
    jobs: int = 0


@dataclass(frozen=True, kw_only=True)
class Context(Storage):
    """A place, with the Spark session in which the application runs."""

    session: SparkSession
    state_partitions: int
    #: The broker refuses former writers of sinks: see `mechanisms.has_transactional_sinks`.
    transactional: bool = False
    #: Records the spans of this host, if a collector wants them.
    recorder: Recorder = OFF
    #: The present writers of each topic that jobs write (sinks/writing.py); None: the last job failed.
    writers: dict[str, Writers | None] = field(init=False, default_factory=dict)
    #: The topics whose last job failed: its tasks may still write.
    failed_writers: set[str] = field(init=False, default_factory=set)
    #: The oldest positions of inputs on other clusters, and why each of these clusters did not answer, if so.
    _oldest: dict[LogId, Looks[Offsets]] = field(init=False, default_factory=dict)
    _away: dict[str, Looks[LogError | None]] = field(init=False, default_factory=dict)

    def oldest(self, topic: LogId) -> Offsets:
        """See Storage. For a topic of another cluster, return what the last look has found, or nothing.

        The host asks at each turn, and must not wait for a cluster on which only some processors depend. If a position
        is not known, a checkpoint may count as restorable though its input has expired. The read of that input then
        fails.
        """
        if not cluster_of(topic):
            return super().oldest(topic)
        looks = self._oldest.setdefault(topic, Looks({}))
        looks.begin(lambda: self.topics.first_positions(topic))
        return looks.found

    def away(self, topic: LogId) -> LogError | None:
        """Return why the cluster of a topic, another one, did not answer at the last look; None: it did, or nobody
        has looked. This begins the next look.
        """
        looks = self._away.setdefault(cluster_of(topic), Looks(None))
        looks.begin(lambda: self.ask(topic))
        return looks.found

    def ask(self, topic: LogId) -> LogError | None:
        """Return why the cluster of a topic does not answer now, or None."""
        try:
            self.topics.await_cluster(topic, _ANSWER_S)
        except LogError as error:
            return error if is_away(error) else None
        return None

    def records(
        self, session: SparkSession, topic: LogId, first: Offsets, last: Offsets, *, reader: str, headers: bool
    ) -> DataFrame:
        """Return the records [first, last) of a topic, with the columns of Spark's Kafka source.

        Args: reader: the name of the batch that reads. headers: with the headers of the records.
        """
        begin = {partition: first.get(partition, 0) for partition in last}
        more = self._consumers(reader, topic)
        return reads.spark_records(
            session, self.kafka_options(topic), topic, first=begin, last=last, headers=headers, more=more
        )

    def records_of_jobs(
        self, session: SparkSession, topic: LogId, partitions: Iterable[int], *, reader: str, headers: bool
    ) -> DataFrame:
        """Return the records of a topic of which each job reads its own offsets (epochs/repeated_job.py).

        Args: partitions: those that it reads. Others: as of `records`.
        """
        nowhere = dict.fromkeys(sorted(partitions), 0)
        more = {**self._consumers(reader, topic), "offsetsOfJob": "true"}
        return reads.spark_records(
            session, self.kafka_options(topic), topic, first=nowhere, last=nowhere, headers=headers, more=more
        )

    def _consumers(self, reader: str, topic: LogId) -> dict[str, str]:
        cluster = cluster_of(topic)
        return {
            # Spark pools consumers by the name of their group, and by default invents a name for each query. Then each
            # epoch would open new consumers. Nothing is committed in this group. Spark compares the topic and the
            # partition as well, but not the cluster.
            "kafka.group.id": f"falkirk-{self.home.identity}-{reader}{'@' if cluster else ''}{cluster}",
            # After each fetch Spark asks for the end of the partition, on the connection on which the consumer has
            # already asked for the next records. If there are none, that would take half a second.
            "kafka.fetch.max.wait.ms": "1",
        }

    def kafka_options(self, topic: str = "") -> dict[str, str]:
        """Return the options of Spark's Kafka source and sink. Args: topic: that is read, which decides the cluster.

        Raises: as `environment.spark.kafka_options`. LogError: `CLUSTER_UNKNOWN`.
        """
        return kafka_options(self.session, self.connection.of_topic(topic)[0])
