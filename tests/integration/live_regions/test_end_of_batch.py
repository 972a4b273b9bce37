"""The end of a batch: tasks that read a shuffle end with those that write it. Records wait meanwhile."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import functions as F

import falkirk as fk
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

#: If a task's connections are closed after their threads were told to end, each one takes this long.
CLOSING_MS = 100


def delays_ms(spark: "SparkSession", groups: list[str]) -> "Iterator[int]":
    """Yield, for each batch of queries, how long the last task that reads ran on after the last one that writes."""
    tracker, store = spark.sparkContext.statusTracker(), cast(Any, spark.sparkContext)._jsc.sc().statusStore()
    for job in (each for group in groups for each in tracker.getJobIdsForGroup(group)):
        known = tracker.getJobInfo(job)
        if known is None or known.status != "SUCCEEDED":
            continue
        ends = []
        for stage in sorted(known.stageIds):
            tasks = store.taskList(stage, 0, 10)
            each = [tasks.apply(i) for i in range(tasks.length())]
            ends.append(max(task.launchTime().getTime() + task.duration().get() for task in each))
        yield ends[-1] - ends[0]


def test_the_connections_of_a_shuffle_are_closed_before_their_threads_end(
    spark: "SparkSession", wire: Wire, home: Path
) -> None:
    events, out = wire.topic("events"), wire.topic("out")
    app = fk.App("ending", home=home)
    app.source("events", fk.Kafka(events, schema="n BIGINT NOT NULL", key="n"))

    @app.stream(fk.Lazy("1 second"))
    def counted(events: fk.Stream) -> fk.Stream:
        return events.groupBy("n").agg(F.count("*").alias("times"))

    app.sink("out", counted, fk.Kafka(out, key="n"))
    query = app.start(kafka=wire.bootstrap)
    try:
        wire.send(events, [{"n": n} for n in range(3)])
        wire.await_count(out, 3, query)
        groups = [str(each.runId) for each in query.queries]
        # On a busy machine some batches end later. In the wrong order, none ends in time.
        wait_until(
            lambda: any(delay < CLOSING_MS for delay in delays_ms(spark, groups)), 15,
            lambda: f"a batch that ends in time: {list(delays_ms(spark, groups))} ms",
        )  # fmt: skip
    finally:
        query.stop()
