"""A checkpoint that Spark has deleted is kept for a rollback, with its state, and the application resumes from it."""

import shutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.plan.plan import Plan
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.live.checkpoint import committed_batches
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from falkirk.spark_setup.spark import RETAIN
from falkirk.user_tools.commands.history.application import OfflineApplication
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORDS = ["a", "b", "a", "a"]


@cache
def application(wire: Wire, home: Path) -> fk.App:
    app = fk.App("kept", home=home, history=2)
    app.source("events", fk.Kafka(f"events-{wire.tag}", schema="word STRING NOT NULL", key="word"))
    app.add_processor(
        "counted",
        lambda events: events.groupBy("word").agg(F.count("*").alias("version")),
        reads=("events",),
        policy=fk.Lazy("1 second"),
    )
    app.sink("counts", "counted", fk.Kafka(f"counts-{wire.tag}", key="word"))
    return app


def await_commit(query: Query, batch: int) -> None:
    def committed() -> bool:
        assert query.isActive, query.exception()
        return query.status[0].last_commit >= batch

    wait_until(committed, 120, f"commit {batch}")


def test_a_point_from_before_an_idle_time_can_be_gone_back_to(
    broker: Broker, spark: "SparkSession", home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire, connection = Wire(bootstrap=broker.bootstrap, tag=tag), Connection.of(broker.bootstrap)
    monkeypatch.setattr(Plan, "retained_of", lambda self, region, history: 6)
    retained = spark.conf.get(RETAIN)
    spark.conf.set(RETAIN, "6")
    try:
        wire.topic("events")
        wire.topic("counts")
        query = run_here(application(wire, home), connection)
        folder = home / "regions" / "counts"
        for round_ in (1, 2):
            wire.send(f"events-{tag}", [{"word": word} for word in WORDS])
            wire.await_count(f"counts-{tag}", round_ * len(WORDS), query)
            await_commit(query, query.status[0].last_commit + 2)
        await_commit(query, query.status[0].last_commit + 6)  # without input
        query.stop()
    finally:
        spark.conf.set(RETAIN, str(retained))
    with open_home(home, "kept") as opened:
        opened.take_charge()
        visit = OfflineApplication(
            application(wire, home), opened, connection, runs=False, history=fk.App("kept", history=2).history
        )
        past = [p for p in visit.history() if p.region == "counts"]
        (old,) = [p for p in past if p.since == len(WORDS)]
        assert old.checkpoint.number not in committed_batches(folder), "Spark has deleted it"
        shutil.rmtree(folder / "state")  # as if it had deleted all that it may
        goes = visit.roll_back({"counts": old.checkpoint.number}, force=True).goes
        assert goes == {"counts": old.checkpoint.number}
    query = run_here(application(wire, home), connection)
    wire.await_count(f"counts-{tag}", 3 * len(WORDS), query)
    await_commit(query, old.checkpoint.number + 2)
    query.stop()
    versions = {word: [row["version"] for row in wire.rows(f"counts-{tag}") if row["word"] == word] for word in "ab"}
    assert versions == {"a": [1, 2, 3, 4, 5, 6, 4, 5, 6], "b": [1, 2, 2]}, "it counts on from what it had counted then"
