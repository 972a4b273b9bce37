"""Lookups in the newest rows of another live region, over a restart that computes published results again.

Usually the first run makes no checkpoint. So the second run reads all records of both topics again, in another order,
and must find for each record the row that is published with it.
"""

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.checker import Guarantee
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.supervision.query import run_here
from falkirk.user_tools.commands.judge import LiveJudge
from tests.integration.explained import explained
from tests.integration.live import Wire, await_one

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRODUCTS, NEVER = ("a", "b", "c"), "20 seconds"
SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")


def application(wire: Wire, home: Path, engine: Any) -> fk.App:
    app = fk.App(f"latest-{wire.tag}", home=home)
    app.source("offers", fk.Kafka(f"offers-{wire.tag}", schema="what STRING, price LONG", key="what"))
    app.source("orders", fk.Kafka(f"orders-{wire.tag}", schema="n INT NOT NULL, product STRING"))

    @app.stream(fk.Lazy(NEVER))
    def prices(offers: fk.Stream) -> fk.Stream:
        return offers.where("price % 5 <> 0")

    @app.stream(fk.Lazy(NEVER), engine=engine)
    def priced(orders: fk.Stream, prices: fk.Stream) -> fk.Stream:
        return orders.where("n % 7 <> 0").lookup(fk.Newest(prices), {"what": "product"}, "found")

    app.sink("out", priced, fk.Kafka(f"out-{wire.tag}", key="product"))
    return app


def send(wire: Wire, begin: int, end: int) -> None:
    """Send offers with rising prices, and orders of all products in both partitions."""
    for n in range(begin, end):
        product = n % len(PRODUCTS)
        wire.send(f"offers-{wire.tag}", [{"what": PRODUCTS[product], "price": n}], product % 2)
        wire.send(f"orders-{wire.tag}", [{"n": n, "product": PRODUCTS[n // 2 % 3]}], n % 2)


@pytest.mark.parametrize("engine", ["live", pytest.param("micro-batch", marks=SOAK)])
def test_a_replay_finds_the_published_rows(wire: Wire, home: Path, engine: str, spark: "SparkSession") -> None:
    app, out = application(wire, home, engine), f"out-{wire.tag}"
    for name in ("offers", "orders", "out"):
        wire.topic(name)
    sent: list[int] = []
    for begin, end in ((1, 40), (1000, 1040)):
        query = run_here(app, Connection.of(wire.bootstrap), create_topics=True)
        try:
            send(wire, begin, end)
            sent += range(begin, end)
            await_one(query, partial(_sees, wire, end, sent), "an order with a new price")
            due = sum(n % 7 != 0 for n in sent)
            await_one(query, partial(_has, wire, out, due), f"{due} results")
        finally:
            query.stop()
    found = wire.rows(out)
    assert sorted(row["n"] for row in found) == [n for n in sorted(sent) if n % 7]
    newest = dict.fromkeys(PRODUCTS, 0)
    for row in found:
        price = (row.get("found") or {}).get("price", 0)
        assert price == 0 or (price % 5 and PRODUCTS[price % 3] == row["product"] == row["found"]["what"])
        assert price >= newest[row["product"]], "a product is in one partition, and its rows do not go back"
        newest[row["product"]] = price
    if engine == "live":
        results = {json.loads(each.value or b"").get("found") is None: each for each in wire.records(out)}
        for row, records, _, text in explained(app, wire.bootstrap, spark, out, results.values()):
            order, *offers = records
            assert order["n"] == row["n"]
            assert offers == ([row["found"]] if row.get("found") else [])
            assert ("had no row with this key" in text) == (not offers)
    if engine == "live" and "FALKIRK_STRIKES" in os.environ:
        judge = LiveJudge(app, Connection.of(wire.bootstrap), spark)
        right = judge.judge_sink(app.sinks["out"]).results
        assert (right.guarantee, right.counts.expected_outputs) == (Guarantee.EXACTLY_ONCE, len(found)), right.anomalies
        last = wire.records(out)[-1]
        row = json.loads(last.value or b"null")
        earlier = next(each["found"] for each in found if each["product"] == row["product"] and each.get("found"))
        assert earlier["price"] < row["found"]["price"]
        wire.send(f"orders-{wire.tag}", [{"n": 8503, "product": row["product"]}])
        wire.send(out, [{**row, "n": 8503, "found": earlier}], last.partition, last.key)
        wrong = judge.judge_sink(app.sinks["out"]).results
        assert wrong.guarantee is Guarantee.BROKEN, "a row that is older than the one before"


def _sees(wire: Wire, price: int, sent: list[int]) -> bool:
    """Return whether an order has found one of the last prices before this. Send another order if not."""
    if any((row.get("found") or {}).get("price", 0) >= price - 6 for row in wire.rows(f"out-{wire.tag}")):
        return True
    sent.append(max(sent) + 1)
    wire.send(f"orders-{wire.tag}", [{"n": sent[-1], "product": PRODUCTS[(price - 1) % 3]}])
    return False


def _has(wire: Wire, topic: str, count: int) -> bool:
    return wire.count(topic) >= count
