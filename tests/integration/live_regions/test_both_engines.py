"""Random chains of steps have one meaning: live and in micro-batches, and live with another timing of their input.

The judge is equality: all results and dead letters of the three are the same. A run with `--once` tells when all are
there. It is a soak, since each operator has its own test against a model.
"""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.spark_setup.broker import Broker
from falkirk.steps.live import event_time
from tests.chained import SCHEMA, program
from tests.duplicates import BEGAN, drawn
from tests.integration.live import Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
RECORDS, PROGRAMS = 300, 2
#: Set `FALKIRK_LOOPS=10:40` for other programs.
FIRST, END = map(int, os.environ.get("FALKIRK_LOOPS", "0:14").split(":"))
#: The name of a run of a program: its engine, and the topic that it reads.
RUNS = {"live": ("live", "clicks"), "micro": ("micro-batch", "clicks"), "late": ("live", "late")}


Found = tuple[Counter[str], Counter[tuple[Any, ...]]]


@pytest.fixture
def wire(spark: "SparkSession", broker: Broker, tag: str) -> Wire:
    """Topics of the test's own on the broker; there is a session."""
    return Wire(bootstrap=broker.bootstrap, tag=tag)


def application(wire: Wire, home: Path, seeds: range) -> fk.App:
    """Return an application that runs each program three times."""
    app = fk.App(f"both-{wire.tag}", home=home)
    for name in ("clicks", "late"):
        app.source(name, fk.Kafka(f"{name}-{wire.tag}", schema=SCHEMA, key="id"))
    for seed in seeds:
        for run, (engine, source) in RUNS.items():
            name = f"{run}-{seed}"
            policy = fk.Lazy("3 seconds")
            app.add_processor(name, _body(seed), reads=(source,), policy=policy, engine=engine)  # type: ignore[arg-type]
            app.sink(f"{name}-out", name, fk.Kafka(f"{name}-out-{wire.tag}", key="id"))
    return app


def _body(seed: int) -> Callable[..., Any]:
    chain = program(seed)[1]

    def from_clicks(clicks: fk.Stream) -> fk.Stream:
        return chain(clicks)

    return from_clicks


def found(wire: Wire, run: str, seed: int) -> Found:
    """Return the results, and the reasons and places of dead letters."""
    out = f"{run}-{seed}-out-{wire.tag}"
    dead = f"both-{wire.tag}-{run}-{seed}.dead-letters" if run == "micro" else f"{out}.dead-letters"
    letters = Counter((row["reason"], row["partition"], row["offset"]) for row in wire.rows(dead))
    return Counter(map(str, wire.rows(out))), letters


def run_all(wire: Wire, home: Path, first: int) -> dict[str, list[Found]]:
    """Run each program three times to its end, in two parts; return what it gave, by its text.

    Each topic has the same records in each partition. The second topic has all of one partition before the other one.
    """
    seeds, records = range(first, first + PROGRAMS), drawn(first, RECORDS)
    for mine in records.values():  # its time ends all windows, timers and waits
        mine.append({"id": mine[0]["id"], "at": BEGAN.replace(hour=5).isoformat(), "n": 7})
    clicks, late = wire.topic("clicks"), wire.topic("late")
    for seed in seeds:
        for run in RUNS:
            wire.topic(f"{run}-{seed}-out")
    app = application(wire, home, seeds)
    for half in (0, 1):
        for p, mine in records.items():
            middle = len(mine) // 2
            wire.send(clicks, mine[middle:] if half else mine[:middle], partition=p)
        wire.send(late, records[half], partition=half)
        query = app.start(kafka=wire.bootstrap, home=home, once=True)
        try:
            assert query.awaitTermination(300), query.status
        finally:
            query.stop()
    return {program(seed)[0]: [found(wire, run, seed) for run in RUNS] for seed in seeds}


@SOAK
@pytest.mark.parametrize("first", range(FIRST, END, PROGRAMS))
def test_engines_and_timings_give_the_same_results_and_dead_letters(wire: Wire, home: Path, first: int) -> None:
    for text, (live, micro, late) in run_all(wire, home, first).items():
        results, letters = live
        print(f"{text}: {results.total()} results, {letters.total()} dead letters")
        assert results.total() > 20, text
        assert micro == live, text
        assert late == live, text


@SOAK
def test_a_fault_of_one_engine_shows(wire: Wire, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without time rows, a live state partition does not know the time from the records of others."""
    monkeypatch.setattr(event_time, "_with_time_rows", lambda data: data)
    differing = [text for text, (live, micro, _) in run_all(wire, home, 2).items() if live != micro]
    print(differing)
    assert differing
