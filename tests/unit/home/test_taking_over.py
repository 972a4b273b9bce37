"""Taking over from an owner that holds its locks but is suspended, dead elsewhere, or replaced meanwhile."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

import psutil
import pytest

import falkirk as fk
from falkirk.errors import HomeError, StoreError
from falkirk.platform import locks, processes
from falkirk.recovery.decision_store import Lease
from falkirk.recovery.ownership import folder
from falkirk.recovery.ownership.folder import Home, open_home, waiting_home
from falkirk.recovery.ownership.lease import LeaseKeeper, await_home
from falkirk.recovery.ownership.process_records import ProcessRecord
from falkirk.user_tools.commands.running import home_of
from tests.support import suspend, wait_until

#: Machines of tests stood still for five seconds at times, and an owner would end itself then.
LASTS_S = 8.0
#: An owner with a child, which both stand still when the test wishes so.
OWNER = """
import pathlib, signal, subprocess, sys
from falkirk.recovery.ownership.lease import LeaseKeeper, await_home
home = await_home(pathlib.Path(sys.argv[1]), "shop", None, lasts_s=8.0, pause=lambda s: False, say=print)
child = subprocess.Popen(["sleep", "1000"])
with LeaseKeeper(home, 8.0, print):
    print(child.pid, flush=True)
    signal.pause()
"""


#: The same, and it stands still within a write.
WRITING = OWNER.replace(
    "signal.pause()",
    """
    with home.store._writing():
        signal.raise_signal(signal.SIGSTOP)""".strip(),
)


#: The host of an owner that was killed. It stands still within a write.
HOST = """
import pathlib, signal, sys
from falkirk.recovery.ownership.folder import host_home
home = host_home(pathlib.Path(sys.argv[1]), "shop", None, 1)
with home.store._writing():
    signal.raise_signal(signal.SIGSTOP)
"""


@contextmanager
def owner(home: Path, program: str = OWNER) -> Iterator[tuple["subprocess.Popen[str]", psutil.Process]]:
    """Run an owner; yield it and its child."""
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}  # as where nobody has set it
    command = [sys.executable, "-c", program, str(home)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=buffered)
    child = None
    try:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        yield process, child
    finally:
        process.kill()
        process.wait()
        if child is not None:
            with suppress(psutil.NoSuchProcess):
                child.kill()


def awaited(home: Path) -> Home:
    """Wait for the home, and return it."""
    found = await_home(home, "shop", None, lasts_s=LASTS_S, pause=threading.Event().wait, say=print)
    assert found is not None
    return found


def test_an_owner_whose_disk_is_full_takes_the_lease(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store may be elsewhere. It says who owns the home; the text in the lock only names the process."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write = locks.write_holder
    monkeypatch.setattr(locks, "write_holder", full)
    with awaited(home) as taken, open(home / locks.OWNER) as file:
        lock = file.fileno()
        assert taken.store.lease() is not None
        assert taken.leased_s is not None
        assert locks.is_held(home, locks.OWNER)
        keeper = LeaseKeeper(taken, LASTS_S, print)
        keeper.renew()
        assert locks.said(lock) == ""
        monkeypatch.setattr(locks, "write_holder", write)
        keeper.renew()
        assert locks.said(lock) == str(os.getpid()), "else a takeover from this process would be refused"


def test_a_suspended_owner_on_this_machine_is_killed(home: Path) -> None:
    with owner(home) as (process, child):
        suspend(psutil.Process(process.pid))
        with awaited(home):
            assert not psutil.pid_exists(process.pid), "this process, its parent, has reaped it"
            assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
            assert locks.is_held(home, locks.OWNER)


def test_an_owner_that_is_suspended_within_a_write_is_replaced(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With SQLite, nobody else can write until it ends: no lease can be taken, and no note of a wait be written."""
    monkeypatch.setattr(folder, "Store", partial(folder.Store, timeout_s=0.5))
    with owner(home, WRITING) as (process, child):
        wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, 20, "its suspension")
        tries = list[float]()

        def pause(seconds: float) -> bool:
            tries.append(seconds)
            return threading.Event().wait(seconds) or len(tries) > 80

        found = await_home(home, "shop", None, lasts_s=LASTS_S, pause=pause, say=print)
        assert found is not None, "it never becomes the owner"
        with found:
            assert not psutil.pid_exists(process.pid)
            assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("waits", [True, False])
def test_an_orphaned_host_that_is_suspended_within_a_write_is_killed(
    home: Path, monkeypatch: pytest.MonkeyPatch, *, waits: bool
) -> None:
    """Its coordinator was killed. A takeover by a lease and a start without one have to write, and it holds SQLite."""
    lease = expired(home) if waits else None
    with nullcontext() if waits else open_home(home, "shop"):
        pass
    monkeypatch.setattr(folder, "Store", partial(folder.Store, timeout_s=0.5))
    process = subprocess.Popen([sys.executable, "-c", HOST, str(home)])
    try:
        wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, 20, "its suspension")
        if waits:
            with waiting_home(home, "shop") as opened:
                assert opened.take_lease(lease, LASTS_S)
        else:
            open_home(home, "shop").close()
        assert process.wait(20) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()


