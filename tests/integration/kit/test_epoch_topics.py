"""A topic by epochs gets the results of a live processor, each once and in order, whatever crashes.

The source is on another cluster, which makes no difference here."""

import os
from typing import TYPE_CHECKING, Any

import falkirk as fk
from falkirk.testing import crash_between_writes, kit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["kit"]

#: Before how many writes a run crashes, evenly spread.
CRASHES = 6 if "FALKIRK_STRIKES" in os.environ else 3


def test_results_of_a_live_processor_are_copied(spark: "SparkSession") -> None:
    app = fk.App("shop")
    source = app.source("orders", fk.Kafka("orders", schema="item STRING NOT NULL", key="item", kafka="east:9092"))

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


def test_a_row_that_a_compacted_topic_can_not_store_is_a_dead_letter(kit: Any) -> None:
    app = fk.App("shop")
    source = app.source("orders", fk.Kafka("orders", schema="item STRING, n INT"))
    app.sink("latest", source, fk.EpochTopic("latest", key="item", compacted=True))
    t = kit(app)
    t.feed("orders", [{"item": "tea", "n": 1}, {"item": None, "n": 2}, {"item": "rum", "n": 3}])
    t.advance("2 seconds")
    assert t.read("latest") == [{"item": "tea", "n": 1}, {"item": "rum", "n": 3}]
    letters = [(each["reason"], each["topic"]) for each in t.dead_letters()]
    assert letters == [("not written: the key is null, and the topic is compacted", "latest")]
