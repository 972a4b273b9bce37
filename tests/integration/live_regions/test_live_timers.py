"""Timers of states, and states that expire, live and in micro-batches, over kills of processes, a query that ends with
results behind its checkpoint, and a restart.

One application has the same steps on both engines. Another one has them twice live: without expiry, and without timers.
These two faults must show. The judge is a model in plain Python. A third processor of the first application has timers
by a clock, which the test sets forward and back. Before its restart, the times of that clock are lost.
"""

import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.declare.policy import DEFAULT_POLICY
from falkirk.declare.watermark import Watermark
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.runtime.supervision import host
from falkirk.runtime.supervision.clocks import Clocks
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from falkirk.steps.live.python_steps import PythonStep
from tests.duplicates import BEGAN, drawn
from tests.integration.live import Wire, await_checkpoints, await_one, fail_behind_a_checkpoint
from tests.support import children_with
from tests.timers import Model, clocked, clocked_results, ended, letters, remembered, results, without

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 300
#: The planted fault of each processor, and the option that tells the processors apart.
MODELS = {
    "live": ("", "60 seconds"), "micro": ("", "60 seconds"), "unexpired": ("expiry", "61 seconds"),
    "untimed": ("timers", "62 seconds"),
}  # fmt: skip
#: The processor with timers by the clock, and the seconds that a clock of the test goes forward and back.
CLOCKED, FORWARD_S = "clocked", 1_000_000
ENGINES, FAULTY = ("live", "micro"), ("unexpired", "untimed")


@pytest.fixture
def wire(spark: "SparkSession", broker: Broker, tag: str) -> Wire:
    """Topics of the test's own on the broker; there is a session."""
    return Wire(bootstrap=broker.bootstrap, tag=tag)


@cache
def application(wire: Wire, home: Path, names: tuple[str, ...]) -> fk.App:
    """Return an application of these processors."""
    app = fk.App(f"timers-{wire.tag}", home=home)
    app.source("clicks", fk.Kafka(f"clicks-{wire.tag}", schema="id STRING NOT NULL, at TIMESTAMP, n INT", key="id"))
    for name in names:
        if name == CLOCKED:
            app.source("clock", fk.Clock("0.2 seconds"))
            app.add_processor(name, clocked, reads=("clicks", "clock"), policy=fk.Lazy("2 seconds"))
            app.sink(f"{name}-out", name, fk.Kafka(f"{name}-out-{wire.tag}", key="id"))
            continue
        timeout = MODELS[name][1]
        policy, engine = (DEFAULT_POLICY, "micro-batch") if name == "micro" else (fk.Lazy("5 seconds"), "live")
        body = partial(remembered, timeout=timeout)
        app.add_processor(name, body, reads=("clicks",), policy=policy, engine=engine)  # type: ignore[arg-type]
        app.sink(f"{name}-out", name, fk.Kafka(f"{name}-out-{wire.tag}", key="id"))
    return app


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch off what makes states expire, or timers fire, in the processors with these faults."""
    right = PythonStep.state_times
    faults = {timeout: without(fault) for fault, timeout in MODELS.values() if fault}

    def planted(step: PythonStep, watermark: Watermark) -> Any:
        return faults.get(step.options["timeout"], right)(step, watermark)

    monkeypatch.setattr(PythonStep, "state_times", planted)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the clocks of applications, in seconds: a list of one, which a test changes."""
    now_s = [BEGAN.timestamp()]
    monkeypatch.setattr(host, "Clocks", partial(Clocks, now_s=lambda: now_s[0]))
    return now_s


def dead_letters(wire: Wire, name: str) -> str:
    return f"timers-{wire.tag}-micro.dead-letters" if name == "micro" else f"{name}-out-{wire.tag}.dead-letters"


def has(wire: Wire, topic: str, count: int) -> bool:
    return wire.count(topic) >= count


def await_all(wire: Wire, query: Query, names: Sequence[str], read: Mapping[int, list[dict[str, Any]]]) -> None:
    """Wait for all results and dead letters of these processors."""
    for name in names:
        due = Model(fault=MODELS[name][0]).read(read)
        await_one(query, partial(has, wire, f"{name}-out-{wire.tag}", due.results.total()), f"results of {name}")
        await_one(query, partial(has, wire, dead_letters(wire, name), due.letters.total()), f"dead letters of {name}")


def judge(wire: Wire, name: str, read: Mapping[int, list[dict[str, Any]]]) -> Model:
    """Check that a processor has given the results of its model; return the model."""
    due = Model(fault=MODELS[name][0]).read(read)
    assert results(wire.rows(f"{name}-out-{wire.tag}")) == due.results, name
    assert letters(wire.rows(dead_letters(wire, name))) == due.letters, name
    return due


