"""A standby's process, with Spark and Kafka replaced: it writes nothing, and takes charge only if it still fits."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import psutil
import pytest

from falkirk.recovery.ownership.folder import Home, open_home
from falkirk.runtime.supervision import prepared
from falkirk.runtime.supervision.prepared import Prepared, digests
from falkirk.runtime.supervision.settings import EXIT_UNUSABLE, STATE, WARM, HostSettings
from tests.support import wait_until
from tests.unit.home.test_orphaned_host import COORDINATOR, ROOT

APPLICATION = """
import falkirk as fk
from beside import name

app = fk.App("shop", kafka="localhost:1")
app.source("events", fk.Kafka("events", schema="n LONG"))
app.sink(name, "events", fk.Kafka("out"))
"""
#: A host. `argv`: the folder in which it notes that it has taken charge, and which has the number of partitions.
HOST = """
import pathlib, signal, sys
from types import SimpleNamespace
from unittest.mock import MagicMock
from falkirk.runtime.supervision import prepared, process as host, start

folder = pathlib.Path(sys.argv[1])

class Topics:
    def __init__(self, connection): pass
    def await_broker(self, on_wait): pass
    def exists(self, topic): return True
    def names(self): return ()
    def facts(self, topic): return SimpleNamespace(partitions=int((folder / "partitions").read_text()))

class Claim:
    def __init__(self, connection, home): self.check = home.store.require_charge

class Warming:
    def __init__(self, *given): pass
    def start(self, interrupted): pass
    def is_done(self): return True
    def stop(self): (folder / "stopped").touch()

def took_charge(home, session):
    (folder / "took_charge").write_text(str(home.store.generation))
    while True:
        signal.pause()

def session(*given, **settings):
    made = MagicMock()
    made.sparkContext._gateway.proc.poll.side_effect = lambda: 1 if (folder / "jvm_died").exists() else None
    return made

