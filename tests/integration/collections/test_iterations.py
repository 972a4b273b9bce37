"""Iterations in an application, on real Spark and Kafka: incremental results, interruptions, rollback on request."""

import json
import os
import random
import threading
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import pytest

import falkirk as fk
from falkirk.errors import InternalError
from falkirk.kafka_client.connection import Connection
from falkirk.platform import durable
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store.values import CheckpointRecord
from falkirk.recovery.ownership.folder import Home, open_home
from falkirk.runtime.spark import retry
from falkirk.runtime.spark.epochs.inputs import Inputs
from falkirk.runtime.spark.epochs.jobs import EpochJobs
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.runtime.spark.epochs.run import Run
from falkirk.runtime.spark.epochs.runner import EpochRunner
from falkirk.runtime.spark.epochs.states import States
from falkirk.runtime.spark.sinks.table import TableTarget
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from falkirk.steps.batch.in_epoch import BatchState
from falkirk.steps.differential import Collection, connected_components
from falkirk.steps.differential.jobs import Jobs
from falkirk.user_tools.commands.history.application import OfflineApplication
from tests.dying import opening_notes
from tests.integration.cutting import Place, cut_off_at, run_until_cut_off
from tests.integration.epochs.test_batches import Table
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NODES = 12
EDGES = 10


@cache
def application(tag: str, home: Path, database: str, *, policy: fk.Lazy | None = None) -> fk.App:
    """Return an application with incremental components, and the greatest number of edges that leave a node."""
    app = fk.App("graph", home=home, history=3)
    app.source("edges", fk.Kafka(f"edges-{tag}", schema="src LONG NOT NULL, dst LONG NOT NULL, difference INT"))

    @app.iterate(rows=EDGES, policy=policy)
    def components(edges: Collection) -> Collection:
        return connected_components(edges)

    @app.iterate(rows=EDGES, sends="all")
    def degrees(edges: Collection) -> Collection:
        return edges.groupBy("src").count("degree")

    @app.batch(every="1 second")
    def largest(components: "DataFrame", degrees: fk.View) -> "DataFrame":
        largest: Any = degrees
        return largest.agg({"degree": "max"}).withColumnRenamed("max(degree)", "largest")

    app.sink("changes", components, fk.Sql(database, f"changes_{tag}"))
    app.sink("largest", largest, fk.Sql(database, f"largest_{tag}"))
    return app


class Edges:
    """Random edges that are added and removed, with a fixed seed."""

    def __init__(self, wire: Wire, topic: str) -> None:
        self._wire, self._topic, self._random = wire, topic, random.Random(7)
        self.there: Counter[tuple[int, int]] = Counter()

    def change(self, count: int) -> None:
        """Add and remove edges."""
        rows = []
        for _ in range(count):
            there = sorted(self.there.elements())
            if there and self._random.random() < 0.4:
                edge, sign = self._random.choice(there), -1
            else:
                edge, sign = (self._random.randrange(NODES), self._random.randrange(NODES)), 1
            self.there[edge] += sign
            rows.append({"src": edge[0], "dst": edge[1], "difference": sign})
        self._wire.send(self._topic, rows)

    def components(self) -> set[tuple[int, int]]:
        """Return each node with the least node of its component."""
        graph = nx.Graph(list((+self.there).elements()))
        return {(node, min(part)) for part in nx.connected_components(graph) for node in part}


def released(changes: Table) -> Counter[tuple[int, int]]:
    """Return the sum of all published changes."""
    found: Counter[tuple[int, int]] = Counter()
    for row in changes.rows():
        found[row["node"], row["component"]] += row["difference"]
    return Counter({row: n for row, n in found.items() if n})


#: The method at which a run is interrupted; False: before the call, True: after it.
PLACES: dict[str, Place] = {
    "between rounds": (Jobs, "flush", True),
    "done by one task": (Jobs, "_go_alone", True),
    "rounds done, state not written": (States, "write", False),
    "state written, not recorded": (EpochLog, "record", False),
    "recorded, files not swept": (States, "sweep", False),
    "released, not noted": (TableTarget, "deliver", True),
}
if "FALKIRK_STRIKES" not in os.environ:  # releases are those of other batches: test_batch_failures.py
    del PLACES["released, not noted"]


