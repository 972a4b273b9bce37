"""A batch that is renamed is another one: it would pass over what its sink has taken from the former one."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.errors import HomeError
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 5


def application(name: str, events: str, to: Any, home: Path) -> fk.App:
    app = fk.App("renamed", home=home)
    app.source("events", fk.Kafka(events, schema="n LONG NOT NULL"))

    def body(events: "DataFrame") -> "DataFrame":
        return events

    body.__name__ = name
    app.batch(rows=ROWS)(body)
    app.sink("out", body, to)
    return app


@pytest.mark.parametrize("kind", ["topic", "table", "folder"])
def test_it_is_refused(kind: str, spark: "SparkSession", broker: Broker, home: Path, tag: str) -> None:
    wire, connection = Wire(bootstrap=broker.bootstrap, tag=tag), Connection.of(broker.bootstrap)
    events, out = wire.topic("events"), wire.topic("out")
    endpoints = {
        "topic": lambda: fk.Kafka(out), "table": lambda: fk.Sql(f"sqlite:///{home}.db", "out"),
        "folder": lambda: fk.Files(f"{home}-out", "json"),
    }  # fmt: skip
    wire.send(events, [{"n": n} for n in range(ROWS)])
    query = run_here(application("first", events, endpoints[kind](), home), connection)
    try:
        wait_until(lambda: all(region.last_commit == 0 for region in query.status), 120, "the epoch")
        wait_until(lambda: _is_released(query), 120, "its release")
    finally:
        query.stop()
    with pytest.raises(HomeError) as refused:
        run_here(application("second", events, endpoints[kind](), home), connection)
    assert refused.value.condition == "APPLICATION_CHANGED"
    assert refused.value.parameters["changed"] == {"region": (None, "second")}


def _is_released(query: Any) -> bool:
    (releaser,) = query._host._batches.releasers
    return bool(releaser.visible() and not releaser.backlog())
