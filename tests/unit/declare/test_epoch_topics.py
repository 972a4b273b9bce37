"""Topics that are written by epochs: their declaration, and the batch that copies the results of a live processor."""

import re
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import falkirk as fk
from falkirk.declare.policy import LogSends
from falkirk.errors import DefinitionError
from falkirk.errors.conditions.kafka_client import BROKER_AWAY
from falkirk.plan import topics
from falkirk.plan.explain import preview
from falkirk.plan.patterns import matching_topics, with_topics
from falkirk.plan.published import place
from falkirk.plan.topics import check_declared
from falkirk.runtime.supervision import start

#: The arguments of a start that do not matter before it has found the topics.
ARGUMENTS: Any = (
    "home", "session_of", "create_topics", "is_once", "launch", "failures", "recorder", "on_claim",
)  # fmt: skip


def shop() -> fk.App:
    """Return an application with a live processor, a micro-batch and a batch, without sinks."""
    app = fk.App("shop", kafka="broker:9092")
    app.source("orders", fk.Kafka("orders", schema="item STRING NOT NULL", key="item"))

    @app.stream(fk.Lazy("10 seconds"))
    def sales(orders: Any) -> Any:
        return orders.groupBy("item").count()

    @app.stream(fk.Eager())
    def slow(orders: Any) -> Any:
        return orders.groupBy("item").count()

    @app.batch(rows=10)
    def totals(orders: Any) -> Any:
        return orders.groupBy("item").count()

    return app


def test_a_topic_says_where_it_is_and_how_it_is_written() -> None:
    here = fk.EpochTopic("latest", key="item", compacted=True)
    there = fk.EpochTopic("latest", kafka="other:9092")
    assert (here.address, here.written_as) == ("topic latest", "json, key item, by epochs")
    assert (there.address, there.written_as) == ("topic latest at other:9092", "json, no key, by epochs")
    assert there.cluster == fk.Connection("other:9092")


def test_the_addresses_of_a_cluster_may_change() -> None:
    """A home records the place of each sink, and refuses another one."""
    former, now = fk.EpochTopic("latest", kafka="a:1"), fk.EpochTopic("latest", kafka="a:1,b:1")
    assert place(former) == place(now) == "topic latest"


