"""Event time in live regions: the first record of each id within a time, late records, and hostile times.

The same steps run live and in micro-batches. The live query ends with results behind its checkpoint, and the
application is stopped in the middle. Both give the results of the model in plain
Python.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from falkirk.steps.live import event_time
from tests.duplicates import BEGAN, Expected, drawn, expected
from tests.integration.judged import see_judged
from tests.integration.live import Wire, await_one, fail_behind_a_checkpoint, failed, settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id STRING NOT NULL, at TIMESTAMP, n INT"
RECORDS = 400
LETTERS = {"live": "live-out-{}.dead-letters", "micro": "times-{}-micro.dead-letters"}


@pytest.fixture
def wire(spark: "SparkSession", broker: Broker, tag: str) -> Wire:
    """Topics of the test's own on the broker; there is a session."""
    return Wire(bootstrap=broker.bootstrap, tag=tag)


def first(clicks: fk.Stream) -> fk.Stream:
    """Keep the first record of each id. Records that a step leaves out have moved the time."""
    timed = clicks.withWatermark("at", "10 seconds").where("n % 7 <> 0")
    return timed.withColumn("twice", F.col("n") * 2).dropDuplicates(["id"]).selectExpr("id", "at", "n", "twice")


@cache
def application(tag: str, home: Path, engines: tuple[str, ...]) -> fk.App:
    """Return an application that runs the same steps on each engine."""
    app = fk.App(f"times-{tag}", home=home)
    app.source("clicks", fk.Kafka(f"clicks-{tag}", schema=SCHEMA, key="id"))
    for name in engines:
        engine = "live" if name == "live" else "micro-batch"
        app.stream(fk.Lazy("5 seconds"), engine=engine)(_named(name))  # type: ignore[arg-type]
        app.sink(f"{name}-out", name, fk.Kafka(f"{name}-out-{tag}", key="id"))
    return app


def _named(name: str) -> Callable[[fk.Stream], fk.Stream]:
    def body(clicks: fk.Stream) -> fk.Stream:
        return first(clicks)

    body.__name__ = name
    return body


def numbers(wire: Wire, name: str) -> list[int]:
    """Return the numbers of the results of an engine, with their repetitions."""
    rows = wire.rows(f"{name}-out-{wire.tag}")
    assert all(row["twice"] == 2 * row["n"] for row in rows)
    return sorted(row["n"] for row in rows)


def letters(wire: Wire, name: str) -> Counter[tuple[str, int, int]]:
    """Return the dead letters of an engine: reason, partition and offset."""
    rows = wire.rows(LETTERS[name].format(wire.tag))
    return Counter((row["reason"], row["partition"], row["offset"]) for row in rows)


def wanted_letters(found: Expected, records: dict[int, list[dict[str, Any]]]) -> Counter[tuple[str, int, int]]:
    places = {record["n"]: (p, offset) for p, sent in records.items() for offset, record in enumerate(sent)}
    return Counter((reason, *places[n]) for n, reason in found.letters.items())


def _has(wire: Wire, topic: str, count: int) -> bool:
    return wire.count(topic) >= count


def test_both_engines_keep_the_first_record_of_an_id_over_a_restart(
    wire: Wire, home: Path, spark: "SparkSession"
) -> None:
    records = drawn(7, RECORDS)
    wanted = expected(records)
    results, bad = sorted(wanted.results), wanted_letters(wanted, records)
    assert len(results) > 50
    assert len(set(wanted.letters.values())) == 3
    clicks, outs = wire.topic("clicks"), {name: wire.topic(f"{name}-out") for name in LETTERS}
    sent = [0.0]

    def send(end: float) -> Expected:
        """Send the records until this part of them; return the results of all that are sent."""
        for partition, mine in records.items():
            wire.send(clicks, mine[round(len(mine) * sent[-1]) : round(len(mine) * end)], partition=partition)
        sent.append(end)
        return expected({p: mine[: round(len(mine) * end)] for p, mine in records.items()})

    def send_more() -> Callable[[], object]:
        return partial(_has, wire, outs["live"], len(send(sent[-1] + 0.1).results))

    for half in (0, 1):
        due = send(0.3 if not half else 1.0)
        query = run_here(application(wire.tag, home, tuple(LETTERS)), Connection.of(wire.bootstrap), create_topics=True)
        if not half:
            fail_behind_a_checkpoint(query, "live-out", send_more)
            due = send(sent[-1])
        for name, out in outs.items():
            await_one(query, partial(_has, wire, out, len(due.results)), f"results of {name}")
            dead = LETTERS[name].format(wire.tag)
            await_one(query, partial(_has, wire, dead, len(due.letters)), f"dead letters of {name}")
        query.stop()
    for name in LETTERS:
        assert numbers(wire, name) == results, name
        assert letters(wire, name) == bad, name
    order = defaultdict(list)
    for row in wire.rows(outs["live"]):
        order[row["id"]].append(row["n"])
    assert all(found == sorted(found) for found in order.values())
    last = [{"id": "zz", "at": (BEGAN + timedelta(hours=1 - n)).isoformat(), "n": n + 1} for n in (0, 1)]
    app = application(wire.tag, home, tuple(LETTERS))
    see_judged(spark, app, "live-out", wire, lambda: wire.send(clicks, last), late=1, always=True)


def test_without_time_rows_a_state_partition_does_not_know_the_time(
    wire: Wire, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mechanism is off: records of other keys and records that a step leaves out move no time."""
    records = drawn(7, RECORDS)
    wanted = expected(records)
    wire.topic("clicks")
    for partition, sent in records.items():
        wire.send(f"clicks-{wire.tag}", sent, partition=partition)
    monkeypatch.setattr(event_time, "_with_time_rows", lambda data: data)
    out = wire.topic("live-out")
    query = run_here(application(wire.tag, home, ("live",)), Connection.of(wire.bootstrap), create_topics=True)
    dead = LETTERS["live"].format(wire.tag)
    fits = len([n for n, reason in wanted.letters.items() if reason != "late"])
    await_one(query, lambda: wire.count(dead) >= fits and wire.count(out) > 0, "dead letters")
    settle(query)  # all that there is: a part of it would differ in any case
    query.stop()
    assert letters(wire, "live") != wanted_letters(wanted, records)


def test_a_time_ahead_moves_nothing_and_a_key_from_two_partitions_stops_the_region(wire: Wire, home: Path) -> None:
    clicks, out = wire.topic("clicks"), wire.topic("live-out")
    ahead = {"id": "b", "at": (datetime.now(UTC) + timedelta(hours=1)).isoformat(), "n": 8}
    wire.send(clicks, [ahead, {"id": "a", "at": "2026-03-01T00:00:00Z", "n": 1}], partition=0)
    query = run_here(application(wire.tag, home, ("live",)), Connection.of(wire.bootstrap), create_topics=True)
    wire.await_count(out, 1, query)
    wire.await_count(LETTERS["live"].format(wire.tag), 1, query)
    assert letters(wire, "live") == Counter([("column at is more than 60 s ahead of the clock", 0, 0)])
    wire.send(clicks, [{"id": "a", "at": "2026-03-01T00:00:00Z", "n": 2}], partition=1)
    error = failed(query)
    assert error.condition == "NOT_CO_PARTITIONED"
    assert "from partitions 0 and 1" in str(error)
    assert wire.count(out) == 1
