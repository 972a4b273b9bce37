"""Two joins of three sources in one live query, over a stop in the middle: the results of a model in plain Python.

Each source has two partitions, and a key is in both. The run ends behind its last checkpoint, so the next one publishes
again what it has not seen published.
"""

import os
from collections import Counter
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.spark.outputs import Outputs
from falkirk.runtime.spark.rows import Barrier
from falkirk.runtime.supervision.query import run_here
from falkirk.theory.channel import ReleasedTail
from tests import thrice_joined as model
from tests import timed_streams
from tests.duplicates import BEGAN
from tests.integration.judged import see_judged
from tests.integration.live import Wire, await_one

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 120
SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")


@cache
def application(wire: Wire, home: Path, engine: Any, first: str, second: str) -> fk.App:
    app = fk.App(f"thrice-{wire.tag}", home=home)
    for name in model.DELAYS_S:
        app.source(name, fk.Kafka(f"{name}-{wire.tag}", schema=model.SCHEMA))
    app.add_processor(
        "seen", model.body(first, second), reads=(*model.DELAYS_S,), policy=fk.Lazy("2 seconds"), engine=engine
    )
    app.sink("out", "seen", fk.Kafka(f"out-{wire.tag}", key="id"))
    return app


def _has(wire: Wire, topic: str, count: int) -> bool:
    return wire.count(topic) >= count


def run(wire: Wire, home: Path, engine: str, first: str, second: str, *, is_barred: bool = True) -> model.Due:
    """Run the application twice, with a half of the records each; return the expected results.

    Args: is_barred: each dead letter is there once.
    """
    app, records = application(wire, home, engine, first, second), model.drawn(5, RECORDS, ids=12)
    dead = f"out-{wire.tag}.dead-letters" if engine == "live" else f"thrice-{wire.tag}-seen.dead-letters"
    sent: dict[str, dict[int, list[dict[str, Any]]]] = {name: {} for name in records}
    for name in (*records, "out"):
        wire.topic(name)
    for half in (0, 1):
        for name, partitions in records.items():
            for partition, mine in partitions.items():
                more = (
                    mine[len(mine) // 2 :] + timed_streams.ends(RECORDS)[partition] if half else mine[: len(mine) // 2]
                )
                wire.send(f"{name}-{wire.tag}", more, partition=partition)
                sent[name].setdefault(partition, []).extend(more)
        due = model.expected(sent, first, second)
        triples = [each for each in due.results if None not in each and first != "as of" and second != "as of"]
        query = run_here(app, Connection.of(wire.bootstrap), create_topics=True)
        try:
            if engine == "live":
                assert [region.name for region in query.status] == ["out"]
            count = len(due.results if half else triples)
            await_one(query, partial(_has, wire, f"out-{wire.tag}", count), f"{count} results")
            await_one(query, partial(_has, wire, dead, len(due.letters)), "dead letters")
        finally:
            query.stop()
    found = Counter(row["reason"] for row in wire.rows(dead))
    assert found.keys() == set(due.letters.values())
    assert (found == Counter(due.letters.values())) is is_barred
    return due


@pytest.mark.parametrize(
    ("engine", "first", "second"),
    [
        pytest.param(engine, *kinds, marks=[] if (engine, kinds) == ("live", model.KINDS[0]) else SOAK)
        for engine in ("live", "micro-batch")
        for kinds in model.KINDS
    ],
)
def test_the_results_are_those_of_the_model_over_a_restart(
    wire: Wire, home: Path, engine: str, first: str, second: str, spark: "SparkSession"
) -> None:
    due = run(wire, home, engine, first, second)
    assert len([each for each in due.results if None not in each]) > 20
    assert model.results(wire.rows(f"out-{wire.tag}")) == due.results
    if engine == "live":
        see_judged(spark, application(wire, home, engine, first, second), "out", wire, lambda: _send_last(wire), late=1)


def _send_last(wire: Wire) -> None:
    """Send three records that belong together, and one that is late."""
    one = {"id": "zz", "at": timed_streams.END, "n": 1}
    wire.send(f"shown-{wire.tag}", [one, {**one, "at": BEGAN.isoformat()}])
    wire.send(f"clicks-{wire.tag}", [one])
    wire.send(f"sold-{wire.tag}", [one])


@SOAK
def test_without_the_barrier_results_come_twice(wire: Wire, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mechanism is off: the second run publishes again what the first one has published after its checkpoint."""

    def opened(*_: Any) -> Barrier:
        return Barrier(main=ReleasedTail(), dead=ReleasedTail())

    monkeypatch.setattr(Outputs, "barrier", opened)
    due = run(wire, home, "live", *model.KINDS[0], is_barred=False)
    found = model.results(wire.rows(f"out-{wire.tag}"))
    assert set(found) >= set(due.results)
    assert len(found) > len(due.results)
