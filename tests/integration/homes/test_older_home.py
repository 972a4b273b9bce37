"""A home that was restored from an older copy, while its output topic stayed: refused at each start."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors import HomeError
from falkirk.host.query import Query, run_here
from falkirk.kafka.connection import Connection
from falkirk.local.broker import Broker
from tests.integration.live import Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_older_home_is_refused(spark: "SparkSession", broker: Broker, home: Path, tag: str) -> None:
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    events, out = wire.topic("events", 1), wire.topic("out", 1)

    def run() -> Query:
        app = fk.App("older", home=home)
        app.source("events", fk.Kafka(events, schema="n INT NOT NULL"))
        app.add_processor("passed", lambda s: s.select(F.col("n")), reads=("events",), policy=fk.Lazy("1 second"))
        app.sink("out", "passed", fk.Kafka(out))
        return run_here(app, Connection.of(broker.bootstrap))

    for count in (1, 2):
        query = run()
        wire.send(events, [{"n": count}])
        wire.await_count(out, count, query)
        query.stop()
        if count == 1:
            copy = shutil.copytree(home, home.with_name("copy"))
    shutil.rmtree(home)
    shutil.copytree(copy, home)
    for _ in range(2):
        with pytest.raises(HomeError) as refused:
            run()
        assert refused.value.condition == "SINK_AHEAD"
        assert refused.value.parameters == {"sink": out, "seen": 2, "there": 1}
    assert wire.count(out) == 2
