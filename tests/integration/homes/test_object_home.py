"""A home in an object store: batches of a real Spark with their data on S3 and their decisions in PostgreSQL."""

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.stream import Stream
from falkirk.kafka_client.connection import Connection
from falkirk.plan.planner import plan_application
from falkirk.platform.object_data import ObjectData
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.live.shared_checkpoints import SharedCheckpoints
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from falkirk.steps.differential import Collection
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import LogId
from falkirk.theory.times import TopicPartition
from falkirk.user_tools.commands.history.application import OfflineApplication
from tests.integration.cutting import Place, run_until_cut_off
from tests.integration.homes.once import assert_each_once
from tests.integration.live import Wire, await_one
from tests.objects import BUCKET, ObjectStore
from tests.postgres import Postgres
from tests.support import outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 10
FAULTS = ("refuse", "repeat", "cut", "half")
PLACES: dict[str, Place] = {
    "rows written, not complete": (ObjectData, "sync", False),
    "recorded, not released": (EpochLog, "record", True),
}


class Machines:
    """An application whose every run is in a new folder, as on another machine.

    Args: chained: a second batch reads the results of the first one.
    """

    def __init__(self, wire: Wire, postgres: Postgres, tag: str, folder: Path, *, chained: bool = True) -> None:
        self.wire, self.folder, self.runs, self.sent = wire, folder, 0, 0
        self.topics = wire.topic("events", 1), wire.topic("out", 1)
        self.app = fk.App("shop", home=f"s3a://{BUCKET}/{tag}", store=postgres.url())
        self.app.source("events", fk.Kafka(self.topics[0], schema="n LONG NOT NULL"))

        @self.app.batch(rows=ROWS, state="n LONG")
        def seen(events: "DataFrame", seen: "DataFrame") -> "tuple[DataFrame, DataFrame]":
            before = F.lit(seen.count()).alias("before")
            return events.select("n", before, (F.col("n") * 2).alias("twice")), seen.unionByName(events.select("n"))

        if chained:

            @self.app.batch(rows=1)  # of epochs
            def passed(seen: "DataFrame") -> "DataFrame":
                return seen.select("n", "before", "twice")

        self.app.sink("out", "passed" if chained else "seen", fk.Kafka(self.topics[1]))

    def send(self) -> None:
        self.wire.send(self.topics[0], [{"n": n} for n in range(self.sent, self.sent + ROWS)])
        self.sent += ROWS

    def arrived(self) -> list[dict[str, Any]]:
        return self.wire.rows(self.topics[1])

    def is_done(self, query: Query) -> bool:
        assert query.isActive, query.exception()
        return len(self.arrived()) >= self.sent

    def run(self, broker: Broker, place: Place | None, is_done: Callable[[Query], bool] | None = None) -> None:
        self.app.home = self.folder / f"machine-{self.runs}"
        self.runs += 1
        run_until_cut_off(self.app, broker, place, self.send, is_done or self.is_done)

    def run_with_faults(self, broker: Broker, objects: ObjectStore) -> None:
        """Run while the object store is away, and then while it fails one of six requests."""
        drawn, is_away = random.Random(7), [False]

        def fault(method: str, path: str) -> str:
            return drawn.choice(FAULTS) if drawn.random() < 1 / 6 else ""

        def is_done(query: Query) -> bool:
            if not is_away[0] and self.is_done(query):  # the query has started, and has read its state
                self.send()
                is_away[0], objects.fault = True, lambda method, path: "refuse"
            if "the object store" in str(query.status):
                objects.fault = fault
            return is_away[0] and self.is_done(query)

        try:
            self.run(broker, None, is_done)
        finally:
            objects.fault = lambda method, path: ""

    def run_without_rights(self, broker: Broker, objects: ObjectStore) -> None:
        """Run until the object store refuses access, which ends a batch at once."""

        def is_refused(query: Query) -> bool:
            objects.fault = lambda method, path: "deny"
            return getattr(query.exception(), "condition", "") == "DATA_UNUSABLE"

        try:
            self.run(broker, None, is_refused)
        finally:
            objects.fault = lambda method, path: ""


