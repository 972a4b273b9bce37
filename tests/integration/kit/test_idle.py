"""Idle partitions in micro-batches, in the test kit on real Spark: they hold time up for a while, and not for ever."""

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.testing import ABORT, kit

__all__ = ["kit"]
BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: float, n: int) -> dict[str, Any]:
    moment = BEGAN + timedelta(seconds=seconds)
    return {"id": "a", "at": moment.strftime("%Y-%m-%d %H:%M:%S"), "n": n}


def test_windows_wait_for_a_partition_without_records_for_a_while_only(kit: Any) -> None:
    app = fk.App("shop")
    for name in ("east", "west"):
        app.source(name, fk.Kafka(name, schema="id STRING, at TIMESTAMP, n INT"))

    @app.stream()
    def summed(east: fk.Stream, west: fk.Stream) -> fk.Stream:
        timed = east.unionByName(west).withWatermark("at", "10 seconds", idle="1 minute")
        sums = timed.groupBy(F.window("at", "10 seconds")).agg(F.sum("n").alias("n"))
        return sums.select(F.col("window.start").cast("string").alias("begins"), "n")

    app.sink("summed", summed, fk.Kafka("summed"))
    t = kit(app, at=BEGAN)
    t.feed("west", [at(1, 1)])
    t.advance("59 seconds")
    t.feed("east", [at(5, 2), at(30, 4)])
    assert t.read("summed") == []
    t.advance("1 second")
    t.feed("east", [ABORT, at(60, 8)])
    assert t.read("summed") == [{"begins": "2026-03-01 12:00:00", "n": 3}, {"begins": "2026-03-01 12:00:30", "n": 4}]
    t.feed("west", [at(20, 16), at(51, 32), at(80, 64)])
    assert [letter["reason"] for letter in t.dead_letters()] == ["late"]
    assert '"n":16' in t.dead_letters()[0]["value"]


@pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
def test_a_table_that_rarely_changes_does_not_stop_a_join(kit: Any) -> None:
    app = fk.App("shop")
    app.source("orders", fk.Kafka("orders", schema="id STRING, at TIMESTAMP, n INT"))
    app.source("prices", fk.Kafka("prices", schema="id STRING, at TIMESTAMP, n INT"))

    @app.stream()
    def priced(orders: fk.Stream, prices: fk.Stream) -> fk.Stream:
        table = prices.withColumn("price", F.col("n")).withWatermark("at", "1 second", idle="1 minute")
        joined = orders.withWatermark("at", "1 second").join_asof(table.select("id", "at", "price"), "id")
        return joined.select("n", "price")

    app.sink("priced", priced, fk.Kafka("priced"))
    t = kit(app, at=BEGAN)
    t.feed("prices", [at(-60, 5)])
    t.feed("orders", [at(5, 2), at(30, 4)])
    assert t.read("priced") == []
    t.advance("1 minute")
    t.feed("orders", [ABORT, at(60, 16)])
    assert sorted((row["n"], row["price"]) for row in t.read("priced")) == [(2, 5), (4, 5)]
    t.feed("prices", [at(58, 6), at(60, 7), at(70, 9)])
    assert [letter["reason"] for letter in t.dead_letters()] == ["late"]
    assert sorted((row["n"], row["price"]) for row in t.read("priced"))[-1] == (16, 7)