@pytest.mark.parametrize(
    ("arguments", "condition"),
    [
        ({"topic": "la test"}, "TOPIC_NAME_INVALID"),
        ({"key": [""]}, "KEY_INVALID"),
        ({"compacted": True}, "KEY_INVALID"),
        ({"partitions": 0}, "OPTION_UNKNOWN"),
        ({"partitions": True}, "OPTION_UNKNOWN"),
        ({"kafka": "nowhere"}, "BOOTSTRAP_INVALID"),
    ],
)
def test_a_wrong_declaration_is_refused(arguments: dict[str, Any], condition: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        fk.EpochTopic(**{"topic": "latest", **arguments})
    assert refused.value.condition == condition


@pytest.mark.parametrize("reads", ["slow", "totals"])
def test_epochs_are_written_as_they_are(reads: str) -> None:
    app = shop()
    app.sink("latest", reads, fk.EpochTopic("latest"))
    assert app.sinks["latest"].reads == reads
    assert set(app.processors) == {"sales", "slow", "totals"}


def test_results_of_a_live_processor_are_copied_by_a_batch() -> None:
    app = shop()
    app.sink("sales", "sales", fk.Kafka("sales", key="item"))
    app.sink("latest", "sales", fk.EpochTopic("latest", key="item"))
    copy = app.processors[app.sinks["latest"].reads]
    assert (copy.name, copy.reads, copy.policy) == ("latest-epochs", ("sales",), LogSends())
    assert copy.cut is not None
    assert copy.body("rows") == "rows"
    assert app.sinks["sales"].reads == "sales"


@pytest.mark.parametrize("several", [False, True])
def test_records_of_a_source_are_copied_by_a_batch(several: bool) -> None:
    app = shop()
    named = re.compile("pay.*") if several else "payments"
    payments = app.source("payments", fk.Kafka(named, schema="item STRING NOT NULL"))
    app.sink("copy", payments, fk.EpochTopic("copy"))
    assert app.sinks["copy"].reads == "copy-epochs"
    assert app.processors["copy-epochs"].reads == ("payments",)


@pytest.mark.parametrize("cluster", [None, fk.Connection("other:9092")])
def test_the_cluster_may_be_named_at_the_start_alone(cluster: fk.Connection | None) -> None:
    """The application would read its own results without an end."""
    app = shop()
    app.kafka = None
    app.source("all", fk.Kafka(re.compile("late.*"), schema="item STRING NOT NULL"))
    app.sink("latest", "totals", fk.EpochTopic("latest", kafka="other:9092"))
    app.sink("orders", "totals", fk.EpochTopic("orders", kafka="other:9092"))
    found = with_topics(app, lambda cluster: ["late", "latest"], cluster)
    assert found.lists["all"] == (("all/late",) if cluster else ("all/late", "all/latest"))
    assert app.kafka is None
    if cluster is None:
        check_declared(found)
        return
    with pytest.raises(DefinitionError) as refused:
        check_declared(found)
    assert refused.value.condition == "TOPIC_SHARED"


def test_a_start_and_a_preview_say_on_which_cluster_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    app, there = shop(), fk.Connection("other:9092")
    app.sink("latest", "totals", fk.EpochTopic("latest", kafka="other:9092"))
    found = preview._with_topics(app, there)
    assert (found.kafka, app.kafka) == (there, fk.Connection("broker:9092"))
    said = list[Any]()

    def with_topics(app: fk.App, names: Any, cluster: fk.Connection) -> fk.App:
        said.append(cluster)
        raise ZeroDivisionError

    monkeypatch.setattr(start, "with_topics", with_topics)
    with pytest.raises(ZeroDivisionError):
        start.assemble_host(app, there, **dict.fromkeys(ARGUMENTS))
    assert said == [there]


@pytest.mark.parametrize("answers", ["same", "the same id", "another", "nobody"])
@pytest.mark.parametrize("topic", ["orders", "totals", "letters", "hop", "free"])
def test_a_cluster_may_have_several_names(answers: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def cluster(topic: str) -> str:
        if answers == "nobody":
            raise BROKER_AWAY.error(where="", topic="", code="", doing="", said="")
        return "same" if answers == "the same id" else answers  # as in examples of Kafka's image

    there = SimpleNamespace(cluster=cluster, exists=lambda _: True, identity=lambda _: f"id of {answers}")
    monkeypatch.setattr(topics, "Topics", lambda connection, timeout_s: there)
    to = [fk.Kafka("totals"), fk.EpochTopic(topic, kafka="alias:9092")]
    sinks = [SimpleNamespace(name="out", to=each, where=None) for each in to]
    inputs = [SimpleNamespace(topic=fk.Kafka("orders")), SimpleNamespace(topic=None)]
    region = SimpleNamespace(sources=[], output=fk.Kafka("hop"), released_to=None, dead_letter_topic="hop.dead-letters")
    plan = SimpleNamespace(
        batches=[SimpleNamespace(inputs=inputs, sinks=sinks, dead_letter_topic="letters")], regions=[region]
    )
    here = SimpleNamespace(cluster=lambda topic: "same", exists=lambda _: True, identity=lambda _: "id of same")
    check = partial(topics.refuse_shared_on_same_cluster, plan, here)
    if answers != "same" or topic == "free":
        check()
        return
    with pytest.raises(DefinitionError) as refused:
        check()
    assert refused.value.condition == "TOPIC_SHARED"


@pytest.mark.parametrize(
    ("kafka", "others"),
    [
        (None, ("late",)),
        ("broker:9092", ("late",)),
        ("a:1, broker:9092", ("late",)),
        ("a:1", ("late", "latest")),
    ],
)
def test_a_pattern_does_not_match_the_results_of_its_application(kafka: str | None, others: tuple[str, ...]) -> None:
    app = shop()
    app.sink("latest", "totals", fk.EpochTopic("latest", kafka=kafka))
    pattern = fk.Kafka(re.compile("late.*"), schema="item STRING NOT NULL")
    assert matching_topics(app, pattern, ["late", "latest", "other"]) == others


@pytest.mark.parametrize(
    ("first", "second", "condition"),
    [
        (fk.EpochTopic("latest"), fk.EpochTopic("latest"), "SINK_SHARED"),
        (fk.EpochTopic("latest"), fk.Kafka("latest"), "TOPIC_SHARED"),
        (fk.EpochTopic("latest", kafka="a:1"), fk.EpochTopic("latest", kafka="a:1"), "SINK_SHARED"),
        (fk.EpochTopic("orders"), fk.Kafka("other"), "TOPIC_SHARED"),
        (fk.EpochTopic("orders", kafka="a:1"), fk.EpochTopic("orders", kafka="b:1"), None),
        (fk.EpochTopic("latest", kafka="a:1"), fk.Kafka("latest"), None),
        (fk.EpochTopic("latest", kafka="broker:9092"), fk.Kafka("latest"), "TOPIC_SHARED"),
        (fk.EpochTopic("orders", kafka="a:1,Broker:9092"), fk.Kafka("other"), "TOPIC_SHARED"),
    ],
)
def test_a_topic_has_one_writer(first: Any, second: Any, condition: str | None) -> None:
    app = shop()
    app.sink("first", "totals", first)
    app.sink("second", "totals", second)
    if condition is None:
        check_declared(app)
        return
    with pytest.raises(DefinitionError) as refused:
        check_declared(app)
    assert refused.value.condition == condition
