"""Tasks that Spark runs again: a second attempt refuses its first record, and no batch writes that begins after a loss.

The reason for the latter, a second attempt that meets no record, is played on a real cluster
(tests/cluster/test_spark_cluster.py).
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.local.broker import Broker
from falkirk.runtime.attempts import SECOND_ATTEMPT, _number, first_attempt_only
from falkirk.runtime.live.losses import LOST
from tests.integration.live import Wire, await_one, settle


@pytest.fixture
def twice(spark: SparkSession) -> Iterator[None]:
    """Have Spark run a task again that has failed, as a session with a master of the user's own may do."""
    scheduler = _scheduler(spark, "taskScheduler")
    attempts = scheduler.getClass().getDeclaredField("maxTaskFailures")
    attempts.setAccessible(True)
    attempts.set(scheduler, 2)
    yield
    attempts.set(scheduler, 1)


def _scheduler(spark: SparkSession, which: str) -> Any:
    return getattr(spark.sparkContext._jsc.sc(), which)()


@pytest.mark.parametrize("refuses", [True, False])
def test_a_second_attempt_refuses_its_first_record(spark: SparkSession, twice: None, *, refuses: bool) -> None:
    """Without the refusal Spark sends what the first attempt may have sent."""
    is_first = _number(spark.sparkContext, "attemptNumber") == 0
    sent = F.when(is_first, F.raise_error(F.lit("the first attempt fails"))).otherwise(F.lit("sent"))
    rows = spark.range(1).select(sent.alias("value"))
    if not refuses:
        assert [row["value"] for row in rows.collect()] == ["sent"]
        return
    with pytest.raises(PySparkException, match=f"{SECOND_ATTEMPT}: task attempt 1, stage attempt 0"):
        rows.select(first_attempt_only(F.col("value"))).collect()


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
    scheduler = _scheduler(spark, "dagScheduler")
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
