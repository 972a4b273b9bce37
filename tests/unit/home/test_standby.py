"""The coordinator's standby, with stub processes: it takes over from the host, and no failure of it ends anything."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import falkirk as fk
from falkirk.platform import priority
from falkirk.recovery.ownership import folder as homes
from falkirk.recovery.ownership.folder import STANDBY, open_home
from falkirk.recovery.ownership.process_records import ProcessRecord
from falkirk.runtime.supervision import coordinator as supervise
from falkirk.runtime.supervision import standby as standbys
from falkirk.runtime.supervision.coordinator import Coordinator
from falkirk.runtime.supervision.settings import PLAN, RunSettings
from falkirk.runtime.supervision.standby import TRIES_MAX
from tests.support import wait_until

#: An owner that can't renew it in time ends its process: here that of the tests. Nobody waits for its end.
LEASE_S = 60.0

#: Stands for a host. `argv`: its folder, in which `standby` names what a standby does.
HOST = """
import json, os, pathlib, sys, threading

folder = pathlib.Path(sys.argv[1])
settings = json.loads(sys.stdin.readline())

def note(what):
    with open(folder / "notes", "a") as notes:
        notes.write(f"{os.getpid()} {what}\\n")

if settings["standby"]:
    note("standby")
    does = (folder / "standby").read_text()
    if does == "fails":
        sys.exit(7)
    if does != "hangs":
        pathlib.Path(settings["standby"], "state").write_text("planned" if does == "is cold" else "warm")
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    if does == "is outdated":
        sys.exit(5)
    if does == "is silent":
        threading.Event().wait()
note("host")
home, ended = pathlib.Path(settings["home"]), threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
count = 0
while not ended.wait(0.02):
    count += 1
    region = {"name": "counts", "state": "running", "last_commit": count // 5}
    text = json.dumps({"at_s": float(count), "pid": os.getpid(), "regions": [region], "push": [], "error": None})
    (home / ".next").write_text(text)
    os.replace(home / ".next", home / "status.json")
"""


class Run:
    """A coordinator in a thread, with stub processes."""

    def __init__(
        self, folder: Path, *, does: str = "waits", home: Path | None = None, lease_s: float | None = None
    ) -> None:
        self.folder, self.home, self.said = folder, home or folder / "home", list[str]()
        self.started: list[subprocess.Popen[str]] = []
        (folder / "standby").write_text(does)
        settings = RunSettings(file=Path(__file__), standby=True, lease_s=lease_s)
        app = fk.App("shop", kafka="127.0.0.1:1", home=self.home)
        self.coordinator = Coordinator(app, settings, say=self.said.append, start=self.start_process)
        self.thread = threading.Thread(target=self.coordinator.run)

    def start_process(self, home: Path) -> "subprocess.Popen[str]":
        """Stand for `start_process`."""
        command = [sys.executable, "-c", HOST, str(self.folder)]
        self.started.append(subprocess.Popen(command, stdin=subprocess.PIPE, text=True))
        return self.started[-1]

    def pids(self, role: str) -> list[int]:
        """Return the processes that have noted a role, oldest first."""
        notes = self.folder / "notes"
        lines = notes.read_text().splitlines() if notes.exists() else []
        return [int(line.split()[0]) for line in lines if line.split()[1] == role]

    def record(self) -> dict[str, Any]:
        """Return the home's record of a standby, or an empty one."""
        file = self.home / STANDBY
        return json.loads(file.read_text()) if file.exists() else {}

    def ready(self) -> int:
        """Wait for a standby that is ready; return its pid."""

        def is_ready() -> bool:
            record = self.record()
            return bool(record) and Path(record["folder"], "state").exists()

        wait_until(is_ready, 30, lambda: f"a standby: {self.said}")
        return int(self.record()["process"]["pid"])

    def await_hosts(self, number: int) -> None:
        wait_until(lambda: len(self.pids("host")) >= number, 30, lambda: f"host {number}: {self.said}")

    def kill_host(self) -> None:
        psutil.Process(self.pids("host")[-1]).kill()


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Run]]:
    """Return a function that starts a run."""
    runs: list[Run] = []

    def start(**options: Any) -> Run:
        run = Run(tmp_path, **options)
        runs.append(run)
        run.thread.start()
        run.await_hosts(1)
        return run

    yield start
    for run in runs:
        run.coordinator.stop()
        run.thread.join()
        assert not [process.pid for process in run.started if psutil.pid_exists(process.pid)]
        assert not (run.home / STANDBY).exists()


@pytest.mark.parametrize("does", ["waits", "is outdated", "fails"])
def test_one_of_a_process_that_waits_for_the_lease_takes_over(
    does: str, begin: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standbys, "FAILED_PAUSE_S", 0.1)
    owner = begin(lease_s=LEASE_S)
    owner.ready()
    (owner.home / PLAN).touch()
    (tmp_path / "other").mkdir()
    other = Run(tmp_path / "other", does=does, home=owner.home, lease_s=LEASE_S)
    other.thread.start()
    try:
        ready = "waiting with a warm Spark application"
        wait_until(lambda: other.pids("standby") and (does == "fails" or ready in other.said), 30, str(other.said))
        assert owner.record()["process"]["pid"] not in other.pids("standby"), "the home names that of the owner"
        assert not other.pids("host")
        owner.coordinator.stop()
        owner.thread.join()
        other.await_hosts(1)
        assert (other.pids("host")[0] in other.pids("standby")) is (does == "waits")
    finally:
        other.coordinator.stop()
        other.thread.join()
    assert not [process.pid for process in other.started if psutil.pid_exists(process.pid)]
    assert not (other.home / STANDBY).exists()


