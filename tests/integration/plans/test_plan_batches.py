"""Planning batches: mistakes are named before anything runs; logs, views and promises are as they should be."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql import functions as F
from rich.console import Console

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.plan.batch import Batch
from falkirk.plan.explain.screen import Shown
from falkirk.plan.explain.values import plan_values
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.plan.slots import region_slots
from falkirk.steps.dataframes.names import STAMP

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

    @app.stream(engine="live")
    def live(whole: fk.Stream) -> fk.Stream:
        return whole

    app.sink("out", live, fk.Kafka("out"))


def view_of_changes(app: fk.App) -> None:
    @app.iterate(rows=1)
    def counts(events: Any) -> Any:
        return events.groupBy("word").count()

    @app.batch(every="1 second")
    def asked(events: "DataFrame", counts: fk.View) -> "DataFrame":
        return counts  # type: ignore[return-value]

    app.sink("out", asked, fk.Kafka("out"))


def loop_over_a_view(app: fk.App) -> None:
    @app.batch(every="1 second")
    def seeds(events: "DataFrame") -> "DataFrame":
        return events.select("word").distinct()

    @app.iterate(rows=1)
    def spread(events: Any, seeds: fk.View) -> Any:
        return events.select("word").concat(seeds)

    app.sink("out", spread, fk.Kafka("out"))


def loop_over_all_of_a_loop(app: fk.App) -> None:
    @app.iterate(rows=1, sends="all")
    def counts(events: Any) -> Any:
        return events.groupBy("word").count()

    @app.iterate(rows=1)
    def spread(counts: Any) -> Any:
        return counts.select("word").distinct()

    app.sink("out", spread, fk.Kafka("out"))


def loop_without_a_collection(app: fk.App) -> None:
    @app.iterate(rows=1)
    def nothing(events: Any) -> None:
        return None

    app.sink("out", nothing, fk.Kafka("out"))


def until_of_nothing(app: fk.App) -> None:
    @app.iterate(rows=1, until=1e-3)
    def counts(events: Any) -> Any:
        return events.groupBy("word").count().iterate(lambda c: c.where("count > 1"))

    app.sink("out", counts, fk.Kafka("out"))


def view_of_a_source(app: fk.App) -> None:
    app.source("queries", fk.Kafka("queries", schema="id LONG"))

    @app.stream(fk.Eager())
    def answers(queries: "DataFrame", events: fk.View) -> "DataFrame":
        return queries

    app.sink("out", answers, fk.Kafka("out"))


def table_of_something_live(app: fk.App) -> None:
    app.sink("out", "events", fk.Sql("sqlite:///x.db", "t"))


def saves_what_it_does_not_keep(app: fk.App) -> None:
    app.batch(rows=5, policy=fk.Lazy())(whole)
    app.sink("out", whole, fk.Kafka("out"))


def cut_by_what_it_lacks(app: fk.App) -> None:
    app.batch(every="1 minute", by="at")(whole)
    app.sink("out", whole, fk.Kafka("out"))


def cut_by_what_is_no_time(app: fk.App) -> None:
    app.batch(every="1 minute", by="n")(whole)
    app.sink("out", whole, fk.Kafka("out"))


def sessions_without_a_time(app: fk.App) -> None:
    @app.batch(rows=5)
    def stays(events: "DataFrame") -> "DataFrame":
        return fk.sessions(events, key="word", time="n", gap="1 minute")

    app.sink("out", stays, fk.Kafka("out"))


def a_state_without_order(app: fk.App) -> None:
    @app.stream(fk.Eager())
    def seen(events: "DataFrame") -> "DataFrame":
        return fk.stateful(events, lambda row, state: (None, None), key="word", state="n INT", returns="n INT")

    app.sink("out", seen, fk.Kafka("out"))


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
        (read_live, "ENGINE_UNSUITABLE"),
        (view_of_a_source, "VIEW_HAS_NO_EPOCHS"),
        (view_of_changes, "VIEW_OF_CHANGES"),
        (loop_without_a_collection, "COLLECTION_MISSING"),
        (until_of_nothing, "UNTIL_UNUSED"),
        (loop_over_a_view, "ITERATION_INVALID"),
        (loop_over_all_of_a_loop, "ITERATION_INVALID"),
        (table_of_something_live, "SINK_NEEDS_BATCH"),
        (in_a_circle, "CYCLE"),
        (saves_what_it_does_not_keep, "POLICY_MISPLACED"),
        (cut_by_what_it_lacks, "COLUMN_MISSING"),
        (cut_by_what_is_no_time, "CUT_INVALID"),
        (sessions_without_a_time, "CUT_INVALID"),
        (a_state_without_order, "STAMP_MISSING"),
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
        def answers(queries: "DataFrame", index: fk.View) -> "DataFrame":
            return queries.join(index, "word")

        app.sink("answers", answers, fk.Kafka("answers"))

    plan = planned(spark, declare)
    assert [r.name for r in plan.regions] == ["index-out"]
    view, answers = plan.batches
    assert [(i.log, i.stamped, i.view) for i in view.inputs] == [("falkirk.shop.deadbeef.index-out", STAMP, False)]
    assert [(i.log, i.view) for i in answers.inputs] == [("queries", False), ("epochs:index-view", True)]
    assert answers.dead_letter_topic == "shop-answers.dead-letters"
    assert view.dead_letter_topic is None, "nothing of ours can fail to parse, and nothing leaves"
    assert (view.undetermined, view.properties.differs) == ((), ()), "no two records of a key have the same offset"
    console = Console(width=200)
    with console.capture() as shown:
        console.print(Shown(plan=plan, slots=(), available=1).why("answers", 200))
    assert "index-view keeps the newest record of each key of index, for the view in answers." in shown.get()
    assert "max_by" not in shown.get(), "the user declared no such aggregate"


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


def apart(keeps: Any, told: Any = None) -> Any:
    """Keep the state of one function, and return another result: the last state, or the result of another function."""

    def both(events: "DataFrame", both: "DataFrame") -> tuple["DataFrame", "DataFrame"]:
        return both if told is None else told(events, both), keeps(events, both)

    return both


@pytest.mark.parametrize(
    ("body", "policy", "deterministic", "undetermined"),
    [
        (drawing, fk.Eager(), True, ("Rand",)),
        (drawing, fk.Lazy(when=lambda epoch: True), True, ("Rand",)),
        (apart(last_one), fk.Eager(), True, ("Last",)),
        (apart(last_one), fk.Lazy("5 seconds"), False, ("Last",)),
        (apart(sums), fk.Lazy("5 seconds"), True, ()),
        (apart(sums, told=drawing), fk.Lazy("5 seconds"), True, ("Rand",)),
        (apart(sums_of_floats), fk.Lazy(when=lambda epoch: True), False, ("Sum",)),
    ],
)
def test_only_state_that_is_not_saved_and_may_differ_holds_results_back(
    spark: "SparkSession", body: Any, policy: fk.Lazy | fk.Eager, deterministic: bool, undetermined: tuple[str, ...]
) -> None:
    found: Batch = planned(spark, batch(body, state=STATE, policy=policy)).batches[0]
    assert found.deterministic is deterministic
    assert found.undetermined == undetermined


def test_what_is_sorted_by_time_is_sorted_once(spark: "SparkSession") -> None:
    app = fk.App("shop")
    app.source("clicks", fk.Kafka("clicks", schema="word STRING, at TIMESTAMP"))

    @app.batch(every="1 minute", by="at", late="5 seconds")
    def visits(clicks: "DataFrame") -> "DataFrame":
        return clicks

    @app.batch(every="1 minute", by="at", late="5 seconds", over="1 hour")
    def trends(clicks: fk.Stamped) -> "DataFrame":
        return cast("DataFrame", clicks)

    @app.batch(every="2 minutes", by="at")
    def others(clicks: "DataFrame") -> "DataFrame":
        return clicks

    for name in ("visits", "trends", "others"):
        app.sink(name, name, fk.Kafka(f"{name}-out"))
    plan = plan_application(app, spark, "deadbeef")
    assert {b.name: [(i.log, i.sliced) for i in b.inputs] for b in plan.batches} == {
        "clicks-by-at": [("clicks", False)],
        "visits": [("epochs:clicks-by-at", True)],
        "trends": [("epochs:clicks-by-at", True)],
        "clicks-by-at-2": [("clicks", False)],
        "others": [("epochs:clicks-by-at-2", True)],
    }
    by_name = {b.name: b for b in plan.batches}
    assert by_name["clicks-by-at"].dead_letter_topic == "shop-clicks-by-at.dead-letters", "for what is late"
    assert by_name["trends"].schema.names == ["word", "at", "stamp"]
    assert by_name["visits"].deterministic


def test_a_stream_in_micro_batches_says_why(spark: "SparkSession") -> None:
    app = fk.App("shop")
    app.source("events", fk.Kafka("events", schema="word STRING, n INT", key="word"))

    @app.stream()
    def doubled(events: fk.Stream) -> fk.Stream:
        return events.where("n > 0").map_rows(lambda row: {"n": 2 * row.n}, returns="n INT")

    @app.stream()
    def counts(events: fk.Stream) -> fk.Stream:
        return events.groupBy("word").count()

    app.sink("doubled", doubled, fk.Kafka("doubled"))
    app.sink("counts", counts, fk.Kafka("counts"))
    plan = plan_application(app, spark, "deadbeef")
    assert [r.name for r in plan.regions] == ["counts"]
    (batch,) = plan.batches
    assert "map_rows()" in batch.reason
    assert batch.dead_letter_topic == "shop-doubled.dead-letters"
    shown = plan_values(plan, (region_slots(plan.regions[0], 2, 2),), 9)["batches"]
    assert [(b["engine"], b["engine_reason"]) for b in shown] == [("micro-batches", batch.reason)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("to", "may_refuse"),
    [
        (fk.Sql("sqlite:///out.db", "out"), True),
        (fk.Delta("/lake/out", partition_by="id"), True),
        (fk.Delta("/lake/out"), False),
    ],
    ids=["database", "partitioned", "lake"],
)
def test_a_sink_that_may_refuse_rows_has_a_topic_for_them(to: Any, may_refuse: bool, spark: "SparkSession") -> None:
    """Its batch reads another batch, so that no input can fail to parse. Before, refused rows were lost there."""
    app = fk.App("shop")
    app.source("clicks", fk.Kafka("clicks", schema="id STRING"))

    @app.batch(rows=10)
    def first(clicks: "DataFrame") -> "DataFrame":
        return clicks

    @app.batch(every="1 second")
    def second(first: "DataFrame") -> "DataFrame":
        return first.withColumn("n", F.lit(1))

    app.sink("out", second, to)
    (batch,) = (b for b in plan_application(app, spark, "deadbeef").batches if b.name == "second")
    assert batch.dead_letter_topic == ("shop-second.dead-letters" if may_refuse else None)
