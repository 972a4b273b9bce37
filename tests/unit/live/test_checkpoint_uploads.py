"""Uploads of checkpoints to an object store: those that fail, that are overtaken, and what they leave."""

import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from falkirk.errors.conditions.platform import DATA_AWAY
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.live.shared_checkpoints import SharedCheckpoints
from falkirk.theory.ids import BatchId
from tests.support import wait_until
from tests.unit.live.machines import Machine


def test_an_upload_that_a_rollback_overtakes_is_not_recorded(
    machine: Callable[[str], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = machine("first")
    first.begin()
    first.commit(0)
    first.commit(1, saved=False)
    assert first.files.save(BatchId(1)) == 0, "its upload has begun"
    first.files.rewind(BatchId(0))
    assert first.begin(0) is None
    for _ in range(3):
        assert first.files.save(BatchId(0)) == 0
    assert first.files.numbers() == (0,)


def _failing(
    first: Machine, monkeypatch: pytest.MonkeyPatch, at: str, *, after: str = "", meanwhile: Callable[[], object] = int
) -> list[str]:
    """Let the first upload of a file fail. Returns: the places of all uploads, in order.

    Args: at: the file. after: the file that is uploaded before; by default any. meanwhile: is called just before the
        failure, so before the next try begins.
    """
    real, places = LocalData.copy_from, list[str]()
    before, has_failed = threading.Semaphore(0), threading.Event()

    def copy_from(data: LocalData, file: Path) -> tuple[int, int]:
        if file.name == at and not has_failed.is_set():
            assert before.acquire(timeout=20), "another file is uploaded first"
            meanwhile()
            has_failed.set()
            raise DATA_AWAY.error(where=data, reason="a test")
        places.append(str(data).removeprefix(f"{first.data}/"))
        found = real(data, file)
        if after in ("", file.name):
            before.release()
        return found

    monkeypatch.setattr(LocalData, "copy_from", copy_from)
    return places


def test_another_try_of_an_upload_sends_only_what_is_missing(
    machine: Callable[[str], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a link that breaks each minute, the first upload of a large state would never end."""
    first = machine("first")
    first.begin()
    places = _failing(first, monkeypatch, "1_b0.changelog")
    first.commit(0)
    names = [place.rpartition("/")[2] for place in places]
    assert sorted(names) == sorted(set(names)), "nothing is sent twice"
    assert machine("second").begin(0) is None


def test_another_try_of_an_upload_writes_no_object_again(
    machine: Callable[[str], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of the first try may reach the object store late, with a part of a file that has grown since."""
    first, sst = machine("first"), "state/0/0/SSTs/000008-aa.sst"
    file = first.spark / sst
    first.begin()
    file.parent.mkdir(parents=True)
    file.write_text("part")
    grows = partial(file.write_text, "the whole file")
    places = _failing(first, monkeypatch, "1_a0.changelog", after=file.name, meanwhile=grows)
    first.commit(0, saved=False)

    def waits() -> bool:
        return first.files.save(BatchId(0)) < 0 and first.files.waits_for != ""

    wait_until(waits, 20, "the failure")
    first.save(0)
    ours = [place for place in places if place.endswith(".sst")]
    late = ours[0]
    assert len(set(ours)) == len(ours)
    (Path(str(first.data)) / late).write_text("part")
    second = machine("second")
    assert second.begin(0) is None
    assert second.content()[sst] == "the whole file"


def test_a_checkpoint_of_which_spark_deletes_a_file_during_its_upload_does_not_count(
    machine: Callable[[str], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upload took as long as a hundred batches. Without the file, no start could restore the checkpoint."""
    first, real = machine("first"), LocalData.copy_from
    first.begin()
    first.commit(0)
    sst = first.spark / "state/0/0/SSTs/000008-aa.sst"
    sst.parent.mkdir(parents=True)
    sst.write_text("the rows of all keys")

    def copy_from(data: LocalData, file: Path) -> tuple[int, int]:
        sst.unlink(missing_ok=True)
        return real(data, file)

    monkeypatch.setattr(LocalData, "copy_from", copy_from)
    first.commit(1, saved=False)
    assert first.files.save(BatchId(1)) == 0
    first.commit(2)
    assert first.files.numbers() == (0, 2)


def test_a_start_that_is_refused_deletes_nothing(
    machine: Callable[[str], Machine], store: Store, tmp_path: Path
) -> None:
    """Somebody restored an older backup of the database. The sink shows that, but only after the restore of a region
    (`SINK_AHEAD`). With the right backup, all checkpoints must be there."""
    first = machine("first")
    first.begin()
    first.commit(0)
    with closing(sqlite3.connect(tmp_path / "decisions.db")) as now, closing(sqlite3.connect(tmp_path / "old")) as old:
        now.backup(old)
    for batch in (1, 2):
        first.commit(batch)
    wrong = Machine(tmp_path, Store(tmp_path / "old"), "second")
    assert wrong.begin(0) is None
    wait_until(lambda: not _work(), 20, "all work in the background")
    again = machine("second")
    assert again.begin(2) is None
    again.commit(3)


def test_nothing_is_deleted_before_all_outputs_of_the_application_are_compared(
    machine: Callable[[str], Machine],
) -> None:
    """The output of another region, which waits for a view, may show later that the database is an older backup."""
    first = machine("first")
    first.begin()
    (left := first.data / "former/7/state/0/0/8_a7.changelog").write_text("of the right backup")
    first.may_delete = False
    first.commit(0)
    wait_until(lambda: not _work(), 20, "all work in the background")
    assert left.exists()
    first.may_delete = True
    first.commit(1)
    wait_until(lambda: not left.exists(), 20, "the deletion")


def _work() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "falkirk-work"]


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_former_incarnation_left_is_deleted_once_a_checkpoint_is_recorded(
    machine: Callable[[str], Machine], monkeypatch: pytest.MonkeyPatch, *, restarts: bool
) -> None:
    """The listing shows objects of the upload that is under way, or of the next incarnation. These stay."""
    first, listed, began = machine("first"), LocalData.listed, threading.Event()
    copied, deleted, swept = LocalData.copy_from, SharedCheckpoints._delete, threading.Event()
    first.begin()
    (first.data / "former/7/state/0/0/8_a7.changelog").write_text("left")

    def late(data: LocalData) -> list[str]:
        began.set()
        wait_until(lambda: any("2_a1.changelog" in name for name in listed(data)), 20, "the next upload")
        return listed(data)

    def copy_from(data: LocalData, file: Path) -> tuple[int, int]:
        found = copied(data, file)
        if file.name == "2_a1.changelog" and not restarts:
            assert swept.wait(20), "the upload lasts longer than the deletion"
        return found

    def delete(files: SharedCheckpoints, places: Iterable[str]) -> None:
        deleted(files, places)
        swept.set()

    monkeypatch.setattr(LocalData, "listed", late)
    monkeypatch.setattr(LocalData, "copy_from", copy_from)
    monkeypatch.setattr(SharedCheckpoints, "_delete", delete)
    first.commit(0)
    assert began.wait(20)
    if restarts:
        first.files.rewind(BatchId(0))
        assert first.begin(0) is None
    first.commit(1)
    wait_until(lambda: not _work(), 20, "the deletion")
    first.commit(2)
    wait_until(lambda: not any(name.startswith("former/") for name in listed(first.data)), 20, "the deletion")
    assert machine("second").begin(2) is None


def test_a_file_that_spark_writes_again_is_another_object(machine: Callable[[str], Machine]) -> None:
    """An SST file may be uploaded while Spark writes it. The deletion of that part must not delete the whole one."""
    first, sst = machine("first"), "state/0/0/SSTs/000008-aa.sst"
    first.begin()
    for batch, text in enumerate(("part", "the whole file", "the whole file")):
        (first.spark / sst).parent.mkdir(exist_ok=True)
        (first.spark / sst).write_text(text)
        first.commit(batch)
        first.files.keep_only([BatchId(batch)])
    wait_until(lambda: len([n for n in first.data.listed() if n.endswith(".sst")]) == 1, 20, "the deletion of the part")
    second = machine("second")
    assert second.begin(2) is None
    assert second.content()[sst] == "the whole file"
