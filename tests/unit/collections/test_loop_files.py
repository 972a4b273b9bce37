"""The files of an iteration in an object store: another machine fetches them, and only the owner deletes any."""

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.errors import HomeError, StoreError
from falkirk.errors.conditions.platform import DATA_AWAY
from falkirk.platform.local_data import LocalData
from falkirk.runtime.spark.epochs.states import States
from falkirk.runtime.spark.epochs.term import Term
from falkirk.steps.batch.loop_files import LoopFiles, LoopFolders
from falkirk.steps.differential.state import LoopState
from tests.support import outcome


class Machines:
    """One place of data, and a folder for each machine. Attributes: owner: of the home."""

    def __init__(self, path: Path) -> None:
        self.data, self.path, self.owner = LocalData(path / "data"), path, ""

    def files_of(self, machine: str, *, is_recomputed: bool = False) -> LoopFiles:
        def confirm() -> None:
            if self.owner != machine:
                raise StoreError("HOME_TAKEN_OVER", "another process owns it", hint="end")

        self.owner = machine
        return LoopFolders(self.data, self.path / machine, confirm, is_recomputed=is_recomputed).of("iterate-1")

    def objects(self) -> set[str]:
        return set((self.data / "iterate-1").listed())


def write(files: LoopFiles, *names: str) -> set[str]:
    for name in names:
        (files.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (files.folder / name).write_text(f"rows of {name}")
    return set(names)


def sweep(files: LoopFiles, keep: Iterable[str]) -> None:
    files.sweep(files.candidates(), set(keep))


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


def test_another_machine_fetches_the_files_of_a_state(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    first = machines.files_of("a")
    first.require({}, contents=True)
    kept = first.save(write(first, "0-aa/x.arrow", "0-aa/left/y.arrow"))
    assert machines.objects() == set(kept)
    second, fetched = machines.files_of("b"), list[str]()
    real = LocalData.copy_to
    monkeypatch.setattr(LocalData, "copy_to", lambda self, *a: (fetched.append(self.name), real(self, *a)))
    second.require(kept, contents=True)
    assert {(second.folder / name).read_text() for name in kept} == {f"rows of {name}" for name in kept}
    assert sorted(fetched) == ["x.arrow", "y.arrow"]
    (second.folder / "0-aa/x.arrow").write_text("ROWS OF 0-aa/x.arrow")  # as long: a disk lies
    second.require(kept, contents=False)
    assert len(fetched) == 2, "sizes are enough once contents were compared"
    second.require(kept, contents=True)
    (second.folder / "0-aa/left/y.arrow").write_text("torn")
    second.require(kept, contents=False)
    assert fetched[2:] == ["x.arrow", "y.arrow"]


@pytest.mark.parametrize("content", [None, "torn", "ROWS OF 0-aa/x.arrow"])
def test_a_damaged_object_is_named(machines: Machines, content: str | None) -> None:
    first = machines.files_of("a")
    kept = first.save(write(first, "0-aa/x.arrow"))
    place = machines.path / "data/iterate-1/0-aa/x.arrow"
    place.unlink() if content is None else place.write_text(content)
    with pytest.raises(HomeError, match=r"x\.arrow") as refused:
        machines.files_of("b").require(kept, contents=True)
    assert refused.value.condition == "STATE_DAMAGED"
    first.require(kept, contents=True)  # its working copy is whole


def test_files_that_no_state_names_are_deleted(machines: Machines) -> None:
    machines.files_of("a").save(write(machines.files_of("a"), "0-aa/stray.arrow"))  # it was killed before the record
    second = machines.files_of("b")
    kept = second.save(write(second, "0-bb/x.arrow"))
    write(second, "0-bb/only-here.arrow")
    sweep(second, kept)
    assert machines.objects() == {"0-bb/x.arrow"} == {str(p.relative_to(second.folder)) for p in _files(second)}
    more = second.save(write(second, "1-bb/y.arrow"))
    sweep(second, more)
    assert machines.objects() == {"1-bb/y.arrow"}


def test_a_former_owner_that_resumes_deletes_no_object(machines: Machines) -> None:
    former = machines.files_of("a")
    old = former.save(write(former, "0-aa/x.arrow"))
    sweep(former, old)
    newer = former.save(write(former, "1-aa/y.arrow"))  # it is suspended after the record of the epoch
    present = machines.files_of("b")
    present.require(old, contents=True)  # after a rollback
    assert outcome(lambda: sweep(former, newer)) == "HOME_TAKEN_OVER"
    assert set(old) <= machines.objects()


def test_an_upload_that_is_cut_off_is_deleted_later(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    files = machines.files_of("a")
    kept = files.save(write(files, "0-aa/x.arrow"))
    sweep(files, kept)
    real = LocalData.copy_from

    def cut(self: LocalData, file: Path) -> Any:
        if file.name == "z.arrow":
            raise DATA_AWAY.error(where=file, reason="cut off")
        return real(self, file)

    with monkeypatch.context() as patch:
        patch.setattr(LocalData, "copy_from", cut)
        assert outcome(lambda: files.save(write(files, "1-aa/a.arrow", "1-aa/z.arrow"))) == "DATA_AWAY"

    def away(self: LocalData) -> None:
        raise DATA_AWAY.error(where=self, reason="refused")

    with monkeypatch.context() as patch:
        patch.setattr(LocalData, "delete", away)
        sweep(files, kept)  # it waits for the next epoch
    sweep(files, kept)
    assert machines.objects() == set(kept)


def test_an_object_store_that_lists_nothing_stops_no_epoch(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    machines.files_of("a").save(write(machines.files_of("a"), "0-aa/stray.arrow"))
    files = machines.files_of("b")
    kept = files.save(write(files, "0-bb/x.arrow"))

    def away(self: LocalData) -> list[str]:
        raise DATA_AWAY.error(where=self, reason="refused")

    with monkeypatch.context() as patch:
        patch.setattr(LocalData, "listed", away)
        sweep(files, kept)
    assert "0-aa/stray.arrow" in machines.objects()
    sweep(files, kept)
    assert machines.objects() == set(kept)


def test_a_recomputation_changes_nothing_in_the_object_store(machines: Machines) -> None:
    first = machines.files_of("a")
    kept = first.save(write(first, "0-aa/x.arrow"))
    again = machines.files_of("verify", is_recomputed=True)
    again.require(kept, contents=True)
    new = again.save(write(again, "0-vv/y.arrow"))
    again.require({**kept, **new}, contents=True)
    sweep(again, new)
    assert machines.objects() == set(kept)


def _files(files: LoopFiles) -> list[Path]:
    return [path for path in files.folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("is_local", [False, True])
def test_files_without_a_note_stay_until_all_outputs_of_the_application_are_compared(
    machines: Machines, is_local: bool
) -> None:
    """Another processor's output may show that the database is an older backup, and the right one names the files. It
    names none that this process has saved, and those of each epoch would fill the disk meanwhile."""
    may_delete = False
    write(former := machines.files_of("former"), "7-aa/x.arrow")
    former.save({"7-aa/x.arrow"})
    loops = LoopFolders(machines.data, None if is_local else machines.path / "a", may_delete=lambda: may_delete)
    (files := loops.of("iterate-1")).require({}, contents=True)
    if is_local:
        assert (files.folder / "7-aa/x.arrow").exists()
    batch, epochs = SimpleNamespace(notes=("iterate-1",)), SimpleNamespace(epochs=tuple)
    states = States(cast(Any, None), cast(Any, batch), cast(Any, epochs), loops)
    for epoch in range(2):
        files.save(write(files, f"8-{epoch}/y.arrow"))
        assert machines.objects() == {"7-aa/x.arrow", f"8-{epoch}/y.arrow"}
        states.sweep([], lambda: False)
        assert machines.objects() == {"7-aa/x.arrow"}
    may_delete = True
    states.sweep([], lambda: False)
    assert not machines.objects()


class Sweeping:
    """A batch whose run sweeps after epoch 7. Attributes: between: is called when the run has read its records."""

    def __init__(self, machines: Machines, *, is_local: bool, may_delete: Callable[[], bool] = lambda: True) -> None:
        self.data, self.recorded = machines.data, list[str]()
        loops = LoopFolders(machines.data, None if is_local else machines.path / "a", may_delete=may_delete)
        self.files = loops.of("iterate-1")
        self.between: Callable[[], None] = lambda: None
        self.files.require({}, contents=True)
        batch, epochs = (
            SimpleNamespace(name="b", notes=("iterate-1",)),
            SimpleNamespace(epochs=self._read, path=self.path),
        )
        self.states = States(cast(Any, None), cast(Any, batch), cast(Any, epochs), loops)

    def path(self, folder: str) -> LocalData:
        return self.data / "regions" / folder

    def _read(self) -> tuple[Any, ...]:
        found = tuple(SimpleNamespace(state=state) for state in self.recorded)
        self.between()
        return found

    def save(self, name: str) -> None:
        self.files.save(write(self.files, name))

    def record(self, epoch: int, name: str) -> None:
        note = LoopState(traces={("held", "kind"): (name,)}).text()
        (self.path(f"{epoch}-state") / "iterate-1.json").write_text(json.dumps({"state": note}))
        self.recorded.append(f"{epoch}-state")


@pytest.mark.parametrize("is_local", [False, True])
def test_a_sweep_that_hangs_leaves_what_the_next_run_has_recorded_meanwhile(machines: Machines, is_local: bool) -> None:
    """Nobody waits for the worker of a stopped run without a limit. A listing of an object store may take long."""
    batch = Sweeping(machines, is_local=is_local)
    batch.save("6-aa/old.arrow")
    batch.save("7-aa/x.arrow")
    batch.record(7, "7-aa/x.arrow")

    def next_run() -> None:
        batch.save("8-bb/y.arrow")
        batch.record(8, "8-bb/y.arrow")

    batch.between = next_run
    batch.states.sweep([], lambda: False)
    assert machines.objects() == {"7-aa/x.arrow", "8-bb/y.arrow"}


@pytest.mark.parametrize("is_local", [False, True])
def test_a_sweep_that_begins_late_leaves_what_the_next_run_has_not_recorded_yet(
    machines: Machines, is_local: bool
) -> None:
    term = Term()

    def hangs() -> bool:  # the store answers once a rollback has restarted the batch, and its epoch is being saved
        term.end()
        batch.save("8-bb/y.arrow")
        return True

    batch = Sweeping(machines, is_local=is_local, may_delete=hangs)
    batch.save("7-aa/x.arrow")
    batch.record(7, "7-aa/x.arrow")
    batch.states.sweep([], lambda: term.is_over)
    assert machines.objects() == {"7-aa/x.arrow", "8-bb/y.arrow"}


def test_a_state_that_is_deleted_while_a_sweep_reads_its_note_names_nothing(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The main thread collects folders. The epoch of this sweep is recorded already, so it must not fail."""
    batch = Sweeping(machines, is_local=False)
    batch.record(7, "7-aa/x.arrow")
    batch.save("7-aa/x.arrow")
    real = LocalData.read_text

    def read_text(self: LocalData) -> str:
        shutil.rmtree(batch.path("7-state").local)
        return real(self)

    monkeypatch.setattr(LocalData, "read_text", read_text)
    batch.states.sweep([], lambda: False)
    assert not machines.objects()
