"""A loss of power, on real Spark: recorded data survives, and readers detect a lost file.

The disk is a port over `os.fsync` (`tests/disks.py`): it forgets all files of Spark's that nobody has synced.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.platform import durable, local_data
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.runtime.spark.sinks import folder as folder_sink
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from falkirk.steps.differential import Collection
from tests.disks import ForgetfulDisk, SyncedBefore
from tests.integration.live import Wire, await_one, failed
from tests.support import on_disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 10


class Counting:
    """An application that counts words, by a state and by an iteration, into folders."""

    def __init__(self, wire: Wire, home: Path, *names: str) -> None:
        self.wire, self.home, self.topic = wire, home, wire.topic("events", 1)
        self.sinks = {name: home.parent / f"out-{name}" for name in names}
        self.sent: Counter[int] = Counter()
        self.app = fk.App("counting", home=home)
        self.app.source("events", fk.Kafka(self.topic, schema="word INT NOT NULL"))

        @self.app.batch(rows=ROWS, state="word INT, n LONG")
        def totals(events: "DataFrame", totals: "DataFrame") -> "tuple[DataFrame, DataFrame]":
            new = totals.unionByName(events.select("word", F.lit(1).cast("long").alias("n")))
            counted = new.groupBy("word").agg(F.sum("n").alias("n"))
            return counted.withColumn("twice", F.col("n") * 2), counted

        if "changes" in names:

            @self.app.iterate(rows=ROWS)
            def changes(events: Collection) -> Collection:
                return events.groupBy("word").count("n")

        for name, path in self.sinks.items():
            self.app.sink(f"{name}_out", name, fk.Files(str(path), "json"))

    def start(self) -> Query:
        return run_here(self.app, Connection.of(self.wire.bootstrap))

    def send(self) -> None:
        words = [n % 3 for n in range(ROWS)]
        self.sent.update(words)
        self.wire.send(self.topic, [{"word": word} for word in words])

    def run(self, epochs: int) -> None:
        """Work off all that was sent, and stop."""
        query = self.start()
        try:
            for path in self.sinks.values():
                last = path / f"epoch={epochs - 1:010d}"
                await_one(query, last.exists, f"{last}")
        finally:
            query.stop()

    def rows(self, name: str, epoch: str = "*") -> list[dict[str, Any]]:
        files = sorted(self.sinks[name].glob(f"epoch={epoch}/*.json"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def totals(self, epochs: int) -> dict[int, int]:
        """Return the count of each word after a number of epochs."""
        return {r["word"]: r["n"] for r in self.rows("totals", f"{epochs - 1:010d}")}

    def check(self, epochs: int) -> None:
        counted: Counter[tuple[int, int]] = Counter()
        for row in self.rows("changes"):
            counted[row["word"], row["n"]] += row["difference"]
        assert self.totals(epochs) == {word: n for (word, n), there in counted.items() if there} == dict(self.sent)

    def newest(self, name: str) -> tuple[Epoch, EpochLog]:
        """Return the newest epoch with a saved state."""
        with open_home(self.home, self.app.name) as home:
            log = EpochLog(f"epochs:{name}", name, home.data_of(name), home.store)
            return [epoch for epoch in log.epochs() if epoch.saved][-1], log


def test_a_loss_of_power(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = ForgetfulDisk(tmp_path, monkeypatch)
    records = SyncedBefore(disk, monkeypatch, home / "regions")
    counting = Counting(Wire(bootstrap=broker.bootstrap, tag=tag), home, "totals", "changes")
    counting.send()
    counting.send()
    counting.run(2)
    counting.check(2)
    assert records.early == []
    assert min(records.seen[kind] for kind in ("epochs", "states", "runs", "folders")) > 0, records.seen
    within = [home / "regions", *counting.sinks.values()]
    forgotten = disk.lose_power(*within)
    kept = [path for path in forgotten if "_files" not in path and "once" not in path]
    assert not kept, "rounds leave files that no state names; all else was recorded, and is lost"
    counting.send()
    counting.run(3)
    counting.check(3)

    epoch, log = counting.newest("totals")
    file = next(on_disk(log.path(str(epoch.state))).rglob("*.parquet"))
    os.truncate(file, file.stat().st_size // 2)
    there = counting.rows("totals")
    query = counting.start()
    counting.send()
    told = failed(query)
    query.stop()
    assert (told.condition, told.parameters["file"]) == ("STATE_DAMAGED", str(file))
    assert counting.rows("totals") == there


def test_without_the_sync_a_loss_of_power_takes_what_was_recorded(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with the mechanism off: no file of Spark's is synced before the record. Published rows are lost, and so
    is the state, which the manifest still finds."""
    disk = ForgetfulDisk(tmp_path, monkeypatch)

    def sync(folder: Path) -> durable.Manifest:
        """Return the manifest, and leave the files to the operating system."""
        with monkeypatch.context() as off:
            off.setattr(durable.os, "fsync", lambda opened: None)
            return durable.sync(folder)

    for module in (local_data, folder_sink):
        monkeypatch.setattr(module, "sync", sync)
    counting = Counting(Wire(bootstrap=broker.bootstrap, tag=tag), home, "totals")
    counting.send()
    counting.run(1)
    assert counting.totals(1) == dict(counting.sent)
    forgotten = disk.lose_power(home / "regions", *counting.sinks.values())
    assert any(path.startswith("out-totals/epoch=") for path in forgotten)
    assert counting.totals(1) == {}
    query = counting.start()
    counting.send()
    told = failed(query)
    query.stop()
    assert told.condition == "STATE_DAMAGED"


def test_without_the_manifest_a_lost_state_counts_as_an_empty_one(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with the other mechanism off: Spark reads the files that are left, and the next totals are too small."""
    monkeypatch.setattr(local_data, "check_files", lambda folder, manifest, **contents: None)
    counting = Counting(Wire(bootstrap=broker.bootstrap, tag=tag), home, "totals")
    counting.send()
    counting.run(1)
    epoch, log = counting.newest("totals")
    for file in on_disk(log.path(str(epoch.state))).rglob("*.parquet"):
        file.unlink()
    before = Counter(counting.sent)
    counting.send()
    counting.run(2)
    assert counting.totals(2) == dict(counting.sent - before)