def await_clocked(wire: Wire, query: Query, due: int) -> None:
    """Wait for as many results of the processor with timers by the clock, and check that there are no more."""
    topic = f"{CLOCKED}-out-{wire.tag}"
    await_one(query, partial(has, wire, topic, due), f"{due} results of {CLOCKED}")
    assert wire.count(topic) == due


def await_two_commits(query: Query) -> None:
    """Wait until a batch of the region with timers by the clock has ended that began after now."""

    def commit() -> int:
        return next(region.last_commit for region in query.status if region.name == f"{CLOCKED}-out")

    before = commit()
    await_one(query, lambda: commit() > before + 1, "two commits")


def delete_times(wire: Wire) -> None:
    """Delete all times of the clock, as while the region is left out of the application and another one reads them."""
    topics = Topics(Connection.of(wire.bootstrap))
    (topic,) = (
        name for name in topics.names() if name.startswith(f"falkirk.timers-{wire.tag}.") and name.endswith(".clock")
    )
    topics.delete_below(topic, topics.end_positions(topic))


def test_both_engines_give_the_results_of_the_model(wire: Wire, home: Path, clock: list[float]) -> None:
    records = ended(drawn(7, RECORDS, ids=10))
    clicks, live = wire.topic("clicks"), wire.topic("live-out")
    wire.topic("micro-out")
    wire.topic("clocked-out")
    app = application(wire, home, (*ENGINES, CLOCKED))

    def send(first: float, end: float) -> None:
        for partition, mine in records.items():
            wire.send(clicks, mine[round(len(mine) * first) : round(len(mine) * end)], partition=partition)

    def send_more() -> Callable[[], object]:
        sent.append(sent[-1] + 0.1)
        send(*sent[-2:])
        return partial(has, wire, live, Model().read(until(sent[-1])).results.total())

    def until(end: float) -> dict[int, list[dict[str, Any]]]:
        return {partition: mine[: round(len(mine) * end)] for partition, mine in records.items()}

    sent = [0.3]
    query = run_here(app, Connection.of(wire.bootstrap), create_topics=True)
    try:
        send(0, 0.3)
        await_one(query, partial(has, wire, live, Model().read(until(0.3)).results.total()), "live results")
        for each in children_with("row_worker"):
            os.kill(each.pid, signal.SIGKILL)
        fail_behind_a_checkpoint(query, "live-out", send_more)
        next(each for each in query.queries if (each.name or "").endswith(f".{CLOCKED}-out")).stop()
        parts = [[each for mine in until(sent[-1]).values() for each in mine], []]
        parts[1] = [each for mine in records.values() for each in mine if each not in parts[0]]
        await_all(wire, query, ENGINES, until(sent[-1]))
        await_clocked(wire, query, len(parts[0]))
        await_checkpoints(query)
    finally:
        query.stop()
    delete_times(wire)
    clock[0] += FORWARD_S
    fired = [clocked_results(parts[:1]).total(), clocked_results(parts).total()]
    query = run_here(app, Connection.of(wire.bootstrap), create_topics=True)
    try:
        await_clocked(wire, query, fired[0])  # no record has come since the timers were set
        clock[0] -= FORWARD_S
        await_two_commits(query)  # the region has read that the clock was set back
        send(sent[-1], 1)
        await_all(wire, query, ENGINES, records)
        await_clocked(wire, query, fired[0] + len(parts[1]))
        clock[0] += FORWARD_S
        await_clocked(wire, query, fired[1])
    finally:
        query.stop()
    assert results(wire.rows(f"{CLOCKED}-out-{wire.tag}")) == clocked_results(parts)
    right, _ = (judge(wire, name, records) for name in ENGINES)
    with_timers = [timer for *_, timer in right.results.elements() if timer is not None]
    assert len(with_timers) > 50
    assert {kind for kind, _, _ in right.letters} == {"unfit", "late", "row failed", "timer failed"}
    failures = [
        sorted((row["reason"], row["value"]) for row in wire.rows(dead_letters(wire, name)) if row.get("traceback"))
        for name in ENGINES
    ]
    assert failures[0] == failures[1]
    # A record that failed, or has no suitable time, has had no other effect. No record gave a timer that failed.
    told = [(json.loads(row["value"]), row.get("resend")) for row in wire.rows(dead_letters(wire, ENGINES[0]))]
    assert {("timer" in value, resend) for value, resend in told} == {(False, "safe"), (True, None)}


@pytest.mark.usefixtures("faults")
def test_without_expiry_and_without_timers_the_results_are_others(wire: Wire, home: Path) -> None:
    records = ended(drawn(7, RECORDS, ids=10))
    clicks = wire.topic("clicks")
    for partition, mine in records.items():
        wire.send(clicks, mine, partition=partition)
    query = run_here(application(wire, home, FAULTY), Connection.of(wire.bootstrap), create_topics=True)
    try:
        await_all(wire, query, FAULTY, records)
    finally:
        query.stop()
    for name in FAULTY:
        assert judge(wire, name, records).results != Model().read(records).results
