"""Orphaned hosts: if the coordinator dies while its host starts or hangs, the host never takes over an owned home."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from falkirk.errors import HomeError, StoreError
from falkirk.platform import locks
from falkirk.recovery.ownership import guard
from falkirk.recovery.ownership.folder import host_home, open_home
from falkirk.runtime.supervision.settings import HostSettings
from tests.support import suspend, wait_until

ROOT = Path(__file__).parents[3]
#: Declares an application, and loads for as long as the test needs.
APPLICATION = """
import pathlib, threading
import falkirk as fk

folder = pathlib.Path(__file__).parent
(folder / "loading").touch()
while not (folder / "go").exists():
    threading.Event().wait(0.01)
app = fk.App("orphan", kafka="localhost:1")
app.source("events", fk.Kafka("events", schema="n LONG"))
app.sink("out", "events", fk.Kafka("out"))
"""
#: The host, with Spark and Kafka replaced. It starts Spark as the first step of taking charge, and then hangs.
HOST = """
import json, pathlib, signal, sys
from falkirk.runtime.supervision import process as host, start

class Topics:
    def __init__(self, connection): pass
    def await_broker(self, on_wait): pass
    def exists(self, topic): return False
    def names(self): return ()

class Claim:
    def __init__(self, connection, home): self.check = home.store.require_charge

def session(*args, **settings):
    pathlib.Path(sys.argv[1], "took_charge").touch()
    while True:
        signal.pause()

host.Topics, start.Claim, start.spark_session = Topics, Claim, session
sys.exit(host.main())
"""
#: The coordinator: starts a host, prints its pid, and does nothing else.
COORDINATOR = """
import json, os, signal, subprocess, sys

folder, host, settings = sys.argv[1:]
command = [sys.executable, "-c", host, folder]
host = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
settings = json.loads(settings) | {"coordinator": os.getpid()}
host.stdin.write(json.dumps(settings) + "\\n")
host.stdin.flush()
print(host.pid, flush=True)
signal.pause()
"""


#: In front of the host: it notes that its home has another owner, and does not end.
UNWATCHED = """
import pathlib, sys, threading
from falkirk.errors import StoreError
from falkirk.recovery.ownership import guard

def watch(look, say):
    def find():
        try:
            while True:
                look()
                threading.Event().wait(0.05)
        except StoreError as error:
            part = pathlib.Path(sys.argv[1], "part")
            part.write_text(error.condition)
            part.rename(part.with_name("found"))  # a reader finds all of it
    threading.Thread(target=find, daemon=True).start()

guard.watch_owner = watch
"""


class Pair:
    """A coordinator that does nothing, and its host. Args: host: the program of the host."""

    def __init__(self, folder: Path, host: str = HOST) -> None:
        (folder / "app.py").write_text(APPLICATION)
        self.folder, self.home = folder, folder / "home"
        with open_home(self.home, "orphan") as home:
            assert home.store.generation is not None
            settings = HostSettings(
                coordinator=0, generation=home.store.generation, file=str(folder / "app.py"), home=str(self.home),
                kafka=None, master=None, create_topics=False,
            )  # fmt: skip
        command = [sys.executable, "-c", COORDINATOR, str(folder), host, settings.to_json()]
        self.coordinator = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert self.coordinator.stdout is not None
        self.host = psutil.Process(int(self.coordinator.stdout.readline()))
        wait_until((folder / "loading").exists, 60, "the host to load the application")

    def took_charge(self) -> bool:
        return (self.folder / "took_charge").exists()

    def load(self) -> None:
        """Let the host continue its start."""
        (self.folder / "go").touch()

    def has_ended(self) -> bool:
        return not self.host.is_running() or self.host.status() == psutil.STATUS_ZOMBIE

    def await_end(self) -> None:
        wait_until(self.has_ended, 60, "the host to end")

    def close(self) -> None:
        for process in (self.host, self.coordinator):
            if process.pid == self.coordinator.pid or not self.has_ended():
                process.kill()
        self.coordinator.wait()
        assert self.coordinator.stdout is not None
        self.coordinator.stdout.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    started = Pair(tmp_path)
    yield started
    started.close()


def test_a_host_whose_coordinator_died_while_it_loaded_does_not_take_charge(pair: Pair) -> None:
    """Before, it mistook the process that had adopted it for its parent, and took charge.

    It took the closed pipe for a request to stop, which it checked only after it had taken charge.
    """
    pair.coordinator.kill()
    pair.coordinator.wait()
    wait_until(lambda: pair.has_ended() or pair.host.ppid() != pair.coordinator.pid, 30, "the host to be adopted")
    pair.load()
    wait_until(lambda: pair.has_ended() or pair.took_charge(), 60, "the host to end")
    assert not pair.took_charge()


def test_a_host_that_hangs_ends_although_another_process_had_adopted_it_before_it_looked() -> None:
    """It compares its parent with the one that its settings name, not with the parent that it finds first."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    hangs = f"""
