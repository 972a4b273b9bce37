"""Lookups: live records read the newest epoch of a view, each result is there once, and all of it is of one epoch.

The view has the newest version of each product's price. A result has the rows that it read and the number of the epoch.
So whoever reads the results can see that two records with one epoch have read the same versions, that a later epoch has
no older versions, and that a record has read one epoch in all of its lookups.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.host.query import run_here
from falkirk.kafka.connection import Connection
from tests.integration.live import Wire, await_one, fail_behind_a_checkpoint

PRODUCTS = ("apple", "pear", "plum")


def application(wire: Wire, home: Path) -> fk.App:
    app = fk.App(f"lookups-{wire.tag}", home=home)
    app.source("offers", fk.Kafka(f"offers-{wire.tag}", schema="product STRING NOT NULL, version LONG"))
    app.source("orders", fk.Kafka(f"orders-{wire.tag}", schema="id STRING NOT NULL, product STRING"))
    app.source("baskets", fk.Kafka(f"baskets-{wire.tag}", schema="id STRING NOT NULL, products ARRAY<STRING>"))

    @app.batch(every="1 second", state="product STRING, version LONG")
    def prices(offers: DataFrame, prices: DataFrame) -> DataFrame:
        return prices.unionByName(offers).groupBy("product").agg(F.max("version").alias("version"))

    @app.stream(fk.Lazy("3 seconds"), engine="live")
    def priced(orders: fk.Stream, baskets: fk.Stream, prices: fk.View) -> fk.Stream:
        one = orders.select("id", F.array("product").alias("products"))
        found = one.unionByName(baskets).lookup(prices, {"product": "products"}, "found", epoch="epoch")
        first = found.withColumn("product", F.get("products", F.lit(0)))
        return first.lookup(prices, "product", "again").select("id", "products", "found", "again", "epoch")

    app.sink("priced", priced, fk.Kafka(f"priced-{wire.tag}", key="id"))
    return app


def judge(found: list[dict[str, Any]], sent: set[str]) -> None:
    assert sorted(row["id"] for row in found) == sorted(sent)
    of_epoch: dict[int, dict[str, int]] = defaultdict(dict)
    for row in found:
        versions = [(each["product"], each["version"]) for each in row["found"]]
        asked = [product for product in row["products"] if product in PRODUCTS]
        assert [product for product, _ in versions] == asked, row
        assert row["again"] == [each for each in row["found"] if each["product"] == row["products"][0]], row
        for product, version in versions:
            assert of_epoch[row["epoch"]].setdefault(product, version) == version, row
    newest: dict[str, int] = {}
    for epoch in sorted(of_epoch):
        for product, version in of_epoch[epoch].items():
            assert version >= newest.get(product, 0), (epoch, product)
            newest[product] = version


@pytest.fixture
def topics(wire: Wire) -> Wire:
    for name in ("offers", "orders", "baskets", "priced"):
        wire.topic(name)
    return wire


def test_each_record_reads_one_epoch_and_has_one_result(topics: Wire, home: Path) -> None:
    sent: set[str] = set()
    version = 0

    def offer() -> None:
        nonlocal version
        version += 1
        topics.send(f"offers-{topics.tag}", [{"product": p, "version": version} for p in PRODUCTS])

    def order(number: int) -> None:
        ids = [f"{len(sent) + n}" for n in range(number)]
        sent.update(ids)
        for n, id in enumerate(ids):
            product = (*PRODUCTS, "unknown")[n % 4]
            if n % 2:
                topics.send(f"orders-{topics.tag}", [{"id": id, "product": product}], partition=n % 4 // 2)
            else:
                topics.send(f"baskets-{topics.tag}", [{"id": id, "products": ["pear", product, None]}])

    def results() -> list[dict[str, Any]]:
        return topics.rows(f"priced-{topics.tag}")

    query = run_here(application(topics, home), Connection.of(topics.bootstrap))
    order(8)
    await_one(query, lambda: "prices" in str(query.status), "the wait for the first epoch")
    offer()
    await_one(query, lambda: len(results()) >= 8, "the first results")

    def more() -> Any:
        offer()
        order(12)
        due = len(sent)
        return lambda: len(results()) >= due

    await_one(query, more(), "more results")
    fail_behind_a_checkpoint(query, "priced", more)
    await_one(query, more(), "results after the failure")
    query.stop()
    judge(results(), sent)
    assert len({row["epoch"] for row in results()}) > 1
