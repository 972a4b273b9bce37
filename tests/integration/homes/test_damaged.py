"""Damaged checkpoints: an older one that is whole is used, and the outputs are still exactly once."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.runtime.spark.live.checkpoint import committed_batches
from falkirk.runtime.supervision import supervised_region
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import Load, judge_counts
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _newest_state(folder: Path, batch: int) -> list[Path]:
    return [f for f in (folder / "state").rglob(f"{batch + 1}_*.changelog") if not f.name.startswith(".")]


def tear_commit(folder: Path, batch: int) -> None:
    file = folder / "commits" / str(batch)
    file.write_text(file.read_text()[:20])


def delete_state(folder: Path, batch: int) -> None:
    found = _newest_state(folder, batch)
    assert found
    found[0].unlink()


def overwrite_state(folder: Path, batch: int) -> None:
    """Present, of the same length, and wrong: only Spark can tell."""
    for file in _newest_state(folder, batch):
        content = bytearray(file.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 16] = bytes(b ^ 0x5A for b in content[middle : middle + 16])
        file.write_bytes(content)


def overwrite_unseen(folder: Path, batch: int) -> None:
    """The same. Spark may name another task's lost connection instead; the test hides what it says."""
    overwrite_state(folder, batch)


def test_an_older_checkpoint_is_used(
    broker: Broker, spark: "SparkSession", home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times the newest checkpoint is damaged while the application is stopped, each time in another way."""
    connection = Connection.of(broker.bootstrap)
    topics, events, counts = Topics(connection), f"events-{tag}", f"counts-{tag}"
    for topic in (events, counts):
        topics.create(topic, 2, {})

    @cache
    def application() -> fk.App:
        app = fk.App("damaged", home=home)
        app.source("events", fk.Kafka(events, schema="word STRING NOT NULL, n INT", key="word"))
        app.add_processor(
            "counted",
            lambda events: events.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n")),
            reads=("events",),
            policy=fk.Lazy("1 second"),
        )
        app.sink("counts", "counted", fk.Kafka(counts, key="word"))
        return app

    def await_commit(query: Query, batch: int) -> None:
        def committed() -> bool:
            assert query.isActive, query.exception()
            return query.status[0].last_commit >= batch

        wait_until(committed, 120, f"commit {batch}")

    folder, query = home / "regions" / "counts", run_here(application(), connection)
    with Load(broker.bootstrap, events, rate=50.0) as load:
        for harm in (tear_commit, delete_state, overwrite_state, overwrite_unseen):
            if harm is overwrite_unseen:
                monkeypatch.setattr(supervised_region, "damage_of", lambda *about: None)
            begun = committed_batches(folder)[-1] if committed_batches(folder) else 0
            await_commit(query, begun + 2)
            query.stop()
            newest, before = committed_batches(folder)[-1], len(query._home.store.incarnations("counts"))
            harm(folder, newest)
            query = run_here(application(), connection)
            await_commit(query, newest + 1)  # the damaged one itself may be seen until Spark looks into it
            restored = [row.restored_batch for row in query._home.store.incarnations("counts")][before:]
            # A slow machine may cause later restarts.
            assert newest - 1 in restored[:2], f"{harm.__name__}: the first failure shows it"
    wait_until(lambda: sum(topics.end_positions(counts).values()) >= load.sent, 120, "all results")
    behind = query.status[0].last_commit
    await_commit(query, behind + 1)
    query.stop()
    verdict = judge_counts(broker.bootstrap, events, counts)
    assert verdict.counts.observed_outputs == load.sent, verdict.anomalies
    assert verdict.counts.duplicates == verdict.counts.lost == verdict.counts.broken_sequences == 0
