"""A full disk: existing data stays unchanged, the error is clear, and work resumes once the disk has space."""

import errno
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import falkirk as fk
from falkirk.errors import HomeError, StoreError
from falkirk.platform.disk import is_full
from falkirk.platform.durable import write_atomically
from falkirk.recovery.decision_store import Store
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.status import RegionStatus
from falkirk.runtime.supervision.coordinator import Coordinator, read_status
from falkirk.runtime.supervision.process import write_status
from falkirk.runtime.supervision.settings import RunSettings
from tests.disks import SmallDisk, small_disk
from tests.support import wait_until


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", "2m") as mounted:
        yield mounted


def test_it_is_told_from_other_failures() -> None:
    java = RuntimeError("Job aborted\n\tat x\nCaused by: java.io.IOException: No space left on device")
    wrapped = StoreError("STORE_AWAY", "…")
    wrapped.__cause__ = OSError(errno.EDQUOT, "over quota")
    assert all(map(is_full, (OSError(errno.ENOSPC, "full"), java, wrapped)))
    assert not any(map(is_full, (None, OSError(errno.EACCES, "no"), RuntimeError("full"))))


def test_a_store_on_a_full_disk_is_away_and_goes_on(disk: SmallDisk) -> None:
    store = Store(disk.path / "decisions.db")
    store.record_decision("cut", "sales", 0, "before")
    disk.fill()
    for _ in range(3):
        with pytest.raises(StoreError) as refused:
            store.record_decision("cut", "sales", 1, "x" * 5_000)
        assert (refused.value.condition, refused.value.certainty) == ("STORE_AWAY", "maybe")
        assert "full" in refused.value.message
    store.await_writers()  # so the answer that was missing is known before there is space
    assert [d.number for d in store.decisions("cut", "sales")] == [0]
    disk.empty()
    store.record_decision("cut", "sales", 1, "after")
    store.close()
    reopened = Store(disk.path / "decisions.db", must_exist=True)
    assert [d.content for d in reopened.decisions("cut", "sales")] == ["before", "after"]
    reopened.close()


def test_a_file_stays_as_it_was_and_nothing_else_is_left(disk: SmallDisk) -> None:
    file = disk.path / "shape.json"
    write_atomically(file, "as it was")
    disk.fill()
    with pytest.raises(OSError, match="No space") as full:
        write_atomically(file, "x" * 100_000)
    assert is_full(full.value)
    assert file.read_text() == "as it was"
    assert {p.name for p in disk.path.iterdir()} == {"shape.json", "ballast"}


def test_a_home_can_not_begin_there_and_says_so(disk: SmallDisk) -> None:
    (disk.path / "home").mkdir()
    disk.fill()
    with pytest.raises(HomeError) as refused:
        open_home(disk.path / "home", "shop")
    assert refused.value.condition == "HOME_UNUSABLE"
    disk.empty()
    open_home(disk.path / "home", "shop").close()


def test_a_host_does_not_fall_silent(disk: SmallDisk) -> None:
    write_status(disk.path, (RegionStatus(name="sales", detail="x" * 50),))
    before = read_status(disk.path / "status.json")
    disk.fill()
    write_status(disk.path, (RegionStatus(name="sales", detail="the disk is full"),))
    now = read_status(disk.path / "status.json")
    assert before is not None
    assert now is not None
    assert now["at_s"] > before["at_s"]
    assert now["regions"][0]["detail"] == "the disk is full"
    (disk.path / "status.json").write_bytes(json.dumps(now).encode()[:20])
    assert read_status(disk.path / "status.json") is None, "a half-written status counts as none"
    assert read_status(disk.path) is None, "an unreadable status counts as none, for example without free descriptors"


def test_a_start_waits_for_space(disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    home, said, started = disk.path / "home", list[str](), threading.Event()
    open_home(home, "shop").close()
    disk.fill()
    app = fk.App("shop", kafka="127.0.0.1:1", home=home)
    coordinator = Coordinator(app, RunSettings(file=Path(__file__)), say=said.append)

    def host(self: Coordinator, home: object) -> str:
        started.set()
        self.stop()
        return "stopped"

    monkeypatch.setattr(Coordinator, "_run_host", host)
    disk.empty()
    (disk.path / "ballast").write_bytes(b"x" * 1_500_000)  # leaves space for the lock and a decision, not for a host
    runs = threading.Thread(target=coordinator.run)
    runs.start()
    wait_until(lambda: said, 10, "that it waits")
    assert "the disk is full" in said[0]
    assert not started.is_set()
    disk.empty()
    wait_until(started.is_set, 10, "the host")
    runs.join()
    assert len(said) == 1