def test_one_of_a_process_that_is_stopped_while_it_waits_ends(begin: Callable[..., Run], tmp_path: Path) -> None:
    owner = begin(lease_s=LEASE_S)
    (owner.home / PLAN).touch()
    (tmp_path / "other").mkdir()
    other = Run(tmp_path / "other", home=owner.home, lease_s=LEASE_S)
    other.thread.start()
    wait_until(lambda: other.pids("standby"), 30, str(other.said))
    other.coordinator.stop()
    other.thread.join(30)
    assert not other.thread.is_alive()
    assert not [process.pid for process in other.started if psutil.pid_exists(process.pid)]
    owner.ready()


def test_it_becomes_the_host_and_another_one_is_started(begin: Callable[..., Run]) -> None:
    run = begin()
    for number in (1, 2):
        standby, folder = run.ready(), Path(run.record()["folder"])
        assert standby not in run.pids("host")
        run.kill_host()
        run.await_hosts(number + 1)
        assert run.pids("host")[-1] == standby
        wait_until(lambda standby=standby: run.record().get("process", {}).get("pid") != standby, 30, "the next one")
    run.ready()
    assert folder.exists(), "its queries may still be in memory, and want to save"
    assert len(run.pids("standby")) == 3
    assert run.coordinator.restarts == 2
    run.coordinator.stop()
    run.thread.join()
    assert not folder.exists()


@pytest.mark.parametrize(("does", "says"), [("is outdated", "can't take over"), ("is silent", "silent for")])
def test_one_that_can_not_take_over_is_replaced_by_a_new_host(
    does: str, says: str, begin: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    if does == "is silent":  # else its end is awaited, which may take a second on a busy machine
        monkeypatch.setattr(supervise, "STANDBY_SILENT_S", 0.5)
    run = begin(does=does)
    standby = run.ready()
    run.kill_host()
    run.await_hosts(2)
    assert run.pids("host")[-1] != standby
    assert any(says in text for text in run.said)
    assert not psutil.pid_exists(standby)


def test_one_that_dies_as_it_takes_over_is_replaced(begin: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator can't send it the settings of a host, and the pipe can't be closed without an error."""
    real = standbys.Standby.take

    def take(standby: standbys.Standby) -> "subprocess.Popen[str] | None":
        process = real(standby)
        if process is not None:
            process.kill()
            process.wait()
        return process

    monkeypatch.setattr(standbys.Standby, "take", take)
    run = begin()
    standby = run.ready()
    run.kill_host()
    wait_until(lambda: len(run.pids("host")) > 1 or not run.thread.is_alive(), 30, "another host")
    assert run.thread.is_alive(), "the coordinator has ended"
    assert run.pids("host")[-1] != standby
    assert any("killed by signal 9" in text for text in run.said)


@pytest.mark.parametrize(("does", "says"), [("fails", "ended with exit code 7"), ("hangs", "was not ready after")])
def test_one_that_fails_is_tried_a_few_times_and_ends_nothing(
    does: str, says: str, begin: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standbys, "FAILED_PAUSE_S", 0.05)
    if does == "hangs":
        monkeypatch.setattr(standbys, "READY_S", 0.3)
        monkeypatch.setattr(standbys, "READY_AT_LOWEST_S", 0.3)
    run = begin(does=does)
    wait_until(lambda: len(run.started) > TRIES_MAX, 30, "all tries")
    wait_until(lambda: not run.record(), 30, "the last one to end")
    seen = run.home.joinpath("status.json").read_text()
    wait_until(lambda: run.home.joinpath("status.json").read_text() != seen, 30, "the host to go on")
    assert (len(run.started), len(run.pids("host"))) == (1 + TRIES_MAX, 1)
    assert [text for text in run.said if "standby" in text] == [text for text in run.said if says in text]
    assert len(run.said) == 1
    run.kill_host()
    run.await_hosts(2)


@pytest.mark.skipif(not priority.can_be_lowered(), reason="this machine lets nobody set a lowered priority back")
@pytest.mark.parametrize("does", ["waits", "is cold"])
def test_it_warms_up_with_the_lowest_priority_and_works_with_the_usual_one(
    does: str, begin: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []
    lower, restore = priority.lower, priority.restore
    monkeypatch.setattr(priority, "lower", lambda pid: (seen.append(("lower", pid)), lower(pid)))
    monkeypatch.setattr(priority, "restore", lambda pid: (restore(pid), seen.append(("restore", pid))))
    run = begin(does=does)
    standby = run.ready()
    if does == "is cold":
        assert seen == [("lower", standby)]
    else:
        wait_until(lambda: ("restore", standby) in seen, 30, "it is warm")
    run.kill_host()
    run.await_hosts(2)
    assert run.pids("host")[-1] == standby
    assert seen[:2] == [("lower", standby), ("restore", standby)]
    assert os.getpriority(os.PRIO_PROCESS, standby) == os.getpriority(os.PRIO_PROCESS, 0)


def test_the_next_owner_kills_the_standby_of_a_former_run(tmp_path: Path) -> None:
    scratch = tmp_path / f"{homes.SCRATCH}x"
    scratch.mkdir()
    process = subprocess.Popen(["sh", "-c", "sleep 1000 & echo; wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children()]
    assert len(tree) == 2
    with open_home(tmp_path / "home", "shop") as home:
        record = ProcessRecord.of(process.pid, "standby")
        home.record_standby(record, scratch)
        assert home.kill_leftovers(spare_pid=process.pid) == ()
        assert all(each.is_running() for each in tree)
        assert home.kill_leftovers() == (record,)
        assert not [each for each in tree if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
        assert not scratch.exists()
        assert home.kill_leftovers() == ()
        (home.path / STANDBY).write_text("{")
        assert home.kill_leftovers() == ()
        assert not (home.path / STANDBY).exists()
    process.wait()