import threading
from falkirk.recovery.ownership import guard
guard.die_with_parent({dead.pid}, threading.Event())
threading.Event().wait()
"""
    host = subprocess.Popen([sys.executable, "-c", hangs], stdin=subprocess.DEVNULL, cwd=ROOT)
    try:
        assert host.wait(60) == guard.EXIT_ORPHANED
    finally:
        host.kill()


def test_the_next_owner_kills_a_host_that_hangs_and_is_in_no_list(pair: Pair) -> None:
    pair.load()
    wait_until(pair.took_charge, 60, "the host to take charge")
    suspend(pair.host)
    pair.coordinator.kill()
    assert not (pair.home / "processes.json").exists()
    with open_home(pair.home, "orphan") as home:
        assert [(r.pid, r.role) for r in home.kill_leftovers()] == [(pair.host.pid, "host")]
        assert pair.has_ended()
        assert home.kill_leftovers() == ()


def test_a_host_whose_home_has_another_owner_ends(pair: Pair) -> None:
    """Its coordinator is alive but has no lock: the file system of the home has lost the lock, or has none."""
    pair.load()
    wait_until(pair.took_charge, 60, "the host to take charge")
    with open_home(pair.home, "orphan"):
        pair.await_end()
    assert pair.coordinator.poll() is None


def test_without_its_watch_a_host_goes_on_beside_another_owner(tmp_path: Path) -> None:
    pair = Pair(tmp_path, UNWATCHED + HOST)
    try:
        pair.load()
        wait_until(pair.took_charge, 60, "the host to take charge")
        with open_home(pair.home, "orphan"):
            wait_until((tmp_path / "found").exists, 60, "the host to find the other owner")
            assert not pair.has_ended()
    finally:
        pair.close()
    assert (tmp_path / "found").read_text() == "HOME_TAKEN_OVER"


def test_a_host_that_starts_late_finds_the_other_owner(pair: Pair) -> None:
    with open_home(pair.home, "orphan"):
        pair.load()
        pair.await_end()


def test_two_hosts_cannot_be_in_one_home(home: Path) -> None:
    with open_home(home, "app") as owner:
        assert owner.store.generation is not None
        with host_home(home, "app", None, owner.store.generation) as first:
            with pytest.raises(HomeError) as caught:
                host_home(home, "app", None, owner.store.generation)
            assert caught.value.condition == "HOME_IN_USE"
            first.store.record_decision("kind", "name", 0, "first")
        with host_home(home, "app", None, owner.store.generation) as second:
            assert second.store.decision("kind", "name", 0) is not None


def test_who_only_visits_does_not_end_an_owner_elsewhere(home: Path) -> None:
    """`falkirk history` in a folder whose lock is not visible, while the application runs on another machine."""
    owner = open_home(home, "app")
    (home / locks.OWNER).unlink()
    with open_home(home, "app", visits=True) as visitor:
        owner.store.record_decision("kind", "name", 0, "owner")
        visitor.take_charge()
        with pytest.raises(StoreError):
            owner.store.require_charge()
    owner.close()


def test_decisions_of_a_former_owner_are_refused(home: Path) -> None:
    """The former owner has lost its lock. On a file system without locks, both would have it."""
    former = open_home(home, "app")
    assert former.store.generation is not None
    orphan = host_home(home, "app", None, former.store.generation)
    (home / locks.OWNER).unlink()
    with open_home(home, "app") as present:
        assert present.store.generation == former.store.generation + 1
        for old in (former, orphan):
            with pytest.raises(StoreError) as caught:
                old.store.record_decision("kind", "name", 0, "old")
            assert caught.value.condition == "HOME_TAKEN_OVER"
            assert guard.is_replaced(caught.value)
            assert (caught.value.parameters["generation"], caught.value.parameters["present"]) == (
                former.store.generation,
                present.store.generation,
            )
        present.store.record_decision("kind", "name", 0, "new")
    orphan.close()
    former.close()
