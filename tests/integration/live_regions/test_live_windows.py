"""Windows of event time: the same steps live and in micro-batches, over a stop in the middle.

Both engines give the results of the model in plain Python: results when windows close, updates, and late records.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.supervision.query import run_here
from falkirk.steps.live import event_time
from tests import windows
from tests.duplicates import BEGAN, DELAY_S, PARTITIONS, drawn
from tests.integration.explained import explained
from tests.integration.judged import see_judged
from tests.integration.live import Wire, await_one, settle

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

SCHEMA = "id STRING NOT NULL, at TIMESTAMP, n INT"
RECORDS = 300
#: A case costs up to a minute of CPU time. One is enough before each merge.
SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
WINDOWS: Mapping[str, Callable[[], "Column"]] = {
    "tumbling": lambda: F.window("at", f"{windows.SIZE_S} seconds"),
    "sliding": lambda: F.window(F.col("at"), f"{windows.SIZE_S} seconds", f"{windows.SLIDE_S} seconds"),
    "session": lambda: F.session_window("at", f"{windows.GAP_S} seconds").alias("window"),
}
#: The processors by their names: the engine, the kind of windows, and the output mode.
PROCESSORS = {
    f"{engine}_{kind}_{mode}": (engine, kind, mode)
    for engine in ("live", "micro")
    for kind in WINDOWS
    for mode in ("append", "update")
}


def body_of(name: str) -> Callable[[fk.Stream], fk.Stream]:
    """Return the steps of a processor. Records that a step leaves out have moved the time."""
    _, kind, mode = PROCESSORS[name]

    def body(clicks: fk.Stream) -> fk.Stream:
        timed = clicks.withWatermark("at", f"{DELAY_S} seconds").where("n % 7 <> 0").withColumn("twice", F.col("n") * 2)
        grouped = timed.groupBy(WINDOWS[kind](), "id").outputMode(mode)
        return grouped.agg("count(1) AS count", F.sum("n").alias("total"), F.collect_list("twice").alias("all"))

    body.__name__ = name
    return body


@cache
def application(wire: Wire, home: Path, processors: tuple[str, ...]) -> fk.App:
    """Return an application that runs processors by their names."""
    app = fk.App(f"windows-{wire.tag}", home=home)
    app.source("clicks", fk.Kafka(f"clicks-{wire.tag}", schema=SCHEMA, key="id"))
    for name in processors:
        engine = "live" if PROCESSORS[name][0] == "live" else "micro-batch"
        app.stream(fk.Lazy("2 seconds"), engine=engine)(body_of(name))  # type: ignore[arg-type]
        app.sink(f"{name}-out", name, fk.Kafka(f"{name}-out-{wire.tag}", key="id"))
    return app


def results(wire: Wire, name: str) -> list[windows.Result]:
    """Return the results of a processor, with their repetitions."""
    rows = wire.rows(f"{name}-out-{wire.tag}")
    assert all(sum(row["all"]) == 2 * row["total"] and len(row["all"]) == row["count"] for row in rows)
    return windows.results(rows)


def dead(wire: Wire, name: str) -> str:
    """Return the name of the topic with a processor's dead letters."""
    return (
        f"{name}-out-{wire.tag}.dead-letters" if name.startswith("live") else f"windows-{wire.tag}-{name}.dead-letters"
    )


def letters(wire: Wire, name: str) -> Counter[tuple[str, int, int]]:
    """Return the dead letters of a processor: reason, partition and offset."""
    return Counter((row["reason"], row["partition"], row["offset"]) for row in wire.rows(dead(wire, name)))


def _has(wire: Wire, topic: str, count: int) -> bool:
    return wire.count(topic) >= count


