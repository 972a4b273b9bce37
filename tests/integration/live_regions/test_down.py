"""A value on which a step of the user's fails stops that step alone, on real Spark and Kafka: the others run on."""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.protocol import down
from falkirk.runtime.spark import retry
from falkirk.runtime.spark.status import RegionStatus
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from falkirk.steps.differential import Collection
from tests.integration.live import Wire, await_one, failed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = "name STRING, price STRING, n LONG"
GOOD, POISON = {"name": "a", "price": "4", "n": 2}, {"name": "b", "price": "n/a", "n": 0}
#: Two of these don't fit into one sum.
HUGE = {"name": "c", "price": "6", "n": 2**62}


@pytest.fixture
def wire(spark: "SparkSession", broker: Broker, tag: str) -> Wire:
    """Topics of the test's own on the broker; there is a session."""
    return Wire(bootstrap=broker.bootstrap, tag=tag)


def named(query: Query, name: str) -> RegionStatus:
    """Return the status of a region."""
    return next(status for status in query.status if status.name == name)


def await_failed(query: Query, **conditions: str) -> None:
    """Wait until these processors are down with these conditions, and no other is."""

    def are_down() -> bool:
        return {s.name: s.condition for s in query.status if s.state == "failed"} == conditions

    await_one(query, are_down, f"{conditions} to be down")


def await_checkpoint(query: Query, name: str) -> None:
    """Wait until a region has committed a batch that began after now."""
    last = named(query, name).last_commit
    await_one(query, lambda: named(query, name).last_commit > last + 1, f"checkpoints of {name}")


def two_regions(wire: Wire, home: Path, number: str) -> fk.App:
    """Return an application with two live regions, of which one fails on a price that is no number."""
    app = fk.App("down", home=home, state_partitions=1)
    app.source("events", fk.Kafka(f"events-{wire.tag}", schema=EVENTS))
    app.add_processor(
        "prices", lambda s: s.selectExpr(f"{number}(price AS INT) AS p"), reads=("events",), policy=fk.Lazy("2 seconds")
    )
    app.add_processor("names", lambda s: s.select("name"), reads=("events",), policy=fk.Lazy("2 seconds"))
    app.sink("prices", "prices", fk.Kafka(f"prices-{wire.tag}"))
    app.sink("names", "names", fk.Kafka(f"names-{wire.tag}"))
    return app


def test_a_live_region_that_fails_on_a_value_stays_down_and_another_runs_on(wire: Wire, home: Path) -> None:
    """Before, the value ended both, and again at each start."""
    events, prices, names = (wire.topic(name, 1) for name in ("events", "prices", "names"))
    query = run_here(two_regions(wire, home, "CAST"), Connection.of(wire.bootstrap))
    try:
        wire.send(events, [GOOD])
        wire.await_count(prices, 1, query)
        wire.send(events, [POISON, GOOD])
        await_failed(query, prices="EXPRESSION_FAILED")
        wire.await_count(names, 3, query)
        await_checkpoint(query, "names")
        wire.send(events, [GOOD])
        wire.await_count(names, 4, query)
        told = named(query, "prices").detail
        lines, first = inspect.getsourcelines(two_regions)
        place = f"test_down.py:{first + next(i for i, line in enumerate(lines) if 'selectExpr' in line)}"
        assert all(part in told for part in ("EXPRESSION_FAILED", "CAST_INVALID_INPUT", "n/a", place, "try_cast"))
        assert not query.awaitTermination(0), "it runs on"
    finally:
        query.stop()
    assert [(s.state, s.condition) for s in query.status] == [("stopped", "EXPRESSION_FAILED"), ("stopped", "")]
    with pytest.raises(fk.DefinitionError):
        query.awaitTermination()
    query = run_here(two_regions(wire, home, "try_cast"), Connection.of(wire.bootstrap))
    try:
        wire.await_count(prices, 4, query)
    finally:
        query.stop()
    assert query.exception() is None
    assert [row.get("p") for row in wire.rows(prices)] == [4, None, 4, 4]
    assert [row["name"] for row in wire.rows(names)] == ["a", "b", "a", "a"]


