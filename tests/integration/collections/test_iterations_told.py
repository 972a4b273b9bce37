"""Loops that stop at their limit: the history of an application reports them until they have converged."""

import logging
import os
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.declare.parts import UNFINISHED
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from falkirk.steps.batch import iteration
from falkirk.steps.differential import Collection, connected_components
from falkirk.steps.differential.flow import Flow
from falkirk.steps.differential.single_task import ALONE_MAX
from falkirk.steps.differential.state import LoopState
from falkirk.user_tools.commands.history.application import OfflineApplication
from tests.integration.changing import Row, added, taken
from tests.integration.epochs.test_batches import Table
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATH: list[Row] = [(n, n + 1) for n in range(6)]
STAR: list[Row] = [(20, 21 + n) for n in range(len(PATH))]
#: The changes of each epoch, and whether the loop has converged after it. Two rounds are enough for a star, and for no
#: edges; a path needs more.
EPOCHS: list[tuple[list[Row], bool]] = [
    (added(PATH), False),
    (added(STAR), False),
    ([(30, 31, 1), (30, 31, -1)] * (len(PATH) // 2), False),
    (taken(PATH), True),
    (taken(STAR), True),
]


def drop_the_mark(patch: pytest.MonkeyPatch) -> None:
    """Record no loops that were cut short from now on."""
    record = EpochLog.record

    def recorded(log: EpochLog, number: int, *, marks: Any = None, **options: Any) -> None:
        record(log, number, marks={m: n for m, n in (marks or {}).items() if m != UNFINISHED}, **options)

    patch.setattr(EpochLog, "record", recorded)


def forget_what_was_left_out(patch: pytest.MonkeyPatch) -> None:
    """Hide from each epoch which loops were cut short in former epochs."""
    text = LoopState.text
    patch.setattr(LoopState, "text", lambda state: text(replace(state, cut_short={})))


#: The planted faults, and the number of epochs in which each shows.
OFF = {
    "": (lambda _: None, len(EPOCHS)), "not marked": (drop_the_mark, 1), "not kept": (forget_what_was_left_out, 2),
}  # fmt: skip


#: One task instead of jobs is a soak: `test_differential_loops.py` has a loop that is cut short, with both.
ONE_TASK = [(ALONE_MAX, "")] if "FALKIRK_STRIKES" in os.environ else []


@pytest.mark.parametrize(("alone", "off"), [*ONE_TASK, (0, ""), (ALONE_MAX, "not marked"), (0, "not kept")])
def test_a_loop_that_was_cut_short_is_told_of_until_it_has_come_to_rest(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, alone: int, off: str,
) -> None:  # fmt: skip
    """This includes epochs whose changes are unrelated to those left out, and epochs without work for the loop."""
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
    topic, changes = wire.topic("edges"), Table(database, f"changes_{tag}")
    monkeypatch.setattr(iteration, "Flow", partial(Flow, alone=alone))
    switch_off, count = OFF[off]
    switch_off(monkeypatch)
    epochs = EPOCHS[:count]
    app = fk.App("graph", home=home, history=len(EPOCHS) + 1)
    app.source("edges", fk.Kafka(topic, schema="src LONG NOT NULL, dst LONG NOT NULL, difference INT"))

    @app.iterate(rows=len(PATH), rounds=2)
    def components(edges: Collection) -> Collection:
        return connected_components(edges)

    app.sink("changes", components, fk.Sql(database, f"changes_{tag}"))

    def released() -> Counter[Row]:
        found: Counter[Row] = Counter()
        for row in changes.rows():
            found[row["node"], row["component"]] += row["difference"]
        return Counter({row: often for row, often in found.items() if often})

    with caplog.at_level(logging.WARNING, "falkirk"):
        query = run_here(app, Connection.of(broker.bootstrap))
        try:
            for number, (rows, _) in enumerate(epochs):
                wire.send(topic, [{"src": a, "dst": b, "difference": often} for a, b, often in rows])

                def is_complete(number: int = number) -> bool:
                    assert query.isActive, query.exception()
                    return query.status[0].last_commit >= number

                wait_until(is_complete, 120, f"epoch {number}: {query.status}")
                if number == 0:
                    two_rounds = Counter((n, max(0, n - 2)) for n in range(len(PATH) + 1))
                    wait_until(lambda wanted=two_rounds: released() == wanted, 60, "what two rounds have come to")  # type: ignore[misc]
            if not off:
                wait_until(lambda: not released(), 60, "all that has gone to be taken back")
        finally:
            query.stop()
    with open_home(home, app.name) as opened:
        visit = OfflineApplication(app, opened, Connection.of(broker.bootstrap), runs=False, history=app.history)
        told = [past.checkpoint.detail for past in visit.history() if past.checkpoint.number >= 0]
    assert len(told) == count
    assert all(re.search(r"\b\d+ rounds\b", detail) for detail in told), told
    assert ([detail.startswith("converged") for detail in told] == [rests for _, rests in epochs]) is (not off), told
    if not off:
        warned = [text for text in caplog.messages if "did not converge" in text]
        assert len(warned) == sum(not rests for _, rests in epochs), warned
