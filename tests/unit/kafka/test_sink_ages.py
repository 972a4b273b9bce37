"""A home and a sink of different ages: after a restore from a backup, one of them lacks epochs that the other has."""

import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.types import StructType

import falkirk as fk
from falkirk.declare.accepted import as_endpoint
from falkirk.declare.sink import OwnSink
from falkirk.errors import FalkirkError, HomeError, SparkError, StoreError
from falkirk.errors.location import caller
from falkirk.plan.region import BatchLogs
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import RegionRecord, Store
from falkirk.recovery.decision_store.own_writes import OwnWrites
from falkirk.recovery.protocol.down import RETRY_S
from falkirk.recovery.protocol.layout import Layout, Stage
from falkirk.recovery.protocol.ports import Health
from falkirk.recovery.protocol.recovery import RecoveryProtocol
from falkirk.runtime.spark.epochs.at_rest import BatchAtRest, epoch_log_of
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.epochs.strays import Strays
from falkirk.runtime.spark.outputs import Outputs
from falkirk.runtime.spark.sinks import own
from falkirk.runtime.spark.sinks.comparison import SinkComparison
from falkirk.runtime.spark.sinks.epoch_logs import EpochLogs
from falkirk.runtime.spark.sinks.own import OwnTarget
from falkirk.runtime.spark.sinks.release import EpochReleaser
from falkirk.runtime.spark.sinks.table import TableTarget
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.history import History
from falkirk.theory.ids import CheckpointNumber
from tests.stores import Place
from tests.support import wait_until
from tests.unit.epochs.test_backpressure import session

LOG, SINK, SOURCE = "epochs:b", "s", "t"
EPOCHS = 3


class Sink:
    """A target that knows its number of epochs, and that can be restored."""

    def __init__(self) -> None:
        self.has, self.sent, self.is_away = 0, list[int](), False

    def visible(self) -> int:
        if self.is_away:
            raise SparkError("RELEASE_FAILED", "its server does not answer")
        return self.has

    delivered = visible

    def deliver(self, epoch: int, rows: object, *, few: bool = False) -> None:
        if epoch >= self.has:
            self.sent.append(epoch)
            self.has = epoch + 1


class Own:
    """The same sink, as users write it."""

    address = "a store"

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def delivered(self) -> int:
        return self._sink.delivered()

    def deliver(self, epoch: int, rows: object) -> None:
        self._sink.deliver(epoch, rows)


class Batch(BatchAtRest):
    """A batch without a failure."""

    def __init__(self, logs: BatchLogs, place: Any, epochs: EpochLog) -> None:
        super().__init__(logs, place, epochs, {})
        self.strays = Strays(epochs, place.home.store)

    def rewind(self, number: CheckpointNumber) -> None:
        super().rewind(number)
        self.strays.note()

    def health(self) -> Health:
        return Health(runs=True)


class Logs(EpochLogs):
    """One log of epochs, and a source that still has all records."""

    def ends(self, topic: str) -> OffsetFrontier:
        return super().ends(topic) if topic == LOG else EMPTY


