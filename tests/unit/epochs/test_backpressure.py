"""Backpressure: a sink that makes no progress stops the cuts of its batch, but not the host's other work."""

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sql
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import falkirk as fk
from falkirk.declare.cut import ByClock, OnArrival
from falkirk.errors import SparkError
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.epochs.jobs import EpochJobs
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.epochs.runner import BEHIND_MAX, EpochRunner
from falkirk.runtime.spark.epochs.term import Term
from falkirk.runtime.spark.sinks import table
from falkirk.runtime.spark.sinks.release import EpochReleaser
from falkirk.runtime.spark.sinks.table import TableTarget
from falkirk.runtime.supervision.host import Host
from falkirk.theory.ids import EpochNumber, Positions
from tests.postgres import Postgres
from tests.support import wait_until


class Sink:
    """A target that accepts epochs while it is open, and otherwise waits or fails."""

    def __init__(self, *, fails: bool) -> None:
        self.open, self.fails, self.taken = threading.Event(), fails, list[int]()

    def visible(self) -> int:
        return len(self.taken)

    def delivered(self) -> int:
        return len(self.taken)

    def deliver(self, epoch: int, rows: object, *, few: bool = False) -> None:
        if self.fails and not self.open.is_set():
            raise SparkError("RELEASE_FAILED", "closed.", certainty="maybe")
        assert self.open.wait(30)
        self.taken.append(epoch)


def session() -> SparkSession:
    """Return the part of a session that an outlet uses."""
    reads = SimpleNamespace(parquet=lambda path: path)
    context = SimpleNamespace(
        setLocalProperty=lambda name, value: None, setJobGroup=lambda group, text, interruptOnCancel: None
    )
    return cast(SparkSession, SimpleNamespace(sparkContext=context, read=SimpleNamespace(schema=lambda s: reads)))


@pytest.fixture
def epochs(store: Store, tmp_path: Path) -> EpochLog:
    """Three complete epochs."""
    log = EpochLog("epochs of b", "b", LocalData(tmp_path), store)
    for n in range(3):
        log.decide({"t": {0: n}}, {"t": {0: n + 1}}, {}, 0.0)
        log.record(n, folder=f"{n}", rows=1, dead=0, state=None, saved=True)
    return log


@pytest.mark.parametrize("fails", [False, True])
def test_an_outlet_tells_how_much_waits_for_its_sink(epochs: EpochLog, fails: bool) -> None:
    sink = Sink(fails=fails)
    releaser = EpochReleaser(epochs, {"s": sink}, None, StructType())
    spark = session()
    assert releaser.backlog() == 0, "nothing may be released yet"
    assert releaser.release(spark, 0, 2) == 0
    assert releaser.release(spark, 0, 3) == 0
    assert releaser.backlog() == 3
    sink.open.set()
    if not fails:
        wait_until(lambda: sink.taken == [0, 1, 2], 30, "what was asked for while it was at work, unasked")
    wait_until(lambda: releaser.release(spark, 0, 3) == 3, 30, "the release")
    assert (releaser.backlog(), sink.taken) == (0, [0, 1, 2])
    assert EpochReleaser(epochs, {"s": sink}, None, StructType()).release(spark, 3, 3) == 3, "a new one resumes there"


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("may_be_out", [True, False])
def test_what_may_be_out_in_part_counts_as_seen_whatever_else_goes_on(
    epochs: EpochLog, fails: bool, may_be_out: bool
) -> None:
    epochs.decide({"t": {0: 3}}, {"t": {0: 4}}, {}, 0.0, may_be_out=may_be_out)
    sink = Sink(fails=fails)
    releaser = EpochReleaser(epochs, {"s": sink}, None, StructType())
    releaser.release(session(), 0, 3)
    wait_until(lambda: bool(releaser.detail) or not fails, 30, "the failure")
    assert releaser.visible() == (4 if may_be_out else 3)
    sink.open.set()


class RecoveryProtocol:
    """The part of a wheel that a host uses to release epochs."""

    def __init__(self) -> None:
        self.asked: list[set[str]] = []

    def release_of(self, names: set[str]) -> None:
        self.asked.append(names)


