"""`stateful(order=)` of a live region: keys from two partitions, the results of a model, over a kill of the query.

The query ends with results behind its checkpoint, while records wait in its state. Its replay reads both partitions
interleaved in another way.
"""

import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.spark.rows import Barrier
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.theory.channel import ReleasedTail
from tests import ordered
from tests.integration.live import Wire, await_one, fail_behind_a_checkpoint

RECORDS = 240
#: The parts in which the records arrive.
PARTS = 6
pytestmark = pytest.mark.usefixtures("spark")
SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
Records = dict[int, list[dict[str, Any]]]


@pytest.fixture
def records() -> Records:
    """The records of both partitions."""
    return ordered.drawn(6, RECORDS)


def begun(wire: Wire, home: Path, engine: Literal["live", "micro-batch"] = "live") -> Query:
    """Start an application with the steps."""
    for name in ("orders", "out"):
        wire.topic(name)
    app = fk.App(f"order-{wire.tag}", home=home)
    app.source("orders", fk.Kafka(f"orders-{wire.tag}", schema=ordered.SCHEMA))
    app.add_processor("chained", ordered.steps, reads=("orders",), policy=fk.Lazy("2 seconds"), engine=engine)
    app.sink("out", "chained", fk.Kafka(f"out-{wire.tag}"))
    return run_here(app, Connection.of(wire.bootstrap), create_topics=True)


def letters_of(wire: Wire, engine: str = "live") -> str:
    return f"out-{wire.tag}.dead-letters" if engine == "live" else f"order-{wire.tag}-chained.dead-letters"


def send(wire: Wire, records: Records, number: int) -> None:
    """Send a part of the records of each partition. The second partition is one part behind."""
    for partition, mine in records.items():
        first, end = (len(mine) * max(0, min(n - partition, PARTS)) // PARTS for n in (number, number + 1))
        wire.send(f"orders-{wire.tag}", mine[first:end], partition=partition)


def fail(wire: Wire, query: Query, records: Records) -> None:
    """Send the records in parts. The query ends after one of them, with results behind its checkpoint."""
    parts, out = iter(range(1, PARTS + 1)), f"out-{wire.tag}"

    def part() -> Callable[[], bool]:
        before = wire.count(out)
        send(wire, records, next(parts))
        return lambda: wire.count(out) > before

    send(wire, records, 0)
    fail_behind_a_checkpoint(query, "out", part)
    for number in parts:
        send(wire, records, number)


def has_all(wire: Wire, due: ordered.Expected, engine: str = "live") -> bool:
    """Return whether all results and dead letters are there."""
    found = wire.count(f"out-{wire.tag}"), wire.count(letters_of(wire, engine))
    return found >= (len(due.results), 0) and found[1] >= due.letters.total()


def judge(wire: Wire, due: ordered.Expected, engine: str = "live") -> None:
    assert ordered.results(wire.rows(f"out-{wire.tag}")) == due.results
    assert ordered.letters(wire.rows(letters_of(wire, engine))) == due.letters


def test_the_results_are_those_of_the_model_over_a_replay(wire: Wire, home: Path, records: Records) -> None:
    due = ordered.expected(records)
    query = begun(wire, home)
    try:
        fail(wire, query, records)
        await_one(query, partial(has_all, wire, due), "the results")
    finally:
        query.stop()
    judge(wire, due)
    assert {kind for kind, _ in due.letters} == {"late", "unfit", "failed"}
    assert not [name for name in wire.topics.names() if wire.tag in name and "-by-" in name], "there is no hop"


@SOAK
def test_micro_batches_give_the_same_results(wire: Wire, home: Path, records: Records) -> None:
    due = ordered.expected(records)
    query = begun(wire, home, "micro-batch")
    try:
        for number in range(PARTS + 1):
            send(wire, records, number)
        await_one(query, partial(has_all, wire, due, "micro-batch"), "the results")
    finally:
        query.stop()
    judge(wire, due, "micro-batch")


@SOAK
def test_without_a_barrier_results_come_twice(
    wire: Wire, home: Path, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: Any) -> Barrier:
        return Barrier(main=ReleasedTail(), dead=ReleasedTail())

    monkeypatch.setattr("falkirk.runtime.spark.outputs.Outputs.barrier", opened)
    query = begun(wire, home)
    try:
        fail(wire, query, records)
        out = f"out-{wire.tag}"
        await_one(query, lambda: max(Counter(ordered.results(wire.rows(out))).values()) > 1, "a result twice")
    finally:
        query.stop()
