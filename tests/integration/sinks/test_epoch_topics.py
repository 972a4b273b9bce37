"""Topics by epochs: other owners, operators and settings of a topic change nothing that its readers have seen.

`tests/contract` and test_targets_cut.py test the rest."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors import HomeError, SparkError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.ranges import LogRecord, read_range
from falkirk.kafka_client.topics import Topics
from falkirk.recovery.ownership.folder import Home, open_home
from falkirk.runtime.spark.context import Context, Storage
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.sinks import epoch_topic
from falkirk.runtime.spark.sinks.comparison import SinkComparison, concerns_one_sink
from falkirk.runtime.spark.sinks.epoch_notes import EpochNotes
from falkirk.runtime.spark.sinks.epoch_topic import EpochTopicTarget
from falkirk.spark_setup.broker import Broker
from falkirk.theory.ids import EpochNumber
from tests.integration.live import Wire
from tests.integration.targets import ROWS, CutOff, await_end_of_transactions, cut_off, epoch
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ZERO, ONE, TWO = EpochNumber(0), EpochNumber(1), EpochNumber(2)


@dataclass
class Shop:
    """A home whose sink `out` writes a topic by epochs."""

    wire: Wire
    context: Context

    def out(self, topic: str, *, place: Storage | None = None, elsewhere: bool = False, **to: Any) -> EpochTopicTarget:
        """Return a target that knows only the stored epochs. The key is the id, unless another one is given."""
        declared = fk.EpochTopic(topic, **{"key": "id", **to})
        return EpochTopicTarget(declared, place or self.context, "out", runs_elsewhere=elsewhere)

    def read(self, topic: str, at: Connection | None = None) -> list[LogRecord]:
        """Return what a reader of committed records finds. Args: at: the cluster; by default the application's own."""
        topics = self.wire.topics if at is None else Topics(at)
        await_end_of_transactions(topics, topic)
        first, last = topics.first_positions(topic), topics.readable_positions(topic)
        return list(read_range(at or self.context.connection, topic, first, last, committed=True))

    def ids(self, topic: str, at: Connection | None = None) -> list[int]:
        """Return the ids that such a reader finds, sorted."""
        return sorted(json.loads(record.value or b"")["id"] for record in self.read(topic, at))

    def alter(self, topic: str, name: str, value: str) -> None:
        """Change a setting of a topic."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        before = self.wire.topics.facts(topic)
        self.wire.admin.incremental_alter_configs([changed])[changed].result()
        wait_until(lambda: self.wire.topics.facts(topic) != before, 30, "the setting")

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self.wire.admin.delete_topics([topic])[topic].result()
        wait_until(lambda: not self.context.topics.exists(topic), 30, "it to be deleted")


@pytest.fixture
def shop(spark: "SparkSession", wire: Wire, home: Path) -> Iterator[Shop]:
    with open_home(home, "shop") as opened:
        yield Shop(wire, context_of(spark, wire, opened))


def context_of(spark: "SparkSession", wire: Wire, home: Home) -> Context:
    return Context(session=spark, connection=Connection.of(wire.bootstrap), home=home, state_partitions=2)


def refused(condition: str, call: Any, *arguments: Any, **options: Any) -> HomeError:
    """Return the error of a call, after which the results of this sink alone wait."""
    with pytest.raises(HomeError) as error:
        call(*arguments, **options)
    assert error.value.condition == condition
    assert concerns_one_sink(error.value)
    return error.value


@pytest.mark.parametrize("who", ["new owner", "at rest", "at rest, and has looked before"])
def test_no_epoch_appears_after_somebody_has_looked(
    who: str, shop: Shop, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former owner stood still before its commit. The next one found no epoch 1, and has cancelled it.

    A command looks first for its preview, and again when the user has confirmed it.
    """
    topic = shop.wire.topic("out")
    former = shop.out(topic)
    former.deliver(ZERO, epoch(spark, 0))
    storage = Storage(home=shop.context.home, connection=shop.context.connection)
    next_owner, found = shop.out(topic, place=None if who == "new owner" else storage), list[int]()
    if who == "at rest, and has looked before":
        assert next_owner.visible() == 1
        former = shop.out(topic)
    monkeypatch.setattr(former, "_confirm", lambda: found.append(next_owner.visible()))
    with pytest.raises(SparkError, match="fenced by a newer instance"):
        former.deliver(ONE, epoch(spark, 1))
    assert found == [1]
    assert shop.ids(topic) == list(range(ROWS))