def test_without_the_table_it_ends_both(wire: Wire, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with the mechanism off."""
    monkeypatch.setattr(down, "concerns_one", lambda error: False)
    events, prices, _ = (wire.topic(name, 1) for name in ("events", "prices", "names"))
    query = run_here(two_regions(wire, home, "CAST"), Connection.of(wire.bootstrap))
    wire.send(events, [GOOD])
    wire.await_count(prices, 1, query)
    wire.send(events, [POISON])
    assert failed(query).condition == "EXPRESSION_FAILED"


def batches(wire: Wire, home: Path, fails: str) -> fk.App:
    """Return an application with a live region, two batches that can be corrected, and an iteration that can't.

    The second batch is random, and never saves its state: after an error that may have cost Spark's memory it has to
    begin again in another Spark application.
    """
    app = fk.App("down", home=home, state_partitions=1)
    app.source("events", fk.Kafka(f"events-{wire.tag}", schema=EVENTS))
    app.source("numbers", fk.Kafka(f"numbers-{wire.tag}", schema=EVENTS))
    app.add_processor("names", lambda s: s.select("name"), reads=("events",), policy=fk.Lazy("2 seconds"))

    @app.batch(rows=1)
    def halves(events: "DataFrame") -> "DataFrame":
        return events.selectExpr("name", f"{fails}divide(8, n) AS half" if fails else "8 / n AS half")

    @app.batch(rows=1, state="n LONG, x DOUBLE", policy=fk.Lazy(when=lambda epoch: False))
    def walk(events: "DataFrame", walk: "DataFrame") -> "tuple[DataFrame, DataFrame]":
        drawn = events.selectExpr(f"{fails}cast(price AS BIGINT) AS n").withColumn("x", F.rand())
        return walk, walk.unionByName(drawn).agg(F.sum("n").alias("n"), F.max("x").alias("x"))

    @app.iterate(rows=1)
    def sums(numbers: Collection) -> Collection:
        return numbers.select("name", "n").groupBy("name").sum("n", "sum")

    app.sink("names", "names", fk.Kafka(f"names-{wire.tag}"))
    app.sink("halves", halves, fk.Kafka(f"halves-{wire.tag}"))
    app.sink("walk", walk, fk.Sql(f"sqlite:///{home}.db", "walk"))
    app.sink("sums", sums, fk.Sql(f"sqlite:///{home}.db", "sums"))
    return app


def test_batches_and_an_iteration_that_fail_stay_down_and_a_live_region_runs_on(
    wire: Wire, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, each of them ended the application, live regions included, and the random batch did so at once."""
    monkeypatch.setattr(retry, "PAUSES_S", (0.0,))
    events, numbers, names, halves = (wire.topic(name, 1) for name in ("events", "numbers", "names", "halves"))
    query = run_here(batches(wire, home, ""), Connection.of(wire.bootstrap))
    try:
        wire.send(events, [GOOD])
        wire.send(numbers, [GOOD])
        wire.await_count(halves, 1, query)
        wire.send(events, [POISON, GOOD])
        await_failed(query, halves="EPOCH_KEEPS_FAILING", walk="EPOCH_KEEPS_FAILING")
        wire.send(numbers, [HUGE, HUGE])
        await_failed(query, halves="EPOCH_KEEPS_FAILING", walk="EPOCH_KEEPS_FAILING", sums="NUMBER_TOO_LARGE")
        await_checkpoint(query, "names")
        wire.send(events, [GOOD])
        wire.await_count(names, 4, query)
        assert "DIVIDE_BY_ZERO" in named(query, "halves").detail
        assert "test_down.py" in named(query, "halves").detail
    finally:
        query.stop()
    query = run_here(batches(wire, home, "try_"), Connection.of(wire.bootstrap))
    try:
        wire.await_count(halves, 4, query)
        await_failed(query, sums="NUMBER_TOO_LARGE")
    finally:
        query.stop()
    assert [row.get("half") for row in wire.rows(halves)] == [4.0, None, 4.0, 4.0]
    assert [row["name"] for row in wire.rows(names)] == ["a", "b", "a", "a"]
