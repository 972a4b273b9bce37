"""Batches that write straight to their topic: they need no record of an epoch before its results are published."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from tests.integration.plans.test_plan_batches import batch, planned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def whole(events: "DataFrame") -> "DataFrame":
    """A step that leaves rows without an order, followed by a column and a condition."""
    return events.groupBy("word").agg(F.sum("n").alias("n")).where("n > 0").withColumn("loud", F.upper("word"))


def passed_on(events: "DataFrame") -> "DataFrame":
    return events.where("n > 0")


def in_order(events: "DataFrame") -> "DataFrame":
    return whole(events).orderBy("n")


def drawn(events: "DataFrame") -> "DataFrame":
    return whole(events.withColumn("word", F.expr("uuid()")))


def vouched(events: "DataFrame") -> "DataFrame":
    return fk.map_rows(
        events, fk.deterministic(because="it is")(lambda row: row.asDict()), returns="word STRING"
    ).distinct()


def collected(events: "DataFrame") -> "DataFrame":
    return events.sparkSession.createDataFrame([(row.word,) for row in events.collect()], "word STRING").distinct()


def with_rows(events: "DataFrame") -> "DataFrame":
    """Its plan does not contain the rows, so a program with other rows would have the same plan."""
    return whole(events.join(events.sparkSession.createDataFrame([("a",)], "word STRING"), "word"))


def with_rows_in_sql(events: "DataFrame") -> "DataFrame":
    return whole(events.sparkSession.sql("SELECT * FROM {e} JOIN (VALUES ('a')) AS v(word) USING (word)", e=events))


def checkpointed(events: "DataFrame") -> "DataFrame":
    return whole(events.localCheckpoint())


def direct(body: Any, sink: Any = None, **options: Any) -> Callable[[fk.App], None]:
    """Declare an eager batch with one sink."""
    return batch(body, sink=sink, **({"policy": fk.Eager()} | options))


def read_by_another(app: fk.App) -> None:
    direct(whole)(app)

    @app.batch(rows=1)
    def reader(whole: "DataFrame") -> "DataFrame":
        return whole

    app.sink("read", reader, fk.Kafka("read"))


def two_sinks(app: fk.App) -> None:
    direct(whole)(app)
    app.sink("too", whole, fk.Kafka("too"))


def behind_what_may_be_taken_back(app: fk.App) -> None:
    @app.stream(fk.Snapshots())
    def live(events: fk.Stream) -> fk.Stream:
        return events.withColumn("lot", F.rand())

    @app.batch(rows=5, policy=fk.Eager())
    def whole(live: "DataFrame") -> "DataFrame":
        return live.distinct()

    app.sink("out", whole, fk.Kafka("out"))


def behind_a_hop(app: fk.App) -> None:
    @app.stream()
    def live(events: fk.Stream) -> fk.Stream:
        return events.where("n > 0")

    @app.batch(rows=5, policy=fk.Eager())
    def whole(live: "DataFrame") -> "DataFrame":
        return live.distinct()

    app.sink("out", whole, fk.Kafka("out"))


def with_a_view(app: fk.App) -> None:
    @app.batch(every="1 second")
    def counts(events: "DataFrame") -> "DataFrame":
        return events.groupBy("word").agg(F.sum("n").alias("n"))

    @app.batch(rows=5, policy=fk.Eager())
    def whole(events: "DataFrame", counts: fk.View) -> "DataFrame":
        return events.select("word").join(counts, "word").distinct()  # type: ignore[arg-type]

    app.sink("out", whole, fk.Kafka("out"))


@pytest.mark.parametrize(
    ("declare", "is_direct"),
    [
        (direct(whole), True),
        (with_a_view, True),
        (direct(whole, policy=fk.LogSends()), False),
        (direct(whole, fk.Sql("sqlite:///out.db", "out")), False),
        (direct(passed_on), False),
        (direct(in_order), False),
        (direct(drawn), False),
        (direct(vouched), False),
        (direct(collected), False),
        (direct(with_rows), False),
        (direct(with_rows_in_sql), True),
        (direct(checkpointed), False),
        (read_by_another, False),
        (two_sinks, False),
        (behind_what_may_be_taken_back, False),
        (behind_a_hop, False),
    ],
)
def test_results_go_straight_to_their_topic_where_nothing_can_come_of_it(
    declare: Callable[[fk.App], None], is_direct: bool, spark: "SparkSession"
) -> None:
    found = {b.name: b for b in planned(spark, declare).batches}
    *_, last = [b for b in found.values() if b.name not in ("counts", "reader")]
    assert last.is_direct is is_direct
