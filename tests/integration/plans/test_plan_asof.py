"""Plans with as-of joins: the promise, what a result waits for, the columns, and the mistakes that Falkirk reports."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.policy import Policy
from falkirk.plan.explain.why import output_details
from falkirk.plan.guarantees import promises_of
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS, PRICES = "product STRING NOT NULL, at TIMESTAMP, n INT", "product STRING, at TIMESTAMP, price DOUBLE"
Body = Callable[[fk.Stream, fk.Stream], fk.Stream]


def timed(stream: fk.Stream) -> fk.Stream:
    return stream.withWatermark("at", "10 seconds")


def priced(how: str = "inner", **options: Any) -> Body:
    return lambda orders, prices: timed(orders).join_asof(timed(prices), "product", how, **options)


def planned(spark: "SparkSession", body: Body, policy: Policy | None = None, prices: str = PRICES, **sink: Any) -> Plan:
    app = fk.App("shop")
    app.source("orders", fk.Kafka("orders", schema=ORDERS))
    app.source("prices", fk.Kafka("prices", schema=prices))
    app.add_processor("priced", body, reads=("orders", "prices"), policy=policy or fk.Lazy("5 seconds"))
    app.sink("out", "priced", fk.Kafka("out"), **sink)
    return plan_application(app, spark, "deadbeef")


def test_results_leave_on_arrival_when_the_time_of_the_table_has_passed(spark: "SparkSession") -> None:
    made = planned(spark, priced("left"))
    (region,) = made.regions
    (promise,) = promises_of(made)
    assert (promise.release, promise.passed) == ("on arrival", ("prices",))
    assert promise.when == "when the time of prices has passed the record's time"
    assert (region.stateful, region.deterministic, region.reads) == (True, True, ("orders", "prices"))
    (reason,) = [each for each in promise.reasons if each.kind == "event-time"]
    assert "a record without such a version gives a result without one" in reason.text
    assert "The newest version of each key is kept for ever" in reason.text
    assert "left as-of join of orders and prices on product" in region.fingerprint["keyed step"]
    shown = "\n".join(str(line) for line in output_details(made, promise, None).renderables)  # type: ignore[attr-defined]
    assert "when the event time of prices has passed the time of its record" in shown
    limited = promises_of(planned(spark, priced(tolerance="1 hour")))[0]
    (reason,) = [each for each in limited.reasons if each.kind == "event-time"]
    assert "A version is deleted when it is 1 h older" in reason.text
    assert promises_of(planned(spark, lambda o, p: timed(o).join(timed(p), "product", within="1 hour")))[0].when == (
        "immediately"
    )


def test_the_columns_are_those_of_both_with_the_key_once(spark: "SparkSession") -> None:
    def columns(body: Body, policy: Policy | None = None) -> list[str]:
        (batch,) = planned(spark, body, policy).batches
        return [f"{field.name}: {field.dataType.simpleString()}" for field in batch.schema.fields]

    wanted = ["product: string", "at: timestamp", "n: int", "right_at: timestamp", "price: double"]
    assert columns(priced(), fk.LogSends()) == wanted
    named = lambda o, p: timed(o).join_asof(timed(p), "PRODUCT", "left").map_rows(dict, returns="price DOUBLE")  # noqa: E731
    assert columns(named) == ["price: double"]
    (region,) = planned(spark, priced("left", tolerance="1 hour")).regions
    assert "sub1" in region.fingerprint["stamp"]


def test_a_join_that_can_not_run_live_is_a_deterministic_micro_batch(spark: "SparkSession") -> None:
    made = planned(spark, priced("left", tolerance="1 hour"), fk.LogSends())
    (batch,) = made.batches
    assert "join_asof() runs live only under fk.Lazy()" in batch.reason
    assert batch.deterministic
    assert batch.passed == ("prices",)
    assert "when the event time of prices has passed the time of the record" in promises_of(made)[0].waiting


def test_mistakes_are_reported(spark: "SparkSession") -> None:
    def refused(condition: str, part: str, body: Body, **options: Any) -> None:
        with pytest.raises(fk.DefinitionError) as caught:
            planned(spark, body, **options)
        assert caught.value.condition == condition, caught.value
        assert part in str(caught.value)

    refused("JOIN_INVALID", "column product is string in one", priced(), prices="product INT, at TIMESTAMP")
    refused("JOIN_INVALID", "join_asof() can't pair", priced(), prices="product INT, at TIMESTAMP")
    refused("COLUMN_MISSING", "nothing", lambda o, p: timed(o).join_asof(timed(p), "nothing"))
    refused("JOIN_UNDETERMINED", "at-most-once", priced(), delivery="at-most-once")
    drawn = lambda o, p: timed(o).join_asof(timed(p).withColumn("u", F.expr("uuid()")), "product")  # noqa: E731
    refused("JOIN_UNDETERMINED", "uuid()", drawn)
    refused("TWINS_REFUSED", "it joins streams", priced(), policy=fk.Lazy("10 seconds", twins=True))


def test_a_changed_tolerance_changes_the_fingerprint(spark: "SparkSession") -> None:
    prints = [
        planned(spark, priced(tolerance=each)).regions[0].fingerprint["keyed step"] for each in ("1 hour", "2 hours")
    ]
    assert prints[0] != prints[1]