def test_what_is_complete_is_released_while_a_host_waits_for_its_next_look() -> None:
    host, recovery, stopping = Host.__new__(Host), RecoveryProtocol(), threading.Event()
    host._recovery, host._completed, host._once = cast(Any, recovery), queue.SimpleQueue(), None
    looked: list[object] = []
    recovery.watermarks = SimpleNamespace(settled_epochs=None)  # type: ignore[attr-defined]
    host._views, host._regions = cast(Any, SimpleNamespace(update=lambda *given: looked.append(given))), {}
    for name in ("a", "b"):
        host._completed.put(name)
    assert not host.wait(0.05, stopping)
    assert recovery.asked == [{"a", "b"}]
    assert len(looked) == 1, "an epoch may be one of a view"
    stopping.set()
    host._completed.put("a")
    assert host.wait(30.0, stopping)
    assert len(recovery.asked) == 1, "nothing more is published after the request to stop"


class Cutter:
    """The part of a batch region that a run uses, for a region that only cuts."""

    def __init__(self) -> None:
        self.epochs, self.direct = SimpleNamespace(decide=self._note), SimpleNamespace(may_be_next=lambda: False)
        self.batch = SimpleNamespace(
            name="b", cut=OnArrival(records_max=10), is_stateful=False, is_direct=False, is_view=False, iteration=None
        )
        self.there, self.waits, self.cuts = 25, 0, list[tuple[int, float]]()
        self.detail, self.waits_for, self.began_at_s = "", "", 5.0
        self._releaser = SimpleNamespace(backlog=lambda: self.waits)

    until, cut, is_ahead = None, EpochJobs.cut, EpochJobs.is_ahead

    def began_s(self) -> float:
        return self.began_at_s

    def views(self) -> dict[str, int]:
        return {}

    def ends(self, first: Positions) -> Positions:
        return {"t": {0: self.there}}

    def first_of_next(self, epochs: object) -> Positions:
        return {"t": {0: self.cuts[-1][0] if self.cuts else 0}}

    def _note(self, first: Positions, last: Positions, views: dict[str, int], at_s: float, **more: object) -> None:
        self.cuts.append((last["t"][0], at_s))


def test_a_batch_cuts_no_epoch_while_too_many_wait_for_its_sinks() -> None:
    cutter = Cutter()
    runner = EpochRunner(cast(Any, cutter), EpochNumber(-1), Term())
    cutter.waits = BEHIND_MAX
    assert not runner.cut_if_due(())
    assert cutter.waits_for, "the status does not show it"
    cutter.waits -= 1
    assert runner.cut_if_due(())


def test_what_a_cut_has_left_is_due_as_before() -> None:
    cutter, clock = Cutter(), SimpleNamespace(time=lambda: 99.0, monotonic=lambda: 0.0)
    runner = EpochRunner(cast(Any, cutter), EpochNumber(-1), Term(), clock)
    while runner.cut_if_due(()):
        pass
    assert cutter.cuts == [(10, 5.0), (20, 5.0), (25, 99.0)]


@pytest.mark.parametrize("is_view", [False, True])
def test_the_first_epoch_of_a_view_does_not_wait_for_the_clock(is_view: bool) -> None:
    """A long backlog is several epochs, and they follow at once. The epochs after them end by the clock."""
    cutter, clock = Cutter(), SimpleNamespace(time=lambda: 66.0, monotonic=lambda: 0.0)
    cutter.batch.cut, cutter.batch.is_view = ByClock(every_s=60.0, records_max=10), is_view
    cutter.began_at_s = 62.0
    runner = EpochRunner(cast(Any, cutter), EpochNumber(-1), Term(), clock)
    epochs: tuple[Any, ...] = ()
    for there in (0, 25, 26):
        cutter.there = there
        while runner.cut_if_due(epochs):
            epochs = (SimpleNamespace(cut_at_s=cutter.cuts[-1][1]),)
    assert [last for last, _ in cutter.cuts] == ([10, 20, 25] if is_view else [])


@pytest.fixture
def locked(postgres: Postgres, tag: str) -> Iterator[TableTarget]:
    """A target whose marks are locked by another session."""
    target = TableTarget(fk.Sql(postgres.patient_url(), f"t_{tag}"), tag, "s")
    assert target.visible() == 0
    engine = sql.create_engine(postgres.url().replace("postgresql:", "postgresql+psycopg:", 1), poolclass=sql.NullPool)
    with engine.begin() as db:
        db.execute(sql.text("LOCK TABLE falkirk_marks IN ACCESS EXCLUSIVE MODE"))
        yield target


def test_whoever_asks_how_far_a_locked_table_has_come_is_not_kept(
    locked: TableTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "LOCKED_S", 1)
    asked = ThreadPoolExecutor(1).submit(locked.visible)
    with pytest.raises(SparkError) as kept:
        asked.result(timeout=20)  # the holder of the lock does not delay the other work
    assert kept.value.condition == "RELEASE_FAILED"