class World:
    """A home with complete epochs, and the wheels that start in it."""

    def __init__(self, store: Store, path: Path, sink: Sink, target: object) -> None:
        self.store, self.path, self.sink, self.target = store, path, sink, target
        self.now_s, self.may_delete = 0.0, True
        home = SimpleNamespace(store=store, data_of=lambda name: LocalData(path), identity="deadbeef")
        self.place = cast(Any, SimpleNamespace(home=home, oldest=lambda topic: {0: 0}))
        record = RegionRecord(fingerprint={}, start_offsets={SOURCE: {0: 0}}, partitions={})
        store.create_region("b", record, {})
        self.epochs = EpochLog(LOG, "b", LocalData(path), store)

    def complete(self, count: int, upto: int = 0) -> None:
        for _ in range(count):
            n = self.epochs.decide({SOURCE: {0: 0}}, {SOURCE: {0: upto}}, {}, 0.0)
            (self.path / f"{n}-aa").mkdir(exist_ok=True)
            self.epochs.record(n, folder=f"{n}-aa", rows=1, dead=0, state=None, saved=True)

    def start(self, history: int = 0) -> RecoveryProtocol:
        """Open the home as a new process does."""
        epochs = EpochLog(LOG, "b", LocalData(self.path), self.store)
        self.releaser = EpochReleaser(epochs, {"out": cast(Any, self.target)}, None, StructType())
        logs = BatchLogs(name="b", log=LOG, topics=(SOURCE,), files=(), sinks=("out",), dead_letters=None)
        stage = Stage(name="b", inputs=(SOURCE,), output=LOG)
        layout = Layout({"b": stage}, {SOURCE: 1, LOG: 1, SINK: 1}, {LOG: SINK})
        port = Logs({LOG: epochs}, {LOG: self.releaser}, session())
        self.batch = Batch(logs, self.place, epoch_log_of(logs, self.place))
        recovery = RecoveryProtocol(
            layout,
            {"b": self.batch},
            port,
            self.store,
            lambda: self.now_s,
            history=History(checkpoints=history),
            may_delete=lambda: self.may_delete,
        )
        recovery.open()
        return recovery

    def release(self, recovery: RecoveryProtocol) -> None:
        """Tick until all results are published."""

        def is_out() -> bool:
            recovery.turn()
            return self.releaser.released() == self.epochs.end()

        wait_until(is_out, 30, lambda: f"the release: {self.sink.sent}, {self.releaser.detail}")
        recovery.turn()


def waits(recovery: RecoveryProtocol) -> FalkirkError:
    """Tick until the results wait; return the reason."""

    def is_known() -> bool:
        recovery.turn()
        return bool(recovery.sinks.waiting)

    wait_until(is_known, 30, "the results to wait for the sink")
    return recovery.sinks.waiting["b"]


