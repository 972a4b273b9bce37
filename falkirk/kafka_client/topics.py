"""Topics: reads the settings and positions of Kafka topics, and creates topics.

A position is the offset of the next record, so a partition's records are [first, end). End positions are high
watermarks, for every isolation level of a reader. A leader may hold more records (replication.py).
"""

import difflib
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # they are public all the same
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from falkirk.errors import LogError, is_away
from falkirk.errors.conditions.kafka_client import PARTITION_COUNT_DIFFERS, TOPIC_REPLACED
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.faults import ClientErrors, away, fault, missing, quiet_options
from falkirk.kafka_client.internal import ANY_TIME
from falkirk.kafka_client.replication import unreplicated
from falkirk.platform.machine_time import MachineTime
from falkirk.theory.ids import LogId, Offset, Offsets, cluster_of

_T = TypeVar("_T")
_POLL_S = 0.1
#: The longest wait for another cluster. Meanwhile the host does nothing for processors that do not need it.
_ELSEWHERE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """The facts about a topic: partitions, cleanup policy (``delete``, ``compact``, or both with a comma), limits.

    `max_message_bytes` limits a record batch after compression; `retention_ms` is -1 if records never expire;
    `message_timestamp_type` is ``CreateTime`` or ``LogAppendTime``. `timestamp_after_max_ms` is how far the timestamp
    of a producer may be ahead of the broker's clock; None: the broker is older than this setting, and accepts any.
    """

    topic: str
    partitions: int
    cleanup_policy: str
    max_message_bytes: int
    retention_ms: int
    message_timestamp_type: str
    timestamp_after_max_ms: int | None = None


