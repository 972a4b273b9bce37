"""Windows of event time: the same steps live and in micro-batches, over a stop in the middle.

Both engines give what the model in plain Python gives: results when windows close, updates, and late records.
"""

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.frames import event_time
from falkirk.host.query import run_here
from falkirk.kafka.connection import Connection
from tests import windows
from tests.duplicates import drawn
from tests.integration.live import Wire, await_one

SCHEMA = "id STRING NOT NULL, at TIMESTAMP, n INT"
RECORDS = 300
SECONDS = {name: f"{number} seconds" for name, number in (("size", windows.SIZE_S), ("slide", windows.SLIDE_S))}
WINDOWS = {
    "tumbling": lambda: F.window("at", SECONDS["size"]),
    "sliding": lambda: F.window(F.col("at"), SECONDS["size"], SECONDS["slide"]).alias("window"),
    "session": lambda: F.session_window("at", f"{windows.GAP_S} seconds").alias("window"),
}


def body_of(kind: str, mode: str) -> Callable[[fk.Stream], fk.Stream]:
    """Return the steps of a processor. Records that a step leaves out have moved the time."""

    def body(clicks: fk.Stream) -> fk.Stream:
        timed = clicks.withWatermark("at", "10 seconds").where("n % 7 <> 0").withColumn("twice", F.col("n") * 2)
        grouped = timed.groupBy(WINDOWS[kind](), "id").outputMode(mode)
        return grouped.agg("count(1) AS count", F.sum("n").alias("total"), F.collect_list("twice").alias("all"))

    return body


def application(wire: Wire, home: Path, made: dict[str, Callable[[fk.Stream], fk.Stream]]) -> fk.App:
    """Return an application that runs processors by their names. Those named live run live."""
    app = fk.App(f"windows-{wire.tag}", home=home)
    app.source("clicks", fk.Kafka(f"clicks-{wire.tag}", schema=SCHEMA, key="id"))
    for name, body in made.items():
        body.__name__ = name
        engine = "live" if name.startswith("live") else "micro-batch"
        app.stream(fk.Lazy("2 seconds"), engine=engine)(body)  # type: ignore[arg-type]
        app.sink(f"{name}-out", name, fk.Kafka(f"{name}-out-{wire.tag}", key="id"))
    return app


def results(wire: Wire, name: str) -> list[windows.Result]:
    """Return the results of a processor, with their repetitions."""
    rows = wire.rows(f"{name}-out-{wire.tag}")
    assert all(sum(row["all"]) == 2 * row["total"] and len(row["all"]) == row["count"] for row in rows)
    return sorted(
        (row["id"], *(_seconds(row["window"][side]) for side in ("start", "end")), row["count"], row["total"])
        for row in rows
    )


def _seconds(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp())


def dead(wire: Wire, name: str) -> str:
    """Return the name of the topic with a processor's dead letters."""
    live = f"{name}-out-{wire.tag}.dead-letters"
    return live if name.startswith("live") else f"windows-{wire.tag}-{name}.dead-letters"


def letters(wire: Wire, name: str) -> Counter[tuple[str, int, int]]:
    """Return the dead letters of a processor: reason, partition and offset."""
    return Counter((row["reason"], row["partition"], row["offset"]) for row in wire.rows(dead(wire, name)))


def _has(wire: Wire, topic: str, count: int) -> bool:
    return wire.count(topic) >= count


@pytest.mark.parametrize("kind", ["sliding", "session"])
def test_both_engines_give_the_results_of_the_model_over_a_restart(wire: Wire, home: Path, kind: str) -> None:
    records = drawn(11, RECORDS, ids=6)
    wanted = windows.expected(records, kind)
    places = {record["n"]: (p, offset) for p, sent in records.items() for offset, record in enumerate(sent)}
    modes = {"live_final": "append", "live_update": "update"}
    clicks = wire.topic("clicks")
    for name in modes:
        wire.topic(f"{name}-out")
    for half in (0, 1):
        for partition, sent in records.items():
            middle = len(sent) // 2
            wire.send(clicks, sent[middle:] if half else sent[:middle], partition=partition)
        due = windows.expected({p: s if half else s[: len(s) // 2] for p, s in records.items()}, kind)
        app = application(wire, home, {name: body_of(kind, mode) for name, mode in modes.items()})
        query = run_here(app, Connection.of(wire.bootstrap), create_topics=True)
        for name, mode in modes.items():
            count = len(due.final if mode == "append" else due.updates)
            await_one(query, partial(_has, wire, f"{name}-out-{wire.tag}", count), f"results of {name}")
            await_one(query, partial(_has, wire, dead(wire, name), len(due.letters)), f"dead letters of {name}")
        query.stop()
    for name, mode in modes.items():
        assert results(wire, name) == sorted(wanted.final if mode == "append" else wanted.updates), name
        assert letters(wire, name) == Counter((why, *places[n]) for n, why in wanted.letters.items()), name
