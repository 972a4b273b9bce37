"""As-of joins: two timings of the same input give the same results and late records, over a failure.

One region gets all prices before the orders, so most orders find their price at once. The other one gets all orders
first, so they wait. It ends with results behind its checkpoint, and the barrier drops these from the replay.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.spark.rows import Barrier
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.theory.channel import ReleasedTail
from tests import timed_streams, versioned
from tests.duplicates import BEGAN
from tests.integration.explained import explained
from tests.integration.judged import see_judged
from tests.integration.live import Wire, await_one, fail_behind_a_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id STRING, at TIMESTAMP, n INT"
RECORDS = 120
#: The parts in which the prices of a region arrive.
PARTS = 5
pytestmark = pytest.mark.usefixtures("spark")
SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
Records = Mapping[int, list[dict[str, Any]]]


def priced(orders: fk.Stream, prices: fk.Stream) -> fk.Stream:
    """Return the steps of a processor. Records that a step leaves out have moved the time."""
    stream = orders.withWatermark("at", f"{versioned.DELAYS_S['orders']} seconds").where("n % 7 <> 0")
    table = prices.withWatermark("at", f"{versioned.DELAYS_S['prices']} seconds").where("n % 7 <> 0")
    return stream.join_asof(table, "id", "left", tolerance=f"{versioned.TOLERANCE_S} seconds")


def application(
    wire: Wire, home: Path, names: tuple[str, ...], engine: Literal["live", "micro-batch"] = "live"
) -> fk.App:
    """Return an application with a processor for each timing. Each has its own topics."""
    app = fk.App(f"asof-{wire.tag}", home=home)
    for name in names:
        reads = (f"{name}_orders", f"{name}_prices")
        for each in reads:
            app.source(each, fk.Kafka(f"{each}-{wire.tag}", schema=SCHEMA))
        app.add_processor(name, priced, reads=reads, policy=fk.Lazy("2 seconds"), engine=engine)
        app.sink(f"{name}-out", name, fk.Kafka(f"{name}-out-{wire.tag}"))
    return app


@pytest.fixture
def drawn() -> dict[str, Records]:
    """The records of both streams, with the last ones."""
    records = versioned.drawn(5, RECORDS)
    return {name: {p: [*r, *timed_streams.ends(RECORDS)[p]] for p, r in of.items()} for name, of in records.items()}


def send(wire: Wire, topic: str, records: Records, part: int = 0, of: int = 1) -> None:
    """Send a part of the records of each partition."""
    for partition, mine in records.items():
        first, end = (len(mine) * n // of for n in (part, part + 1))
        wire.send(f"{topic}-{wire.tag}", mine[first:end], partition=partition)


def fail(wire: Wire, query: Query, name: str, prices: Records) -> None:
    """Send the prices in parts. The region ends after one of them, with results behind its checkpoint."""
    parts = iter(range(PARTS - 1))
    out = f"{name}-out-{wire.tag}"

    def part() -> Callable[[], bool]:
        before = wire.count(out)
        send(wire, f"{name}_prices", prices, next(parts), PARTS)
        return lambda: wire.count(out) > before

    fail_behind_a_checkpoint(query, f"{name}-out", part)
    for rest in (*parts, PARTS - 1):
        send(wire, f"{name}_prices", prices, rest, PARTS)


def found(wire: Wire, name: str) -> tuple[list[versioned.Result], Counter[str]]:
    """Return the results of a timing, and the reasons of its dead letters."""
    letters = Counter(row["reason"] for row in wire.rows(f"{name}-out-{wire.tag}.dead-letters"))
    return versioned.results(wire.rows(f"{name}-out-{wire.tag}")), letters


def has(wire: Wire, name: str, due: versioned.Versioned) -> bool:
    """Return whether all results and dead letters are there."""
    out = f"{name}-out-{wire.tag}"
    return wire.count(out) >= len(due.results) and wire.count(f"{out}.dead-letters") >= len(due.letters)


def test_two_timings_give_the_same_results_and_late_records(
    wire: Wire, home: Path, drawn: dict[str, Records], spark: "SparkSession"
) -> None:
    orders, prices = drawn["orders"], drawn["prices"]
    due = versioned.expected(orders, prices, "left", versioned.TOLERANCE_S)
    names = ("early", "later")
    for name in names:
        for each in ("_orders", "_prices", "-out"):
            wire.topic(f"{name}{each}")
    app = application(wire, home, names)
    query = run_here(app, Connection.of(wire.bootstrap), create_topics=True)
    send(wire, "early_prices", prices)
    send(wire, "later_orders", orders)
    fail(wire, query, "later", prices)
    send(wire, "early_orders", orders)
    for name in names:
        await_one(query, partial(has, wire, name, due), f"the results of {name}")
    query.stop()
    wanted = due.results, Counter(due.letters.values())
    assert len([each for _, each in due.results if each is not None]) > 20
    assert {"late"} < set(due.letters.values())
    for name in names:
        assert found(wire, name) == wanted, name
    topic = f"later-out-{wire.tag}"
    results = {json.loads(each.value or b"").get("right_n") is None: each for each in wire.records(topic)}
    for row, records, _, text in explained(app, wire.bootstrap, spark, topic, results.values()):
        sides = [row["n"], row.get("right_n")]
        assert [record["n"] for record in records] == [n for n in sides if n is not None]
        assert ("later_prices has no version for it" in text) == (sides[1] is None)
    # A record without a key waits for no version.
    last = [{"id": None, "at": at, "n": 1} for at in (timed_streams.END, BEGAN.isoformat())]
    see_judged(spark, app, "later-out", wire, lambda: wire.send(f"later_orders-{wire.tag}", last), late=1)


@SOAK
def test_micro_batches_give_the_same_results(wire: Wire, home: Path, drawn: dict[str, Records]) -> None:
    due = versioned.expected(drawn["orders"], drawn["prices"], "left", versioned.TOLERANCE_S)
    for each in ("_orders", "_prices", "-out"):
        wire.topic(f"micro{each}")
    app = application(wire, home, ("micro",), "micro-batch")
    query = run_here(app, Connection.of(wire.bootstrap), create_topics=True)
    for part in range(3):
        for name, records in drawn.items():
            send(wire, f"micro_{name}", records, part, 3)
    await_one(query, lambda: wire.count(f"micro-out-{wire.tag}") >= len(due.results), "the results")
    query.stop()
    assert versioned.results(wire.rows(f"micro-out-{wire.tag}")) == due.results


@SOAK
def test_without_a_barrier_results_come_twice(
    wire: Wire, home: Path, drawn: dict[str, Records], monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: Any) -> Barrier:
        return Barrier(main=ReleasedTail(), dead=ReleasedTail())

    monkeypatch.setattr("falkirk.runtime.spark.outputs.Outputs.barrier", opened)
    for each in ("_orders", "_prices", "-out"):
        wire.topic(f"open{each}")
    query = run_here(application(wire, home, ("open",)), Connection.of(wire.bootstrap), create_topics=True)
    send(wire, "open_orders", drawn["orders"])
    fail(wire, query, "open", drawn["prices"])
    await_one(query, lambda: max(Counter(found(wire, "open")[0]).values()) > 1, "a result twice")
    query.stop()
