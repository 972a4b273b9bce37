"""Python functions of live regions: `map_rows` and `stateful` by processes beside the tasks, over real Kafka.

One application has them all: a function with several results, one with a state, poison records, processes that are
killed, and the same programs in micro-batches, whose results are the reference.
"""

import json
import os
import signal
from collections import Counter
from collections.abc import Collection
from functools import cache, partial
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.policy import DEFAULT_POLICY
from falkirk.errors import FalkirkError
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.user_tools.commands.history.application import recorded_shape
from falkirk.user_tools.commands.redrive import send_again
from tests.integration.live import Wire, await_checkpoints, await_one, ended_incarnations, failed
from tests.integration.live_functions import counted_while_there, doubled, spread, totalled
from tests.support import children_with

SCHEMA = "id STRING NOT NULL, n INT, at TIMESTAMP, tags MAP<STRING, DOUBLE>"
RETURNS = "id STRING, n BIGINT, at TIMESTAMP, tags MAP<STRING, DOUBLE>, double STRUCT<x: DOUBLE, words: ARRAY<STRING>>"


def record(number: int) -> dict[str, Any]:
    at = f"2026-01-{1 + number % 28:02}T03:04:05.{number % 1000:03}Z"
    return {"id": f"k{number % 5}", "n": number, "at": at, "tags": {"a": number / 3} if number % 3 else None}


def workers(but: Collection[psutil.Process] = ()) -> list[psutil.Process]:
    """Return the Python processes that answer live regions. Args: but: those that other tests have left."""
    found = children_with("row_worker")
    return [each for each in found if each.parent() in found and each not in but]  # the others fork them


def mapped(events: fk.Stream) -> fk.Stream:
    return events.where("n >= 0").map_rows(spread, returns=RETURNS).selectExpr("*", "concat(id, n) AS key")


def folded(events: fk.Stream) -> fk.Stream:
    return events.stateful(
        totalled, key="id",
        state="seen ARRAY<INT>, digits MAP<STRING, BIGINT>, newest STRUCT<at: TIMESTAMP, total: BIGINT>",
        returns="id STRING, n INT, total BIGINT, before TIMESTAMP, seen ARRAY<INT>, digits MAP<STRING, BIGINT>",
    )  # fmt: skip


def expiring(events: fk.Stream) -> fk.Stream:
    """The minutes of keys go back and forth, and each key is silent for some time."""
    timed = events.selectExpr("id", "n", "timestamp_seconds(1767225600 + 60 * (n - 3 * (n % 7))) AS then")
    some = timed.withWatermark("then", "10 minutes").where("(n div 50 + n % 5) % 3 = 0")
    return some.stateful(
        counted_while_there, key="id", state="seen BIGINT", returns="id STRING, n INT, count BIGINT",
        expires="30 minutes",
    )  # fmt: skip


def expiring_before_explode(events: fk.Stream) -> fk.Stream:
    """Give the same results. The stamp of each dead letter has a sub-index more, though no step before it gave any."""
    return expiring(events).explode(F.array("count"), "copy").drop("copy")


