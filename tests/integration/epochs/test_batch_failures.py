"""Batches that are interrupted between any two writes: decisions are carried out, recorded epochs stay, released epochs
are not released again, and no reader has seen a random value that was not saved."""

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.errors import SparkError
from falkirk.kafka_client.connection import Connection
from falkirk.plan.batch import Batch
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.epochs.jobs import EpochJobs
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.sinks.table import TableTarget
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from tests.integration.batches import ROWS, application, walking
from tests.integration.cutting import Place, run_until_cut_off
from tests.integration.epochs.test_batches import WORDS, Table
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The least number of steps of the random walk.
STEPS = 6
#: The calls at which the run is interrupted, and whether before or after the call.
PLACES: dict[str, Place] = {
    "written, not recorded": (EpochLog, "record", False),
    "recorded, not released": (EpochLog, "record", True),
    "in a topic, not in the table": (TableTarget, "deliver", False),
    "released, not recorded": (Store, "record_release", False),
    "deleted, not forgotten": (Store, "forget_epochs", False),
}


def test_cut_off_between_any_two_writes(spark: "SparkSession", broker: Broker, home: Path, tag: str) -> None:
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
    events, more, queries = wire.topic("events"), wire.topic("more"), wire.topic("queries")
    weights, answers = wire.topic("weights"), wire.topic("answers")
    totals, answered, walk = (Table(database, f"{name}_{tag}") for name in ("totals", "answered", "walk"))
    sent: Counter[str] = Counter()
    asked = 0

    def work() -> None:
        nonlocal asked
        words = [WORDS[i % len(WORDS)] for i in range(2 * ROWS)]
        sent.update(words)
        rows = [{"word": w, "n": i} for i, w in enumerate(words)]
        wire.send(events, rows[::2])
        wire.send(more, rows[1::2])
        wire.send(queries, [{"id": asked + i, "word": WORDS[i]} for i in range(3)])
        asked += 3

    policy = fk.Lazy(when=lambda epoch: epoch % 3 == 2)  # one for all runs, or each would plan its application anew

    def run(place: str | None) -> None:
        topics = ("events", "more") if len(place or "") % 2 else ("more", "events")  # the order of a list may change
        app = application(tag, home, database, policy=policy, topics=topics)
        run_until_cut_off(app, broker, None if place is None else PLACES[place], work, _is_done)

    def _is_done(query: Any) -> bool:
        assert query.isActive, query.exception()
        there = {r["word"]: r["total"] for r in totals.rows()} == dict(sent) and len(answered.rows()) >= asked
        there = there and sum(r["weight"] for r in wire.rows(weights)) >= sent.total()
        if there and len(walk.rows()) < STEPS:
            work()  # the walk's steps leave when an epoch is saved
            return False
        return there

    for place in PLACES:
        run(place)
    run(None)
    found = {r["id"]: r for r in wire.rows(answers)}
    assert sorted(r["id"] for r in wire.rows(answers)) == list(range(asked)), "each query is answered once"
    assert found == {r["id"]: r for r in answered.rows()}, "the sinks of one processor contradict each other"
    counted: Counter[str] = Counter()
    for row in wire.rows(weights):
        counted[row["word"]] += row["weight"]
    assert counted == sent
    assert len(walk.rows()) >= STEPS
    assert_walk(walk)


def assert_walk(walk: Table) -> None:
    """Assert that each step occurs once, and begins where the one before has ended."""
    steps = sorted(walk.rows(), key=lambda r: int(r["n"]))
    assert [r["n"] for r in steps] == list(range(1, len(steps) + 1)), "a step is there once"
    for before, after in zip([{"x": 0.0}, *steps], steps, strict=False):
        assert after["x"] == pytest.approx(before["x"] + after["step"]), "what was released was contradicted"