def test_a_command_does_not_disturb_an_application_that_runs(
    shop: Shop, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = shop.wire.topic("out")
    owner, command = shop.out(topic), shop.out(topic, elsewhere=True)
    owner.deliver(ZERO, epoch(spark, 0))
    monkeypatch.setattr(owner, "_confirm", command.visible)
    owner.deliver(ONE, epoch(spark, 1))
    wait_until(lambda: command.visible() == 2, 30, "the end of the transaction")


@pytest.mark.parametrize("key", ["kind", ["kind", "id"]])
def test_a_row_without_a_key_is_a_dead_letter_only_if_the_topic_is_compacted(
    key: Any, shop: Shop, spark: "SparkSession"
) -> None:
    kind = F.when(F.col(ROW) != 3, F.lit("a")).alias("kind")
    rows = epoch(spark, 0).select("id", kind, ROW)
    compacted, other = shop.wire.topic("compacted", cleanup_policy="compact"), shop.wire.topic("other")
    letters = shop.out(compacted, key=key).deliver(ZERO, rows, few=True)
    again = shop.out(compacted, key=key).deliver(ZERO, rows, few=True)
    no_letters = EpochTopicTarget(fk.EpochTopic(other, key=key), shop.context, "second").deliver(ZERO, rows, few=True)
    assert no_letters is None
    assert len(shop.ids(other)) == ROWS
    if key == "kind":
        assert shop.ids(compacted) == [n for n in range(ROWS) if n != 3]
        for found in (letters, again):
            assert found is not None
            (letter,) = [json.loads(row.value) for row in found.collect()]
            assert letter["reason"] == "not written: the key is null, and the topic is compacted"
            assert json.loads(letter["value"])["id"] == 3
    else:  # several columns are a key of their own, as JSON
        assert letters is None
        assert len(shop.ids(compacted)) == ROWS


def test_a_compacted_topic_needs_a_key(shop: Shop, spark: "SparkSession") -> None:
    topic = shop.wire.topic("out", cleanup_policy="compact")
    refused("TOPIC_UNFIT", shop.out(topic, key=None).deliver, ZERO, epoch(spark, 0))
    assert shop.read(topic) == []


def test_a_topic_may_take_small_batches_alone(shop: Shop, spark: "SparkSession") -> None:
    """Also if its limit falls while the application runs."""
    topic = shop.wire.topic("out", partitions=1, max_message_bytes="20000")
    out = shop.out(topic)
    out.deliver(ZERO, many(spark, 0), few=True)
    shop.alter(topic, "max.message.bytes", "2000")
    out.deliver(ONE, many(spark, 1), few=True)
    assert shop.ids(topic) == list(range(2000))


def many(spark: "SparkSession", number: int) -> "DataFrame":
    """Return an epoch of 1,000 rows, of some 100 kB."""
    rows = spark.range(number * 1000, number * 1000 + 1000)
    return rows.select("id", F.repeat(F.lit("x"), 80).alias("text"), (F.col("id") - number * 1000).alias(ROW))


@pytest.mark.parametrize(
    ("setting", "before", "after"),
    [
        ("max.message.bytes", "2000", "5000"),
        ("max.message.bytes", "5000", "2000"),
        ("cleanup.policy", "compact", "delete"),
    ],
)
def test_a_retry_finds_the_same_rows_unfit(
    setting: str, before: str, after: str, shop: Shop, spark: "SparkSession"
) -> None:
    """The letters could not be written, so the epoch is delivered again. Before that, an operator changes the topic."""
    topic = shop.wire.topic("out", **{setting.replace(".", "_"): before})
    rows = spark.range(4).select(
        "id", F.repeat(F.lit("x"), (F.col("id") * 600).cast("int")).alias("text"),
        F.when(F.col("id") != 3, F.lit("a")).alias("kind"), F.col("id").alias(ROW),
    )  # fmt: skip
    key, unfit = ("kind", [3]) if setting == "cleanup.policy" else ("id", [3] if before == "2000" else [])
    first = shop.out(topic, key=key)
    letters = [first.deliver(ZERO, rows, few=True)]
    shop.alter(topic, setting, after)
    letters += [first.deliver(ZERO, rows, few=True), shop.out(topic, key=key).deliver(ZERO, rows, few=True)]
    assert shop.ids(topic) == [n for n in range(4) if n not in unfit]
    for each in letters:
        found = [] if each is None else [json.loads(json.loads(row.value)["value"])["id"] for row in each.collect()]
        assert found == unfit


def test_a_record_that_no_queue_takes_is_a_dead_letter(
    shop: Shop, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic may take larger records than the client's queue."""
    monkeypatch.setattr(epoch_topic, "_QUEUE_KBYTES", 20)
    monkeypatch.setattr(epoch_topic, "_TRANSACTION_S", 10.0)  # otherwise the test would hang for long
    sizes = F.when(F.col("id") == 3, 21_000).otherwise(19_000)
    rows = spark.range(5).select("id", F.repeat(F.lit("x"), sizes).alias("text"), F.col("id").alias(ROW))
    topic = shop.wire.topic("out", max_message_bytes="100000")
    letters = shop.out(topic).deliver(ZERO, rows, few=True)
    assert letters is not None
    assert len(letters.collect()) == 1
    assert shop.ids(topic) == [0, 1, 2, 4]


@pytest.mark.parametrize("lost", ["deleted", "created again", "emptied"])
def test_without_its_notes_a_topic_gets_nothing(lost: str, shop: Shop, spark: "SparkSession") -> None:
    """The home still has all epochs, as under `fk.FullHistory()`, and would send them again."""
    topic = shop.wire.topic("out")
    running = shop.out(topic)
    for number in (ZERO, ONE):
        running.deliver(number, epoch(spark, number))
    notes = str(running._notes.topic)
    if lost == "emptied":
        shop.alter(notes, "cleanup.policy", "delete")
        shop.wire.expire(notes)
    else:
        shop.delete(notes)
    if lost == "created again":
        shop.wire.topics.create(notes, 1, {})
    full_history = SimpleNamespace(any_counts=lambda *_: True, has_all=lambda *_: True, folder="", name="")
    out = shop.out(topic)
    comparison = SinkComparison(cast(Any, full_history), {"out": out}, None, threading.Event())
    refused("NOTES_LOST", comparison.remains, TWO)
    refused("NOTES_LOST", out.deliver, TWO, epoch(spark, 2))
    assert shop.ids(topic) == list(range(2 * ROWS))


@pytest.mark.parametrize("change", ["deleted", "created again", "more partitions"])
def test_another_topic_of_the_same_name_gets_nothing(change: str, shop: Shop, spark: "SparkSession") -> None:
    topic = shop.wire.topic("out")
    running = shop.out(topic)
    running.deliver(ZERO, epoch(spark, 0))
    if change == "more partitions":
        shop.wire.admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
        wait_until(lambda: shop.wire.topics.facts(topic).partitions == 3, 30, "the third partition")
    else:
        shop.delete(topic)
        if change == "created again":
            shop.wire.topics.create(topic, 2)
    condition = "PARTITIONS_CHANGED" if change == "more partitions" else "TOPIC_REPLACED"
    refused(condition, running.deliver, ONE, epoch(spark, 1))
    refused(condition, shop.out(topic).delivered)
    refused(condition, shop.out(topic).deliver, ONE, epoch(spark, 1))
    assert shop.context.topics.exists(topic) is (change != "deleted")
    assert change == "deleted" or shop.ids(topic) == (list(range(ROWS)) if change == "more partitions" else [])


def test_another_home_does_not_repeat_the_results(shop: Shop, spark: "SparkSession", tmp_path: Path) -> None:
    topic = shop.wire.topic("out")
    shop.out(topic).deliver(ZERO, epoch(spark, 0))
    with open_home(tmp_path / "other", "shop") as other:
        second = Shop(shop.wire, context_of(spark, shop.wire, other)).out(topic)
        refused("TOPIC_OF_ANOTHER", second.deliver, ZERO, epoch(spark, 0))
        refused("TOPIC_OF_ANOTHER", second.deliver, ZERO, epoch(spark, 0))  # also when it is tried again
    assert shop.ids(topic) == list(range(ROWS))


def test_readers_do_not_wait_for_an_epoch_that_failed(shop: Shop, spark: "SparkSession") -> None:
    topic = shop.wire.topic("out")
    out = shop.out(topic)
    out._confirm = cast(Any, fail)
    with pytest.raises(ZeroDivisionError):
        out.deliver(ZERO, epoch(spark, 0))
    await_end_of_transactions(shop.wire.topics, topic)
    assert sum(shop.wire.topics.end_positions(topic).values()) >= ROWS, "the records are there, and do not count"
    assert shop.read(topic) == []


def fail() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("waits", ["for a place in the queue", "for the broker"])
def test_a_stop_ends_a_transaction_that_waits(
    waits: str, shop: Shop, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, errors = threading.Event(), list[Exception]()

    class Away(Producer):
        """A producer whose broker has gone away."""

        def produce(self, *arguments: Any, **options: Any) -> None:
            if waits == "for a place in the queue":
                waiting.set()
                raise BufferError

        def flush(self, *_: Any) -> int:
            waiting.set()
            return 1

    monkeypatch.setattr(epoch_topic, "Producer", Away)
    out = shop.out(shop.wire.topic("out"))

    def deliver() -> None:
        try:
            out.deliver(ZERO, epoch(spark, 0), few=True)
        except SparkError as error:
            errors.append(error)

    thread = threading.Thread(target=deliver, daemon=True)
    thread.start()
    assert waiting.wait(60)
    out.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert [str(error) for error in errors] == [
        f"a stop interrupted the transaction of an epoch for {out._to.address}."
    ]


def test_a_producer_that_is_open_asks_for_no_notes(
    shop: Shop, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = shop.wire.topic("out")
    out = shop.out(topic)
    out.deliver(ZERO, epoch(spark, 0))
    for name in ("newest", "create", "exist", "refuse_others"):
        monkeypatch.setattr(EpochNotes, name, fail)
    for _ in range(2):
        out.deliver(ONE, epoch(spark, 1))
        assert out.delivered() == TWO
    assert shop.ids(topic) == list(range(2 * ROWS))


def test_another_cluster_has_the_topic_and_its_notes(
    shop: Shop, spark: "SparkSession", own_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Connection.of(own_broker.bootstrap)
    names = {Topics(Connection.of(f"localhost:{own_broker.port}")).cluster(), Topics(there).cluster()}
    assert len({*names, shop.wire.topics.cluster()}) == 2
    out = shop.out("out", kafka=there, compacted=True)
    out.deliver(ZERO, epoch(spark, 0))
    monkeypatch.setattr(out, "_confirm", cut_off)
    with pytest.raises(CutOff):
        out.deliver(ONE, epoch(spark, 1))
    for _ in range(2):
        out = shop.out("out", kafka=there)
        assert out.delivered() <= TWO
        out.deliver(ONE, epoch(spark, 1))
        assert out.delivered() == TWO
    assert shop.ids("out", there) == list(range(2 * ROWS))
    assert Topics(there).exists(out._notes.topic)
    assert not {"out", out._notes.topic} & {*shop.wire.topics.names()}
