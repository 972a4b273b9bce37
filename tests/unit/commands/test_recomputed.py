"""`falkirk verify outputs` beside a running application, which deletes epochs meanwhile."""

import json
import shutil
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException

from falkirk.errors import HomeError
from falkirk.platform.data import DataPath
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.steps.batch.loop_files import LoopFolders
from falkirk.theory.ids import EpochNumber, LogId, Offset
from falkirk.user_tools.commands import recomputed
from falkirk.user_tools.commands.recomputed import _Log, _Run, read_kept
from tests.support import on_disk


class Kept:
    """A batch with a saved state that names a file."""

    def __init__(self, store: Store, path: Path) -> None:
        self.real = EpochLog(LogId.of_epochs("b"), "b", LocalData(path / "home"), store)
        number = self.real.decide({}, {}, {}, 0.0)
        for name in ("0-results", "0-state"):
            on_disk(self.real.path(name)).mkdir(parents=True)
            (self.real.path(name) / "rows").write_text("rows")
        on_disk(self.real.files()).mkdir()
        (self.real.files() / "changes").write_text("changes")
        self.real.record(number, folder="0-results", rows=1, dead=0, state="0-state", saved=True)
        (self.epoch,) = self.real.epochs()
        batch = SimpleNamespace(name="b", notes=("loop",), iteration=None, is_stateful=True)
        context = SimpleNamespace(home=SimpleNamespace(store=store))
        self.log = _Log(self.real, cast(Any, batch), cast(Any, context), LocalData(path / "again"))
        found = SimpleNamespace(batch=batch, log=self.log)
        self.state = {"own": "0-state"}
        states = SimpleNamespace(read=lambda folder, is_result: self.state)
        jobs = SimpleNamespace(session=None, states_of=lambda log: states)
        self.run = _Run(cast(Any, found), cast(Any, jobs), lambda topic: False, None)


@pytest.fixture
def kept(store: Store, tmp_path: Path) -> Kept:
    return Kept(store, tmp_path)


def test_a_state_that_is_still_there_is_read(kept: Kept) -> None:
    assert kept.run._saved(kept.epoch) == {"own": "0-state"}
    assert (kept.log.files() / "changes").read_text() == "changes"


def test_a_state_that_is_deleted_while_it_is_checked_is_unknown(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    before = EpochLog.state

    def state(log: EpochLog, epoch: Any) -> DataPath:
        log.drop("0-state")
        return before(log, epoch)

    monkeypatch.setattr(EpochLog, "state", state)
    assert kept.run._saved(kept.epoch) is None


def test_its_files_are_deleted_while_they_are_copied(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    before = shutil.copytree

    def copytree(source: Path, target: Path, *, copy_function: Any = shutil.copy2, **more: Any) -> Path:
        def copy(file: str, to: str) -> None:
            kept.real.drop("0-state")
            Path(file).unlink()
            copy_function(file, to)

        return before(source, target, copy_function=copy, **more)

    monkeypatch.setattr(recomputed, "copytree", copytree)
    assert kept.run._saved(kept.epoch) is None


@pytest.mark.parametrize("is_deleted", [False, True])
def test_the_files_of_a_loop_in_an_object_store_are_fetched(kept: Kept, tmp_path: Path, *, is_deleted: bool) -> None:
    """The running application may delete the state meanwhile; else a missing file is damage."""
    place = kept.real.files() / "loop" / "0-aa" / "x.arrow"
    place.write_text("rows")
    kept.state = {"loop": json.dumps({"files": {"0-aa/x.arrow": [4, zlib.crc32(b"rows")]}})}
    kept.run._loops = LoopFolders(kept.real.files(), tmp_path / "copies", is_recomputed=True)
    assert kept.run._saved(kept.epoch) == kept.state
    copy = tmp_path / "copies/loop/0-aa/x.arrow"
    assert copy.read_text() == "rows"
    copy.unlink()
    place.delete()
    if is_deleted:

        def read(folder: str, is_result: bool) -> Any:
            kept.real.drop("0-state")
            return kept.state

        kept.run._jobs.states_of(kept.real).read = read  # type: ignore[method-assign]
        assert kept.run._saved(kept.epoch) is None
        return
    with pytest.raises(HomeError, match=r"x\.arrow"):
        kept.run._saved(kept.epoch)


def test_a_damaged_state_is_refused(kept: Kept) -> None:
    (kept.real.path("0-state") / "rows").write_text("torn")
    on_disk(kept.real.path("0-state") / "rows").unlink()
    with pytest.raises(HomeError, match="can't be read"):
        kept.run._saved(kept.epoch)


def test_results_that_are_deleted_while_they_are_checked_are_computed_again(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.log.again[EpochNumber(0)] = "0-again"
    before = EpochLog._whole

    def whole(log: EpochLog, *arguments: Any) -> Path:
        kept.real.drop("0-results")
        return before(log, *arguments)

    monkeypatch.setattr(EpochLog, "_whole", whole)
    assert kept.log.results(kept.epoch) == kept.log.path("0-again")


class Reader:
    """Reads the results of epochs like Spark, which fails for a file that is deleted while it reads."""

    def __init__(self, kept: list[int], *, deleted: list[int]) -> None:
        self.kept, self._deleted, self.tries = kept, deleted, 0

    def how(self) -> dict[EpochNumber, str]:
        return {EpochNumber(n): "counted" for n in self.kept}

    def read(self, how: Any) -> list[int]:
        self.tries += 1
        if self._deleted:
            self.kept.remove(self._deleted.pop())
            raise AnalysisException("[PATH_NOT_FOUND] Path does not exist")
        return sorted(how)


def test_what_is_left_is_read_again_when_results_are_deleted_meanwhile() -> None:
    reader = Reader([0, 1, 2], deleted=[1, 0])
    how, read = read_kept(reader.how, reader.read, (AnalysisException,))
    assert (sorted(how), read, reader.tries) == ([2], [2], 3)


def test_an_error_without_a_deletion_is_raised() -> None:
    def fail(how: Any) -> None:
        raise AnalysisException("no such column")

    with pytest.raises(AnalysisException, match="no such column"):
        read_kept(Reader([0], deleted=[]).how, fail, (AnalysisException,))


@pytest.mark.parametrize("is_deleted", [True, False])
def test_an_epoch_is_computed_again_if_results_that_it_reads_are_deleted_meanwhile(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, *, is_deleted: bool
) -> None:
    """Before, it was not computed again: "a file does not exist"."""
    reader = replace(kept.epoch, first={kept.log.name: {0: Offset(0)}}, last={kept.log.name: {0: Offset(1)}})
    kept.run._jobs.all_logs = {kept.log.name: kept.log}  # type: ignore[misc]
    tries = list[int]()

    def compute(run: _Run, epoch: Any) -> str:
        tries.append(len(run._there(epoch)))
        if len(tries) == 1:
            if is_deleted:
                kept.real.drop("0-results")
            raise AnalysisException("[PATH_NOT_FOUND] Path does not exist")
        return "computed"

    monkeypatch.setattr(_Run, "_compute", compute)
    if is_deleted:
        assert kept.run._compute_kept(reader) == "computed"
        assert tries == [1, 0]
        return
    with pytest.raises(AnalysisException):
        kept.run._compute_kept(reader)
