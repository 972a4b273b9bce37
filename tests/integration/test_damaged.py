"""Damaged checkpoints: an older one that is whole is used, and the outputs are still exactly once."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.local.broker import Broker
from falkirk.logs.connection import Connection
from falkirk.logs.topics import Topics
from falkirk.query import Query, run_here
from falkirk.regions.checkpoint import committed_batches
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


@pytest.mark.parametrize(
    "harm", [tear_commit, delete_state, overwrite_state],
    ids=lambda harm: harm.__name__,
)  # fmt: skip
def test_an_older_checkpoint_is_used(
    broker: Broker, spark: "SparkSession", home: Path, tag: str, harm: Callable[[Path, int], None]
) -> None:
    connection = Connection.of(broker.bootstrap)
    topics, events, counts = Topics(connection), f"events-{tag}", f"counts-{tag}"
    for topic in (events, counts):
        topics.create(topic, 2, {})

    def application() -> fk.App:
        app = fk.App("damaged", home=home)
        app.source("events", fk.Kafka(events, schema="word STRING NOT NULL, n INT", key="word"))
        app.add_processor(
            "counted",
            lambda events: events.groupBy("word").agg(F.count("*").alias("version"), fk.latest("n")),
            reads=("events",),
            policy=fk.Lazy("1 second"),
        )
        app.sink("counts", "counted", fk.Kafka(counts, key="word"))
        return app

    def has_committed(query: Query, batch: int) -> bool:
        assert query.isActive, query.exception()
        return query.status[0].last_commit >= batch

    with Load(broker.bootstrap, events) as load:
        first = run_here(application(), connection)
        wait_until(lambda: has_committed(first, 4), 120, "five checkpoints")
        first.stop()
        folder = home / "regions" / "counts"
        newest = committed_batches(folder)[-1]
        harm(folder, newest)
        second = run_here(application(), connection)
        wait_until(lambda: has_committed(second, newest + 2), 120, "checkpoints beyond the damaged one")
        restored = [row.restored_batch for row in second._home.store.incarnations("counts")]
    wait_until(lambda: sum(topics.end_positions(counts).values()) >= load.sent, 120, "all results")
    behind = second.status[0].last_commit
    wait_until(lambda: has_committed(second, behind + 1), 120, "a checkpoint behind everything")
    second.stop()
    assert restored[-1] == newest - 1
    verdict = judge_counts(broker.bootstrap, events, counts)
    assert verdict.counts.observed_outputs == load.sent, verdict.anomalies
    assert verdict.counts.duplicates == verdict.counts.lost == verdict.counts.broken_sequences == 0
