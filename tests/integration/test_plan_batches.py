"""Planning batches: mistakes are named before anything runs; logs, views and promises are as they should be."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.plan.batch import Batch
from falkirk.plan.frames import STAMP
from falkirk.plan.planner import plan_application
from falkirk.plan.region import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATE = "word STRING, n LONG"


def planned(spark: "SparkSession", declare: Callable[[fk.App], None]) -> Plan:
    app = fk.App("shop")
    app.source("events", fk.Kafka("events", schema="word STRING NOT NULL, n INT, x DOUBLE", key="word"))
    declare(app)
    return plan_application(app, spark, "deadbeef")


def batch(body: Any, *, sink: fk.Sql | fk.Kafka | None = None, **options: Any) -> Callable[[fk.App], None]:
    def declare(app: fk.App) -> None:
        app.batch(**({"rows": 5} | options))(body)
        app.sink("out", body, sink or fk.Kafka("out"))

    return declare


def returns_nothing(events: "DataFrame") -> None:
    return None


def no_such_column(events: "DataFrame") -> "DataFrame":
    return events.select("missing")


def forgets_a_column(events: "DataFrame", forgets_a_column: "DataFrame") -> "DataFrame":
    return events.select("word")


def twice(events: "DataFrame") -> "DataFrame":
    return events.select("word", F.col("n").alias("WORD"))


def whole(events: "DataFrame") -> "DataFrame":
    return events


def read_live(app: fk.App) -> None:
    app.batch(rows=5)(whole)

    @app.stream()
    def live(whole: fk.Stream) -> fk.Stream:
        return whole

    app.sink("out", live, fk.Kafka("out"))


def view_of_a_source(app: fk.App) -> None:
    app.source("queries", fk.Kafka("queries", schema="id LONG"))

    @app.stream(fk.Eager())
    def answers(queries: "DataFrame", events: fk.Latest) -> "DataFrame":
        return queries

    app.sink("out", answers, fk.Kafka("out"))


def table_of_something_live(app: fk.App) -> None:
    app.sink("out", "events", fk.Sql("sqlite:///x.db", "t"))


def saves_what_it_does_not_keep(app: fk.App) -> None:
    app.batch(rows=5, policy=fk.Lazy())(whole)
    app.sink("out", whole, fk.Kafka("out"))


def in_a_circle(app: fk.App) -> None:
    @app.batch(rows=5)
    def one(other: "DataFrame") -> "DataFrame":
        return other

    @app.batch(rows=5)
    def other(one: "DataFrame") -> "DataFrame":
        return one

    app.sink("out", one, fk.Kafka("out"))


@pytest.mark.parametrize(
    ("declare", "condition"),
    [
        (batch(returns_nothing), "BATCH_INVALID"),
        (batch(no_such_column), "BATCH_INVALID"),
        (batch(forgets_a_column, state=STATE), "COLUMN_MISSING"),
        (batch(forgets_a_column, state="word"), "SCHEMA_INVALID"),
        (batch(twice), "COLUMN_TWICE"),
        (batch(whole, sink=fk.Kafka("out", key="missing")), "COLUMN_MISSING"),
        (batch(whole, sink=fk.Sql("sqlite:///x.db", "t", key="missing")), "COLUMN_MISSING"),
        (read_live, "BATCH_READ_LIVE"),
        (view_of_a_source, "VIEW_HAS_NO_EPOCHS"),
        (table_of_something_live, "SINK_NEEDS_BATCH"),
        (in_a_circle, "CYCLE"),
        (saves_what_it_does_not_keep, "POLICY_MISPLACED"),
    ],
)
def test_a_mistake_is_named(spark: "SparkSession", declare: Callable[[fk.App], None], condition: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        planned(spark, declare)
    assert refused.value.condition == condition
    assert __file__.endswith(str(refused.value.where).split(":")[0])


def test_a_view_of_a_live_processor_is_a_batch_of_its_own(spark: "SparkSession") -> None:
    def declare(app: fk.App) -> None:
        app.source("queries", fk.Kafka("queries", schema="id LONG, word STRING"))

        @app.stream(fk.Lazy("2 seconds"))
        def index(events: fk.Stream) -> fk.Stream:
            return events.groupBy("word").agg(F.count("*").alias("version"))

        @app.stream(fk.Eager())
        def answers(queries: "DataFrame", index: fk.Latest) -> "DataFrame":
            return queries.join(index, "word")

        app.sink("answers", answers, fk.Kafka("answers"))

    plan = planned(spark, declare)
    assert [r.name for r in plan.regions] == ["index-out"]
    view, answers = plan.batches
    assert [(i.log, i.stamped, i.view) for i in view.inputs] == [("falkirk.shop.deadbeef.index-out", STAMP, False)]
    assert [(i.log, i.view) for i in answers.inputs] == [("queries", False), ("epochs:index-view", True)]
    assert answers.dead_letter_topic == "shop-answers.dead-letters"
    assert view.dead_letter_topic is None, "nothing of ours can fail to parse, and nothing leaves"


def sums(events: "DataFrame", sums: "DataFrame") -> "DataFrame":
    new = events.select("word", F.col("n").cast("long").alias("n"))
    return sums.unionByName(new).groupBy("word").agg(F.sum("n").alias("n"))


def sums_of_floats(events: "DataFrame", sums_of_floats: "DataFrame") -> "DataFrame":
    new = events.groupBy("word").agg(F.sum("x").cast("long").alias("n"))
    return sums_of_floats.unionByName(new).groupBy("word").agg(F.sum("n").alias("n"))


def drawing(events: "DataFrame", drawing: "DataFrame") -> "DataFrame":
    return events.select("word", (F.rand() * 10).cast("long").alias("n"))


def last_one(events: "DataFrame", last_one: "DataFrame") -> "DataFrame":
    new = events.select("word", F.col("n").cast("long").alias("n"))
    return last_one.unionByName(new).groupBy("word").agg(F.last("n").alias("n"))


@pytest.mark.parametrize(
    ("body", "policy", "deterministic", "undetermined"),
    [
        (drawing, fk.Eager(), True, ("Rand",)),
        (drawing, fk.Lazy(when=lambda epoch: True), False, ("Rand",)),
        (last_one, fk.Lazy("5 seconds"), False, ("Last",)),
        (sums, fk.Lazy("5 seconds"), True, ()),
        (sums_of_floats, fk.Lazy("5 seconds"), False, ("Sum",)),
    ],
)
def test_only_state_that_is_not_saved_and_may_differ_holds_results_back(
    spark: "SparkSession", body: Any, policy: fk.Lazy | fk.Eager, deterministic: bool, undetermined: tuple[str, ...]
) -> None:
    found: Batch = planned(spark, batch(body, state=STATE, policy=policy)).batches[0]
    assert found.deterministic is deterministic
    assert found.undetermined == undetermined
