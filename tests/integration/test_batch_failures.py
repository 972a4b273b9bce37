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
from falkirk.local.broker import Broker
from tests.integration.batches import ROWS, application
from tests.integration.cutting import Place, run_until_cut_off
from tests.integration.live import Wire
from tests.integration.test_batches import WORDS, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Of the random walk, at least so many.
STEPS = 6
#: What is called, and whether it is cut off before or behind it.
PLACES: dict[str, Place] = {
    "written, not recorded": (EpochLog, "record", False),
    "recorded, not released": (EpochLog, "record", True),
    "in a topic, not in the table": (TableTarget, "deliver", False),
    "released, not recorded": (Store, "record_release", False),
    "deleted, not forgotten": (Store, "forget_epochs", False),
}


def test_cut_off_between_any_two_writes(spark: "SparkSession", broker: Broker, home: Path, tag: str) -> None:
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
        app = application(tag, home, database, policy=policy)
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
    steps = sorted(walk.rows(), key=lambda r: int(r["n"]))
    assert len(steps) >= STEPS
    assert [r["n"] for r in steps] == list(range(1, len(steps) + 1)), "a step is there once"
    for before, after in zip([{"x": 0.0}, *steps], steps, strict=False):
        assert after["x"] == pytest.approx(before["x"] + after["step"]), "what was released was contradicted"