def test_another_machine_resumes_from_the_object_store(
    spark: "SparkSession", broker: Broker, postgres: Postgres, objects: ObjectStore, tag: str, tmp_path: Path
) -> None:
    machines = Machines(Wire(bootstrap=broker.bootstrap, tag=tag), postgres, tag, tmp_path, chained=False)
    for _ in range(2):
        machines.run(broker, None)
    assert_each_once(machines.arrived(), 2 * ROWS)
    assert {row["before"] for row in machines.arrived()} == {0, ROWS}, "the second machine has read the state"
    assert not list(tmp_path.glob("machine-*/regions")), "no data on a local disk"
    place = f"{tag}/regions/seen/"
    files = [path.partition(place)[2] for method, path in objects.requests if method == "PUT" and place in path]
    folders = {file.partition("/")[0] for file in files if file.endswith(".parquet")}
    assert len(folders) >= 4, f"results and states of two epochs: {files}"


@pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it takes two minutes")
def test_every_result_is_there_once_wherever_a_machine_was_lost(
    spark: "SparkSession", broker: Broker, postgres: Postgres, objects: ObjectStore, tag: str, tmp_path: Path
) -> None:
    machines = Machines(Wire(bootstrap=broker.bootstrap, tag=tag), postgres, tag, tmp_path)
    machines.run_with_faults(broker, objects)
    for place in PLACES.values():
        machines.run(broker, place)
    machines.run(broker, None)
    assert_each_once(machines.arrived(), machines.sent)
    assert not list(tmp_path.glob("machine-*/regions")), "no data on a local disk"
    with open_home(tmp_path / "reader", "shop", machines.app.store, data=machines.app.data, visits=True) as home:
        log = EpochLog("epochs:seen", "seen", home.data_of("seen"), home.store)
        known = {name for epoch in log.epochs() for name in (epoch.folder, epoch.state)}
        assert {child.name for child in log.folder.children()} <= known, "what was cut off is deleted"
        newest = [epoch for epoch in log.epochs() if epoch.saved][-1]
        system, files = (log.state(newest) / "own").arrow()
        kept = [n for file in files for n in parquet.read_table(file, filesystem=system)["n"].to_pylist()]
        assert len(kept) >= ROWS
        assert sorted(kept) == list(range(len(kept)))
    machines.run_without_rights(broker, objects)


class Counting:
    """A live region that counts by key. Its every run is in a new folder, as on another machine.

    Args: key: of the input, if its partitions have an order by key; without one, another region orders it.
    """

    def __init__(self, wire: Wire, postgres: Postgres, tag: str, folder: Path, key: str | None = None) -> None:
        self.wire, self.folder, self.runs, self.sent = wire, folder, 0, 0
        self.topics = wire.topic("events", 1), wire.topic("out", 1)
        self.app = fk.App("shop", home=f"s3a://{BUCKET}/{tag}", store=postgres.url(), state_partitions=2)
        self.app.source("events", fk.Kafka(self.topics[0], schema="word STRING NOT NULL", key=key))
        self.app.add_processor(
            "counts", lambda events: events.groupBy("word").agg(F.count("*").alias("version")),
            reads=("events",), policy=fk.Lazy("2 seconds"),
        )  # fmt: skip
        self.app.sink("out", "counts", fk.Kafka(self.topics[1], key="word"))

    def send(self) -> None:
        self.wire.send(self.topics[0], [{"word": f"w{n % 3}"} for n in range(ROWS)])
        self.sent += ROWS

    def start(self, broker: Broker) -> Query:
        self.runs += 1
        self.app.home = self.folder / f"machine-{self.runs}"
        query = run_here(self.app, Connection.of(broker.bootstrap))
        self.send()
        self.wire.await_count(self.topics[1], self.sent, query)
        return query

    def await_saved(self, query: Query) -> None:
        """Wait until a checkpoint covers everything that was sent."""
        log = LogId(self.topics[0])
        home, name = query._home, query.status[0].name
        files = SharedCheckpoints(name, self.folder / "none", home.data_of(name), home.store, log)
        await_one(
            query,
            lambda: (numbers := files.numbers()) and files.end_offsets(numbers[-1], log).get(0) == self.sent,
            "a checkpoint in the object store",
        )

    def is_exact(self) -> bool:
        """Return whether each version of each count is there once."""
        found = Counter((row["word"], row["version"]) for row in self.wire.rows(self.topics[1]))
        words = Counter(f"w{n % 3}" for n in range(ROWS))
        runs = self.sent // ROWS
        return found == Counter((word, n + 1) for word, times in words.items() for n in range(times * runs))


