"""Plans of lookups in the newest rows of a stream: a hop, results on arrival, reasons, micro-batches and refusals."""

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

Body = Callable[[fk.Stream, fk.Stream], fk.Stream]


def priced(orders: fk.Stream, prices: fk.Stream) -> fk.Stream:
    return orders.lookup(fk.Newest(prices), "product", "found")


def planned(spark: "SparkSession", body: Body = priced, *, table: Any = None, engine: Any = "live") -> Plan:
    app = fk.App("shop")
    app.source("offers", fk.Kafka("offers", schema="product STRING, price LONG"))
    app.source("orders", fk.Kafka("orders", schema="id STRING NOT NULL, product STRING, n INT", key="product"))

    def prices(offers: fk.Stream) -> fk.Stream:
        return offers.where("price > 0") if table is None else table(offers)

    def priced(orders: fk.Stream, prices: fk.Stream) -> fk.Stream:
        return body(orders, prices)

    app.stream(fk.Lazy("5 seconds"))(prices)
    app.stream(fk.Lazy("5 seconds"), engine=engine)(priced)
    app.sink("out", "priced", fk.Kafka("out", key="product"))
    return plan_application(app, spark, "deadbeef")


def test_a_hop_records_the_order(spark: "SparkSession") -> None:
    plan = planned(spark)
    regions = {region.name: region for region in plan.regions}
    assert set(regions) == {"prices-out", "priced-by-product", "out"}
    hop = regions["priced-by-product"]
    assert hop.hop is not None
    assert "are several topics, so records with the same `product` may come from each of them" in hop.hop.reason
    (promise,) = promises_of(plan)
    assert (promise.release, regions["out"].deterministic) == ("on arrival", True)
    assert regions["out"].keyed_by == ("product",)
    (reason,) = [each for each in promise.reasons if each.kind == "view"]
    assert "lookup() of a stream runs live: its state has the newest row of each `product`" in reason.text


def test_a_group_by_of_the_results_needs_no_checkpoint(spark: "SparkSession") -> None:
    plan = planned(spark, lambda o, p: priced(o, p).groupBy("product").agg(F.sum("found.price").alias("sum")))
    (promise,) = promises_of(plan)
    assert promise.release == "on arrival"


def test_the_log_of_the_table_records_random_values(spark: "SparkSession") -> None:
    plan = planned(spark, table=lambda offers: offers.withColumn("price", F.rand()))
    (promise,) = promises_of(plan)
    assert promise.release == "on arrival"


def test_results_of_a_table_that_waits_wait(spark: "SparkSession") -> None:
    def random_groups(offers: fk.Stream) -> fk.Stream:
        return offers.withColumn("product", F.rand().cast("string")).groupBy("product").agg(F.max("price").alias("p"))

    (promise,) = promises_of(planned(spark, table=random_groups))
    assert promise.release != "on arrival"


def test_two_lookups_in_one_processor_run_in_micro_batches(spark: "SparkSession") -> None:
    def twice(orders: fk.Stream, prices: fk.Stream) -> fk.Stream:
        return priced(orders, prices).lookup(fk.Newest(prices), "product", "again")

    plan = planned(spark, twice, engine=None)
    assert [batch.name for batch in plan.batches] == ["priced"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda o, p: o.lookup(fk.Newest(p), {"price": "product"}, "found"), "column price of the table is bigint"),
        (lambda o, p: o.lookup(fk.Newest(p), {"other": "product"}, "found"), "there is no column other"),
        (lambda o, p: o.lookup(fk.Newest(p), "product", "n"), "the records have a column n already"),
    ],
)
def test_wrong_columns_are_refused(spark: "SparkSession", body: Body, reason: str) -> None:
    with pytest.raises(fk.DefinitionError) as caught:
        planned(spark, body)
    assert caught.value.condition == "STEP_INVALID"
    assert f"lookup(): {reason}" in str(caught.value), "the user's method"
