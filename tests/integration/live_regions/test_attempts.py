"""Tasks that Spark runs again: a second attempt refuses its first record, and no batch writes that begins after a loss.

The reason for the latter, a second attempt that meets no record, is played on a real cluster
(tests/cluster/test_spark_cluster.py).
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.void import Void
from falkirk.plan.plan import Plan
from falkirk.runtime.spark import rows as region_rows
from falkirk.runtime.spark.attempts import SECOND_ATTEMPT, _number, first_attempt_only
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.live.losses import LOST
from falkirk.runtime.spark.live.query import results
from falkirk.runtime.spark.rows import IncarnationConstants, OutputTopic
from falkirk.runtime.spark.sinks import copying, topic
from falkirk.runtime.spark.sinks.topic import TopicTarget
from falkirk.spark_setup.broker import Broker
from falkirk.theory.ids import EpochNumber, Incarnation, LogId
from tests.integration.attempts import scheduler_of, tasks_run_again
from tests.integration.live import Wire, await_one, settle


@pytest.fixture
def twice(spark: SparkSession) -> Iterator[None]:
    """Have Spark run a task again that has failed."""
    with tasks_run_again(spark):
        yield


@pytest.mark.parametrize("refuses", [True, False])
def test_a_second_attempt_refuses_its_first_record(spark: SparkSession, twice: None, *, refuses: bool) -> None:
    """Without the refusal Spark sends records that the first attempt may have sent."""
    is_first = _number(spark.sparkContext, "attemptNumber") == 0
    sent = F.when(is_first, F.raise_error(F.lit("the first attempt fails"))).otherwise(F.lit("sent"))
    rows = spark.range(1).select(sent.alias("value"))
    if not refuses:
        assert [row["value"] for row in rows.collect()] == ["sent"]
        return
    with pytest.raises(PySparkException, match=f"{SECOND_ATTEMPT}: task attempt 1, stage attempt 0"):
        rows.select(first_attempt_only(F.col("value"))).collect()


def _failing_once(spark: SparkSession) -> DataFrame:
    """Return a record of Kafka. The first attempt to read it fails."""
    is_first = _number(spark.sparkContext, "attemptNumber") == 0
    word = F.when(is_first, F.raise_error(F.lit("the first attempt fails"))).otherwise(F.lit('{"word": "a", "n": 1}'))
    return spark.range(1).select(
        F.lit(None).cast("binary").alias("key"), word.cast("binary").alias("value"), F.lit("events").alias("topic"),
        F.lit(0).alias("partition"), F.lit(7).cast("long").alias("offset"), F.current_timestamp().alias("timestamp"),
        F.lit(0).alias("timestampType"),
    )  # fmt: skip


class _Context:
    """The part of a context that a writing job needs."""

    home = SimpleNamespace(identity="deadbeef")
    signing_key = SimpleNamespace(of=lambda topic, incarnation: b"key")
    facts = SimpleNamespace(partitions=1, max_message_bytes=1_000_000)
    topics = SimpleNamespace(facts=lambda topic: _Context.facts)

    def __init__(self, records: DataFrame) -> None:
        self.session = SimpleNamespace(read=self)
        self.format = self.options = self.option = lambda *arguments, **more: self
        self.load = lambda: records

    def void(self, held: str) -> Void:
        return Void()

    def kafka_options(self) -> dict[str, str]:
        return {}


class _Topic(TopicTarget):
    """A topic that has no epoch yet."""

    _context = property(lambda self: self._place)

    def _found(self) -> dict[int, tuple[EpochNumber, int]]:
        return {}


def _of_a_region(records: DataFrame, plan: Callable[..., Plan], written: list[DataFrame]) -> None:
    (region,) = plan(lambda events: events.select("word", "n"), schema="word STRING, n INT").regions
    out = OutputTopic(name=LogId("out"), partitions=1, size_limit_bytes=1_000_000)
    release = IncarnationConstants(
        application="deadbeef", incarnation=Incarnation(1), source_partitions=(1,), state_partitions=1, main=out,
        dead=out, barrier=None, main_key=b"", dead_key=b"",
    )  # fmt: skip
    written.append(region_rows.rows(results(region, [records], (1,)), region, release))


def _of_a_copy(records: DataFrame, plan: Callable[..., Plan], written: list[DataFrame]) -> None:
    copying.copy(cast(Any, _Context(records)), LogId("held"), "out", {0: 7}, {0: 8})


def _of_an_epoch(records: DataFrame, plan: Callable[..., Plan], written: list[DataFrame]) -> None:
    target = _Topic(cast(Any, _Context(records)), fk.Kafka("out"), lambda name: {0: 0})
    columns = F.col("key").cast("string"), F.col("value"), "partition", F.col("offset").alias(ROW)
    data = records.select(*columns, F.lit("0").alias(topic._EPOCH))
    target._send(EpochNumber(0), data, cast(Any, _Context.facts))


@pytest.mark.parametrize("write", [_of_a_region, _of_a_copy, _of_an_epoch])
def test_a_second_attempt_of_each_writer_sends_nothing(
    spark: SparkSession,
    twice: None,
    plan: Callable[..., Plan],
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[DataFrame, Callable[..., Plan], list[DataFrame]], None],
) -> None:
    """The records of a live region, of a copy from a held log, and of an epoch. Each place asks by itself."""
    written = list[DataFrame]()
    for module in (copying, topic):
        monkeypatch.setattr(module, "write", lambda context, name, rows, limit: written.append(rows))
    write(_failing_once(spark), plan, written)
    (rows,) = written
    with pytest.raises(PySparkException, match=SECOND_ATTEMPT):
        rows.collect()


def test_a_live_region_does_not_start_where_spark_runs_failed_tasks_again(
    spark: SparkSession, twice: None, broker: Broker, tag: str, home: Path
) -> None:
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    events, out = wire.topic("events"), wire.topic("out")
    stream = fk.read(fk.Kafka(events, schema="word STRING", key="word"))
    with pytest.raises(fk.SparkError) as caught:
        stream.write(fk.Kafka(out, key="word"), kafka=wire.bootstrap, home=str(home))
    assert caught.value.condition == "SESSION_SETTINGS_MISSING"
    assert [(m.name, m.wanted, m.found) for m in caught.value.parameters["missing"]] == [
        ("spark.task.maxFailures", "1", "2")
    ]


def test_no_batch_writes_that_begins_after_a_loss(
    spark: SparkSession, broker: Broker, tag: str, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "falkirk")
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    events, out = wire.topic("events"), wire.topic("out")
    stream = fk.read(fk.Kafka(events, schema="word STRING", key="word"))
    query = stream.write(fk.Kafka(out, key="word"), kafka=wire.bootstrap, home=str(home), interval="1 second")
    wire.send(events, [{"word": "a"}])
    wire.await_count(out, 1, query)
    scheduler = scheduler_of(spark, "dagScheduler")
    lost = scheduler.getClass().getDeclaredField("executorFailureEpoch")
    lost.setAccessible(True)
    lost.get(scheduler).put("an executor", 1)
    try:

        def is_replaced() -> bool:
            wire.send(events, [{"word": "b"}])
            return query.status[0].incarnation > 1

        await_one(query, is_replaced, "the region to be restarted")
        sent = wire.count(events)
        wire.await_count(out, sent, query)
        settle(query)
        query.stop()
    finally:
        lost.get(scheduler).remove("an executor")
    assert wire.count(out) == sent
    assert LOST in caplog.text  # the status says it only until the region is back