def test_another_machine_resumes_a_live_region(
    spark: "SparkSession", broker: Broker, postgres: Postgres, objects: ObjectStore, tag: str, tmp_path: Path
) -> None:
    """The input has no order by key, so there are two regions: one that orders it, and one that counts."""
    counting = Counting(Wire(bootstrap=broker.bootstrap, tag=tag), postgres, tag, tmp_path)
    for _ in range(2):
        query = counting.start(broker)
        counting.await_saved(query)
        incarnations = query._home.store.incarnations(query.status[0].name)
        query.stop()
    assert counting.is_exact(), counting.wire.rows(counting.topics[1])
    assert [row.restored_batch >= 0 for row in incarnations] == [False, True], "the second one has read the state"


@pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: unit tests roll these checkpoints back")
def test_a_live_region_is_rolled_back(
    spark: "SparkSession", broker: Broker, postgres: Postgres, objects: ObjectStore, tag: str, tmp_path: Path
) -> None:
    counting = Counting(Wire(bootstrap=broker.bootstrap, tag=tag), postgres, tag, tmp_path, key="word")
    for _ in range(2):
        query = counting.start(broker)
        counting.await_saved(query)
        name = query.status[0].name
        query.stop()
    covers = OffsetFrontier.of({TopicPartition(topic=counting.topics[0], partition=0): ROWS})
    with open_home(tmp_path / "visitor", "shop", counting.app.store, data=counting.app.data) as home:
        visit = OfflineApplication(
            counting.app, home, Connection.of(broker.bootstrap), runs=False, history=counting.app.history
        )
        old = next(p.checkpoint for p in visit.history() if p.checkpoint.read == covers)
        assert outcome(lambda: visit.roll_back({name: old.number}, force=False)) == "CONTRADICTS_RELEASED"
        assert visit.roll_back({name: old.number}, force=True).goes[name] == old.number
    before = Counter((row["word"], row["version"]) for row in counting.wire.rows(counting.topics[1]))
    counting.sent += ROWS  # the results after the checkpoint are published again
    query = counting.start(broker)
    query.stop()
    found = Counter((row["word"], row["version"]) for row in counting.wire.rows(counting.topics[1]))
    again = {result for result, times in found.items() if times == 2}
    assert max(found.values()) == 2
    assert len(again) == ROWS, "it knows those of the first run, and the others no more"
    assert again < set(before)


def test_all_units_can_have_such_a_home(spark: "SparkSession") -> None:
    def app() -> fk.App:
        made = fk.App("shop", home=f"s3a://{BUCKET}/shop", store="postgresql://user@database/falkirk")
        made.source("events", fk.Kafka("events", schema="n LONG NOT NULL", key="n"))
        return made

    def counted(events: Stream) -> Stream:
        return events.groupBy("n").agg(F.count("*").alias("times"))

    live, twins, looping = app(), app(), app()
    for each, policy in ((live, fk.Lazy("5 seconds")), (twins, fk.Lazy("5 seconds", twins=True))):
        each.add_processor("kept", counted, reads=("events",), policy=policy)
        each.sink("out", "kept", fk.Kafka("out"))

    @looping.iterate(rows=ROWS)
    def looped(events: Collection) -> Collection:
        return events.groupBy("n").count("times")

    looping.sink("out", looped, fk.Kafka("out"))
    for each in (live, twins, looping):
        plan_application(each, spark, "deadbeef")
