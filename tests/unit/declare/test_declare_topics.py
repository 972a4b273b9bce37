"""Several topics in one source, and unions of streams: declarations, and refusals of wrong ones."""

import pytest

import falkirk as fk
from falkirk.declare.nodes import ProcessorNode, Step, roots_of
from falkirk.declare.stream import Stream
from falkirk.kafka_client.connection import Connection
from tests.unit.declare.test_declare import refused

BOTH = ["orders-eu", "orders-us"]
LEFT, RIGHT, THIRD = (Stream(ProcessorNode(name=name)) for name in ("left", "right", "third"))


def test_each_topic_of_a_list_is_a_source_with_the_same_options() -> None:
    app = fk.App("shop", kafka=Connection.of("localhost:1"))
    app.source("orders", fk.Kafka(BOTH, schema="id STRING", key="id", starting="latest"))
    assert app.lists == {"orders": ("orders/orders-eu", "orders/orders-us")}
    topics = [app.sources[part].topic for part in app.lists["orders"]]
    assert [topic.topic for topic in topics] == BOTH
    assert {(topic.schema, topic.key, topic.starting, topic.several) for topic in topics} == {
        ("id STRING", "id", "latest", ())
    }
    refused(lambda: app.source("orders", fk.Kafka("other", schema="id STRING")), "NAME_TAKEN", name="orders")


def test_a_list_of_one_topic_is_that_topic() -> None:
    assert fk.Kafka(["orders"], schema="id STRING") == fk.Kafka("orders", schema="id STRING")


@pytest.mark.parametrize("given", [[], ["a", "a"], ()])
def test_a_list_names_each_topic_once(given: list[str]) -> None:
    refused(lambda: fk.Kafka(given, schema="id STRING"), "TOPICS_INVALID", topics=list(given))


def test_a_name_in_a_list_is_checked() -> None:
    refused(lambda: fk.Kafka(["a", "b c"], schema="id STRING"), "TOPIC_NAME_INVALID", topic="b c")


def test_only_a_source_reads_several_topics() -> None:
    app = fk.App("shop")
    app.source("orders", fk.Kafka("orders", schema="id STRING"))

    @app.stream()
    def same(orders: fk.Stream) -> fk.Stream:
        return orders

    refused(lambda: app.sink("out", same, fk.Kafka(BOTH)), "TOPICS_MISPLACED", topics=BOTH)
    refused(lambda: fk.read(fk.Kafka(BOTH, schema="id STRING")), "TOPICS_MISPLACED", topics=BOTH)


def test_a_union_records_the_other_stream() -> None:
    made = LEFT.where("n > 1").union(RIGHT).unionByName(THIRD.select("n"))
    assert isinstance(made.node, Step)
    assert made.node.operation == "unionByName"
    assert [root.name for root in roots_of(made.node)] == ["left", "third", "right"]
    refused(lambda: LEFT.union("right"), "NOT_A_STREAM", operation="union", name="str")  # type: ignore[arg-type]