class Topics:
    """The topics of one cluster. Every call waits at most `timeout_s` for the broker.

    A topic of another cluster, which the connection knows, can be read as well, by its id. All else concerns topics of
    the own cluster: the broker refuses such an id, because no topic's name has its form.

    Args: new_client: makes a client from its settings. clock: measures the waits.

    All raise LogError: `BROKER_AWAY` (maybe) when the broker does not answer, `ACCESS_REFUSED`, `KAFKA_REFUSED`,
    `TOPIC_REPLACED`.
    """

    def __init__(
        self, connection: Connection | str, *, timeout_s: float = 10.0,
        new_client: Callable[[dict[str, Any]], AdminClient] = AdminClient, clock: MachineTime = time,
    ) -> None:  # fmt: skip
        self._connection, self._new_client, self._clock = Connection.of(connection), new_client, clock
        self._timeout_s = timeout_s
        self._errors = ClientErrors()
        self._admin = self._client()
        self._expected: dict[str, str] = {}
        #: Topics that this object has created, and until when another broker may not know them yet.
        self._new_until_s: dict[str, float] = {}
        #: The topics of the other clusters, as soon as one was asked for.
        self._elsewhere: dict[str, Topics] = {}

    def _at(self, topic: str) -> "tuple[Topics, str]":
        """Return the topics of a topic's cluster, and its name there. Raises: LogError: `CLUSTER_UNKNOWN`."""
        cluster, (connection, name) = cluster_of(topic), self._connection.of_topic(topic)
        if not cluster:
            return self, name
        if cluster not in self._elsewhere:
            self._elsewhere[cluster] = Topics(
                connection, timeout_s=min(self._timeout_s, _ELSEWHERE_S), new_client=self._new_client, clock=self._clock
            )
        there = self._elsewhere[cluster]
        if topic in self._expected:
            there.expect(name, self._expected[topic])
        return there, name

    def _client(self) -> AdminClient:
        return self._new_client(quiet_options(self._connection, self._errors))

    def facts(self, topic: str) -> TopicFacts:
        """Return the facts of `topic`.

        Raises: LogError: `TOPIC_MISSING`, with the names of similar topics.
        """
        there, name = self._at(topic)
        if there is not self:
            return replace(there.facts(name), topic=topic)
        partitions = self._partitions(topic)
        resource = ConfigResource(ResourceType.TOPIC, str(topic))  # the client accepts no subclass of str here
        admin = self._admin
        futures = admin.describe_configs([resource], request_timeout=self._timeout_s)
        config = self._result(admin, futures[resource], "reading a topic's settings", topic)
        after = config.get(ANY_TIME)
        return TopicFacts(
            topic=topic,
            partitions=partitions,
            cleanup_policy=str(config["cleanup.policy"].value),
            max_message_bytes=int(config["max.message.bytes"].value),
            retention_ms=int(config["retention.ms"].value),
            message_timestamp_type=str(config["message.timestamp.type"].value),
            timestamp_after_max_ms=None if after is None else int(after.value),
        )

    def expect(self, topic: str, identity: str) -> None:
        """From now on, refuse another topic with this name (`TOPIC_REPLACED`).

        Args: identity: as `identity` returns it.
        """
        self._expected[topic] = identity

    def expects(self, topic: str) -> bool:
        """Return whether the identity of the topic with this name is known."""
        return topic in self._expected

    def identity(self, topic: str) -> str:
        """Return the id that Kafka gave `topic` when it was created.

        A topic that is deleted and created again has a new id.

        Raises: LogError: `TOPIC_MISSING`.
        """
        there, name = self._at(topic)
        found = there._described(name)
        if found is None:
            raise missing(there._connection, name, there._similar(name))
        return str(found.topic_id)

    def exists(self, topic: str) -> bool:
        """Return whether `topic` exists."""
        there, name = self._at(topic)
        return there._described(name) is not None

    def cluster(self, topic: str = "") -> str:
        """Return the id of the cluster, which all its brokers have. Args: topic: on whose cluster; "": the own one."""
        there, _ = self._at(topic)
        if there is not self:
            return there.cluster()
        admin = self._admin
        found = admin.describe_cluster(request_timeout=self._timeout_s)
        return str(self._result(admin, found, "asking for the cluster's id", "").cluster_id)

    def has_followers(self, topic: str) -> bool:
        """Return whether a partition of `topic` has replicas besides its leader. Raises: LogError: `TOPIC_MISSING`."""
        found = self._described(topic)
        if found is None:
            raise missing(self._connection, topic, self._similar(topic))
        return any(len(partition.replicas) > 1 for partition in found.partitions)

    def create(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Create `topic` and wait until it can be written; leave an existing topic unchanged.

        Raises: LogError: `PARTITION_COUNT_DIFFERS` if the topic exists with another number of partitions.
        """
        admin, wanted = self._admin, dict(config or {})
        future = self._created(admin, topic, partitions, wanted)
        if ANY_TIME in wanted and _failed_with(KafkaError.INVALID_CONFIG, future):  # an older broker
            del wanted[ANY_TIME]
            future = self._created(admin, topic, partitions, wanted)
        self._result_unless(KafkaError.TOPIC_ALREADY_EXISTS, admin, future, "creating a topic", topic)
        self._new_until_s[topic] = self._clock.monotonic() + self._timeout_s
        # One answer says both: another broker may not know the new topic yet.
        found = self._await(lambda: self._led_partitions(topic), "creating a topic", topic)
        if found != partitions:
            raise PARTITION_COUNT_DIFFERS.error(
                where=self._connection.bootstrap, topic=topic, found=found, wanted=partitions
            )

    def _created(
        self, admin: AdminClient, topic: str, partitions: int, config: dict[str, str]
    ) -> "Future[None]":  # fmt: skip
        new = NewTopic(topic, num_partitions=partitions, config=config)
        return admin.create_topics([new], request_timeout=self._timeout_s)[topic]

    def first_positions(self, topic: str) -> Offsets:
        """Return the position of the oldest remaining record, per partition.

        Raises: LogError: `TOPIC_MISSING`.
        """
        return self._positions(topic, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def end_positions(self, topic: str) -> Offsets:
        """Return the position after the last record that all in-sync replicas have, per partition.

        Raises: LogError: `TOPIC_MISSING`.
        """
        return self._positions(topic, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def unreplicated(
        self, ends: Mapping[LogId, Mapping[int, Offset]], *, timeout_s: float = 1.0
    ) -> frozenset[tuple[LogId, int]]:
        """Return the partitions, as (topic, partition), whose leader has not confirmed these ends of its log.

        Raises: LogError: `TOPIC_MISSING`.
        """
        return unreplicated(self._connection, ends, timeout_s=timeout_s)

    def readable_positions(self, topic: str) -> Offsets:
        """Return the end of the readable records, per partition: the start of the first open transaction, if any.

        Raises: LogError: `TOPIC_MISSING`.
        """
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._positions(topic, latest, IsolationLevel.READ_COMMITTED)

    def delete_below(self, topic: str, positions: Mapping[int, Offset]) -> None:
        """Delete the records of `topic` before these positions permanently. A second call changes nothing."""
        wanted = [TopicPartition(topic, p, o) for p, o in positions.items() if o > 0]
        if wanted:
            admin = self._admin
            for future in admin.delete_records(wanted, request_timeout=self._timeout_s).values():
                self._result(admin, future, "deleting records", topic)

    def commit(self, group: str, topic: str, positions: Mapping[int, Offset]) -> None:
        """Commit positions in `topic` for a consumer group that has no members."""
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p, o) for p, o in positions.items()])
        admin = self._admin
        for future in admin.alter_consumer_group_offsets([wanted], request_timeout=self._timeout_s).values():
            self._result(admin, future, "committing a consumer group's offsets", topic)

    def await_broker(self, timeout_s: float = math.inf, on_wait: Callable[[float], None] | None = None) -> None:
        """Wait until the broker answers; call `on_wait` with the seconds waited after each failed attempt.

        Raises: LogError: `BROKER_AWAY` after `timeout_s`; `ACCESS_REFUSED` at once.
        """
        start = self._clock.monotonic()
        while True:
            left_s = start + timeout_s - self._clock.monotonic()
            try:
                self._admin.list_topics(timeout=max(0.1, min(1.0, left_s)))
                return
            except KafkaException as error:
                self._admin.poll(0)
                met = fault(error.args[0], "waiting for the broker", self._connection, self._errors)
                waited_s = self._clock.monotonic() - start
                if met.condition != "BROKER_AWAY" or waited_s >= timeout_s:
                    raise met from error
            if on_wait is not None:
                on_wait(waited_s)
            self._clock.sleep(_POLL_S)

    def await_cluster(
        self, topic: str, timeout_s: float = math.inf, on_wait: Callable[[float], None] | None = None
    ) -> None:
        """Wait until the cluster of a topic answers. Args, raises: as `await_broker`."""
        self._at(topic)[0].await_broker(timeout_s, on_wait)

    def _positions(
        self, topic: str, spec: OffsetSpec, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> Offsets:
        there, name = self._at(topic)
        if there is not self:
            return there._positions(name, spec, isolation)
        wanted = {TopicPartition(topic, p): spec for p in range(self._partitions(topic))}
        deadline = self._clock.monotonic() + self._timeout_s
        while True:
            admin = self._admin
            futures = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=self._timeout_s)
            try:
                doing = "reading a topic's positions"
                found = {p.partition: self._result(admin, futures[p], doing, topic).offset for p in wanted}
                if all(position >= 0 for position in found.values()):
                    return found
                # A new leader that does not know its end yet answers without a position: the client returns -1001.
                raise away(doing, self._connection, topic, "POSITION_UNKNOWN", self._errors)
            except LogError as error:
                # A partition has no leader just after the topic was created, or while a broker restarts.
                if error.condition != "BROKER_AWAY" or self._clock.monotonic() > deadline:
                    raise
            self._clock.sleep(_POLL_S)

    def _partitions(self, topic: str) -> int:
        found = self._described(topic)
        if found is None:
            raise missing(self._connection, topic, self._similar(topic))
        return len(found.partitions)

    def _described(self, topic: str) -> Any:
        while True:
            # Unlike a metadata request, a describe request never creates a topic.
            admin, unknown = self._admin, KafkaError.UNKNOWN_TOPIC_OR_PART
            futures = admin.describe_topics(TopicCollection([topic]), request_timeout=self._timeout_s)
            found = self._result_unless(unknown, admin, futures[topic], "describing a topic", topic)
            if found is not None or self._clock.monotonic() > self._new_until_s.get(topic, 0.0):
                break
            self._clock.sleep(_POLL_S)  # this request went to a broker that does not know the new topic yet
        if found is not None and str(found.topic_id) != self._expected.get(topic, str(found.topic_id)):
            raise TOPIC_REPLACED.error(
                where=self._connection.bootstrap, topic=topic, before=self._expected[topic], now=str(found.topic_id)
            )
        return found

    def _led_partitions(self, topic: str) -> int:
        """Return the number of partitions once each has a leader, else 0."""
        found = self._described(topic)
        led = found is not None and all(p.leader is not None and p.leader.id >= 0 for p in found.partitions)
        return len(found.partitions) if led else 0

    def names(self, cluster: str = "") -> tuple[str, ...]:
        """Return the names of all topics that this user may see. Args: cluster: another one that the connection knows.

        Raises: LogError: `BROKER_AWAY`, `ACCESS_REFUSED`, `CLUSTER_UNKNOWN`.
        """
        there, _ = self._at(LogId.at("", cluster) if cluster else "")
        if there is not self:
            return there.names()
        deadline = self._clock.monotonic() + self._timeout_s
        while True:
            try:
                found = self._admin.list_topics(timeout=self._timeout_s).topics
                gone = KafkaError.UNKNOWN_TOPIC_OR_PART
                return tuple(sorted(n for n, t in found.items() if t.error is None or t.error.code() != gone))
            except KafkaException as error:
                self._admin.poll(0)
                met = fault(error.args[0], "listing the topics", self._connection, self._errors)
                if met.condition != "BROKER_AWAY" or self._clock.monotonic() > deadline:
                    raise met from error
            self._clock.sleep(_POLL_S)

    def _similar(self, topic: str) -> tuple[str, ...]:
        try:
            names = sorted(self._admin.list_topics(timeout=self._timeout_s).topics)
        except KafkaException:
            return ()
        return tuple(difflib.get_close_matches(topic, names, n=3))

    def _await(self, ask: Callable[[], _T], doing: str, topic: str) -> _T:
        """Ask until the answer is true, and return it."""
        deadline = self._clock.monotonic() + self._timeout_s
        while not (answer := ask()):
            if self._clock.monotonic() > deadline:
                raise away(doing, self._connection, topic, "NOT_READY", self._errors)
            self._clock.sleep(_POLL_S)
        return answer

    def _result(self, admin: AdminClient, future: "Future[_T]", doing: str, topic: str) -> _T:
        """Return the answer to a request. Args: admin: who was asked. A client that is deleted answers nothing."""
        try:
            result = future.result()
        except KafkaException as error:
            # The client reports its own errors (a refused password) only when it is polled.
            admin.poll(0)
            met = fault(error.args[0], doing, self._connection, self._errors, topic)
            if is_away(met) and admin is self._admin:
                # This client would use the same broker for another minute, though perhaps only that broker hangs. Other
                # threads that still wait for its answers hold it.
                self._admin = self._client()
            raise met from error
        self._errors.last = None
        return result

    def _result_unless(
        self, code: int, admin: AdminClient, future: "Future[_T]", doing: str, topic: str
    ) -> _T | None:  # fmt: skip
        """Return the result, or None if the call failed with this error code."""
        return None if _failed_with(code, future) else self._result(admin, future, doing, topic)


def _failed_with(code: int, future: "Future[_T]") -> bool:
    error = future.exception()
    return isinstance(error, KafkaException) and bool(error.args[0].code() == code)
