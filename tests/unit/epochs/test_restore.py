"""A retry of a failed epoch starts from the newest saved state, with the epochs after it."""

import itertools
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException

from falkirk.declare.cut import OnArrival
from falkirk.errors import HomeError, LogError, SparkError, StoreError
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.epochs.jobs import EpochJobs
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.runtime.spark.epochs.results import Written
from falkirk.runtime.spark.epochs.runner import EpochRunner
from falkirk.runtime.spark.epochs.term import Term
from falkirk.runtime.spark.retry import FAILURES_MAX
from falkirk.theory.ids import EpochNumber
from tests.support import on_disk


class Region:
    """The part of a batch that a run uses. Its state is the numbers of its epochs; it is saved after epoch 1."""

    def __init__(self, log: EpochLog) -> None:
        self.epochs, self.away, self.is_told, self.broken = log, False, True, 0
        self.reads = SimpleNamespace(
            refuse_changed=lambda epoch: None, check=self._check, ended_pipes=lambda epoch: nullcontext()
        )  # fmt: skip
        #: Somebody changes the file that an epoch reads while the state after it is computed.
        self.is_swapped, self.was_swapped = False, False
        self.batch = SimpleNamespace(
            name="b", cut=OnArrival(records_max=10), is_stateful=True, is_direct=False, iteration=None,
            state=None, notes=(), saves=lambda epoch, since_s: epoch == 1,
        )  # fmt: skip
        self.direct = SimpleNamespace(takes=lambda epoch: False)
        self.states = SimpleNamespace(
            read=lambda folder, is_result: {"s": (self.epochs.folder / folder).read_text()},
            write=self._write,
            after=lambda kept, folder: kept,
        )

    def _check(self, epoch: Epoch, refused: object) -> None:
        if self.was_swapped:
            raise LogError("INPUT_CHANGED", "the file has changed.", file="a")

    def _write(self, epoch: Epoch, state: dict[str, str]) -> str:
        self.was_swapped = self.is_swapped
        (self.epochs.folder / f"{epoch.number}-state").write_text(state["s"])
        return f"{epoch.number}-state"

    def began_s(self) -> float:
        return 0.0

    def compute(self, epoch: Epoch, state: dict[str, str], group: str, taken: object = None) -> Any:
        if self.broken and epoch.number == 3:
            self.broken -= 1
            raise AnalysisException("the file can't be read")
        if self.away and epoch.number == 3:
            raise StoreError("STORE_AWAY", "away.", certainty="maybe")
        kept = {"s": f"{state.get('s', '')} {epoch.number}"}
        return SimpleNamespace(kept=kept, reported={}, refused={}, clean=lambda: None)

    def write(self, epoch: Epoch, folder: str, computed: object, *, direct: bool) -> Written:
        return Written(rows=1, dead=0)

    def marks(self, computed: object, folder: str, written: Written) -> dict[str, int]:
        return {}

    def on_complete(self) -> None:
        if not self.is_told:
            raise StoreError("STORE_AWAY", "away.", certainty="maybe")


def runner_of(region: Region, number: int) -> EpochRunner:
    return EpochRunner(cast(EpochJobs, region), EpochNumber(number), Term())


@pytest.fixture
def region(store: Store, tmp_path: Path) -> Region:
    return Region(EpochLog("epochs of b", "b", LocalData(tmp_path), store))


@pytest.fixture
def runner(region: Region) -> EpochRunner:
    """A runner that has completed four epochs, from an empty state."""
    made = runner_of(region, -1)
    made.restore()
    for n in range(4):
        region.epochs.decide({"t": {0: n}}, {"t": {0: n + 1}}, {}, 0.0)
        made.run(region.epochs.epochs()[-1])
    assert made.states == {3: {"s": " 0 1 2 3"}}
    return made


def test_a_failed_epoch_begins_with_the_newest_saved_state(region: Region, runner: EpochRunner) -> None:
    """Earlier states have been collected since."""
    region.epochs.drop_results_below(4)
    region.epochs.drop_states_below(1)
    assert [epoch.number for epoch in region.epochs.epochs()] == [1, 2, 3]
    runner.restore()
    assert runner.states == {3: {"s": " 0 1 2 3"}}


