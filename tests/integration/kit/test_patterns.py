"""Sources with a pattern, and lists that grow: in the test kit on real Spark."""

import re
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors import DefinitionError, HomeError
from falkirk.recovery.decision_store.regions import RegionStore
from falkirk.testing import ABORT, kit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["kit"]
#: The new topic comes before the others by name.
ASIA, EU, US = "orders/orders-asia", "orders/orders-eu", "orders/orders-us"
AT_FIRST = ["orders-eu", "orders-us", "orders-out", "orders-eu.dead-letters", "stock"]


def pattern(**options: Any) -> fk.Kafka:
    return fk.Kafka(re.compile("orders-.*"), schema="id STRING NOT NULL, n INT", metadata="topic", **options)


def summing(source: fk.Kafka) -> fk.App:
    """Return an application whose epochs each have the sums so far, from a state."""
    app = fk.App("shop")
    app.source("orders", source)

    @app.batch(rows=2, state="topic STRING, n BIGINT")
    def sums(orders: Any, sums: Any) -> "DataFrame":
        found: DataFrame = orders.select("topic", "n").union(sums).groupBy("topic").agg(F.sum("n").alias("n"))
        return found

    app.sink("out", sums, fk.Kafka("orders-out"))
    return app


#: One plan serves all tests.
APP = summing(pattern(starting="latest"))


@pytest.mark.parametrize("later", [1, 2, 4])
def test_a_topic_that_appears_is_read_from_its_first_record_on_at_the_next_start(
    kit: Any, monkeypatch: pytest.MonkeyPatch, later: int
) -> None:
    """Also if the start crashes before the write that records the topic, after it, or before the first epoch with it.

    Args: later: the place of the write before which it crashes, from that write on.
    """
    t, record, places = kit(APP, topics=AT_FIRST), RegionStore.grow_region, list[int]()

    def grow_region(store: RegionStore, *given: Any) -> None:
        if not places:
            t.world.crash_before = frozenset({t.world.writes + later})
        places.append(t.world.writes)
        record(store, *given)

    monkeypatch.setattr(RegionStore, "grow_region", grow_region)
    t.feed(EU, [{"id": "a", "n": 1}, {"id": "b", "n": 2}])
    t.feed(US, [{"id": "c", "n": 4}])  # its epoch waits for a further record
    t.create_topic("orders-asia")
    t.world.topic("orders-asia").extend(t.world.topic("orders-us"))  # before any start knows the topic
    t.crash()
    assert len(places) == (2 if later == 1 else 1)
    assert t.world.writes > min(t.world.crash_before) > 0
    assert [(row["topic"], row["n"]) for row in t.read("out")].count(("orders-asia", 4)) == 1
    t.feed(ASIA, [{"id": "e", "n": 16}, ABORT, b"no json"])
    t.feed(US, [{"id": "f", "n": 32}])
    t.feed(EU, [{"id": "g", "n": 64}])
    assert {row["topic"]: row["n"] for row in t.read("out")} == {"orders-eu": 67, "orders-us": 36, "orders-asia": 20}
    assert [letter["topic"] for letter in t.dead_letters()] == ["orders-asia"]


def test_a_stream_over_a_pattern_runs_in_micro_batches_and_grows(kit: Any) -> None:
    app = fk.App("shop")
    app.source("orders", pattern())

    @app.stream()
    def large(orders: fk.Stream) -> fk.Stream:
        return orders.where("n > 1").select("topic", "n")

    app.sink("out", large, fk.Kafka("orders-out"))
    t = kit(app, topics=AT_FIRST)
    t.feed(EU, [{"id": "a", "n": 1}, {"id": "b", "n": 2}])
    t.create_topic("orders-asia")
    t.crash()
    t.feed(ASIA, [{"id": "c", "n": 3}])
    t.feed(EU, [{"id": "d", "n": 4}])
    assert [(row["topic"], row["n"]) for row in t.read("out")] == [
        ("orders-eu", 2), ("orders-asia", 3), ("orders-eu", 4),
    ]  # fmt: skip


def test_the_topics_of_a_live_region_do_not_grow(kit: Any) -> None:
    app = fk.App("shop")
    app.source("orders", pattern())

    @app.stream(fk.Lazy("5 seconds"), engine="live")
    def counted(orders: fk.Stream) -> fk.Stream:
        return orders.groupBy("id").count()

    app.sink("out", counted, fk.Kafka("orders-out", key="id"))
    t = kit(app, topics=AT_FIRST)
    t.feed(EU, [{"id": "a", "n": 1}, ABORT])
    t.feed(US, [{"id": "a", "n": 2}])
    assert [row["count"] for row in t.read("out")] == [1, 2]
    t.create_topic("orders-asia")
    with pytest.raises(DefinitionError) as refusal:
        t.crash()
    assert refusal.value.condition == "APPLICATION_UNSUITABLE"


def test_a_topic_that_vanishes_is_refused(kit: Any) -> None:
    t = kit(APP, topics=AT_FIRST)
    t.feed(EU, [{"id": "a", "n": 1}, {"id": "b", "n": 2}])
    t._topics.remove("orders-us")
    with pytest.raises(HomeError) as refusal:
        t.crash()
    assert refusal.value.condition == "APPLICATION_CHANGED"
    assert refusal.value.parameters["changed"] == {"reads": ("orders-eu, orders-us", "orders-eu")}
    assert "lose none: orders-us" in str(refusal.value)


def test_the_kit_asks_for_the_topics_of_a_pattern(kit: Any) -> None:
    with pytest.raises(DefinitionError) as refusal:
        kit(APP)
    assert refusal.value.condition == "APPLICATION_UNSUITABLE"


@pytest.mark.parametrize("place", ["time", "sink"])
def test_a_pattern_is_refused_where_its_topics_could_not_grow(kit: Any, place: str) -> None:
    app = fk.App("shop")
    app.source("orders", fk.Kafka(re.compile("orders-.*"), schema="id STRING, at TIMESTAMP"))
    if place == "time":

        @app.batch(every="1 minute", by="at", late="1 minute")
        def counts(orders: Any) -> "DataFrame":
            found: DataFrame = orders.groupBy("id").count()
            return found

    app.sink("out", "counts" if place == "time" else "orders", fk.Kafka("orders-out"))
    with pytest.raises(DefinitionError) as refusal:
        kit(app, topics=AT_FIRST)
    assert refusal.value.condition == "PATTERN_MISPLACED"
