"""A topic of a list is deleted, replaced or extended, or a key is in two topics: the application ends and says why."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.supervision.query import Query, run_here
from tests.integration.live import Wire, await_checkpoints, await_one, failed
from tests.support import wait_until

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)


def application(wire: Wire, home: Path, *, keyed: bool) -> fk.App:
    app = fk.App(f"lost-{wire.tag}", home=home)
    topics = [f"{name}-{wire.tag}" for name in ("eu", "us", "us-web")]
    app.source("orders", fk.Kafka(topics, schema="id STRING NOT NULL, n INT", key="id" if keyed else None))

    @app.stream(fk.Lazy("1 second"), engine="live")
    def made(orders: fk.Stream) -> fk.Stream:
        return orders.groupBy("id").count() if keyed else orders.where("n >= 0")

    app.sink("out", made, fk.Kafka(f"out-{wire.tag}", key="id"))
    return app


def delete(wire: Wire, topic: str) -> None:
    wire.admin.delete_topics([topic])[topic].result()
    wait_until(lambda: topic not in wire.admin.list_topics(timeout=10).topics, 30, "the topic to be deleted")


def replace(wire: Wire, topic: str) -> None:
    delete(wire, topic)
    wire.topics.create(topic, 1, {})


def widen(wire: Wire, topic: str) -> None:
    wire.widen(topic, 2)


def split(wire: Wire, topic: str) -> None:
    """Send a key of another topic and another partition."""
    wire.send(topic, [{"id": "eu", "n": 1}])


def outcome_of(start: Callable[[], fk.FalkirkError]) -> fk.FalkirkError:
    """Return why an application ends, at its start or later."""
    try:
        return start()
    except fk.FalkirkError as error:
        return error


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize(
    ("change", "keyed", "conditions"),
    [
        (delete, False, {"TOPIC_MISSING"}),
        (replace, False, {"TOPIC_REPLACED"}),
        (widen, False, {"PARTITIONS_CHANGED"}),
        (split, True, {"NOT_CO_PARTITIONED"}),
    ],
)
def test_the_third_topic_of_a_list(
    wire: Wire, home: Path, change: Callable[[Wire, str], None], keyed: bool, conditions: set[str], running: bool
) -> None:
    names = {"eu": 2, "us": 1, "us-web": 1, "out": 2}
    topics = {name: wire.topic(name, partitions) for name, partitions in names.items()}
    app, connection = application(wire, home, keyed=keyed), Connection.of(wire.bootstrap)

    def send() -> None:
        for name in ("eu", "us", "us-web"):
            wire.send(topics[name], [{"id": name, "n": n} for n in range(10)], partition=names[name] - 1)

    query: Query = run_here(app, connection)
    send()
    await_one(query, lambda: wire.count(topics["out"]) >= 30, "the results")
    await_checkpoints(query)
    if not running:
        query.stop()
    change(wire, topics["us-web"])
    error = failed(query) if running else outcome_of(lambda: failed(run_here(app, connection)))
    print(running, change.__name__, error.condition, str(error)[:300], flush=True)
    assert error.condition in conditions
    assert topics["us-web"] in str(error)
    assert wire.count(topics["out"]) == 30
