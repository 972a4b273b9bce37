"""Sources on other clusters: ids of their topics, the connection that knows the clusters, and wrong declarations."""

import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

import falkirk as fk
from falkirk.declare.load import broker_of
from falkirk.errors import DefinitionError, LogError
from falkirk.errors.conditions.kafka_client import BROKER_AWAY
from falkirk.plan import topics
from falkirk.plan.engines import in_engines
from falkirk.plan.patterns import matching_topics, with_recorded_topics, with_topics
from falkirk.plan.topics import check_declared, dead_letter_topic
from falkirk.theory.ids import LogId, LogKind, cluster_of, topic_name
from falkirk.user_tools.commands.records import RecordPlace, place_of_text
from tests.unit.declare.test_declare import refused

EAST = fk.Connection("east-1:9092, east-2:9092", name="east")
SCHEMA = "n INT"


def shop(**sources: Any) -> fk.App:
    app = fk.App("shop", kafka="own:9092")
    for name, topic in sources.items():
        app.source(name, topic)
    return app


def same(orders: fk.Stream) -> fk.Stream:
    return orders


def test_the_id_of_a_topic_names_its_cluster() -> None:
    assert fk.Kafka("orders", schema=SCHEMA).topic == "orders"
    named, unnamed = (fk.Kafka("orders", schema=SCHEMA, kafka=at) for at in (EAST, "west-1:1, west-2:1"))
    assert (named.topic, unnamed.topic) == ("orders@east", "orders@west-1:1,west-2:1")
    assert (named.name, unnamed.name) == ("orders", "orders")
    assert (topic_name(unnamed.log), cluster_of(unnamed.log)) == ("orders", "west-1:1,west-2:1")
    assert {topic.log.kind for topic in (named, unnamed)} == {LogKind.TOPIC}
    (again,) = named.of(["orders@east"])
    assert again == named


def test_each_topic_of_a_list_is_on_the_cluster() -> None:
    app = shop(orders=fk.Kafka(["eu", "us"], schema=SCHEMA, kafka=EAST))
    assert app.lists == {"orders": ("orders/eu", "orders/us")}
    assert [app.sources[part].topic.topic for part in app.lists["orders"]] == ["eu@east", "us@east"]


def test_a_pattern_matches_topics_of_its_cluster() -> None:
    """A topic there that has the name of a result here is another topic."""
    app = shop(
        orders=fk.Kafka(re.compile("orders.*"), schema=SCHEMA, kafka=EAST),
        here=fk.Kafka(re.compile("o.*"), schema=SCHEMA),
    )
    app.stream()(same)
    app.sink("out", same, fk.Kafka("orders-out"))
    there = {"east": ["orders-out", "orders-eu"], "": ["orders-out", "others"]}
    found = with_topics(app, lambda cluster: there[cluster])
    assert found.lists == {"orders": ("orders/orders-eu", "orders/orders-out"), "here": ("here/others",)}
    topics_ = {name: source.topic.topic for name, source in found.sources.items()}
    assert topics_["orders/orders-eu"] == "orders-eu@east"
    partitions = {LogId("orders-out"): 1, LogId("others"): 1, LogId("orders-out@east"): 1, LogId("orders-eu@east"): 1}
    store = SimpleNamespace(region_names=lambda: ["a"], region=lambda _: SimpleNamespace(partitions=partitions))
    assert with_recorded_topics(app, cast(Any, store)).lists == found.lists
    assert matching_topics(app, app.patterns["orders"], ["orders-out"]) == ("orders-out",)


def test_the_connection_of_an_application_knows_the_clusters_of_its_sources() -> None:
    app = shop(orders=fk.Kafka("orders", schema=SCHEMA, kafka=EAST), here=fk.Kafka("orders", schema=SCHEMA))
    for own, bootstrap in ((None, "own:9092"), ("other:9092", "other:9092")):
        connection = broker_of(app, own)
        assert (connection.of_topic("orders")[0].bootstrap, connection.of_topic("orders")[1]) == (bootstrap, "orders")
        assert connection.of_topic("orders@east") == (EAST, "orders")
        with pytest.raises(LogError) as unknown:
            connection.of_topic("orders@west")
        assert (unknown.value.condition, unknown.value.parameters["cluster"]) == ("CLUSTER_UNKNOWN", "west")
    assert not app.kafka or not app.kafka.others


