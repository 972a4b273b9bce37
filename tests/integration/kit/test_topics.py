"""Several topics in one source, and unions: in batches and micro-batches, in the test kit on real Spark."""

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.runtime.spark.live.query import results
from falkirk.testing import ABORT, kit
from falkirk.user_tools.testkit.place import kafka_rows
from falkirk.user_tools.testkit.world import MemoryRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["kit"]
EU, US = "orders/orders-eu", "orders/orders-us"
ORDERS = fk.Kafka(["orders-us", "orders-eu"], schema="id STRING NOT NULL, n INT", metadata="topic")


def plan(app: fk.App, spark: "SparkSession") -> Plan:
    return plan_application(app, spark, "0")


def test_a_batch_reads_all_topics_of_a_list_as_one_parameter(kit: Any) -> None:
    app = fk.App("shop")
    app.source("orders", ORDERS)

    @app.batch(rows=2)
    def origins(orders: fk.Stamped) -> "DataFrame":
        rows: Any = orders
        return rows.select("id", "topic", F.col("stamp.source").alias("source"), F.col("stamp.offset").alias("at"))

    app.sink("seen", origins, fk.Kafka("seen"))
    t = kit(app)
    t.feed(EU, [{"id": "a", "n": 1}, ABORT, b"no json"])
    t.feed(US, [{"id": "b", "n": 2}, {"id": "c", "n": 3}])
    found = sorted(t.read("seen"), key=lambda row: str(row["id"]))
    assert found == [
        {"id": "a", "topic": "orders-eu", "source": EU, "at": 0},
        {"id": "b", "topic": "orders-us", "source": US, "at": 0},
        {"id": "c", "topic": "orders-us", "source": US, "at": 1},
    ]
    assert [letter["topic"] for letter in t.dead_letters()] == ["orders-eu"]


def united(left: str, right: str, by_name: bool = False) -> fk.App:
    app = fk.App("shop")
    app.source("left", fk.Kafka("left", schema=left))
    app.source("right", fk.Kafka("right", schema=right))

    @app.stream()
    def both(left: fk.Stream, right: fk.Stream) -> fk.Stream:
        marked = left.explode("items", "item").drop("items")
        return (marked.unionByName(right) if by_name else marked.union(right)).where("item <> 'none'")

    app.sink("both", both, fk.Kafka("both"))
    return app


@pytest.mark.parametrize("by_name", [False, True])
def test_a_union_has_the_records_of_both_streams(kit: Any, by_name: bool) -> None:
    t = kit(
        united("id STRING, items ARRAY<STRING>", "item STRING, id STRING" if by_name else "i STRING, x STRING", by_name)
    )
    t.feed("left", [{"id": "1", "items": ["tea", "milk"]}, {"id": "2", "items": ["none"]}, ABORT])
    t.feed("right", [("salt", "3") if by_name else ("3", "salt")])
    found = sorted((row["id"], row["item"]) for row in t.read("both"))
    assert found == [("1", "milk"), ("1", "tea"), ("3", "salt")]


@pytest.mark.parametrize(
    ("right", "by_name"), [("i STRING, n INT", False), ("i STRING", False), ("id STRING, other STRING", True)]
)
def test_a_union_of_different_columns_is_refused(spark: "SparkSession", right: str, by_name: bool) -> None:
    with pytest.raises(DefinitionError) as refusal:
        plan(united("id STRING, items ARRAY<STRING>", right, by_name), spark)
    assert refusal.value.condition == "UNION_INVALID"


@pytest.mark.parametrize(
    ("key", "order"), [("id", ["orders-us", "orders-eu"]), (None, ["orders-eu", "orders-us"])], ids=["keyed", "hop"]
)
def test_a_live_region_counts_over_a_list(kit: Any, key: str | None, order: list[str]) -> None:
    app = fk.App("shop")
    app.source("orders", fk.Kafka(order, schema="id STRING NOT NULL, n INT", key=key))

    @app.stream(fk.Lazy("5 seconds"))
    def counted(orders: fk.Stream) -> fk.Stream:
        return orders.groupBy("id").count()

    app.sink("counted", counted, fk.Kafka("counted", key="id"))
    t = kit(app)
    t.feed(EU, [{"id": "a"}, b"no json", {"id": "b"}, ABORT, {"id": "a"}])
    t.feed(US, [{"id": "c"}, {"id": "c"}, b"no json", ABORT, {"id": "c"}])
    found = sorted((row["id"], row["count"]) for row in t.read("counted"))
    assert found == [("a", 1), ("a", 2), ("b", 1), ("c", 1), ("c", 2), ("c", 3)]
    assert sorted(letter["topic"] for letter in t.dead_letters()) == ["orders-eu", "orders-us"]


def test_bad_records_of_two_topics_have_different_places(spark: "SparkSession") -> None:
    """A place without its source would hide one of two bad records. For keys, see `test_newest.py`."""
    app = fk.App("shop")
    app.source("orders", fk.Kafka(["orders-us", "orders-eu"], schema="id STRING NOT NULL", key="id"))

    @app.stream(fk.Lazy("5 seconds"))
    def counted(orders: fk.Stream) -> fk.Stream:
        return orders.groupBy("id").count()

    app.sink("counted", counted, fk.Kafka("counted", key="id"))
    (region,) = plan(app, spark).regions
    records = [MemoryRecord(key=None, value=value, timestamp_us=0) for value in (b"no json", b'{"id": "same"}')]
    raws = [kafka_rows(spark, log, [*enumerate(records)]) for log in region.reads]  # type: ignore[list-item]
    frame = results(region, raws, (1, 1))
    found = {tuple(row) for row in frame.data.select("id", "count", "__falkirk_stamp.source", frame.place).collect()}
    assert found == {(None, 1, 0, 0), (None, 1, 1, 2**32), ("same", 2, 1, 2**32)}