def test_the_lock_of_an_owner_on_another_machine_is_replaced(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with owner(home) as (process, _):
        suspend(psutil.Process(process.pid))
        with monkeypatch.context() as patch:
            patch.setattr(processes, "machine", lambda: "another")
            opened = awaited(home)
        with opened:
            assert process.poll() is None, "nobody here can kill it"
            with pytest.raises(HomeError) as refused:
                open_home(home, "shop")
            assert refused.value.condition == "HOME_IN_USE"
            assert refused.value.parameters["pid"] == str(os.getpid())
            process.send_signal(signal.SIGCONT)
            assert process.wait(30) == 3
            assert process.stdout is not None
            assert process.stdout.read().split()[0] in ("LEASE_LOST", "HOME_TAKEN_OVER")
            assert locks.is_held(home, locks.OWNER)
        assert not locks.is_held(home, locks.OWNER)


def expired(home: Path) -> Lease:
    """Become the owner of a new home, and leave a lease that nobody renews."""
    with waiting_home(home, "shop") as former:
        assert former.store.take_lease("an owner elsewhere", None, LASTS_S)
        found = former.store.lease()
    assert found is not None
    return found


def test_the_lock_of_a_host_on_another_machine_is_replaced(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_ELSEWHERE_S", 0.3)
    lease = expired(home)
    elsewhere = ProcessRecord(pid=os.getpid(), began="another boot/1", role="host")
    held = locks.hold(home, locks.HOST, json.dumps(asdict(elsewhere)))
    with waiting_home(home, "shop") as opened:
        assert opened.take_lease(lease, LASTS_S)
        opened.kill_leftovers()
        os.close(locks.hold(home, locks.HOST, "{}"))
    with open_home(home, "shop") as opened:
        # An owner that did not take over by a lease has no proof that the holder is replaced.
        os.close(held)
        held = locks.hold(home, locks.HOST, json.dumps(asdict(elsewhere)))
        with pytest.raises(HomeError) as refused:
            opened.kill_leftovers(timeout_s=1.0)
        assert refused.value.condition == "LEFTOVER_ALIVE"
    os.close(held)


def test_a_lock_that_was_replaced_is_not_taken_for_the_present_one(home: Path) -> None:
    """A process opens the file of a lock, then another one replaces it, then the former holder ends."""
    home.mkdir()
    former = locks.hold(home, locks.OWNER, "1")
    opened = locks.open_lock(home, locks.OWNER)
    present = locks.replace(home, locks.OWNER, "2")
    os.close(former)
    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not locks.is_present(opened, home, locks.OWNER)
    with pytest.raises(HomeError) as refused:
        locks.hold(home, locks.OWNER, "3")
    assert refused.value.parameters["pid"] == "2"
    os.close(present)
    os.close(opened)
    assert [path.name for path in home.iterdir()] == [locks.OWNER]


def test_a_process_that_waits_meets_the_lock_that_was_replaced(home: Path) -> None:
    """It opened the file before. Without another look it would hold a lock that no other start meets."""
    lease = expired(home)
    with waiting_home(home, "shop") as opened:
        os.close(locks.replace(home, locks.OWNER, "2"))
        assert opened.take_lease(lease, LASTS_S)
        with pytest.raises(HomeError) as refused:
            open_home(home, "shop")
        assert refused.value.condition == "HOME_IN_USE"


@pytest.mark.parametrize("certainty", ["definitely", "maybe"])
def test_a_takeover_that_the_store_does_not_confirm_leaves_the_lock_to_others(
    home: Path, certainty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = expired(home)
    with waiting_home(home, "shop") as one, waiting_home(home, "shop") as two:
        take = one.store.take_lease

        def away(*given: object, **named: object) -> bool:
            if certainty == "maybe":
                take(*given, **named)  # type: ignore[arg-type]
            raise StoreError("STORE_AWAY", "the store is away", certainty=certainty)  # type: ignore[arg-type]

        monkeypatch.setattr(one.store, "take_lease", away)
        with pytest.raises(StoreError):
            one.take_lease(lease, LASTS_S)
        assert not locks.is_held(home, locks.OWNER)
        assert two.take_lease(two.store.lease(), LASTS_S)


def test_a_process_killed_after_it_took_the_lease_is_replaced(home: Path) -> None:
    """It died before it started anything: its lease ends as that of any owner."""
    expired(home)
    taking = "import os, pathlib, sys\nfrom falkirk.recovery.ownership.folder import waiting_home\n"
    taking += "home = waiting_home(pathlib.Path(sys.argv[1]), 'shop')\n"
    taking += "assert home.take_lease(home.store.lease(), 8.0)\nos.kill(os.getpid(), 9)"
    died = subprocess.run([sys.executable, "-c", taking, str(home)], check=False)
    assert died.returncode == -signal.SIGKILL
    with awaited(home) as opened:
        assert opened.store.generation == 3


def test_waiting_processes_are_listed_until_they_wait_no_longer(home: Path) -> None:
    with owner(home):
        looks = list[float]()

        def pause(seconds: float) -> bool:
            looks.append(seconds)
            with waiting_home(home, "shop") as visitor:
                (found,) = visitor.store.waiting()
            assert found.holder == folder.this_process()
            return len(looks) == 2

        assert await_home(home, "shop", None, lasts_s=LASTS_S, pause=pause, say=print) is None
        with waiting_home(home, "shop") as visitor:
            assert not visitor.store.waiting()


def test_a_command_that_changes_the_home_keeps_others_from_taking_over(home: Path) -> None:
    """The owner died, and somebody rolls the application back before its lease is over."""
    lease = expired(home)
    with waiting_home(home, "shop") as waiting:
        with open_home(home, "shop", visits=True):
            assert not waiting.take_lease(lease, LASTS_S)
        assert waiting.take_lease(lease, LASTS_S)


@pytest.mark.parametrize("lives", [True, False])
def test_a_command_asks_an_owner_whose_lock_it_cannot_see(home: Path, lives: bool) -> None:
    app = fk.App("shop", home=home)
    with owner(home) as (process, _):
        if not lives:
            process.kill()
            process.wait()
        (home / locks.OWNER).unlink()  # a lock that other machines don't see
        with home_of(app, None) as (_, runs):
            assert runs is lives
