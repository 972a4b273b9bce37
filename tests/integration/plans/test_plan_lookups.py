"""Plans of live lookups: results that wait for a checkpoint, results that do not, and refusals."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.plan.guarantees import promises_of
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Body = Callable[[fk.Stream, fk.View], fk.Stream]


def declared(body: Body, *, policy: Any = None, key: str | None = "id") -> fk.App:
    app = fk.App("shop")
    app.source("offers", fk.Kafka("offers", schema="product STRING, price LONG"))
    app.source("orders", fk.Kafka("orders", schema="id STRING NOT NULL, product STRING, at TIMESTAMP", key="id"))

    @app.batch(every="1 second", state="product STRING, price LONG")
    def prices(offers: Any, prices: Any) -> Any:
        return prices.unionByName(offers).groupBy("product").agg(F.max("price").alias("price"))

    def priced(orders: fk.Stream, prices: fk.View) -> fk.Stream:
        return body(orders.lookup(prices, "product", "found", epoch="epoch"), prices)

    app.stream(policy or fk.Lazy("5 seconds"), engine="live")(priced)
    app.sink("out", "priced", fk.Kafka("out", key=key))
    return app


def planned(spark: "SparkSession", body: Body, **options: Any) -> Plan:
    return plan_application(declared(body, **options), spark, "deadbeef")


def test_a_lookup_does_not_wait(spark: "SparkSession") -> None:
    plan = planned(spark, lambda found, prices: found)
    (region,) = plan.regions
    (promise,) = promises_of(plan)
    assert (promise.release, region.deterministic) == ("on arrival", True)
    assert [each.operations for each in region.varying] == [("NewestEpoch",)]
    assert region.reads == ("orders", "epochs:prices")
    assert (region.stage().views, region.logs().views) == (("epochs:prices",), ("epochs:prices",))
    assert plan.properties["priced"].differs, "another computation may read another epoch"
    assert {"independent", "view"} <= {reason.kind for reason in promise.reasons}


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (lambda found, prices: found.explode("found", "one"), "id"),
        (lambda found, prices: found.groupBy("id").agg(F.sum("epoch").alias("n")), "id"),
        (lambda found, prices: found.withColumn("of", F.col("epoch").cast("string")), "of"),
        (lambda found, prices: found.where("size(found) > 0").groupBy("id").count(), "id"),
    ],
    ids=["several results of a record", "a state", "a key", "which records a state has"],
)  # fmt: skip
def test_what_depends_on_the_epoch_more_than_once_waits(spark: "SparkSession", body: Body, key: str) -> None:
    promises = promises_of(planned(spark, body, key=key))
    assert [promise.release for promise in promises] == ["behind a checkpoint"]


def test_a_state_beside_the_lookup_does_not_depend_on_it(spark: "SparkSession") -> None:
    plan = planned(spark, lambda found, prices: found.select("id").groupBy("id").count())
    assert [promise.release for promise in promises_of(plan)] == ["on arrival"]


def test_no_assertion_covers_the_epoch(spark: "SparkSession") -> None:
    """A function may be deterministic. Which epoch a record finds is not up to it."""
    app = declared(lambda found, prices: found)

    @fk.deterministic
    def summed(orders: fk.Stream, prices: fk.View) -> fk.Stream:
        found = orders.lookup(prices, "product", "found", epoch="epoch")
        return found.groupBy("id").agg(F.sum("epoch").alias("n"))

    app.stream(fk.Lazy("5 seconds"), engine="live")(summed)
    app.sink("sums", summed, fk.Kafka("sums", key="id"))
    promises = {promise.sink: promise for promise in promises_of(plan_application(app, spark, "deadbeef"))}
    assert promises["sums"].release == "behind a checkpoint"


def test_two_plans_are_equal_and_name_no_home(spark: "SparkSession") -> None:
    one, two = (
        plan_application(declared(lambda found, prices: found.explode("found", "one")), spark, identity)
        for identity in ("aaaa", "bbbb")
    )
    keys = ("decided by", "steps", "stamp", "partitioned by")
    assert [one.regions[0].fingerprint[key] for key in keys] == [two.regions[0].fingerprint[key] for key in keys]


@pytest.mark.parametrize(
    ("on", "condition"),
    [({"pack": "product"}, "STEP_INVALID"), ({"price": "product"}, "STEP_INVALID"), ("id", "STEP_INVALID"),
     ({"product": "nothing"}, "COLUMN_MISSING")],
)  # fmt: skip
def test_a_key_that_does_not_fit_is_refused(spark: "SparkSession", on: Any, condition: str) -> None:
    with pytest.raises(fk.DefinitionError) as caught:
        planned(spark, lambda found, prices: found.lookup(prices, on, "more"))
    assert caught.value.condition == condition
    assert caught.value.where is not None


def test_twins_are_refused(spark: "SparkSession") -> None:
    with pytest.raises(fk.DefinitionError) as caught:
        planned(spark, lambda found, prices: found, policy=fk.Lazy("10 seconds", twins=True))
    assert caught.value.condition == "TWINS_REFUSED"


def test_a_view_of_a_source_is_refused(spark: "SparkSession") -> None:
    app = declared(lambda found, prices: found)

    def wrong(orders: fk.Stream, offers: fk.View) -> fk.Stream:
        return orders.lookup(offers, "product", "found")

    app.stream(engine="live")(wrong)
    app.sink("wrong", wrong, fk.Kafka("wrong"))
    with pytest.raises(fk.DefinitionError) as caught:
        plan_application(app, spark, "deadbeef")
    assert caught.value.condition == "VIEW_HAS_NO_EPOCHS"


def test_a_view_of_a_live_processor_has_the_newest_record_of_each_key(spark: "SparkSession") -> None:
    app = declared(lambda found, prices: found)

    @app.stream(fk.Lazy("5 seconds"), engine="live")
    def counted(orders: fk.Stream) -> fk.Stream:
        return orders.groupBy("id").count()

    @app.stream(engine="live")
    def known(orders: fk.Stream, counted: fk.View) -> fk.Stream:
        return orders.lookup(counted, "id", "found")

    app.sink("known", known, fk.Kafka("known"))
    plan = plan_application(app, spark, "deadbeef")
    region = next(each for each in plan.regions if each.name == "known")
    assert [view.log for view in region.views] == ["epochs:counted-view"]
    assert "counted-view" in {batch.name for batch in plan.batches}
