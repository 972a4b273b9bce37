"""Lookups in the newest rows of a stream, in the test kit: live and in micro-batches, over crashes."""

from typing import Any

import pytest

import falkirk as fk
from falkirk.testing import ABORT, kit

__all__ = ["kit"]


def application(engine: Any = None) -> fk.App:
    app = fk.App("shop")
    app.source("offers", fk.Kafka("offers", schema="what STRING, price LONG"))
    app.source("orders", fk.Kafka("orders", schema="id STRING, product STRING"))

    @app.stream(engine=engine)
    def prices(offers: fk.Stream) -> fk.Stream:
        return offers.where("price > 0").withColumnRenamed("what", "thing")

    @app.stream(engine=engine)
    def priced(orders: fk.Stream, prices: fk.Stream) -> fk.Stream:
        found = orders.lookup(fk.Newest(prices), {"thing": "product"}, "found")
        return found.selectExpr("id", "product", "found.thing", "found.price", "found IS NULL AS is_new")

    app.sink("priced", priced, fk.Kafka("priced", key="product"))
    return app


def offer(what: str | None, price: int | None) -> dict[str, Any]:
    return {"what": what, "price": price}


@pytest.mark.parametrize("engine", ["live", "micro-batch"])
def test_a_record_gets_the_newest_row_before_it(kit: Any, engine: str) -> None:
    t = kit(application(engine))
    t.feed("orders", [{"id": "early", "product": "tea"}])
    t.feed("offers", [offer("tea", 1), offer("milk", 5), offer(None, 7)])
    t.feed("orders", [{"id": "one", "product": "tea"}, ABORT, {"id": "none", "product": None}])
    t.feed("offers", [offer("tea", 2), offer("tea", 3), offer("tea", -1)])
    t.crash()
    t.feed("orders", [{"id": "two", "product": "tea"}, {"id": "milk", "product": "milk"}])
    t.feed("offers", [offer("milk", 6)])
    t.feed("orders", [{"id": "again", "product": "milk"}])
    found = {row["id"]: (row["product"], row.get("thing"), row.get("price"), row["is_new"]) for row in t.read("priced")}
    assert found == {
        "early": ("tea", None, None, True),
        "one": ("tea", "tea", 1, False),
        "none": (None, None, None, True),
        "two": ("tea", "tea", 3, False),
        "milk": ("milk", "milk", 5, False),
        "again": ("milk", "milk", 6, False),
    }
    assert len(t.read("priced")) == len(found)