def test_a_state_that_is_in_no_file_is_not_drawn_again_under_recorded_results(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch fails in Spark, so that the data in its memory may be lost: the application starts again, and
    invalidates the results that depend on them, before it computes other random values."""
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
    events = wire.topic("events")
    walk, real = Table(database, f"walk_{tag}"), EpochJobs.compute

    def failing(region: EpochJobs, epoch: Any, *arguments: Any) -> Any:
        if region.batch.name == "walk" and epoch.number == 5:
            raise SparkError("JOB_FAILED", "an executor is gone.")
        return real(region, epoch, *arguments)

    def work(steps: int) -> None:
        for _ in range(steps):
            wire.send(events, [{"word": "ash", "n": n} for n in range(ROWS)])

    policy = fk.Lazy(when=lambda epoch: epoch % 4 == 3)  # epoch 3 is saved, epoch 4 is not
    with monkeypatch.context() as patch:
        patch.setattr(EpochJobs, "compute", failing)
        query = run_here(walking(tag, home, database, policy=policy), Connection.of(broker.bootstrap))
        work(6)
        try:
            wait_until(lambda: not query.isActive, 120, "the failure")
        finally:
            query.stop()
        error = query.exception()
        assert isinstance(error, SparkError)
        assert error.condition == "SESSION_LOST"

    def is_done(query: Any) -> bool:
        assert query.isActive, query.exception()
        if len(walk.rows()) < STEPS:
            work(1)
        return len(walk.rows()) >= STEPS

    run_until_cut_off(walking(tag, home, database, policy=policy), broker, None, lambda: None, is_done)
    assert_walk(walk)


#: A state is saved because nothing has come at which it would be.
AT_REST: dict[str, Place] = {
    "written, not recorded": (EpochLog, "record_state", False),
    "recorded, not acted upon": (EpochLog, "record_state", True),
}


@pytest.fixture
def never_with_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long an epoch takes, no state is due at its end: states are saved only at rest."""
    monkeypatch.setattr(Batch, "saves", lambda *_: False)


@pytest.mark.usefixtures("never_with_an_epoch")
def test_cut_off_while_a_state_is_saved_at_rest(spark: "SparkSession", broker: Broker, home: Path, tag: str) -> None:
    """A policy by the clock, and too little input to save a state: random values are published all the same."""
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
    events = wire.topic("events")
    walk = Table(database, f"walk_{tag}")
    sent = 0

    def work() -> None:
        nonlocal sent
        for _ in range(3):
            wire.send(events, [{"word": "ash", "n": n} for n in range(ROWS)])
            sent += 1

    for place in (*AT_REST.values(), None):
        app = walking(tag, home, database, policy=fk.Lazy("4 seconds"))
        run_until_cut_off(app, broker, place, work, lambda query: query.isActive and len(walk.rows()) == sent - 1)
    assert_walk(walk)


@pytest.mark.usefixtures("never_with_an_epoch")
@pytest.mark.parametrize("by_the_clock", [True, False])
def test_what_waits_for_a_saved_state_does_not_wait_for_input(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, by_the_clock: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not by_the_clock:
        monkeypatch.setattr(Batch, "saves_at_rest", lambda *_: False)
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
    events = wire.topic("events")
    walk = Table(database, f"walk_{tag}")
    query = run_here(walking(tag, home, database, policy=fk.Lazy("1 second")), Connection.of(broker.bootstrap))
    made = query._home.store

    def waiting() -> list[Any]:
        return [c for c in made.checkpoints("walk") if not c.metadata["saved"]]

    try:
        for sent in range(1, 4):
            wire.send(events, [{"word": "ash", "n": n} for n in range(ROWS)])
            wait_until(
                lambda sent=sent: [c for c in made.checkpoints("walk") if c.number == sent - 1], 60, f"epoch {sent}"
            )
        last = made.checkpoints("walk")[-1]
        wait_until(lambda: not waiting() or time.time() > last.made_at_s + 3, 60, "three intervals")
        if by_the_clock:
            wait_until(lambda: len(walk.rows()) == 2, 60, f"what was drawn: {query.status}")
        assert (len(walk.rows()) == 2) is by_the_clock
    finally:
        query.stop()
