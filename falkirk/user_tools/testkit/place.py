"""Place: the home, the topics and the session of an application under test, as a `Context`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pyspark.sql import DataFrame, SparkSession

from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import TopicFacts
from falkirk.platform import private
from falkirk.platform.durable import write_atomically
from falkirk.recovery.ownership.folder import Home, open_home
from falkirk.recovery.ownership.identity import FORMAT
from falkirk.runtime.spark.context import Context
from falkirk.steps.batch.in_epoch import empty
from falkirk.steps.sources.topics import kafka_schema
from falkirk.theory.ids import LogId, Offset, Offsets, topic_name
from falkirk.user_tools.testkit.world import MemoryRecord, World

if TYPE_CHECKING:
    from falkirk.kafka_client.topics import Topics

#: The identity of each home of a test. So the plan of an application is the same in each test.
IDENTITY = "00000000"
#: The limit of a record's size, as Kafka has it by default.
RECORD_BYTES_MAX = 1_048_588


def create_home(folder: Path, application: str, world: World) -> Home:
    """Create the home of an application under test. It outlives crashes, and its commits are writes of the world."""
    private.make(folder)
    content = {"format": FORMAT, "application": application, "identity": IDENTITY, "store": "file"}
    write_atomically(folder / "falkirk.json", json.dumps(content))
    home = open_home(folder, application, visits=True, clock=world.time)
    home.store.signing_key()
    home.store.before_commits(world.write)
    return home


class MemoryTopics:
    """The topics of a world, with the methods of `Topics` that a run without a broker calls. Each has one partition."""

    def __init__(self, world: World) -> None:
        self._world = world

    def facts(self, topic: str) -> TopicFacts:
        """See Topics."""
        return TopicFacts(
            topic=topic, partitions=1, cleanup_policy="delete", max_message_bytes=RECORD_BYTES_MAX, retention_ms=-1,
            message_timestamp_type="CreateTime",
        )  # fmt: skip

    def first_positions(self, topic: str) -> Offsets:
        """See Topics. A test's records never expire."""
        return {0: Offset(0)}

    def end_positions(self, topic: str) -> Offsets:
        """See Topics."""
        return {0: self._world.end(LogId(topic))}

    readable_positions = end_positions


@dataclass(frozen=True, kw_only=True)
class KitContext(Context):
    """The context of an application under test. Args: world: has its topics, and is its clock."""

    world: World

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", cast("Topics", MemoryTopics(self.world)))

    def oldest(self, topic: LogId) -> Offsets:
        """See Context. No cluster is away."""
        return self.topics.first_positions(topic)

    def records(
        self, session: SparkSession, topic: LogId, first: Offsets, last: Offsets, *, reader: str, headers: bool
    ) -> DataFrame:
        """See Context."""
        begin, end = first.get(0, Offset(0)), last[0]
        return kafka_rows(session, topic, [(o, r) for o, r in self.world.since(topic, begin) if o < end])


def context_of(world: World, home: Home, session: SparkSession, state_partitions: int) -> KitContext:
    """Return the context of an application under test."""
    return KitContext(
        home=home, connection=Connection.of("test-kit:0"), session=session, state_partitions=state_partitions,
        clock=world, world=world,
    )  # fmt: skip


def kafka_rows(session: SparkSession, topic: LogId, records: Sequence[tuple[Offset, MemoryRecord]]) -> DataFrame:
    """Return records with the columns of Spark's Kafka source."""
    schema = kafka_schema()
    if not records:
        return empty(session, schema)
    rows = [
        (
            r.key, r.value, topic_name(topic), 0, offset, datetime.fromtimestamp(r.timestamp_us / 1e6, UTC), 0,
            [*r.headers] or None,
        )
        for offset, r in records
    ]  # fmt: skip
    return session.createDataFrame(rows, schema).coalesce(1)