@pytest.fixture(params=["own", "ours"])
def world(request: pytest.FixtureRequest, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Three epochs are complete and released, to a sink of ours or to a user's."""
    sink = Sink()
    monkeypatch.setattr(own, "sorted_by_place", lambda rows, few: SimpleNamespace(drop=lambda column: rows))
    declared = cast(OwnSink, as_endpoint(Own(sink), caller()))
    made = World(store, tmp_path / "epochs", sink, OwnTarget(declared, "out") if request.param == "own" else sink)
    made.path.mkdir()
    made.complete(EPOCHS)
    made.release(made.start(history=EPOCHS))
    assert made.sink.sent == [0, 1, 2]
    return made


def test_a_sink_that_is_ahead_is_refused(world: World) -> None:
    """Otherwise the next epoch, with other rows, has a number that the sink knows, and is dropped."""
    world.sink.has = EPOCHS + 2
    for _ in range(2):
        with pytest.raises(HomeError) as refused:
            world.start()
        assert refused.value.condition == "SINK_AHEAD"
        assert refused.value.parameters.items() >= {"sink": "out", "seen": EPOCHS + 2, "there": EPOCHS}.items()


def test_an_epoch_that_is_not_complete_here_and_is_out_is_refused(world: World) -> None:
    """It was completed after the copy was made. If it were computed again, its results could differ."""
    world.epochs.decide({SOURCE: {0: 0}}, {SOURCE: {0: 0}}, {}, 0.0)
    world.start()
    world.sink.has = EPOCHS + 1
    with pytest.raises(HomeError) as refused:
        world.start()
    assert (refused.value.condition, refused.value.parameters["there"]) == ("SINK_AHEAD", EPOCHS)


def test_a_sink_that_fell_back_gets_its_epochs_again(world: World) -> None:
    world.sink.has, world.sink.sent = 1, []
    recovery = world.start(history=EPOCHS)
    world.release(recovery)
    assert world.sink.sent == [1, 2], "no new epoch is complete, but these are sent again"
    world.complete(1)
    world.release(recovery)
    assert world.sink.sent == [1, 2, 3]


@pytest.mark.parametrize(("world", "place"), [("ours", "sqlite")], indirect=True)
def test_without_the_question_at_a_start_a_sink_that_fell_back_waits_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question before the next epoch still keeps later epochs from a sink that lacks earlier ones."""
    monkeypatch.setattr(EpochReleaser, "remains", lambda self, released: released)
    world.sink.has, world.sink.sent = 1, []
    recovery = world.start(history=2 * EPOCHS)
    world.complete(1)
    assert (waits(recovery).condition, world.sink.sent) == ("SINK_BEHIND", [])


@pytest.mark.parametrize(("world", "place"), [("ours", "sqlite")], indirect=True)
def test_without_both_questions_a_sink_that_fell_back_misses_epochs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SinkComparison, "_shortest", lambda self, released: ("", released))
    world.sink.has, world.sink.sent = 1, []
    recovery = world.start(history=2 * EPOCHS)
    world.complete(1)
    world.release(recovery)
    assert world.sink.sent == [EPOCHS], "the test sees that the sink lacks two epochs"


@pytest.mark.parametrize(("world", "place"), [("ours", "sqlite")], indirect=True)
def test_without_the_comparison_a_sink_that_is_ahead_drops_an_epoch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SinkComparison, "_refuse_ahead", lambda self, name, upto: None)
    world.sink.has, world.sink.sent = EPOCHS + 2, []
    recovery = world.start(history=2 * EPOCHS)
    world.complete(1)
    world.release(recovery)
    assert world.sink.sent == [], "the test sees that the sink takes the new epoch for one that it has"


@pytest.mark.parametrize(("world", "place"), [("ours", "sqlite")], indirect=True)
def test_without_the_numbers_of_cancelled_epochs_a_sink_counts_as_an_older_copy(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.complete(1)
    number = world.store.open_recovery("test", {}, voids=((LOG, 0, EPOCHS, EPOCHS + 1),))
    world.store.advance_recovery(number, "done")
    recovery = world.start(history=2 * EPOCHS)
    world.release(recovery)
    monkeypatch.setattr(EpochLog, "any_counts", lambda self, first, last: first < last)
    world.complete(1)
    assert waits(recovery).condition == "SINK_BEHIND"


def test_epochs_that_a_sink_lacks_are_not_collected_before_they_are_sent_again(world: World) -> None:
    world.complete(2)
    world.sink.has, world.sink.sent = 1, []
    world.release(world.start())  # without history, they are kept for no other reason
    assert world.sink.sent == [1, 2, 3, 4]
    assert not (world.path / "2-aa").exists()


@pytest.mark.parametrize("compares", [True, False])
@pytest.mark.parametrize(("world", "place"), [("ours", "sqlite")], indirect=True)
def test_a_store_that_falls_back_while_it_is_used_decides_no_epoch_again(
    world: World, place: Place, monkeypatch: pytest.MonkeyPatch, compares: bool
) -> None:
    """Somebody restores an older copy, or a replica without the last commits replaces the server.

    The owner would use the number of an epoch again that the sink has. The sink would drop the other epoch.
    """
    if not compares:
        monkeypatch.setattr(OwnWrites, "count", lambda self, db: 0)
    world.store.take_charge("the owner")
    recovery = world.start(history=2 * EPOCHS)
    with closing(sqlite3.connect(":memory:")) as copy, closing(sqlite3.connect(place.where)) as live:
        live.backup(copy)
        world.complete(1)
        world.release(recovery)
        assert world.sink.sent[-1] == EPOCHS
        copy.backup(live)
    if compares:
        with pytest.raises(StoreError) as refused:
            world.complete(1)
        assert refused.value.condition == "STORE_FELL_BACK"
        with pytest.raises(HomeError) as again:
            world.start()
        assert again.value.condition == "SINK_AHEAD"
        return
    world.complete(1)
    world.release(recovery)
    assert world.sink.sent == [*range(EPOCHS + 1)], "the test sees that the second epoch with this number is dropped"


@pytest.mark.parametrize("lost", [1, 2])
def test_a_sink_that_fell_back_too_far_gets_nothing_more_and_is_named(world: World, lost: int) -> None:
    """Before, the start was refused: a program that could delete the note of a folder could stop the application."""
    world.sink.has, world.sink.sent = 1, []
    shutil.rmtree(world.path / f"{lost}-aa")
    recovery = world.start()
    error = recovery.sinks.waiting["b"]
    assert error.condition == "SINK_BEHIND"
    assert error.parameters.items() >= {"sink": "out", "kept": 1, "released": EPOCHS}.items()
    world.complete(1)
    for _ in range(3):
        recovery.turn()
        recovery.outside()
    assert world.sink.sent == []
    assert recovery.sinks.waiting == {"b": error}
    world.sink.has = EPOCHS  # somebody has restored a newer copy
    world.now_s += RETRY_S
    world.release(recovery)
    assert world.sink.sent == [EPOCHS]
    assert not recovery.sinks.waiting


def test_a_sink_that_falls_back_while_it_is_written_gets_no_later_epoch(world: World) -> None:
    recovery = world.start(history=2 * EPOCHS)
    world.complete(1)
    world.release(recovery)
    world.sink.has, world.sink.sent = 1, []
    world.complete(1)

    error = waits(recovery)
    assert (error.condition, error.parameters["kept"]) == ("SINK_BEHIND", 1)
    assert world.sink.sent == []
    world.release(world.start(history=2 * EPOCHS))
    assert world.sink.sent == [1, 2, 3, 4]


def test_a_table_tells_of_what_it_lost(tmp_path: Path) -> None:
    database = tmp_path / "sink.db"
    target = TableTarget(fk.Sql(f"sqlite:///{database}", "rows"), "deadbeef", "s")
    assert (target.visible(), target.delivered()) == (0, 0)
    with target._engine.begin() as db:
        target._hold_mark(db)
        target._set_mark(db, 4)
    copy = shutil.copy(database, tmp_path / "copy.db")
    with target._engine.begin() as db:
        target._set_mark(db, 7)
    assert (target.visible(), target.delivered()) == (8, 8)
    target._engine.dispose()
    shutil.copy(copy, database)
    assert (target.visible(), target.delivered()) == (5, 5)


@pytest.mark.parametrize(("incarnations", "refused"), [({1: 5}, None), ({1: 5, 2: 1}, 2), ({}, None)])
def test_records_of_an_incarnation_that_the_home_does_not_know(
    store: Store, tmp_path: Path, incarnations: Mapping[int, int], refused: int | None
) -> None:
    home = SimpleNamespace(store=store, path=tmp_path)
    outputs = Outputs(
        cast(Any, SimpleNamespace(name="r", output="out", dead_letters="dead")), cast(Any, SimpleNamespace(home=home))
    )
    store.create_region("r", RegionRecord(fingerprint={}, start_offsets={}, partitions={}), {})
    store.open_incarnation("r", -1)
    tail, none = (cast(Any, SimpleNamespace(incarnations=i)) for i in (incarnations, {}))
    if refused is None:
        outputs.refuse_ahead(tail, none)
        return
    with pytest.raises(HomeError) as error:
        outputs.refuse_ahead(none, tail)
    assert error.value.condition == "SINK_AHEAD"
    assert error.value.parameters.items() >= {"sink": "dead", "seen": 2, "there": 1}.items()


def test_epochs_that_were_cancelled_are_not_missed(world: World) -> None:
    """A sink can't remember an epoch that nobody delivered. It counted as an older copy of itself."""
    world.complete(1)
    recovery = world.store.open_recovery("test", {}, voids=((LOG, 0, EPOCHS, EPOCHS + 1),))
    world.store.advance_recovery(recovery, "restored")
    world.store.advance_recovery(recovery, "done")
    recovery = world.start(history=2 * EPOCHS)
    world.release(recovery)
    world.complete(1)
    world.release(recovery)
    world.complete(1)
    world.release(world.start(history=2 * EPOCHS))
    assert world.sink.sent == [0, 1, 2, EPOCHS + 1, EPOCHS + 2]
