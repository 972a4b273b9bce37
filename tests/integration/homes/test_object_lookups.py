"""A live region with its home in an object store looks up a view, and another machine resumes both."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from tests.integration.live import Wire, await_one
from tests.objects import BUCKET, ObjectStore
from tests.postgres import Postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Market:
    """Orders that look up the newest version of a product. Each run is in a new folder, as on another machine."""

    def __init__(self, wire: Wire, postgres: Postgres, tag: str, folder: Path) -> None:
        self.wire, self._folder, self._runs = wire, folder, 0
        self.version = self.sent = 0
        self._offers, self._orders, self._priced = (wire.topic(name, 1) for name in ("offers", "orders", "priced"))
        self._app = app = fk.App("shop", home=f"s3a://{BUCKET}/{tag}", store=postgres.url())
        app.source("offers", fk.Kafka(self._offers, schema="product STRING NOT NULL, version LONG"))
        app.source("orders", fk.Kafka(self._orders, schema="id LONG NOT NULL, product STRING"))

        @app.batch(every="1 second", state="product STRING, version LONG")
        def prices(offers: "DataFrame", prices: "DataFrame") -> "DataFrame":
            return prices.unionByName(offers).groupBy("product").agg(F.max("version").alias("version"))

        @app.stream(fk.Lazy("2 seconds"), engine="live")
        def priced(orders: fk.Stream, prices: fk.View) -> fk.Stream:
            return orders.lookup(prices, "product", "found", epoch="epoch")

        app.sink("priced", priced, fk.Kafka(self._priced, key="id"))

    def start(self, broker: Broker) -> Query:
        self._runs += 1
        self._app.home = self._folder / f"machine-{self._runs}"
        return run_here(self._app, Connection.of(broker.bootstrap))

    def offer(self) -> None:
        self.version += 1
        self.wire.send(self._offers, [{"product": "apple", "version": self.version}])

    def order(self) -> None:
        self.wire.send(self._orders, [{"id": self.sent, "product": "apple"}])
        self.sent += 1

    def results(self) -> list[dict[str, Any]]:
        return self.wire.rows(self._priced)

    def has_answered(self) -> Callable[[], bool]:
        """Send an order, and return a condition: its result is there."""
        self.order()
        return lambda: len(self.results()) >= self.sent

    def reads(self, version: int) -> bool:
        """Order, and return whether some result has read a version."""
        self.order()
        return any([each["version"] for each in row["found"]] == [version] for row in self.results())


def test_another_machine_resumes_a_region_with_its_view(
    spark: "SparkSession", broker: Broker, postgres: Postgres, objects: ObjectStore, tag: str, tmp_path: Path
) -> None:
    """The second machine reads the epoch of the first one. While the object store is away, orders are answered."""
    market = Market(Wire(bootstrap=broker.bootstrap, tag=tag), postgres, tag, tmp_path)
    market.offer()
    query = market.start(broker)
    await_one(query, lambda: market.reads(1), "a result that has read the first offer")
    query.stop()
    query = market.start(broker)
    await_one(query, market.has_answered(), "the results of the second machine")
    with objects.failing(lambda method, path: "refuse"):
        market.offer()
        await_one(query, lambda: "the object store" in str(query.status), "the status says that it is away")
        for _ in range(3):
            await_one(query, market.has_answered(), "a result while the object store is away")
    await_one(query, lambda: market.reads(2), "a result that has read the second offer")
    query.stop()
    found = sorted(market.results(), key=lambda row: row["id"])
    assert [row["id"] for row in found] == list(range(market.sent))
    versions = {(row["epoch"], *(each["version"] for each in row["found"])) for row in found}
    assert len(versions) == len({epoch for epoch, *_ in versions}), "each epoch has one content"
    assert {version for _, version in versions} == {1, 2}
    assert not list(tmp_path.glob("machine-*/regions/prices")), "no data on a local disk"