def test_two_clusters_have_different_names() -> None:
    other = fk.Connection("west:9092", name="east")
    app = shop(a=fk.Kafka("a", schema=SCHEMA, kafka=EAST), b=fk.Kafka("b", schema=SCHEMA, kafka=other))
    with pytest.raises(DefinitionError) as ambiguous:
        broker_of(app, None)
    assert (ambiguous.value.condition, ambiguous.value.parameters["cluster"]) == ("CLUSTER_AMBIGUOUS", "east")


@pytest.mark.parametrize("name", ["", "a@b", "a/b", "ä", "x" * 65, 3])
def test_the_name_of_a_cluster_is_checked(name: Any) -> None:
    refused(lambda: fk.Connection("a:1", name=name), "CLUSTER_NAME_INVALID", name=name)


def test_a_sink_on_another_cluster_is_a_topic_by_epochs() -> None:
    app = shop(orders=fk.Kafka("orders", schema=SCHEMA))
    app.stream()(same)
    refused(lambda: app.sink("out", same, fk.Kafka("out", kafka=EAST)), "CLUSTER_MISPLACED", topic="out")


def test_dead_letters_are_in_a_topic_of_the_own_cluster() -> None:
    app = shop(orders=fk.Kafka("orders", schema=SCHEMA, kafka=EAST))
    hop = fk.Kafka("hop")
    found = dead_letter_topic(app, app.sources["orders"], hop, set(), reads_hop=False, writes_hop=True)
    assert found == "orders.dead-letters"


def test_topics_of_one_name_on_two_clusters_are_different_ones() -> None:
    app = shop(orders=fk.Kafka("orders", schema=SCHEMA, kafka=EAST))
    app.stream()(same)
    app.sink("out", same, fk.Kafka("orders"))
    check_declared(app)


def test_a_live_region_reads_one_topic_of_a_name() -> None:
    """Spark records the offsets of its query by the names of the topics."""
    app = shop(orders=fk.Kafka("orders", schema=SCHEMA), theirs=fk.Kafka("orders", schema=SCHEMA, kafka=EAST))
    app.stream()(same)

    @app.stream()
    def both(same: fk.Stream, theirs: fk.Stream) -> fk.Stream:
        return same.union(theirs)

    @app.stream()
    def alone(theirs: fk.Stream) -> fk.Stream:
        return theirs

    found = {name: processor.engine_reason for name, processor in in_engines(app).processors.items()}
    assert found == {"same": "", "both": "it reads topics with the name 'orders' on several clusters", "alone": ""}


@pytest.mark.parametrize("answers", ["same", "another", "nobody"])
@pytest.mark.parametrize("uses", ["orders", "other"])
def test_a_cluster_may_be_the_own_one_under_another_name(answers: str, uses: str) -> None:
    def cluster(topic: str) -> str:
        if answers == "nobody" and cluster_of(topic):
            raise BROKER_AWAY.error(where="", topic="", code="", doing="", said="")
        return answers if cluster_of(topic) else "same"

    here = SimpleNamespace(cluster=cluster, exists=lambda _: True, identity=topic_name)
    source = SimpleNamespace(topic=fk.Kafka("orders", schema=SCHEMA, kafka=EAST))
    region = SimpleNamespace(
        sources=[source], output=fk.Kafka(uses), released_to=None, dead_letter_topic="hop.dead-letters"
    )
    plan: Any = SimpleNamespace(batches=[], regions=[region])
    if (answers, uses) != ("same", "orders"):
        topics.refuse_shared_on_same_cluster(plan, cast(Any, here))
        return
    with pytest.raises(DefinitionError) as shared:
        topics.refuse_shared_on_same_cluster(plan, cast(Any, here))
    assert (shared.value.condition, shared.value.parameters["cluster"]) == ("TOPIC_SHARED", "east")


@pytest.mark.parametrize("topic", ["orders@east", "orders@east-1:9092,east-2:9092", "orders@[::1]:9092"])
def test_a_place_names_the_cluster(topic: str) -> None:
    place = place_of_text(f"{topic}/1@17")
    assert isinstance(place, RecordPlace)
    assert (place.topic, place.partition, place.offset) == (topic, 1, 17)