def _due(records: Mapping[int, list[dict[str, Any]]], name: str) -> tuple[list[windows.Result], dict[int, str]]:
    found = windows.expected(records, PROCESSORS[name][1])
    return sorted(found.final if name.endswith("append") else found.updates), found.letters


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        pytest.param(kind, mode, marks=[] if (kind, mode) == ("sliding", "append") else SOAK)
        for kind in WINDOWS
        for mode in ("append", "update")
    ],
)
def test_both_engines_give_the_results_of_the_model_over_a_restart(
    wire: Wire, home: Path, kind: str, mode: str, spark: "SparkSession"
) -> None:
    processors = (f"live_{kind}_{mode}", f"micro_{kind}_{mode}")
    records = drawn(6, RECORDS, ids=6)
    places = {record["n"]: (p, offset) for p, sent in records.items() for offset, record in enumerate(sent)}
    clicks = wire.topic("clicks")
    for name in processors:
        wire.topic(f"{name}-out")
    for half in (0, 1):
        for partition, sent in records.items():
            middle = len(sent) // 2
            wire.send(clicks, sent[middle:] if half else sent[:middle], partition=partition)
        read = {p: s if half else s[: len(s) // 2] for p, s in records.items()}
        app = application(wire, home, processors)
        query = run_here(app, Connection.of(wire.bootstrap), create_topics=True)
        for name in processors:
            due, late = _due(read, name)
            await_one(query, partial(_has, wire, f"{name}-out-{wire.tag}", len(due)), f"results of {name}")
            await_one(query, partial(_has, wire, dead(wire, name), len(late)), f"dead letters of {name}")
        query.stop()
    for name in processors:
        due, late = _due(records, name)
        assert len(due) > 50
        assert "late" in late.values()
        assert results(wire, name) == due, name
        assert letters(wire, name) == Counter((why, *places[n]) for n, why in late.items()), name
    _see_what_made_results(application(wire, home, processors), f"{processors[1]}-out-{wire.tag}", wire, spark)
    last = [{"id": "zz", "at": (BEGAN + timedelta(hours=1 - n)).isoformat(), "n": n + 1} for n in (0, 1)]
    app = application(wire, home, processors)
    see_judged(spark, app, f"{processors[0]}-out", wire, lambda: wire.send(clicks, last), late=1)


def _see_what_made_results(app: fk.App, topic: str, wire: Wire, spark: "SparkSession") -> None:
    """See that `falkirk why` names exactly the records of a window in micro-batches: no late ones, of all epochs."""
    records = wire.records(topic)
    largest = max(records, key=lambda each: json.loads(each.value or b"")["count"])
    for row, rows, made, text in explained(app, wire.bootstrap, spark, topic, [largest]):
        assert sorted(2 * each["n"] for each in rows) == sorted(row["all"]), text
        assert (made["count"], {each["id"] for each in rows}) == (row["count"], {row["id"]})


@SOAK
def test_without_time_rows_windows_stay_open(wire: Wire, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mechanism is off: records of other keys and records that a step leaves out move no time."""
    records, name = drawn(6, RECORDS, ids=6), "live_tumbling_append"
    clicks, out = wire.topic("clicks"), wire.topic(f"{name}-out")
    for partition, sent in records.items():
        wire.send(clicks, sent, partition=partition)
    due, late = _due(records, name)
    monkeypatch.setattr(event_time, "_with_time_rows", lambda data: data)
    query = run_here(application(wire, home, (name,)), Connection.of(wire.bootstrap), create_topics=True)
    fits = len([n for n, why in late.items() if why != "late"])
    await_one(query, lambda: wire.count(dead(wire, name)) >= fits and wire.count(out) > 0, "dead letters")
    settle(query)  # all that there is: a part of it would differ in any case
    query.stop()
    assert results(wire, name) != due


@SOAK
def test_keys_from_several_partitions_close_by_the_least_time(wire: Wire, home: Path) -> None:
    """In micro-batches. A window closes once, when all partitions have passed it, and later records of it are late."""
    app = fk.App(f"windows-{wire.tag}", home=home)
    app.source("clicks", fk.Kafka(f"clicks-{wire.tag}", schema=SCHEMA))

    @app.stream()
    def total(clicks: fk.Stream) -> fk.Stream:
        return clicks.withWatermark("at", "10 seconds").groupBy(F.window("at", "20 seconds")).count()

    app.sink("total", total, fk.Kafka(f"total-{wire.tag}"))
    clicks, out = wire.topic("clicks"), wire.topic("total", 1)

    def send(seconds: int, partition: int) -> None:
        wire.send(
            clicks, [{"id": "a", "at": f"2026-03-01T00:{seconds // 60:02}:{seconds % 60:02}Z", "n": 1}], partition
        )

    for partition in range(PARTITIONS):
        send(5, partition)
    query = run_here(app, Connection.of(wire.bootstrap), create_topics=True)
    send(100, 0)
    send(6, 1)
    send(30, 1)
    wire.await_count(out, 1, query)
    send(7, 1)
    wire.await_count(dead(wire, "total"), 1, query)
    query.stop()
    (row,) = wire.rows(out)
    assert row["count"] == 3
