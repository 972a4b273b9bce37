"""A topic by epochs gets the results of a live processor, each once and in order, whatever crashes."""

import os
from typing import TYPE_CHECKING, Any

import falkirk as fk
from falkirk.testing import crash_between_writes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Before how many writes a run crashes, evenly spread.
CRASHES = 6 if "FALKIRK_STRIKES" in os.environ else 3


def test_results_of_a_live_processor_are_copied(spark: "SparkSession") -> None:
    app = fk.App("shop")
    source = app.source("orders", fk.Kafka("orders", schema="item STRING NOT NULL", key="item"))

    @app.stream(fk.Lazy("10 seconds"))
    def sales(orders: fk.Stream) -> fk.Stream:
        return orders.groupBy("item").count()

    app.sink("sales", sales, fk.Kafka("sales", key="item"))
    app.sink("latest", sales, fk.EpochTopic("latest", key="item", compacted=True))
    app.sink("copy", source, fk.EpochTopic("copy"))
    orders: list[Any] = [{"item": "tea"}, {"item": "milk"}, {"item": "tea"}]
    runs = 0
    for t in crash_between_writes(app, at_most=CRASHES):
        runs += 1
        t.feed("orders", orders[:2])
        t.advance("10 seconds")
        t.feed("orders", orders[2:])
        t.advance("2 seconds")
        assert t.read("latest") == t.read("sales"), t
        assert len(t.read("latest")) == len(orders)
        assert t.read("copy") == orders
    assert runs >= CRASHES
