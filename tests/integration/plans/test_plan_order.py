"""Plans with `stateful(order=)`: no hop, the promise, its costs, where it runs, and the mistakes that are reported."""

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.policy import Policy
from falkirk.plan.fingerprint import IN_ORDER, places_of_keyed_step
from falkirk.plan.guarantees import promises_of
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id STRING NOT NULL, area STRING, at TIMESTAMP, n INT"


def undeclared(row: Any, state: Any) -> Any:
    return {"id": row.id}, {"n": row.n}


@fk.deterministic
def declared(row: Any, state: Any) -> Any:
    return undeclared(row, state)


def timed(stream: fk.Stream, delay: str = "10 seconds") -> fk.Stream:
    return stream.withWatermark("at", delay)


def folded(stream: fk.Stream, function: Any = declared, **options: Any) -> fk.Stream:
    return stream.stateful(function, key="id", state="n INT", returns="id STRING", **options)


def ordered(stream: fk.Stream) -> fk.Stream:
    return folded(timed(stream), order="at")


def planned(spark: "SparkSession", body: Any = ordered, policy: Policy | None = None, **options: Any) -> Plan:
    app = fk.App("shop")
    app.source("orders", fk.Kafka("orders", schema=SCHEMA, key="area"))
    sink = {name: options.pop(name) for name in ("delivery",) if name in options}
    app.add_processor("found", body, reads=("orders",), policy=policy or fk.Lazy("5 seconds"), **options)
    app.sink("out", "found", fk.Kafka("out", key="id"), **sink)
    return plan_application(app, spark, "deadbeef")


def test_a_key_from_several_partitions_needs_no_hop(spark: "SparkSession") -> None:
    made = planned(spark)
    (region,) = made.regions
    (promise,) = promises_of(made)
    assert (region.hop, region.deterministic, region.reorders, region.logs().reorders) == (None, True, True, True)
    assert (promise.release, promise.when) == ("on arrival", "when the time of orders has passed the record's time")
    kept = region.fingerprint["keyed step"]
    assert kept == f"{IN_ORDER}(key id, state n INT, by at, 10 s, 60 s ahead)"
    assert places_of_keyed_step(region.fingerprint) == region.fingerprint["stamp"].count("sub") == 1
    assert not region.may_change_steps
    (reason,) = [each.text for each in promise.reasons if each.kind == "python"]
    assert "in the order of `at`, partition and offset" in reason
    assert "A partition without new records holds all results" in reason
    (cost,) = [each for each in promise.costs if "slowest partition of orders is 10 s past it" in each]
    assert "no byte is written to an internal topic" in cost
    assert any("keeps the stamp of each result" in each for each in promise.costs)


def test_without_an_order_there_is_a_hop_whose_reason_names_the_other_way(spark: "SparkSession") -> None:
    first, second = planned(spark, folded).regions
    assert first.hop is not None
    assert "orders is partitioned by `area`" in first.hop.reason
    assert "stateful(order=), the function would get records by their times, without a hop" in first.hop.reason
    assert not second.reorders


@pytest.mark.parametrize(
    ("policy", "body", "part"),
    [
        (fk.LogSends(), ordered, "a log under fk.LogSends()"),
        (None, lambda s: folded(timed(s), undeclared, order="at"), "undeclared() is not declared"),
    ],
)
def test_elsewhere_it_runs_in_deterministic_micro_batches(
    spark: "SparkSession", policy: Policy | None, body: Any, part: str
) -> None:
    made = planned(spark, body, policy)
    (batch,) = made.batches
    assert part in batch.reason
    assert batch.passed == ("orders",)
    assert promises_of(made)[0].passed == ("orders",)


def test_mistakes_are_reported(spark: "SparkSession") -> None:
    def refused(condition: str, part: str, body: Any = ordered, **options: Any) -> None:
        with pytest.raises(fk.DefinitionError) as caught:
            planned(spark, body, **options)
        assert caught.value.condition == condition, caught.value
        assert part in str(caught.value)

    refused("ORDER_UNSUITABLE", "at-most-once", delivery="at-most-once")
    drawn = lambda s: folded(timed(s.withColumn("u", F.expr("uuid()"))), order="at")  # noqa: E731
    refused("ORDER_UNSUITABLE", "uuid()", drawn)
    refused("ORDER_UNSUITABLE", "", lambda s: folded(timed(s), undeclared, order="at"), engine="live")
    refused("TWINS_REFUSED", "in the order of their stamps", policy=fk.Lazy("10 seconds", twins=True))
    refused("ENGINE_UNSUITABLE", "another step with state", lambda s: ordered(s.groupBy("id").count()), engine="live")
    refused("COLUMN_MISSING", "nope", lambda s: ordered(s.drop("id").withColumnRenamed("n", "nope")))


def test_a_changed_delay_changes_the_fingerprint(spark: "SparkSession") -> None:
    kept = [
        planned(spark, lambda s, d=d: folded(timed(s, d), order="at")).regions[0].fingerprint["keyed step"]
        for d in ("10 seconds", "11 seconds")
    ]
    assert kept[0] != kept[1]
