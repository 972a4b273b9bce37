"""`falkirk rollback --force` while epochs are released: those that become invalid lose their results meanwhile."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from falkirk.errors import HomeError
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.sinks.release import EpochReleaser
from tests.strays import drop_strays
from tests.support import on_disk, wait_until
from tests.unit.epochs.test_backpressure import session


class Sink:
    """A target that calls a function during the first delivery, when it has accepted the epoch."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.taken, self._meanwhile = list[int](), meanwhile

    def seen(self) -> int:
        return max(self.taken, default=-1) + 1

    visible = delivered = seen

    def deliver(self, epoch: int, rows: object, *, few: bool = False) -> None:
        self.taken.append(epoch)
        if len(self.taken) == 1:
            self._meanwhile()


@pytest.fixture
def epochs(store: Store, tmp_path: Path) -> EpochLog:
    """Three complete epochs with results on disk."""
    log = EpochLog("epochs of b", "b", LocalData(tmp_path / "b"), store)
    for _ in range(3):
        complete(log)
    return log


def complete(log: EpochLog) -> None:
    """Decide and complete the next epoch."""
    n = log.next_number()
    log.decide({"t": {0: n}}, {"t": {0: n + 1}}, {}, 0.0)
    on_disk(log.path(f"{n}")).mkdir(parents=True)
    (log.path(f"{n}") / "part-0.parquet").write_text("rows")
    log.record(n, folder=f"{n}", rows=1, dead=0, state=None, saved=True)


def roll_back(log: EpochLog, store: Store, *, deletes: bool = True) -> None:
    """Void all epochs after the first one, and delete their folders, as a forced rollback does."""
    number = store.open_recovery("asked", {"b": 0}, voids=[(log.name, 0, 1, log.next_number())])
    if deletes:
        drop_strays(log, store)
    store.advance_recovery(number, "done")


def release(releaser: EpochReleaser, last: int) -> None:
    spark = session()
    wait_until(lambda: releaser.release(spark, 0, last) == last, 30, lambda: f"{releaser.detail}")


@pytest.mark.parametrize("deletes", [True, False])
def test_epochs_that_become_invalid_during_a_release_are_skipped(
    epochs: EpochLog, store: Store, *, deletes: bool
) -> None:
    """Before, the application ended with `STATE_DAMAGED`: the deleted results were taken for lost ones. Their folders
    are deleted a moment after they become invalid."""
    sink = Sink(lambda: roll_back(epochs, store, deletes=deletes))
    releaser = EpochReleaser(epochs, {"s": sink}, None, StructType())
    release(releaser, 3)
    complete(epochs)
    release(releaser, 4)
    assert sink.taken == [0, 3], "an invalid epoch was published, or a valid one was not"
    assert releaser.detail == ""


def test_an_epoch_that_becomes_invalid_while_it_is_read_is_skipped(
    epochs: EpochLog, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, sink = epochs.results, Sink(lambda: None)
    releaser = EpochReleaser(epochs, {"s": sink}, None, StructType())

    def read(epoch: object) -> object:
        if epoch == epochs.epochs()[1]:
            monkeypatch.setattr(epochs, "results", results)
            roll_back(epochs, store)
        return results(epoch)  # type: ignore[arg-type]

    monkeypatch.setattr(epochs, "results", read)
    release(releaser, 3)
    assert sink.taken == [0]


def test_missing_results_of_a_valid_epoch_are_damage(epochs: EpochLog) -> None:
    sink = Sink(lambda: epochs.drop("1"))
    releaser = EpochReleaser(epochs, {"s": sink}, None, StructType())
    with pytest.raises(HomeError) as caught:
        release(releaser, 3)
    assert (caught.value.condition, sink.taken) == ("STATE_DAMAGED", [0])
