"""Epochs of a batch without state run at the same time: one that is late, or fails, or is lost with the application
keeps no other from being complete, and those that are complete stay; outside they show in their order."""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.errors import InternalError, SparkError
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.spark.epochs.jobs import EpochJobs
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from tests.integration.epochs.test_batches import Table
from tests.integration.live import Wire, await_one
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 20


def application(tag: str, home: Path, database: str) -> fk.App:
    """Return an application whose one batch has two sinks, and therefore a log of epochs."""
    app = fk.App("apart", home=home, history=10)
    app.source("events", fk.Kafka(f"events-{tag}", schema="word STRING NOT NULL, n INT"))

    @app.batch(rows=ROWS)
    def passed(events: "DataFrame") -> "DataFrame":
        return events.select("word", "n")

    app.sink("table", passed, fk.Sql(database, f"passed_{tag}"))
    app.sink("topic", passed, fk.Kafka(f"passed-{tag}"))
    return app


class Gate:
    """Stops epoch 0 until the test opens it, or interrupts the application there.

    Attributes: computed: how often each epoch has come to it.
    """

    def __init__(self, how: str, patch: pytest.MonkeyPatch) -> None:
        self._how, self._real = how, EpochJobs.compute
        self._is_open, self._cuts_off = threading.Event(), False
        self.computed: Counter[int] = Counter()
        gate = self
        patch.setattr(EpochJobs, "compute", lambda region, *arguments: gate._compute(region, *arguments))

    def cut_off(self) -> None:
        """From now on the application ends where epoch 0 is computed."""
        self._cuts_off = True
        self._is_open.set()

    def open(self) -> None:
        self._is_open.set()

    def close_again(self) -> None:
        """Return to the initial state, for the next start."""
        self._is_open, self._cuts_off = threading.Event(), False

    def _compute(self, region: EpochJobs, epoch: Epoch, *arguments: Any) -> Any:
        self.computed[epoch.number] += 1
        if epoch.number == 0:
            if self._how == "waits":
                self._is_open.wait(120)
            if self._cuts_off:
                raise InternalError("CUT_OFF", "here")
            if not self._is_open.is_set():
                raise SparkError("JOB_FAILED", "an executor is gone.")
        return self._real(region, epoch, *arguments)


@pytest.fixture
def gate(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A gate, and how many epochs run at once."""
    how, at_once = request.param
    monkeypatch.setattr("falkirk.runtime.spark.epochs.run._EPOCHS_AT_ONCE", at_once)
    return Gate(how, monkeypatch)


def begin(app: fk.App, broker: Broker) -> tuple[Query, Callable[[], dict[int, Epoch]]]:
    """Start it; return it with the store's record of its epochs."""
    query = run_here(app, Connection.of(broker.bootstrap))
    log = EpochLog("epochs:passed", "passed", query._home.data_of("passed"), query._home.store)
    return query, lambda: {e.number: e for e in log.epochs()}


def files_of(query: Query, epoch: Epoch) -> dict[str, tuple[int, int]]:
    """Return the files of an epoch's folder, each with its size and the time of its last change."""
    folder = query._home.checkpoint("passed") / str(epoch.folder)
    found = {str(p.relative_to(folder)): p.stat() for p in folder.rglob("*") if p.is_file()}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}


@pytest.mark.parametrize("gate", [("waits", 2), ("fails", 2)], indirect=True, ids=["waits", "fails"])
def test_an_epoch_that_is_late_or_lost_leaves_the_others_as_they_are(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, gate: Gate
) -> None:
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
    events, topic = wire.topic("events", partitions=1), wire.topic("passed", partitions=1)
    table = Table(database, f"passed_{tag}")

    def send(epoch: int) -> None:
        wire.send(events, [{"word": "ash", "n": n} for n in range(epoch * ROWS, (epoch + 1) * ROWS)])

    def await_complete(query: Query, there: Callable[[], dict[int, Epoch]], number: int) -> Epoch:
        await_one(query, lambda: number in there() and there()[number].is_complete, f"epoch {number}")
        epochs = there()
        assert not epochs[0].is_complete
        assert (table.rows(), wire.rows(topic)) == ([], []), "nothing passes an epoch that is not complete"
        return epochs[number]

    query, there = begin(application(tag, home, database), broker)
    try:
        send(0)
        await_one(query, lambda: gate.computed[0], "epoch 0 to be computed")
        send(1)
        one = await_complete(query, there, 1)
        files = files_of(query, one)
        assert files
        gate.cut_off()
        wait_until(lambda: not query.isActive, 60, f"the cut: {query.status}")
    finally:
        gate.open()
        query.stop()
    error = query.exception()
    assert isinstance(error, InternalError), error
    assert error.condition == "CUT_OFF"

    gate.close_again()
    before = gate.computed[0]
    query, there = begin(application(tag, home, database), broker)
    try:
        await_one(query, lambda: gate.computed[0] > before, "epoch 0 to be computed again")
        send(2)
        await_complete(query, there, 2)
        assert there()[1] == one
        assert files_of(query, one) == files, "what was complete was written again"
        gate.open()
        await_one(query, lambda: len(table.rows()) >= 3 * ROWS and wire.count(topic) >= 3 * ROWS, "all rows")
        epochs = there()
    finally:
        gate.open()
        query.stop()
    assert [e.is_complete for e in epochs.values()] == [True] * 3
    assert epochs[1] == one, "what was complete is another now"
    assert (epochs[0].made_at_s or 0) > (one.made_at_s or 0)
    assert (gate.computed[1], gate.computed[2]) == (1, 1), "what was complete was computed again"
    for found in (table.rows(), wire.rows(topic)):
        assert [r["n"] for r in found] == list(range(3 * ROWS)), "each row once, in order"


@pytest.mark.parametrize("gate", [("fails", 1)], indirect=True, ids=["one by one"])
def test_one_by_one_an_epoch_that_fails_keeps_those_behind_it(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, gate: Gate
) -> None:
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
    events, _ = wire.topic("events", partitions=1), wire.topic("passed", partitions=1)
    query, there = begin(application(tag, home, database), broker)
    try:
        wire.send(events, [{"word": "ash", "n": n} for n in range(2 * ROWS)])
        await_one(query, lambda: gate.computed[0] >= 3, "three tries")
        await_one(query, lambda: "epoch 0 failed, trying again" in query.status[0].detail, "its reason")
        assert there().keys() == {0}
        assert gate.computed.keys() == {0}
        gate.open()
        await_one(query, lambda: len(there()) == 2 and all(e.is_complete for e in there().values()), "both")
    finally:
        gate.open()
        query.stop()
