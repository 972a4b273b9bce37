"""Lookups: live records read the newest epoch of a view, each result is there once, and all of it is of one epoch.

The view has the newest version of each product. A result has the rows that it read, and the number of the epoch. The
test compares the versions of results with the same epoch, those of successive epochs, and both lookups of a record.
"""

import contextlib
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

import falkirk as fk
from falkirk.checker import TopicRecord
from falkirk.errors.spark import SPARK_ERRORS
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.decision_store import Store
from falkirk.recovery.ownership.requests import ask_for_rollback
from falkirk.runtime.spark.live import views
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.steps.dataframes.names import VIEWS
from falkirk.steps.live.lookups import PlannedView, looked_up
from falkirk.theory.ids import CheckpointNumber, EpochNumber, LogId
from tests.integration.live import Wire, await_one, fail_behind_a_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRODUCTS = ("apple", "pear", "plum")
#: So many records are sent at a time.
MORE = 12


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
        order(MORE)
        due = len(sent)
        return lambda: len(results()) >= due

    await_one(query, more(), "more results")
    fail_behind_a_checkpoint(query, "priced", more)
    await_one(query, more(), "results after the failure")
    judge(results(), sent)
    assert len({row["epoch"] for row in results()}) > 1
    with contextlib.closing(Store(home / "decisions.db")) as store:
        _goes_back_with_its_view(topics, query, store, more)
        judge([json.loads(record.value or b"") for record in _valid(topics, store)], sent)
    query.stop()


def _valid(wire: Wire, store: Store) -> list[TopicRecord]:
    """Return the results that no rollback has voided."""
    void = store.voided_ranges(LogId(f"priced-{wire.tag}"))
    records = wire.records(f"priced-{wire.tag}")
    return [r for r in records if not any(v.partition == r.partition and v.covers(r.offset) for v in void)]


def _goes_back_with_its_view(wire: Wire, query: Query, store: Store, more: Callable[[], Callable[[], object]]) -> None:
    """Void the newest epochs of the view. No valid result has read one of them, and each record has a valid result."""
    due = len(wire.records(f"priced-{wire.tag}"))
    newest = max(row["epoch"] for row in wire.rows(f"priced-{wire.tag}"))
    await_one(query, lambda: store.newest_decision("epoch", "prices").number > newest, "another epoch")  # type: ignore[union-attr]
    with pytest.raises(fk.HomeError):  # results are published
        ask_for_rollback(store, {"prices": CheckpointNumber(newest - 1)}, force=False, timeout_s=60)
    ask_for_rollback(store, {"prices": CheckpointNumber(newest - 1)}, force=True, timeout_s=60)
    taken = store.newest_decision("epoch", "prices")
    assert taken is not None
    assert store.voided_ranges(LogId(f"priced-{wire.tag}")), "results have read an epoch that is void"
    await_one(query, lambda: len(_valid(wire, store)) >= due, "the results once more")
    more()
    await_one(query, lambda: len(_valid(wire, store)) >= due + MORE, "more results")
    epochs = [json.loads(record.value or b"")["epoch"] for record in _valid(wire, store)]
    assert not {newest} & {*epochs}, "epoch numbers are never used twice"


def test_a_record_stays_with_its_epoch(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two lookups of a record, a newer epoch may be published. Without the note, the second lookup reads it."""
    schema = StructType([StructField("k", StringType()), StructField("n", LongType())])
    view = PlannedView(name="v", log=LogId("epochs:v"), schema=schema, handle=f"test/{monkeypatch!r}")

    def publish_epoch(number: int) -> None:
        rows = spark.createDataFrame([("a", number), ("a", 10 * number), (None, 5)], schema).coalesce(1)
        views.load_epoch(spark, view, EpochNumber(number), rows, [[0], [0, 1]])
        views.publish(spark, view, EpochNumber(number))

    def look(data: DataFrame, name: str) -> DataFrame:
        return looked_up(data, view, {"k": F.col("k")}, name, None)

    publish_epoch(1)
    given = spark.createDataFrame([("a",), ("b",), (None,)], "k STRING").coalesce(1)
    first = look(given, "first").localCheckpoint()
    publish_epoch(2)
    both = [(r.k, [x.n for x in r.first], [x.n for x in r.second]) for r in look(first, "second").collect()]
    assert both == [("a", [1, 10], [1, 10]), ("b", [], []), (None, [], [])]
    without_note = look(first.drop(VIEWS), "second").collect()
    assert [x.n for x in without_note[0].second] == [2, 20]
    two = looked_up(given, view, {"k": F.col("k"), "n": F.lit(20).cast("long")}, "found", "epoch").collect()
    assert [(len(r.found), r.epoch) for r in two] == [(1, 2), (0, 2), (0, 2)]
    views.forget(spark, view)
    with pytest.raises(SPARK_ERRORS, match="no epoch"):
        look(given, "first").collect()
