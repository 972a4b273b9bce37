"""Random chains of steps have one meaning: live and in micro-batches, and live with another timing of their input.

The judge is equality: all results and dead letters of the three are the same. A run with `--once` tells when all are
there. It is a soak, since each operator has a test of its own against a model.
"""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.spark_setup.broker import Broker
from tests.chained import SCHEMA, program
from tests.duplicates import BEGAN, drawn
from tests.integration.live import Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
RECORDS, PROGRAMS = 300, 2
#: Set `FALKIRK_LOOPS=10:40` for other programs.
SEEDS = range(*map(int, os.environ.get("FALKIRK_LOOPS", "0:10").split(":")), PROGRAMS)
#: The name of a run of a program: its engine, and the topic that it reads.
RUNS = {"live": ("live", "clicks"), "micro": ("micro-batch", "clicks"), "late": ("live", "late")}


def application(wire: Wire, home: Path, seeds: range) -> fk.App:
    """Return an application that runs each program three times."""
    app = fk.App(f"both-{wire.tag}", home=home)
    for name in ("clicks", "late"):
        app.source(name, fk.Kafka(f"{name}-{wire.tag}", schema=SCHEMA, key="id"))
    for seed in seeds:
        for run, (engine, source) in RUNS.items():
            name = f"{run}-{seed}"
            app.add_processor(name, _body(seed), reads=(source,), policy=fk.Lazy("3 seconds"), engine=engine)
            app.sink(f"{name}-out", name, fk.Kafka(f"{name}-out-{wire.tag}", key="id"))
    return app


def _body(seed: int) -> Callable[..., Any]:
    chain = program(seed)[1]

    def from_clicks(clicks: fk.Stream) -> fk.Stream:
        return chain(clicks)

    return from_clicks


def found(wire: Wire, run: str, seed: int) -> tuple[Counter[str], Counter[tuple[Any, ...]]]:
    """Return the results, and the reasons and places of dead letters."""
    out = f"{run}-{seed}-out-{wire.tag}"
    dead = f"both-{wire.tag}-{run}-{seed}.dead-letters" if run == "micro" else f"{out}.dead-letters"
    letters = Counter((row["reason"], row["partition"], row["offset"]) for row in wire.rows(dead))
    return Counter(map(str, wire.rows(out))), letters


@SOAK
@pytest.mark.parametrize("first", SEEDS)
def test_engines_and_timings_give_the_same_results_and_dead_letters(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, first: int
) -> None:
    wire, seeds = Wire(bootstrap=broker.bootstrap, tag=tag), range(first, first + PROGRAMS)
    records = drawn(first, RECORDS)
    for mine in records.values():  # it ends all windows, timers and waits
        last = {"id": mine[0]["id"], "at": BEGAN.replace(hour=5).isoformat(), "n": 7}
        mine.append(last)
    topics = {name: wire.topic(name) for name in ("clicks", "late")}
    for seed in seeds:
        for run in RUNS:
            wire.topic(f"{run}-{seed}-out")
    app = application(wire, home, seeds)
    halves = {p: len(mine) // 2 for p, mine in records.items()}

    def run() -> None:
        query = app.start(kafka=broker.bootstrap, home=home, once=True)
        try:
            assert query.awaitTermination(300), query.status
        finally:
            query.stop()

    for p, mine in records.items():
        wire.send(topics["clicks"], mine[: halves[p]], partition=p)
    wire.send(topics["late"], records[0], partition=0)
    run()
    for p, mine in records.items():
        wire.send(topics["clicks"], mine[halves[p] :], partition=p)
    wire.send(topics["late"], records[1], partition=1)
    run()
    for seed in seeds:
        results, letters = found(wire, "live", seed)
        text = program(seed)[0]
        print(f"{seed}: {text}: {results.total()} results, {letters.total()} dead letters")
        assert results.total() > 20, text
        assert found(wire, "micro", seed) == (results, letters), text
        assert found(wire, "late", seed) == (results, letters), text