host.Topics = prepared.Topics = Topics
start.Claim, start.record_processes = Claim, took_charge
start.spark_session, prepared.Warming, prepared.plan_application = session, Warming, lambda *given: None
sys.exit(host.main())
"""


class Waiting:
    """A standby whose coordinator is this test."""

    def __init__(self, folder: Path, home: Home) -> None:
        self.folder, self.home, self.scratch = folder, home, folder / "scratch"
        self.scratch.mkdir()
        (folder / "app.py").write_text(APPLICATION)
        (folder / "beside.py").write_text("name = 'out'\n")
        (folder / "partitions").write_text("2")
        assert home.store.generation is not None
        self.settings = HostSettings(
            coordinator=os.getpid(), generation=home.store.generation, file=str(folder / "app.py"),
            home=str(home.path), kafka=None, master=None, create_topics=False,
        )  # fmt: skip
        self.before = self.files()

    def start(self) -> None:
        """Start it, and wait until it is warm."""
        command = [sys.executable, "-c", HOST, str(self.folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT)
        self.send(replace(self.settings, standby=str(self.scratch)))
        wait_until(lambda: self.state() == WARM or self.process.poll() is not None, 60, "the standby")
        assert self.process.poll() is None

    def files(self) -> dict[str, bytes]:
        """Return the content of the home's files, except SQLite's own lists of readers."""
        found = sorted(path for path in self.home.path.rglob("*") if path.is_file() and not path.name.endswith("-shm"))
        return {str(path): path.read_bytes() for path in found}

    def send(self, settings: HostSettings) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(settings.to_json() + "\n")
        self.process.stdin.flush()

    def state(self) -> str:
        file = self.scratch / STATE
        return file.read_text() if file.exists() else ""

    def took_charge(self) -> bool:
        return (self.folder / "took_charge").exists()


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Waiting]:
    with open_home(tmp_path / "home", "shop") as home:
        standby = Waiting(tmp_path, home)
        standby.start()
        assert standby.files() == standby.before, "a standby writes nothing into the home"
        yield standby
        standby.process.kill()
        standby.process.wait()
        assert standby.process.stdin is not None
        standby.process.stdin.close()


def test_it_takes_charge_with_the_settings_of_a_host(waiting: Waiting) -> None:
    waiting.send(replace(waiting.settings, force=True, failures={"out": {"failures": 1}}, died_at_s=9.5))
    wait_until(lambda: waiting.took_charge() or waiting.process.poll() is not None, 60, "it to take charge")
    assert waiting.took_charge()
    assert (waiting.folder / "stopped").exists()


@pytest.mark.parametrize(("changed", "text"), [("app.py", "# a change"), ("partitions", "1")])
def test_it_does_not_take_charge_if_something_has_changed(changed: str, text: str, waiting: Waiting) -> None:
    file = waiting.folder / changed
    file.write_text(file.read_text() + text)
    waiting.send(waiting.settings)
    assert waiting.process.wait(60) == EXIT_UNUSABLE
    assert not waiting.took_charge()


class FakeTopics:
    """Topics that do not exist."""

    def __init__(self, connection: object) -> None:
        pass

    def exists(self, topic: str) -> bool:
        """See Topics."""
        return False

    def names(self) -> tuple[str, ...]:
        """See Topics."""
        return ()


def test_what_counts_as_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    monkeypatch.setattr(prepared, "Topics", FakeTopics)
    for name in ("application_session", "plan_application", "Warming"):
        monkeypatch.setattr(prepared, name, MagicMock())
    with open_home(tmp_path / "home", "shop") as home:
        waiting = Waiting(tmp_path, home)
    try:
        made = Prepared(replace(waiting.settings, standby=str(waiting.scratch)))
    finally:
        sys.modules.pop("beside", None)
    wanted = waiting.settings
    assert made.difference(wanted) == ""
    assert made.difference(replace(wanted, force=True, failures={"out": {"failures": 1}}, generation=9)) == ""
    for changed in ({"master": "local[9]"}, {"kafka": "other:1"}, {"home": "other"}, {"create_topics": True}):
        assert "other settings" in made.difference(replace(wanted, **changed)), changed  # type: ignore[arg-type]
    for name, text in (("app.py", APPLICATION), ("beside.py", "name = 'out'\n")):
        (tmp_path / name).write_text(text + "# a change\n")
        assert name in made.difference(wanted)
        (tmp_path / name).write_text(text)
        assert made.difference(wanted) == "", "the content counts"
    (tmp_path / "other.py").write_text("nobody imports it")
    assert made.difference(wanted) == ""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.driver.memory 3g")
    assert "spark-defaults.conf" in made.difference(wanted)


def test_a_file_that_changed_while_it_was_loaded_counts_as_changed(tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text("")
    before_s = file.stat().st_mtime
    assert digests(file, before_s)[str(file)] != ""
    assert digests(file, before_s - 1)[str(file)] == ""


def test_it_ends_if_its_jvm_has_died(waiting: Waiting) -> None:
    (waiting.folder / "jvm_died").touch()
    waiting.send(waiting.settings)
    assert waiting.process.wait(60) == EXIT_UNUSABLE, "any other code would end the application"
    assert not waiting.took_charge()
    assert not (waiting.home.path / "status.json").exists(), "the status belongs to the host"


def test_it_ends_with_its_coordinator(tmp_path: Path) -> None:
    """kill -9 of the coordinator: nobody else would end it."""
    with open_home(tmp_path / "home", "shop") as home:
        standby = Waiting(tmp_path, home)
        settings = replace(standby.settings, standby=str(standby.scratch))
        command = [sys.executable, "-c", COORDINATOR, str(tmp_path), HOST, settings.to_json()]
        coordinator = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert coordinator.stdout is not None
        waiting = psutil.Process(int(coordinator.stdout.readline()))
        wait_until(lambda: standby.state() == WARM, 60, "the standby")
        coordinator.kill()
        coordinator.wait()
        coordinator.stdout.close()
        wait_until(
            lambda: not waiting.is_running() or waiting.status() == psutil.STATUS_ZOMBIE, 60, "the standby to end"
        )
        assert not standby.took_charge()
