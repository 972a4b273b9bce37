"""Helpers for tests with a running query: separate topics, records in and out, and waits for due results."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

import falkirk as fk
from falkirk.checker import TopicRecord, read_topic
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.runtime.supervision.query import Query
from tests.support import wait_until

TIMEOUT_S = 180.0


@dataclass(kw_only=True, eq=False)
class Wire:
    """The topics of one test, named with its tag."""

    bootstrap: str
    tag: str
    topics: Topics = field(init=False)
    #: The records of each topic at the last look, with its identity and its ends at that time.
    _read: dict[str, tuple[object, list[TopicRecord]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.topics = Topics(Connection.of(self.bootstrap))
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        # One request at a time: the first record of a new topic may be refused, and its retry must not come later.
        self.producer = Producer(
            {
                "bootstrap.servers": self.bootstrap, "message.max.bytes": 100_000_000, "log_level": 0,
                "max.in.flight": 1,
            }
        )  # fmt: skip

    def topic(self, name: str, partitions: int = 2, **config: str) -> str:
        """Create a topic; `config` with underscores for dots."""
        full = f"{name}-{self.tag}"
        self.topics.create(full, partitions, {key.replace("_", "."): value for key, value in config.items()})
        return full

    def send(self, topic: str, values: Iterable[Any], partition: int = 0, key: str | bytes | None = None) -> None:
        """Produce values, as they are or as JSON, to one partition, and wait until they are there."""
        for value in values:
            raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            self.producer.produce(topic, value=raw, partition=partition, key=key)
        assert self.producer.flush(60) == 0

    def records(self, topic: str) -> list[TopicRecord]:
        """Return everything that an ordinary consumer finds in a topic now.

        A topic that is as it was at the last look is not read again. Tests look until something is there. A new
        consumer takes 16 ms of CPU time in the broker and in this process, and the ends of a topic take 1 ms.
        """
        topics = self.topics
        now = topics.identity(topic), topics.first_positions(topic), topics.readable_positions(topic)
        if self._read.get(topic, (None,))[0] != now:
            self._read[topic] = now, list(read_topic({"bootstrap.servers": self.bootstrap}, topic))
        return list(self._read[topic][1])

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """Return the values of a topic now."""
        return [json.loads(record.value or b"null") for record in self.records(topic)]

    def count(self, topic: str) -> int:
        """Return how many records a topic has had."""
        return sum(self.topics.end_positions(topic).values())

    def await_count(self, topic: str, expected: int, query: Query) -> None:
        """Wait until a topic has had as many records, while the query runs."""

        def there() -> bool:
            if not query.isActive:
                raise AssertionError(f"the query ended: {query.exception()}")
            return self.count(topic) >= expected

        wait_until(
            there, TIMEOUT_S, lambda: f"{expected} records in {topic}; it has {self.count(topic)}: {query.status}"
        )

    def expire(self, topic: str) -> None:
        """Delete all records that are in a topic now."""
        ends = self.topics.end_positions(topic)
        done = self.admin.delete_records([TopicPartition(topic, p, end) for p, end in ends.items()])
        for future in done.values():
            future.result()

    def widen(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions, and wait until they are there."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()
        wait_until(lambda: self.topics.facts(topic).partitions == partitions, 30, "the new partitions")
        self.producer.list_topics(topic, timeout=10)  # so that it knows them


def settle(query: Query) -> None:
    """Wait until every region has committed a batch that began after now: all results in flight are then published."""
    last = {region.name: region.last_commit for region in query.status}

    def settled() -> bool:
        assert query.isActive, f"the query ended: {query.exception()}"
        return all(region.last_commit > last[region.name] + 1 for region in query.status)

    wait_until(settled, TIMEOUT_S, f"two commits more: {query.status}")


def await_one(query: Query, condition: Callable[[], object], what: str) -> None:
    """Wait for something while the application runs."""

    def holds() -> object:
        assert query.isActive, query.exception()
        return condition()

    wait_until(holds, 120, lambda: f"{what}: {query.status}")


def fail_behind_a_checkpoint(query: Query, name: str, send: Callable[[], Callable[[], object]]) -> None:
    """End a live region's query when results follow its last checkpoint, so that it has to drop some of them.

    A checkpoint may come just before the end. Then the next part of the input is sent, and the query is ended again.

    Args: send: sends the next part of the input, and returns a condition: its results are published.
    """

    def region() -> Any:
        return next(region for region in query.status if region.name == name)

    for _ in range(4):
        last = region().last_commit
        # Then the next one is far off.
        await_one(query, lambda: region().last_commit > last, f"a checkpoint of {name}")  # noqa: B023
        await_one(query, send(), f"results of {name}")
        before = region().incarnation
        next(each for each in query.queries if (each.name or "").endswith(f".{name}")).stop()
        await_one(query, lambda: region().incarnation > before, f"another incarnation of {name}")  # noqa: B023
        if region().suppressed:
            return
    raise AssertionError(f"{name} never had results behind a checkpoint: {query.status}")


def await_checkpoints(query: Query) -> None:
    """Wait until a checkpoint of each region exists, so that the next start reads it."""
    await_one(query, lambda: all(region.last_commit >= 0 for region in query.status), "a checkpoint of each region")


def ended_incarnations(query: Query) -> dict[str, list[str]]:
    """Return why incarnations of live regions have ended so far, by region."""
    store = query._home.store
    found = {region.name: [str(row.ended) for row in store.incarnations(region.name)] for region in query.status}
    return {name: reasons[:-1] for name, reasons in found.items() if reasons[:-1]}


def failed(query: Query) -> fk.FalkirkError:
    """Wait until a query has ended for good, and return why."""
    wait_until(lambda: not query.isActive, TIMEOUT_S, f"the query to end: {query.status}")
    error = query.exception()
    assert error is not None
    return error