def test_a_state_that_was_recorded_though_nobody_was_told_is_begun_with(store: Store, tmp_path: Path) -> None:
    region = Region(EpochLog("epochs of b", "b", LocalData(tmp_path), store))
    runner = runner_of(region, -1)
    runner.restore()
    for n in range(3):
        region.is_told = n != 1
        region.epochs.decide({"t": {0: n}}, {"t": {0: n + 1}}, {}, 0.0)
        with nullcontext() if region.is_told else pytest.raises(StoreError):
            runner.run(region.epochs.epochs()[-1])
    region.epochs.drop_results_below(3)
    region.epochs.drop_states_below(1)
    runner.restore()
    assert runner.states == {2: {"s": " 0 1 2"}}


def test_a_saved_state_that_is_not_there_is_told(store: Store, tmp_path: Path) -> None:
    """A start with an empty state instead would lose all sums."""
    runner = runner_of(Region(EpochLog("epochs of b", "b", LocalData(tmp_path), store)), 4)
    with pytest.raises(HomeError) as told:
        runner.restore()
    assert told.value.condition == "HOME_DAMAGED"


def test_states_that_may_be_gone_are_computed_again_if_they_come_out_the_same(
    region: Region, runner: EpochRunner
) -> None:
    region.batch.deterministic = True
    runner.lose(4, ValueError("an executor is gone"))
    assert not runner.is_restored
    region.batch.deterministic = False
    with pytest.raises(SparkError) as told:
        runner.lose(4, ValueError("an executor is gone"))
    assert told.value.condition == "SESSION_LOST"


def test_a_state_that_was_restored_half_way_is_none(region: Region, runner: EpochRunner) -> None:
    runner.is_restored, region.away = False, True
    with pytest.raises(StoreError):
        runner.restore()
    assert not runner.is_restored, "otherwise an epoch would start with the partial state"
    region.away = False
    runner.restore()
    assert (runner.is_restored, runner.states) == (True, {3: {"s": " 0 1 2 3"}})


def test_a_state_that_spark_can_not_compute_is_tried_again_as_often_as_an_epoch(
    region: Region, runner: EpochRunner
) -> None:
    """A missing file may be restored at any moment. Before, the first error ended the application."""
    runner.is_restored, region.broken = False, FAILURES_MAX - 1
    for _ in range(FAILURES_MAX - 1):
        assert runner.restore() is not None
        assert not runner.is_restored
    runner.restore()
    assert (runner.is_restored, runner.states) == (True, {3: {"s": " 0 1 2 3"}})
    runner.is_restored, region.broken = False, FAILURES_MAX
    for _ in range(FAILURES_MAX - 1):
        runner.restore()
    with pytest.raises(AnalysisException):
        runner.restore()


def test_an_epoch_counts_only_if_its_files_are_the_same_after_its_state(store: Store, tmp_path: Path) -> None:
    """The results and the state of an epoch are computed one after the other, each from the files.

    With one check between the two, a program that changes a file for that moment would cause a state without a replay.
    """
    region = Region(EpochLog("epochs of b", "b", LocalData(tmp_path), store))
    runner = runner_of(region, -1)
    runner.restore()
    for n in range(2):
        region.epochs.decide({"t": {0: n}}, {"t": {0: n + 1}}, {}, 0.0)
        if n == 1:
            region.is_swapped = True
            with pytest.raises(LogError):
                runner.run(region.epochs.epochs()[-1])
            assert [e.is_complete for e in region.epochs.epochs()] == [True, False]
            region.is_swapped = region.was_swapped = False
        runner.run(region.epochs.epochs()[-1])
    assert runner.states == {1: {"s": " 0 1"}}


def test_a_state_that_was_computed_again_counts_only_if_its_files_are_the_same(
    region: Region, runner: EpochRunner
) -> None:
    runner.is_restored, region.was_swapped = False, True
    with pytest.raises(LogError):
        runner.restore()
    assert (runner.is_restored, runner.states) == (False, {1: {"s": " 0 1"}})
    region.was_swapped = False
    runner.restore()
    assert (runner.is_restored, runner.states) == (True, {3: {"s": " 0 1 2 3"}})


