"""Sources with a pattern: their declarations, the topics that they match, and what a grown list changes in a record."""

import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

import falkirk as fk
from falkirk.errors import LogError
from falkirk.kafka_client.topics import Topics
from falkirk.plan.batch import Batch
from falkirk.plan.fingerprint import READS
from falkirk.plan.patterns import shown_matches, with_recorded_topics, with_topics
from falkirk.recovery.decision_store import RegionRecord, Store
from falkirk.runtime.spark.growth import advice_on_reads, grown
from falkirk.theory.ids import LogId, Offset
from tests.unit.declare.test_declare import refused

#: Those of a broker, with each kind that a pattern never matches.
THERE = (
    "orders-eu", "orders-us", "orders-out", "orders-letters", "orders-eu.dead-letters", "old-orders-eu", "orders",
    "falkirk.shop.0a1b.orders-out", "__consumer_offsets",
)  # fmt: skip


def shop(pattern: str = "orders-.*", **options: Any) -> fk.App:
    app = fk.App("shop", kafka="localhost:1")
    app.source("orders", fk.Kafka(re.compile(pattern), schema="id STRING", **options))

    @app.stream()
    def seen(orders: fk.Stream) -> fk.Stream:
        return orders

    app.sink("out", seen, fk.Kafka("orders-out"))
    return app


def test_a_pattern_has_no_topics_until_they_are_known() -> None:
    app = shop(key="id", dead_letters="orders-letters")
    assert app.patterns.keys() == {"orders"}
    assert (app.sources, app.lists) == ({}, {})
    refused(lambda: app.source("orders", fk.Kafka("other", schema="id STRING")), "NAME_TAKEN", name="orders")
    found = with_topics(app, lambda cluster: THERE)
    assert found.lists == {"orders": ("orders/orders-eu", "orders/orders-us")}
    assert {(s.topic.topic, s.topic.key, s.topic.pattern) for s in found.sources.values()} == {
        ("orders-eu", "id", None), ("orders-us", "id", None),
    }  # fmt: skip
    assert not app.sources
    assert shown_matches(found) == (
        "source orders: the pattern orders-.* matches orders-eu, orders-us. Each start looks again.",
    )


@pytest.mark.parametrize(
    ("pattern", "matches"), [("orders-(eu|out)", ["orders-eu"]), (".*", 5), ("orders", ["orders"])]
)
def test_a_pattern_matches_whole_names_and_no_topic_that_could_close_a_loop(pattern: str, matches: Any) -> None:
    found = with_topics(shop(pattern), lambda cluster: THERE)
    topics = sorted(source.topic.topic for source in found.sources.values())
    if matches == 5:  # without dead_letters=, orders-letters is a topic like others
        matches = ["old-orders-eu", "orders", "orders-eu", "orders-letters", "orders-us"]
    assert topics == matches


def test_topics_are_found_again_at_each_start() -> None:
    first = with_topics(shop(), lambda cluster: ["orders-eu"])
    second = with_topics(first, lambda cluster: ["orders-asia", "orders-us"])
    assert sorted(second.sources) == sorted(second.lists["orders"]) == ["orders/orders-asia", "orders/orders-us"]


def test_no_topic_matches() -> None:
    with pytest.raises(LogError) as unmatched:
        with_topics(shop(), lambda cluster: ["orders-out", "__consumer_offsets"])
    assert unmatched.value.condition == "PATTERN_UNMATCHED"
    assert unmatched.value.parameters == {"source": "orders", "pattern": "orders-.*", "count": 1}
    assert "test_patterns.py" in str(unmatched.value.where)


def test_the_broker_is_asked_only_for_a_pattern() -> None:
    app = fk.App("shop", kafka="localhost:1")
    app.source("orders", fk.Kafka("orders", schema="id STRING"))
    assert with_topics(app, lambda cluster: pytest.fail("asked")) is app


def test_only_a_source_has_a_pattern() -> None:
    app, pattern = fk.App("shop"), re.compile("orders-.*")
    refused(lambda: app.sink("out", "orders", fk.Kafka(pattern)), "TOPICS_MISPLACED", topics=["orders-.*"])
    refused(lambda: fk.read(fk.Kafka(pattern, schema="id STRING")), "TOPICS_MISPLACED", topics=["orders-.*"])
    refused(lambda: fk.Kafka(re.compile(b"a")), "TOPIC_NAME_INVALID", topic=re.compile(b"a"))  # type: ignore[arg-type]


# -- what a home has recorded ------------------------------------------------------------------------------------------


def batch(*topics: str, beside: tuple[str, ...] = ()) -> Batch:
    of_list = [SimpleNamespace(log=LogId(t), topic=object(), list_name="orders") for t in topics]
    others = [SimpleNamespace(log=LogId(t), topic=None, list_name=None) for t in beside]
    reads = ", ".join([*topics, *beside])
    return cast(Batch, SimpleNamespace(inputs=(*of_list, *others), fingerprint={READS: reads}))


def recorded(reads: str) -> RegionRecord:
    logs = [LogId(name) for name in reads.split(", ")]
    return RegionRecord(
        fingerprint={READS: reads, "state": "none"}, start_offsets={log: {0: Offset(7)} for log in logs},
        partitions=dict.fromkeys(logs, 1),
    )  # fmt: skip


TOPICS = cast(Topics, SimpleNamespace(first_positions=lambda topic: {0: Offset(3), 1: Offset(4)}))
COUNTS = {LogId(name): 2 for name in ("asia", "eu", "us")}


def test_a_list_grows_by_topics_that_begin_at_their_earliest_record() -> None:
    found = grown(batch("asia", "eu", "us", beside=("views",)), recorded("eu, us, views"), TOPICS, COUNTS)
    assert found.fingerprint == {READS: "asia, eu, us, views", "state": "none"}
    assert found.start_offsets == {**recorded("eu, us, views").start_offsets, LogId("asia"): {0: 3, 1: 4}}
    assert found.partitions == {LogId("asia"): 2, LogId("eu"): 1, LogId("us"): 1, LogId("views"): 1}


@pytest.mark.parametrize(
    ("now", "before"),
    [
        (batch("eu", "us"), "eu, us"),
        (batch("eu", "us"), "asia, eu"),  # one is lost
        (batch("us", "eu"), "eu, us"),
        (batch("eu", beside=("epochs of asia",)), "eu"),  # no topic of a list
    ],
)
def test_no_other_change_is_a_growth(now: Batch, before: str) -> None:
    record = recorded(before)
    assert grown(now, record, TOPICS, COUNTS) is record


def test_the_advice_names_what_is_lost() -> None:
    assert advice_on_reads("eu, us", "us").endswith("lose none: eu.")
    assert "live region" in advice_on_reads("eu", "eu, us")


def test_another_hop_gets_no_advice_on_lists() -> None:
    """Another key of a `groupBy` renames the hop before it."""
    assert advice_on_reads("falkirk.shop.1.orders-by-item", "falkirk.shop.1.orders-by-id") == ""
    assert advice_on_reads("orders", "falkirk.shop.1.orders-by-id").endswith("lose none: orders.")


def test_a_grown_record_replaces_the_former_one_and_a_command_reads_its_topics(store: Store) -> None:
    store.create_region("seen", recorded("orders-eu"), {})
    store.grow_region("seen", recorded("orders-eu, orders-us"))
    assert store.region("seen") == recorded("orders-eu, orders-us")
    assert with_recorded_topics(shop(), store).lists == {"orders": ("orders/orders-eu", "orders/orders-us")}
