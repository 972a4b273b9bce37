"""A large batch job must not stop live regions that run in the same session."""

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import Load, judge_counts
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: In 200 tasks, these rows keep two cores busy: the tests' session interprets expressions. At one of its rows,
#: each task waits, and so holds its slot while it computes nothing. The job takes longer than two checkpoints.
ROWS, TASKS, WAIT_MS = 1_000_000, 200, 600
BUSY = f"""CASE WHEN id % {ROWS // TASKS} = 0 THEN length(reflect('java.lang.Thread', 'sleep', {WAIT_MS}L))
ELSE hash(id, id + 1, id * 3) % 7 END AS busy"""


def test_a_batch_job_in_the_same_session(broker: Broker, spark: "SparkSession", home: Path, tag: str) -> None:
    topics, events, counts = Topics(Connection.of(broker.bootstrap)), f"events-{tag}", f"counts-{tag}"
    for topic in (events, counts):
        topics.create(topic, 2, {})
    stream = fk.read(fk.Kafka(events, schema="word STRING NOT NULL, n INT", key="word"))
    keyed = stream.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))
    query = keyed.write(fk.Kafka(counts, key="word"), kafka=broker.bootstrap, home=str(home), interval="2 seconds")
    try:
        with Load(broker.bootstrap, events, rate=100) as load:
            wait_until(lambda: query.status[0].last_commit >= 1, 120, "a checkpoint")
            before = query.status[0].last_commit
            spark.range(0, ROWS, 1, TASKS).selectExpr(BUSY).agg(F.sum("busy")).collect()
            wait_until(lambda: query.status[0].last_commit >= before + 2, 120, "checkpoints after the batch job")
        wait_until(lambda: sum(topics.end_positions(counts).values()) >= load.sent, 120, "all results")
        status = query.status[0]
    finally:
        query.stop()  # otherwise the region runs on in the session of other tests
    assert (status.incarnation, status.restarts) == (1, 0), "Real-time Mode lost its slots and had to be restarted"
    verdict = judge_counts(broker.bootstrap, events, counts)
    assert verdict.counts.observed_outputs == load.sent, verdict.anomalies