def folders(region: Region) -> set[str]:
    """Return the folders of saved states that are there."""
    return {path.name for path in on_disk(region.epochs.folder).iterdir() if path.is_dir()}


@pytest.fixture
def saving(store: Store, tmp_path: Path) -> Region:
    """A batch that saves the state after each epoch, in a new folder for each try, with one decided epoch."""
    region, tries = Region(EpochLog("epochs of b", "b", LocalData(tmp_path / "b"), store)), itertools.count(1)

    def write(epoch: Epoch, state: dict[str, str]) -> str:
        name = f"{epoch.number}-{next(tries)}-state"
        on_disk(region.epochs.path(name)).mkdir(parents=True)
        (region.epochs.path(name) / "s").write_text(state["s"])
        return name

    region.states.write = write
    region.states.read = lambda folder, is_result: {"s": (region.epochs.path(folder) / "s").read_text()}
    region.batch.saves = lambda epoch, since_s: True
    region.epochs.decide({"t": {0: 0}}, {"t": {0: 1}}, {}, 0.0)
    return region


@pytest.mark.parametrize(
    "error",
    [
        LogError("INPUT_CHANGED", "the file has changed.", file="a"),
        StoreError("STORE_AWAY", "away.", certainty="definitely"),
        StoreError("STORE_AWAY", "away.", certainty="maybe"),
        OSError("the disk is full"),
    ],
    ids=["file", "not recorded", "perhaps recorded", "not on disk"],
)
def test_an_epoch_that_fails_after_its_state_was_saved_leaves_no_state(
    store: Store, saving: Region, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry saves the whole state again. It may be retried for days. A state that may be recorded stays until the
    store answers."""
    region = saving

    def fail(*arguments: object, **more: object) -> None:
        raise error

    runner = runner_of(region, -1)
    runner.restore()
    with monkeypatch.context() as during:
        if isinstance(error, LogError):
            during.setattr(region.reads, "check", fail)
        elif isinstance(error, StoreError):
            during.setattr(store, "add_checkpoint", fail)
        else:
            during.setattr(region.epochs, "record", fail)
        with pytest.raises(type(error)):
            runner.run(region.epochs.epochs()[-1])
    is_unsure = isinstance(error, StoreError) and error.certainty == "maybe"
    assert folders(region) == ({"0-1-state"} if is_unsure else set())
    runner.run(region.epochs.epochs()[-1])
    assert (runner.states, region.epochs.epochs()[0].state) == ({0: {"s": " 0"}}, "0-2-state")
    assert folders(region) == {"0-2-state"}


def test_a_state_that_was_recorded_without_an_answer_stays(
    store: Store, saving: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, record = runner_of(saving, -1), store.add_checkpoint
    runner.restore()

    def record_without_an_answer(*arguments: Any) -> None:
        record(*arguments)
        raise StoreError("STORE_AWAY", "away.", certainty="maybe")

    with monkeypatch.context() as during:
        during.setattr(store, "add_checkpoint", record_without_an_answer)
        with pytest.raises(StoreError):
            runner.run(saving.epochs.epochs()[-1])
    saving.epochs.decide({"t": {0: 1}}, {"t": {0: 2}}, {}, 0.0)
    runner.run(saving.epochs.epochs()[-1])
    assert folders(saving) == {"0-1-state", "1-2-state"}
    assert runner.states == {1: {"s": " 0 1"}}


def test_nothing_is_deleted_while_the_store_does_not_answer(
    store: Store, saving: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit without an answer may still be under way in a database on another machine."""
    runner, away = runner_of(saving, -1), StoreError("STORE_AWAY", "away.", certainty="maybe")
    runner.restore()

    def fail(*arguments: object) -> None:
        raise away

    with monkeypatch.context() as during:
        for name in ("add_checkpoint", "await_writers"):
            during.setattr(store, name, fail)
        for _ in range(2):
            with pytest.raises(StoreError):
                runner.run(saving.epochs.epochs()[-1])
        assert folders(saving) == {"0-1-state"}
    runner.run(saving.epochs.epochs()[-1])
    assert folders(saving) == {"0-2-state"}
