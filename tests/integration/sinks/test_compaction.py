"""Kafka compacts a topic by epochs, and its notes, while epochs arrive and processes are cut off."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.checker import Due, FoundRow, compare_compacted
from falkirk.errors import SparkError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.ranges import LogRecord, read_range
from falkirk.kafka_client.signing import RejectedHeader
from falkirk.kafka_client.topics import Topics
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.sinks.epoch_notes import notes_back, topic_of_notes
from falkirk.runtime.spark.sinks.epoch_topic import EpochTopicTarget
from falkirk.spark_setup import broker as local_broker
from falkirk.theory.ids import EpochNumber, LogId
from falkirk.user_tools.commands.epoch_records import EpochRecords, UnknownEpoch
from tests.integration.targets import CutOff, await_end_of_transactions, cut_off

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
KEYS = 4
#: Each epoch has each key twice.
ROWS = 2 * KEYS
#: Epochs after the first compaction was seen, and how many may come before it.
AFTER, BEFORE_MAX = 6, 300
#: The broker closes a segment after this time, and looks for work of the cleaner ten times a second.
SETTINGS = {
    "log.roll.ms": "300", "log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.delete.retention.ms": "100",
}  # fmt: skip


@pytest.fixture
def context(spark: "SparkSession", tmp_path: Path) -> Iterator[Context]:
    """A home, and a broker whose cleaner runs all the time."""
    folder = tmp_path / "broker"
    running = local_broker.start(folder, settings=SETTINGS, java_options=local_broker.SHORT_RUN)
    try:
        with open_home(tmp_path / "home", "shop") as home:
            connection = Connection.of(running.bootstrap)
            yield Context(session=spark, connection=connection, home=home, state_partitions=2)
    finally:
        local_broker.stop(folder)


def target(context: Context) -> EpochTopicTarget:
    """Return a target that knows only the stored epochs."""
    return EpochTopicTarget(fk.EpochTopic("out", key="k", compacted=True), context, "out")


def rows(spark: "SparkSession", number: int) -> "DataFrame":
    """Return an epoch with each key twice. `n` counts all rows."""
    row = F.col("id")
    return spark.range(ROWS).select((row % KEYS).alias("k"), (row + number * ROWS).alias("n"), row.alias(ROW))


def read(topics: Topics, connection: Connection) -> list[LogRecord]:
    """Return the records that a reader of committed records finds."""
    await_end_of_transactions(topics, "out")
    first, last = topics.first_positions("out"), topics.readable_positions("out")
    return list(read_range(connection, "out", first, last, committed=True))


def deliver(context: Context, number: int) -> None:
    """Deliver an epoch: at once, after a crash before the commit, or while a former owner stands still."""
    epoch, data, out = EpochNumber(number), rows(context.session, number), target(context)
    if number % 3 == 1:
        out._confirm = cast(Any, cut_off)
        with pytest.raises(CutOff):
            out.deliver(epoch, data, few=True)
    elif number % 3 == 2:
        out._confirm = cast(Any, lambda: target(context).deliver(epoch, data, few=True) and None)
        with pytest.raises(SparkError):
            out.deliver(epoch, data, few=True)
    target(context).deliver(epoch, data, few=True)
    assert target(context).delivered() == number + 1


@SOAK
def test_compaction_between_epochs_and_crashes_loses_nothing_and_repeats_nothing(context: Context) -> None:
    connection, topics = context.connection, Topics(context.connection)
    notes, number, end = topic_of_notes(context.home, "out"), 0, BEFORE_MAX

    def is_compacted() -> bool:
        first, last = topics.first_positions(notes)[0], topics.readable_positions(notes)[0]
        kept = len(list(notes_back(connection, notes, first, last)))
        return len(read(topics, connection)) < number * ROWS and kept < number

    while number < end:
        deliver(context, number)
        number += 1
        if end == BEFORE_MAX and is_compacted():
            end = number + AFTER
    assert end < BEFORE_MAX, "the cleaner has not run"
    target(context).deliver(EpochNumber(number - 1), rows(context.session, number - 1), few=True)
    found = read(topics, connection)
    table = {record.key: json.loads(record.value or b"") for record in found}
    last = (number - 1) * ROWS + KEYS
    assert table == {b"%d" % k: {"k": k, "n": last + k} for k in range(KEYS)}
    numbers = [json.loads(record.value or b"")["n"] for record in found]
    assert len(numbers) == len(set(numbers))
    assert verdict(found, number) == {}
    lost = {last, last - KEYS}  # the rows of one key in the last epoch
    assert verdict([r for r in found if json.loads(r.value or b"")["n"] not in lost], number) == {"missing": 1}
    epochs_known(context, found)


def verdict(found: list[LogRecord], number: int) -> dict[str, int]:
    """Return the faults that the checker finds."""
    due = [
        Due(epoch=e, count=ROWS, rows=[{"k": n % KEYS, "n": n} for n in range(e * ROWS, (e + 1) * ROWS)])
        for e in range(number)
    ]
    there = [
        FoundRow(place=f"{r.partition}@{r.offset}", values=json.loads(r.value or b""), partition=r.partition)
        for r in found
    ]
    return {str(kind): rows for kind, rows in compare_compacted(due, there, ["k"]).counts.items()}


def epochs_known(context: Context, found: list[LogRecord]) -> None:
    """See that the notes name the epoch of a record, or nobody knows it. No record counts as another program's."""
    batch = cast(Any, SimpleNamespace(log=LogId.of_epochs("out")))
    records, known = EpochRecords(fk.EpochTopic("out", key="k"), "out", batch, context), 0
    for record in found:
        writer = records.writer(record)
        if isinstance(writer, RejectedHeader):
            assert isinstance(writer, UnknownEpoch), writer
        else:
            known += 1
            assert writer.numbers[-1] == json.loads(record.value or b"")["n"] // ROWS
    assert known >= KEYS, "the newest note is there"
