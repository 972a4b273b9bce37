"""Plans of live regions with several topics: lists and unions, their numbers, and what does not run live."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.plan.guarantees import promises_of
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.reading import application_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id STRING NOT NULL, n INT"
Body = Callable[[fk.Stream, fk.Stream], fk.Stream]


def planned(spark: "SparkSession", body: Body, policy: Any = None, **sink: Any) -> Plan:
    app = fk.App("shop")
    for name in ("web", "bar"):
        app.source(name, fk.Kafka(name, schema=SCHEMA))
    app.add_processor("both", body, reads=("web", "bar"), policy=policy or fk.Lazy("5 seconds"))
    app.sink("out", "both", fk.Kafka("out", **{k: sink.pop(k) for k in ("key",) if k in sink}), **sink)
    return plan_application(app, spark, "deadbeef")


def listed(spark: "SparkSession", topics: list[str], body: Callable[[fk.Stream], fk.Stream], **source: Any) -> Plan:
    app = fk.App("shop")
    app.source("orders", fk.Kafka(topics, schema=SCHEMA, **source))
    app.add_processor("made", body, reads=("orders",), policy=fk.Lazy("5 seconds"))
    app.sink("out", "made", fk.Kafka("out"))
    return plan_application(app, spark, "deadbeef")


def test_a_union_is_one_live_region_with_sources_in_the_order_of_their_topics(spark: "SparkSession") -> None:
    found = [
        planned(spark, body).regions for body in (lambda web, bar: web.union(bar), lambda web, bar: bar.union(web))
    ]
    for (region,) in found:
        assert (region.reads, region.stateful, region.deterministic) == (("bar", "web"), False, True)
    assert found[0][0].fingerprint["reads"] == found[1][0].fingerprint["reads"] == "bar, web"


def test_requests_are_united_with_a_topic_in_one_live_region(spark: "SparkSession") -> None:
    app = fk.App("shop")
    app.source("web", fk.Kafka("web", schema=SCHEMA))
    app.source("posted", fk.Http("/orders", schema=SCHEMA, answers="out"))
    app.add_processor("both", lambda web, posted: web.union(posted), reads=("web", "posted"), policy=fk.Ephemeral())
    app.sink("out", "both", fk.Kafka("out", key="id"))
    plan = plan_application(app, spark, "deadbeef")
    (region,) = plan.regions
    assert set(region.reads) == {"web", plan.push[0].topic.log}
    assert plan.push[0].answers == "out"


def test_a_list_is_one_live_region_whatever_its_order(spark: "SparkSession") -> None:
    (one,), (other,) = (
        listed(spark, topics, lambda orders: orders.where("n > 1")).regions for topics in (["us", "eu"], ["eu", "us"])
    )
    assert one.reads == other.reads == ("eu", "us")
    assert one.fingerprint == other.fingerprint


def test_a_sink_reads_a_list_live(spark: "SparkSession") -> None:
    app = fk.App("copy")
    app.source("orders", fk.Kafka(["eu", "us", "asia"], schema=SCHEMA))
    app.sink("all", "orders", fk.Kafka("all"))
    (region,) = plan_application(app, spark, "deadbeef").regions
    assert region.reads == ("asia", "eu", "us")


def test_a_group_by_after_a_union_gets_a_hop(spark: "SparkSession") -> None:
    made = planned(spark, lambda web, bar: web.union(bar).groupBy("id").count())
    assert [(region.reads, region.stateful) for region in made.regions] == [
        (("bar", "web"), False),
        ((made.regions[0].writes,), True),
    ]
    hop = made.regions[0].hop
    assert hop is not None
    assert "bar and web are several topics" in hop.reason
    assert [promise.release for promise in promises_of(made)] == ["on arrival"]


def test_the_key_of_a_list_is_a_claim_about_all_its_topics(spark: "SparkSession") -> None:
    (region,) = listed(spark, ["us", "eu"], lambda orders: orders.groupBy("id").count(), key="id").regions
    assert (region.reads, region.stateful, region.keyed_by) == (("eu", "us"), True, ("id",))
    without = listed(spark, ["us", "eu"], lambda orders: orders.groupBy("id").count())
    assert len(without.regions) == 2


@pytest.mark.parametrize("number", [0, 1])
def test_a_value_that_may_differ_in_either_branch_makes_a_count_tentative(spark: "SparkSession", number: int) -> None:
    def body(*read: fk.Stream) -> fk.Stream:
        sides = [each.withColumn("id", F.expr("uuid()")) if i == number else each for i, each in enumerate(read)]
        return sides[0].union(sides[1]).explode(F.split("id", "-"), "part")

    made = planned(spark, body)
    assert [region.deterministic for region in made.regions] == [False]
    (promise,) = promises_of(made)
    assert promise.release != "on arrival"


@pytest.mark.parametrize("number", [0, 1])
def test_a_value_of_one_result_alone_waits_for_nothing(spark: "SparkSession", number: int) -> None:
    def body(*read: fk.Stream) -> fk.Stream:
        sides = [each.withColumn("id", F.expr("uuid()")) if i == number else each for i, each in enumerate(read)]
        return sides[0].union(sides[1])

    (region,) = planned(spark, body).regions
    assert region.deterministic
    assert [each.operations for each in region.varying] == [("Uuid",)]
    (keyed,) = planned(spark, body, key="id").regions
    assert not keyed.deterministic


def test_a_formula_of_either_branch_is_in_the_fingerprint(spark: "SparkSession") -> None:
    def of(left: str, right: str) -> str:
        def body(web: fk.Stream, bar: fk.Stream) -> fk.Stream:
            sides = web.selectExpr("id", f"{left} AS n"), bar.selectExpr("id", f"{right} AS n")
            return sides[0].union(sides[1]).explode(F.array("n"), "one")

        (region,) = planned(spark, body).regions
        return region.fingerprint["decided by"]

    assert of("n + 1", "n + 2") == of("n + 1", "n + 2")
    assert len({of("n + 1", "n + 2"), of("n + 1", "n + 3"), of("n + 2", "n + 2")}) == 3


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (lambda web, bar: web.union(bar).union(web), "reads web twice"),
        (lambda web, bar: web.groupBy("id").count().union(bar.groupBy("id").count()), "after a step with a state"),
    ],
    ids=["twice", "state"],
)
def test_what_does_not_run_live_says_why(spark: "SparkSession", body: Body, why: str) -> None:
    app = fk.App("shop")
    for name in ("web", "bar"):
        app.source(name, fk.Kafka(name, schema=SCHEMA))
    app.add_processor("both", body, reads=("web", "bar"), policy=fk.Lazy("5 seconds"), engine="live")
    app.sink("out", "both", fk.Kafka("out"))
    with pytest.raises(fk.DefinitionError) as refusal:
        plan_application(app, spark, "deadbeef")
    assert refusal.value.condition == "ENGINE_UNSUITABLE"
    assert why in str(refusal.value)


def test_streams_of_two_reads_are_united_live(spark: "SparkSession") -> None:
    web, bar = (fk.read(fk.Kafka(topic, schema=SCHEMA)) for topic in ("web", "bar"))
    options: Any = {"delivery": "exactly-once", "interval": "5 seconds"}
    (region,) = plan_application(application_of(web.union(bar), fk.Kafka("out"), **options), spark, "0").regions
    assert region.reads == ("bar", "web")
    with pytest.raises(fk.DefinitionError) as refusal:
        application_of(web.union(fk.read(fk.Kafka("bar", schema=SCHEMA), name="web")), fk.Kafka("out"), **options)
    assert refusal.value.condition == "NAME_TAKEN"


def test_at_most_once_and_twins_are_refused(spark: "SparkSession") -> None:
    for condition, options in (
        ("TOPICS_READ_LIVE", {"delivery": "at-most-once"}),
        ("TWINS_REFUSED", {"policy": fk.Lazy("5 seconds", twins=True)}),
    ):
        with pytest.raises(fk.DefinitionError) as refusal:
            planned(spark, lambda web, bar: web.union(bar), **options)
        assert refusal.value.condition == condition


def test_a_union_of_processors_reads_their_logs_and_their_sources(spark: "SparkSession") -> None:
    app = fk.App("shop")
    app.source("orders", fk.Kafka(["eu", "us"], schema=SCHEMA))
    app.source("web", fk.Kafka("web", schema=SCHEMA))
    app.add_processor("counted", lambda web: web.groupBy("id").count(), reads=("web",), policy=fk.Lazy("5 seconds"))
    app.add_processor("all", lambda orders: orders.where("n > 1"), reads=("orders",), policy=fk.Ephemeral())
    body = lambda all, counted: all.select("id").union(counted.select("id"))  # noqa: E731
    app.add_processor("both", body, reads=("all", "counted"), policy=fk.Lazy("5 seconds"))
    app.sink("out", "both", fk.Kafka("out"))
    made = plan_application(app, spark, "deadbeef")
    last = made.regions[-1]
    assert set(last.reads) == {"eu", "us", made.regions[-2].writes}
    assert [source.is_hop for source in last.sources] == [log.startswith("falkirk") for log in last.reads]
    assert last.processors == ("all", "both")
