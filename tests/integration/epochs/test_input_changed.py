"""A batch whose topic was replaced by another one: Falkirk reports it before it cuts or computes an epoch, so the home
stays unchanged."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import falkirk as fk
from falkirk.errors import LogError
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from tests.integration.live import Wire, await_one, failed
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 10


class Passing:
    """An application whose batch passes a topic's records on, and has done so with one epoch."""

    def __init__(self, wire: Wire, home: Path) -> None:
        self.wire, self.home = wire, home
        self.events, self.out = wire.topic("events", 1), wire.topic("out", 1)
        self.app = fk.App("passing", home=home)
        self.app.source("events", fk.Kafka(self.events, schema="n INT NOT NULL"))

        @self.app.stream(fk.Eager())
        def passed(events: "DataFrame") -> "DataFrame":
            return events.select("n")

        self.app.sink("passed", passed, fk.Kafka(self.out))

    def send(self, count: int, partition: int = 0) -> None:
        self.wire.send(self.events, [{"n": n} for n in range(count)], partition)

    def run(self) -> Query:
        return run_here(self.app, Connection.of(self.wire.bootstrap))

    def epochs(self) -> int:
        with open_home(self.home, self.app.name) as home:
            return len(EpochLog("epochs:passed", "passed", home.data_of("passed"), home.store).epochs())


@pytest.fixture
def passing(spark: "SparkSession", broker: Broker, home: Path, tag: str) -> Passing:
    made = Passing(Wire(bootstrap=broker.bootstrap, tag=tag), home)
    query = made.run()
    try:
        made.send(ROWS)
        await_one(query, lambda: made.wire.count(made.out) == ROWS, "the first epoch")
    finally:
        query.stop()
    return made


def _made_again(passing: Passing) -> None:
    """It has other records now, and fewer."""
    wire, topic = passing.wire, passing.events
    wire.admin.delete_topics([topic])[topic].result()
    wait_until(lambda: topic not in wire.admin.list_topics(timeout=10).topics, 30, "it to be gone")
    wire.topic("events", 1)
    passing.send(3)


def _expired(passing: Passing) -> None:
    """Some of the newer records were deleted before the batch read them."""
    passing.send(ROWS)
    passing.wire.expire(passing.events)
    passing.send(ROWS)


def _told(passing: Passing) -> fk.FalkirkError:
    """Run; return why it does not start, or has ended."""
    try:
        query = passing.run()
    except LogError as error:
        return error
    try:
        return failed(query)
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("change", "condition", "decided"), [(_made_again, "TOPIC_REPLACED", 1), (_expired, "INPUT_EXPIRED", 2)]
)
def test_it_is_told_at_the_next_start(
    passing: Passing, change: Callable[[Passing], None], condition: str, decided: int
) -> None:
    change(passing)
    for _ in range(2):  # no more is decided by the second start
        told = _told(passing)
        assert (told.condition, told.parameters["topic"]) == (condition, passing.events)
        assert (passing.epochs(), passing.wire.count(passing.out)) == (decided, ROWS)


def test_another_partition_is_not_begun_with(passing: Passing) -> None:
    """Its results would be out, and the home refused at the next start."""
    query = passing.run()
    passing.wire.widen(passing.events, 2)
    passing.send(ROWS, partition=1)
    told = failed(query)
    assert (told.condition, told.parameters["before"], told.parameters["now"]) == ("PARTITIONS_CHANGED", 1, 2)
    query.stop()
    assert (passing.epochs(), passing.wire.count(passing.out)) == (1, ROWS)
