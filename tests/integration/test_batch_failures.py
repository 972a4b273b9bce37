"""Batches that are cut off between any two writes: what was decided is done, what was recorded stays, what was released
is not released again, and draws that nobody saved were seen by nobody."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.coordinator.store import Store
from falkirk.epochs.log import EpochLog
from falkirk.epochs.targets import TableTarget
from falkirk.errors import InternalError
from falkirk.local.broker import Broker
from falkirk.logs.connection import Connection
from falkirk.query import run_here
from tests.integration.batches import ROWS, application
from tests.integration.live import Wire
from tests.integration.test_batches import WORDS, Table
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Of the random walk, at least so many.
STEPS = 6
#: What is called, and whether it is cut off before or behind it.
PLACES: dict[str, tuple[type, str, bool]] = {
    "written, not recorded": (EpochLog, "record", False),
    "recorded, not released": (EpochLog, "record", True),
    "in a topic, not in the table": (TableTarget, "deliver", False),
    "released, not recorded": (Store, "record_release", False),
    "deleted, not forgotten": (Store, "forget_epochs", False),
}


def cut_off_at(place: str, patch: pytest.MonkeyPatch) -> None:
    """Make the next call of a place the last thing that happens."""
    owner, name, behind = PLACES[place]
    real = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        if behind:
            real(*arguments, **options)
        raise InternalError("CUT_OFF", place)

    patch.setattr(owner, name, call)


def test_cut_off_between_any_two_writes(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
    events, queries = wire.topic("events"), wire.topic("queries")
    weights, answers = wire.topic("weights"), wire.topic("answers")
    totals, answered, walk = (Table(database, f"{name}_{tag}") for name in ("totals", "answered", "walk"))
    sent: Counter[str] = Counter()
    asked = 0

    def work() -> None:
        nonlocal asked
        words = [WORDS[i % len(WORDS)] for i in range(2 * ROWS)]
        sent.update(words)
        wire.send(events, [{"word": w, "n": i} for i, w in enumerate(words)])
        wire.send(queries, [{"id": asked + i, "word": WORDS[i]} for i in range(3)])
        asked += 3

    def run(place: str | None) -> None:
        policy = fk.Lazy(when=lambda epoch: epoch % 3 == 2)
        with monkeypatch.context() as patch:
            query = run_here(application(tag, home, database, policy=policy), Connection.of(broker.bootstrap))
            if place is not None:
                cut_off_at(place, patch)
            work()
            try:
                wait_until(
                    lambda: _is_done(query) if place is None else not query.isActive, 120, f"{place}: {query.status}"
                )
            finally:
                query.stop()
            error = query.exception()
            assert place is None or (isinstance(error, InternalError) and error.condition == "CUT_OFF"), error

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
    steps = sorted(walk.rows(), key=lambda r: int(r["n"]))
    assert len(steps) >= STEPS
    assert [r["n"] for r in steps] == list(range(1, len(steps) + 1)), "a step is there once"
    for before, after in zip([{"x": 0.0}, *steps], steps, strict=False):
        assert after["x"] == pytest.approx(before["x"] + after["step"]), "what was released was contradicted"
