"""Fenced live regions: the broker refuses the records of former writers."""

import json
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.check import read_topic
from falkirk.host.query import Query, run_here
from falkirk.kafka.connection import Connection
from falkirk.local.broker import Broker
from falkirk.runtime.live import query as live_query
from tests.integration.live import Wire, await_one, settle


def _app(events: str, out: str, home: Path, *, fenced: bool | None) -> fk.App:
    app = fk.App("lanes", home=home, fenced=fenced)
    app.source("events", fk.Kafka(events, schema="word STRING NOT NULL, n INT", key="word"))

    @app.stream(fk.Lazy("1 second"))
    def counted(events: fk.Stream) -> fk.Stream:
        return events.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))

    app.sink("out", counted, fk.Kafka(out, key="word"))
    return app


def _committed(wire: Wire, topic: str) -> list[dict[str, object]]:
    """Return the values that a reader of committed records sees."""
    return [json.loads(record.value or b"") for record in read_topic({"bootstrap.servers": wire.bootstrap}, topic)]


def _has(wire: Wire, topic: str, count: int) -> bool:
    return len(_committed(wire, topic)) >= count


def _counts_dead_letters(query: Query, count: int) -> bool:
    return query.status[0].dead_letters == count


def _start(wire: Wire, events: str, out: str, home: Path, *, fenced: bool | None = True) -> Query:
    return run_here(_app(events, out, home, fenced=fenced), Connection.of(wire.bootstrap))


@pytest.mark.parametrize("kind", ["spark", "plain", "fenced"])
def test_each_result_is_there_once(
    spark: SparkSession, broker: Broker, tag: str, home: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over two incarnations, with a dead letter."""
    monkeypatch.setattr(live_query, "USES_SPARKS_SINK", kind == "spark")
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    events, out = wire.topic("events"), wire.topic("out")
    for turn, first in enumerate((0, 50), 1):
        query = _start(wire, events, out, home, fenced=kind == "fenced")
        wire.send(events, [{"word": f"w{n % 5}", "n": n} for n in range(first, first + 50)])
        wire.send(events, [b"{"])
        await_one(query, partial(_has, wire, out, turn * 50), f"{turn * 50} results")
        settle(query)
        await_one(query, partial(_counts_dead_letters, query, turn), f"{turn} dead letters")
        query.stop()
    rows = _committed(wire, out)
    assert len(rows) == 100
    assert sorted((row["word"], row["version"]) for row in rows) == sorted(
        (f"w{w}", v) for w in range(5) for v in range(1, 21)
    )
