"""A large batch job beside live regions must not silence them: in an application of its own, and in their session."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import falkirk as fk
from falkirk.local.broker import Broker
from falkirk.logs.connection import Connection
from falkirk.logs.topics import Topics
from tests.chaos.harness import Load, assert_exactly_once, counting, judge_counts
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: 200 tasks that keep two processors busy for a while, compiled as little as they are here.
BATCH = "spark.range(0, {rows}, 1, 200).selectExpr('sum(hash(id, id + 1, id * 3) % 7)').collect()"
ROWS = 250_000_000


def _longest_silence(topics: Topics, topic: str, busy: "subprocess.Popen[bytes]") -> float:
    """Return the longest time without new records in a topic while a process runs, as a share of that run."""
    began = since = time.monotonic()
    longest, last = 0.0, -1
    while busy.poll() is None:
        now = sum(topics.end_positions(topic).values())
        if now > last:
            last, since = now, time.monotonic()
        longest = max(longest, time.monotonic() - since)
        with contextlib.suppress(subprocess.TimeoutExpired):
            busy.wait(0.05)
    return longest / (time.monotonic() - began)


def test_a_batch_job_in_an_application_of_its_own(broker: Broker, home: Path, tag: str) -> None:
    with counting(broker, home, tag) as run:
        with Load(broker.bootstrap, run.events, rate=100) as load:
            run.application.wait_committed(1)
            host = run.application.host().pid
            code = "from pyspark.sql import SparkSession\n"
            code += (
                "spark = SparkSession.builder.master('local[2]').config('spark.ui.enabled', 'false').getOrCreate()\n"
            )
            code += BATCH.format(rows=ROWS)
            busy = subprocess.Popen(
                [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ
            )
            silence = _longest_silence(Topics(Connection.of(broker.bootstrap)), run.counts, busy)
            assert busy.returncode == 0
        assert_exactly_once(run, load.sent)
        assert run.application.host().pid == host
        assert [r["restarts"] for r in run.application.status()["regions"]] == [0]
    assert silence < 0.5, f"no results for {silence:.0%} of a batch job's time"


def test_a_batch_job_in_the_same_session(broker: Broker, spark: "SparkSession", home: Path, tag: str) -> None:
    topics, events, counts = Topics(Connection.of(broker.bootstrap)), f"events-{tag}", f"counts-{tag}"
    for topic in (events, counts):
        topics.create(topic, 2, {})
    stream = fk.stream(fk.Kafka(events, schema="word STRING NOT NULL, n INT", key="word"))
    keyed = stream.groupBy("word").agg(F.count("*").alias("version"), fk.latest("n"))
    query = keyed.write(fk.Kafka(counts, key="word"), kafka=broker.bootstrap, home=str(home), interval="2 seconds")
    with Load(broker.bootstrap, events, rate=100) as load:
        wait_until(lambda: query.status[0].last_commit >= 1, 120, "a checkpoint")
        before = query.status[0].last_commit
        spark.range(0, ROWS, 1, 200).selectExpr("sum(hash(id, id + 1, id * 3) % 7)").collect()
        wait_until(lambda: query.status[0].last_commit >= before + 2, 120, "checkpoints after it")
    wait_until(lambda: sum(topics.end_positions(counts).values()) >= load.sent, 120, "all results")
    status = query.status[0]
    query.stop()
    assert (status.incarnation, status.restarts) == (1, 0), "Real-time Mode lost its slots and had to be restarted"
    verdict = judge_counts(broker.bootstrap, events, counts)
    assert verdict.counts.observed_outputs == load.sent, verdict.anomalies