def test_each_epoch_counts_once_whatever_is_cut_off(
    spark: "SparkSession", broker: Broker, home: Path, tag: str
) -> None:
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
    edges, changes = Edges(wire, wire.topic("edges")), Table(database, f"changes_{tag}")
    largest = Table(database, f"largest_{tag}")
    policy = fk.Lazy(when=lambda epoch: epoch % 2 == 1)  # an epoch that is not saved, and one that is

    def run(place: Place | None) -> None:
        def is_done(query: Any) -> bool:
            assert query.isActive, query.exception()
            there = released(changes) == Counter(dict.fromkeys(edges.components(), 1))
            if not there:
                return False
            degrees = Counter(src for src, _ in edges.there.elements())
            rows = largest.rows()
            return bool(rows) and rows[-1]["largest"] == max(degrees.values())

        app = application(tag, home, database, policy=policy)
        run_until_cut_off(app, broker, place, lambda: edges.change(2 * EDGES), is_done)

    for place in PLACES.values():
        run(place)
    run(None)
    assert set(released(changes).values()) == {1}


@pytest.mark.parametrize("ahead", [True, False])
def test_the_next_input_is_taken_in_and_others_get_on_while_rounds_go_on(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    """Without the epoch that a run decides ahead, the input would wait for the last round."""
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
    topic, events = wire.topic("edges"), wire.topic("events")
    edges, changes, seen = Edges(wire, topic), Table(database, f"changes_{tag}"), Table(database, f"seen_{tag}")
    taken, in_round, goes_on = threading.Event(), threading.Event(), threading.Event()
    flush, take_in, begin = Jobs.flush, EpochJobs.take_in, Run.__init__

    def one_by_one(run: Run, runner: EpochRunner) -> None:
        begin(run, runner)
        run._ahead = run._at_once

    def held(jobs: Jobs) -> None:
        flush(jobs)
        in_round.set()
        goes_on.wait()

    def taking(region: EpochJobs, epoch: Epoch, group: str) -> Inputs:
        found = take_in(region, epoch, group)
        assert epoch.number == 1
        taken.set()
        return found

    monkeypatch.setattr(Jobs, "flush", held)
    monkeypatch.setattr(EpochJobs, "take_in", taking)
    if not ahead:
        monkeypatch.setattr(Run, "__init__", one_by_one)
    app = fk.App("graph", home=home)
    app.source("edges", fk.Kafka(topic, schema="src LONG NOT NULL, dst LONG NOT NULL, difference INT"))
    app.source("events", fk.Kafka(events, schema="n INT NOT NULL"))

    @app.iterate(rows=EDGES)
    def components(edges: Collection) -> Collection:
        return connected_components(edges)

    @app.batch(rows=1)
    def passed(events: "DataFrame") -> "DataFrame":
        return events

    app.sink("changes", components, fk.Sql(database, f"changes_{tag}"))
    app.sink("seen", passed, fk.Sql(database, f"seen_{tag}"))
    query = run_here(app, Connection.of(broker.bootstrap))
    try:
        edges.change(EDGES)
        assert in_round.wait(120), query.status
        edges.change(EDGES)
        for number in range(1, 6):  # each is an epoch, which begins when the former one is published
            wire.send(events, [{"n": number}])
            wait_until(lambda n=number: len(seen.rows()) == n, 60, f"the event: {query.status}")  # type: ignore[misc]
        assert taken.wait(120 if ahead else 0) is ahead, query.status
        assert not changes.rows(), "the epoch before it is still in its rounds"
        goes_on.set()

        def is_done() -> bool:
            assert query.isActive, query.exception()
            return released(changes) == Counter(dict.fromkeys(edges.components(), 1))

        wait_until(is_done, 120, f"the components: {query.status}")
    finally:
        goes_on.set()
        query.stop()


def test_an_epoch_is_taken_back_and_done_again(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, tmp_path: Path
) -> None:
    wire, folder = Wire(bootstrap=broker.bootstrap, tag=tag), tmp_path / "parts"
    edges = Edges(wire, wire.topic("edges"))
    app = fk.App("graph", home=home, history=3)
    app.source("edges", fk.Kafka(f"edges-{tag}", schema="src LONG NOT NULL, dst LONG NOT NULL, difference INT"))

    @app.iterate(rows=EDGES, sends="all")
    def components(edges: Collection) -> Collection:
        return connected_components(edges)

    @app.iterate(rows=EDGES)
    def degrees(edges: Collection) -> Collection:
        return edges.groupBy("src").count()

    app.sink("parts", components, fk.Files(str(folder), format="json"))
    app.sink("degrees", degrees, fk.Files(str(tmp_path / "degrees"), format="json"))  # without a sink it would not run

    def epochs() -> list[Path]:
        return sorted(path for path in folder.glob("epoch=*") if path.is_dir())

    def is_done(query: Any) -> bool:
        assert query.isActive, query.exception()
        if not epochs() or {r.name: r.last_commit for r in query.status}["degrees"] != sent // EDGES - 1:
            return False
        rows = [json.loads(line) for file in epochs()[-1].glob("*.json") for line in file.read_text().splitlines()]
        return {(row["node"], row["component"]) for row in rows} == edges.components() and len(rows) == len(
            edges.components()
        )

    def kept(opened: Home) -> tuple[dict[int, CheckpointRecord], list[str]]:
        """Return the records of the epochs of `degrees`, and the existing files."""
        path = opened.checkpoint("degrees")
        records = {record.number: record for record in opened.store.checkpoints("degrees")}
        return records, sorted(str(file.relative_to(path)) for file in path.rglob("*"))

    sent = 4 * EDGES
    run_until_cut_off(app, broker, None, lambda: edges.change(4 * EDGES), is_done)
    with open_home(home, app.name) as opened:
        before = kept(opened)
        visit = OfflineApplication(app, opened, Connection.of(broker.bootstrap), runs=False, history=app.history)
        points = [p.checkpoint.number for p in visit.history() if p.region == "components"]
        preview = visit.preview(visit.asked(f"components@{points[-3]}"))
        assert {m.region for m in preview.moves} == {"components"}, "degrees has read none of it"
        visit.roll_back(visit.asked(f"components@{points[-3]}"), force=True)
        assert [v.first for v in opened.store.voided_ranges("epochs:components")] == [points[-3] + 1]
        assert kept(opened) == before, "all that degrees has done is there"
    sent += 2 * EDGES
    run_until_cut_off(app, broker, None, lambda: edges.change(2 * EDGES), is_done)
    with open_home(home, app.name) as opened:
        assert not opened.store.voided_ranges("epochs:degrees")
        after, files = kept(opened)
        newest = max(before[0])
        assert sorted(number for number in after if number > newest) == [newest + 1, newest + 2], "it does none again"
        older = {number: record for number, record in after.items() if number <= newest}
        assert older == {number: before[0][number] for number in older}
        assert newest in older
        assert str(older[newest].metadata["state"]) in files


@pytest.mark.parametrize("goes_back", [True, False])
def test_to_go_back_is_to_go_on_from_an_older_state(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    goes_back: bool,
) -> None:  # fmt: skip
    """Cancelled input is read again. If the loop continued from its newest state, that input would count twice."""
    wire, folder = Wire(bootstrap=broker.bootstrap, tag=tag), tmp_path / "sums"
    topic = wire.topic("edges")
    app = fk.App("graph", home=home, history=5)
    app.source("edges", fk.Kafka(topic, schema="src LONG NOT NULL, dst LONG NOT NULL"))

    @app.iterate(rows=EDGES, sends="all")
    def degrees(edges: Collection) -> Collection:
        counted = edges.groupBy("src").count()
        return counted.iterate(lambda c: c.concat(counted).groupBy("src").max("count"))

    app.sink("degrees", degrees, fk.Files(str(folder), format="json"))
    sent = [{"src": n % 3, "dst": n} for n in range(4 * EDGES)]
    saved: list[BatchState] = []
    write = States.write

    def kept(states: States, epoch: Epoch, state: BatchState) -> str:
        saved.append(state)
        return write(states, epoch, state)

    monkeypatch.setattr(States, "write", kept)
    monkeypatch.setattr(States, "sweep", lambda *_: None)  # so that the files of cancelled epochs still exist

    def found() -> list[Counter[int]]:
        epochs = sorted(path for path in folder.glob("epoch=*") if path.is_dir())
        texts = ["\n".join(file.read_text() for file in epoch.glob("*.json")) for epoch in epochs]
        return [Counter({r["src"]: r["count"] for r in map(json.loads, text.splitlines())}) for text in texts]

    run_until_cut_off(app, broker, None, lambda: wire.send(topic, sent), lambda _: len(found()) >= 4)
    with open_home(home, app.name) as opened:
        visit = OfflineApplication(app, opened, Connection.of(broker.bootstrap), runs=False, history=app.history)
        points = [p.checkpoint.number for p in visit.history() if p.region == "degrees"]
        visit.roll_back(visit.asked(f"degrees@{points[-3]}"), force=True)
    if not goes_back:
        monkeypatch.setattr(States, "read", lambda *_, is_result: saved[-1])
    run_until_cut_off(app, broker, None, lambda: None, lambda _: len(found()) >= 6)
    assert (found()[5] == Counter(row["src"] for row in sent)) is goes_back


@pytest.mark.parametrize("atomically", [True, False])
def test_half_of_a_note_is_nobodys(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch, atomically: bool
) -> None:
    """A half-written note would be harmful under its final name: the next start would have to begin from it."""
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
    edges, changes = Edges(wire, wire.topic("edges")), Table(database, f"changes_{tag}")
    app = fk.App("graph", home=home)
    app.source("edges", fk.Kafka(f"edges-{tag}", schema="src LONG NOT NULL, dst LONG NOT NULL, difference INT"))

    @app.iterate(rows=EDGES)
    def components(edges: Collection) -> Collection:
        return connected_components(edges)

    app.sink("changes", components, fk.Sql(database, f"changes_{tag}"))
    monkeypatch.setattr(retry, "PAUSES_S", (0.0,))

    def cut_off() -> None:
        raise InternalError("CUT_OFF", "half of a note")

    def write_half(data: LocalData, text: str) -> None:
        data.local.parent.mkdir(parents=True, exist_ok=True)
        data.local.write_text(text[: len(text) // 2])

    with monkeypatch.context() as patch:
        patch.setattr(EpochLog, "drop", lambda *_: None)  # a killed process leaves its files
        if atomically:
            patch.setattr(durable, "open", opening_notes(cut_off), raising=False)
        else:
            patch.setattr(LocalData, "write_text", write_half)
            cut_off_at((EpochLog, "record", True), patch)
        query = run_here(app, Connection.of(broker.bootstrap))
        try:
            edges.change(3 * EDGES)
            wait_until(lambda: not query.isActive, 120, f"it to be cut off: {query.status}")
        finally:
            query.stop()
        error = query.exception()
        assert isinstance(error, InternalError), error
        assert error.condition == "CUT_OFF"
    (note,) = (path for path in home.rglob("*-state/*") if path.is_file())
    assert not note.read_text().endswith("}"), "half of it is there"
    assert note.name.startswith(".") is atomically
    query = run_here(app, Connection.of(broker.bootstrap))
    try:
        wanted = Counter(dict.fromkeys(edges.components(), 1))
        wait_until(lambda: not query.isActive or released(changes) == wanted, 120, f"its end: {query.status}")
        assert query.isActive is atomically, query.exception()
    finally:
        query.stop()
