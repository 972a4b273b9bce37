"""Lookups in the test kit, live and in micro-batches: the rows of the newest epoch, by each kind of key."""

from typing import Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.testing import ABORT, kit

__all__ = ["kit"]


def application() -> fk.App:
    app = fk.App("shop")
    app.source("offers", fk.Kafka("offers", schema="shop STRING, product STRING, price LONG"))
    app.source("orders", fk.Kafka("orders", schema="id STRING, shop STRING, products ARRAY<STRING>"))

    @app.batch(rows=1, state="shop STRING, product STRING, price LONG")
    def prices(offers: Any, prices: Any) -> Any:
        return prices.unionByName(offers).groupBy("shop", "product").agg(F.max("price").alias("price"))

    @app.stream()
    def priced(orders: fk.Stream, prices: fk.View) -> fk.Stream:
        first = orders.withColumn("product", F.get("products", F.lit(0)))
        each = first.lookup(prices, {"product": "products"}, "found", epoch="epoch")
        return each.lookup(prices, ["shop", "product"], "own").where("id <> 'none'")

    app.sink("priced", priced, fk.Kafka("priced"))
    return app


def shown(row: dict[str, Any]) -> tuple[Any, ...]:
    found, own = ([each["price"] for each in row[name]] for name in ("found", "own"))
    return row["id"], sorted(found), own, row["epoch"]


def test_rows_of_the_newest_epoch_by_each_kind_of_key(kit: Any) -> None:
    t = kit(application())
    t.feed("orders", [{"id": "early", "shop": "x", "products": ["a"]}])
    assert t.read("priced") == [], "there is no epoch yet"
    offers = [("x", "a", 1), ("y", "a", 2), ("x", "b", 3), (None, "c", 4)]
    t.feed("offers", [dict(zip(("shop", "product", "price"), offer, strict=True)) for offer in offers])
    assert [shown(row) for row in t.read("priced")] == [("early", [1], [1], 0)]
    t.feed("orders", [
        {"id": "two", "shop": "y", "products": ["a", None, "b", "?"]},
        ABORT,
        {"id": "null", "shop": None, "products": ["c"]},
        {"id": "none", "shop": "x", "products": []},
        {"id": "empty", "shop": "x", "products": None},
    ])  # fmt: skip
    found = {row["id"]: shown(row)[1:] for row in t.read("priced")}
    assert found["two"] == ([1, 2, 3], [2], 3)
    assert found["null"] == ([4], [], 3)
    assert found["empty"] == ([], [], 3)


def test_runs_at_the_same_time_read_their_own_views(kit: Any) -> None:
    """They have one JVM, and the same names for their views."""
    app = application()
    runs = [kit(app), kit(app)]
    for price, t in enumerate(runs):
        t.feed("offers", [{"shop": "x", "product": "a", "price": price}])
    for number in range(2):
        for t in runs:
            t.feed("orders", [{"id": f"{number}", "shop": "x", "products": ["a"]}])
    for price, t in enumerate(runs):
        assert [shown(row)[1:3] for row in t.read("priced")] == 2 * [([price], [price])]
        assert [region.name for region in t._plan.regions] == ["priced"]


def test_beside_a_step_with_event_time_lookups_run_in_micro_batches(kit: Any) -> None:
    app = fk.App("shop")
    app.source("offers", fk.Kafka("offers", schema="product STRING, price LONG"))
    app.source("orders", fk.Kafka("orders", schema="id STRING, product STRING, at TIMESTAMP"))

    @app.batch(rows=1)
    def prices(offers: Any) -> Any:
        return offers

    @app.stream()
    def priced(orders: fk.Stream, prices: fk.View) -> fk.Stream:
        return orders.withWatermark("at", "1 second").dropDuplicates(["id"]).lookup(prices, ["product"], "found")

    app.sink("priced", priced, fk.Kafka("priced"))
    t = kit(app)
    t.feed("offers", [{"product": "a", "price": 7}])
    t.feed("orders", 2 * [{"id": "one", "product": "a", "at": "2026-01-01T00:00:00Z"}])
    assert [[each["price"] for each in row["found"]] for row in t.read("priced")] == [[7]]
    assert t._plan.regions == ()


@pytest.mark.parametrize(
    ("on", "reason"),
    [
        ({"pack": "shop"}, "view prices has no column pack; it has shop, product, price"),
        ({"price": "shop"}, "view prices: its column price is of type bigint, and the record's key string"),
        ({"product": "nothing"}, "nothing"),
    ],
)
def test_a_key_that_does_not_fit_is_refused(kit: Any, on: dict[str, str], reason: str) -> None:
    app = application()
    app.processors.pop("priced")

    @app.stream()
    def priced(orders: fk.Stream, prices: fk.View) -> fk.Stream:
        return orders.lookup(prices, on, "found")

    with pytest.raises(fk.DefinitionError) as caught:
        kit(app)
    assert caught.value.condition in ("STEP_INVALID", "COLUMN_MISSING", "BATCH_INVALID")
    assert reason in str(caught.value)