def expected_counts(numbers: range) -> tuple[Counter[tuple[str, int, int]], int]:
    """Return the results of `expiring` by a model, and the number of dead letters."""
    greatest: dict[int, int] = {}
    states: dict[int, tuple[int, int]] = {}
    results: Counter[tuple[str, int, int]] = Counter()
    letters = 0
    for n in numbers:
        key, minute = n % 5, n - 3 * (n % 7)
        now = greatest[key % 2] = max(greatest.get(key % 2, minute), minute)
        if (n // 50 + key) % 3:
            continue
        newest, count = states.get(key, (minute, 0))
        if newest + 30 <= now - 10:
            states.pop(key, None)
            newest, count = minute, 0
        if minute < now - 10 or n % 10 == 7:
            letters += 1
            continue
        states[key] = (max(newest, minute), count + 1)
        results[f"k{key}", n, count + 1] += 1
    return results, letters


def counted(events: fk.Stream) -> fk.Stream:
    return events.groupBy("id").count().map_rows(doubled, returns="id STRING, twice BIGINT")


#: Each processor, and the one in micro-batches that gives the same results.
BODIES = {
    "live-map": mapped, "batch-map": mapped, "live-state": folded, "batch-state": folded, "live-counts": counted,
    "live-expiry": expiring_before_explode, "batch-expiry": expiring_before_explode,
}  # fmt: skip


@cache
def application(wire: Wire, home: Path) -> fk.App:
    app = fk.App(f"python-{wire.tag}", home=home)
    app.source("events", fk.Kafka(f"events-{wire.tag}", schema=SCHEMA, key="id"))
    for name, body in BODIES.items():
        live = name.startswith("live")
        engine = "live" if live else "micro-batch"
        policy = fk.Lazy("10 seconds") if live else DEFAULT_POLICY
        app.add_processor(name, body, reads=("events",), policy=policy, engine=engine)
        app.sink(f"{name}-out", name, fk.Kafka(f"{name}-out-{wire.tag}"))
    return app


def due(numbers: range) -> dict[str, int]:
    """Return the number of results of each processor."""
    good = [n for n in numbers if n % 10 != 7]
    maps, states = sum(n % 4 for n in good), sum(1 + n % 2 for n in good)
    ages = sum(expected_counts(numbers)[0].values())
    return {
        "live-map": maps, "batch-map": maps, "live-state": states, "batch-state": states, "live-counts": len(good),
        "live-expiry": ages, "batch-expiry": ages,
    }  # fmt: skip


def test_results_are_those_of_micro_batches_over_kills_and_a_restart(wire: Wire, home: Path) -> None:
    events = wire.topic("events")
    outs = {name: wire.topic(f"{name}-out") for name in BODIES}
    dead = {
        name: f"{outs[name]}.dead-letters" if name.startswith("live") else f"python-{wire.tag}-{name}.dead-letters"
        for name in BODIES
    }
    others = workers()

    def send(numbers: range) -> None:
        for partition in (0, 1):
            wire.send(events, [record(n) for n in numbers if n % 5 % 2 == partition], partition=partition)

    def await_all(query: Query, numbers: range) -> None:
        for name, count in due(numbers).items():
            await_one(query, partial(_has, wire, outs[name], count), f"results of {name}")
            letters = expected_counts(numbers)[1] if name.endswith("expiry") else len(numbers) // 10
            await_one(query, partial(_has, wire, dead[name], letters), f"dead letters of {name}")

    query = run_here(application(wire, home), Connection.of(wire.bootstrap), create_topics=True)
    try:
        send(range(100))
        await_one(query, partial(_has, wire, outs["live-map"], due(range(100))["live-map"]), "live results")
        send(range(100, 400))
        half = due(range(250))
        for name in ("live-map", "live-state"):
            await_one(query, partial(_has, wire, outs[name], half[name]), f"more results of {name}")
        await_one(query, lambda: len(workers(others)) == 8, "a process for each task that calls Python")
        for each in workers(others):
            os.kill(each.pid, signal.SIGKILL)
        await_all(query, range(400))
        assert not ended_incarnations(query), "no region has noticed"
        await_checkpoints(query)
    finally:
        query.stop()
    send(range(400, 500))
    query = run_here(application(wire, home), Connection.of(wire.bootstrap), create_topics=True)
    try:
        await_all(query, range(500))
    finally:
        query.stop()
    found = {name: Counter(map(str, wire.rows(outs[name]))) for name in BODIES}
    assert {name: sum(found[name].values()) for name in BODIES} == due(range(500))
    told = {name: wire.rows(dead[name]) for name in BODIES}
    for kind in ("map", "state", "expiry"):
        live, batch = f"live-{kind}", f"batch-{kind}"
        assert found[live] == found[batch]
        one, other = (Counter((row["reason"], row["value"]) for row in told[name]) for name in (live, batch))
        assert one == other
        failures = [row for row in told[live] if row["reason"] != "late"]
        assert all("Traceback" in row["traceback"] and row["topic"] == events for row in failures)
    ages = Counter((row["id"], row["n"], row["count"]) for row in wire.rows(outs["live-expiry"]))
    assert ages == expected_counts(range(500))[0]
    assert any(row["reason"] == "late" for row in told["live-expiry"])
    assert sum(count == 1 for _, _, count in ages) > 10, "states have expired"
    counts = Counter((row["id"], row["twice"]) for row in wire.rows(outs["live-counts"]))
    assert counts == {(f"k{key}", 2 * count): 1 for key in range(5) for count in range(1, 101) if count % 10 != 7}
    said = {name: {row.get("resend") for row in told[name]} for name in BODIES}
    # Live, a step before the function of `live-counts` has counted the record. An `explode` after a step says nothing.
    expected = {name: {"safe" if name.startswith("live") else None} for name in BODIES}
    expected["live-counts"] = {"had_effect"}
    assert said == expected
    _send_again(wire, home, told)


def _send_again(wire: Wire, home: Path, told: dict[str, list[dict[str, Any]]]) -> None:
    """Send the dead letters of live functions again, and check that each of their records is in its topic twice."""
    app, connection = application(wire, home), Connection.of(wire.bootstrap)
    before = Counter(map(str, wire.rows(f"events-{wire.tag}")))
    with open_home(home, app.name) as opened:
        shape = recorded_shape(opened.data)
        known = set[tuple[int, int]]()
        for name in ("live-counts", "live-map", "live-state", "live-expiry"):
            mine = set() if name == "live-counts" else {(row["partition"], row["offset"]) for row in told[name]}
            report = send_again(app, opened, shape, connection, named=name)
            refused = len(told[name]) if name == "live-counts" else 0
            assert (report["sent"], report["had_effect"]) == (len(mine - known), refused), name
            known |= mine
    places = {
        (r.partition, r.place.offset): str(json.loads(r.value or b"null")) for r in wire.records(f"events-{wire.tag}")
    }
    expected = before + Counter(places[place] for place in known)
    assert Counter(map(str, wire.rows(f"events-{wire.tag}"))) == expected
    assert len(known) > 50


def _has(wire: Wire, topic: str, count: int) -> bool:
    return wire.count(topic) >= count


def test_a_refused_record_ends_the_region(wire: Wire, home: Path) -> None:
    events, out = wire.topic("events"), wire.topic("out")
    app = fk.App(f"refused-{wire.tag}", home=home)
    app.source("events", fk.Kafka(events, schema=SCHEMA))

    @app.stream(fk.Lazy("60 seconds"))
    def live(events: fk.Stream) -> fk.Stream:
        return events.map_rows(spread, returns=RETURNS, poison="fail")

    app.sink("out", live, fk.Kafka(out))
    wire.send(events, [record(1), record(17)])
    query = run_here(app, Connection.of(wire.bootstrap), create_topics=True)
    try:
        error: FalkirkError = failed(query)
    finally:
        query.stop()
    assert error.condition == "FUNCTION_FAILED"
    assert '"n": 17' in str(error)
    assert "ValueError: no 17" in str(error)
    assert "test_live_python.py" in str(error.where)
