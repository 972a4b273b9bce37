"""Home: one copy, one application, damage is named, and no former process that may write survives."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from falkirk.errors import FalkirkError, HomeError, StoreError
from falkirk.platform.durable import write_atomically
from falkirk.recovery.ownership.folder import Home, attach_home, open_home
from falkirk.recovery.ownership.process_records import ProcessRecord
from tests.postgres import Postgres
from tests.support import wait_until

SLEEPER = "import signal; print('up', flush=True); signal.pause()"


def refused(path: Path, condition: str, application: str = "app") -> HomeError:
    """Open a home that must be refused, and check that no lock remains."""
    with pytest.raises(HomeError) as caught:
        open_home(path, application)
    assert caught.value.condition == condition
    assert caught.value.hint
    return caught.value


@pytest.fixture
def children() -> Iterator[list["subprocess.Popen[str]"]]:
    """Child processes of a test. They end with the test."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def sleeper(children: list["subprocess.Popen[str]"], *arguments: str) -> "subprocess.Popen[str]":
    """Start a child that sleeps until it is killed."""
    process = subprocess.Popen([sys.executable, "-c", SLEEPER, *arguments], stdout=subprocess.PIPE, text=True)
    children.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


# -- one copy, one application -----------------------------------------------------------------------------------------


def test_a_home_keeps_its_identity(home: Path) -> None:
    with open_home(home, "app") as first:
        identity = first.identity
        assert len(identity) == 8
        assert int(identity, 16) >= 0
    with open_home(home, "app") as again:
        assert again.identity == identity
        assert again.application == "app"
        assert again.checkpoint("counts") == home / "regions" / "counts"


def test_two_homes_differ(tmp_path: Path) -> None:
    with open_home(tmp_path / "a", "app") as a, open_home(tmp_path / "b", "app") as b:
        assert a.identity != b.identity


def test_a_second_copy_is_refused_with_the_holders_pid(home: Path) -> None:
    with open_home(home, "app"):
        here = refused(home, "HOME_IN_USE")
        assert here.parameters["pid"] == str(os.getpid())
        assert str(here).startswith("this process already runs this application.")  # "another process" was wrong
        script = "import sys; from pathlib import Path; from falkirk.recovery.ownership.folder import open_home\n"
        script += (
            "try: open_home(Path(sys.argv[1]), 'app')\nexcept Exception as e: print(e.condition, e.parameters['pid'])"
        )
        other = subprocess.run([sys.executable, "-c", script, str(home)], capture_output=True, text=True, check=True)
        assert other.stdout.split() == ["HOME_IN_USE", str(os.getpid())]
    open_home(home, "app").close()


def test_the_lock_of_a_killed_holder_is_free(home: Path, children: list["subprocess.Popen[str]"]) -> None:
    script = "import sys, signal; from pathlib import Path; from falkirk.recovery.ownership.folder import open_home\n"
    script += "home = open_home(Path(sys.argv[1]), 'app'); print('up', flush=True); signal.pause()"
    holder = subprocess.Popen([sys.executable, "-c", script, str(home)], stdout=subprocess.PIPE, text=True)
    children.append(holder)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "up\n"
    assert refused(home, "HOME_IN_USE").parameters["pid"] == str(holder.pid)
    holder.kill()
    holder.wait()
    with open_home(home, "app"):
        assert (home / "lock").read_text() == str(os.getpid())


def test_a_home_of_another_application_is_refused(home: Path) -> None:
    open_home(home, "index").close()
    error = refused(home, "HOME_OF_ANOTHER")
    assert (error.parameters["found"], error.parameters["expected"]) == ("index", "app")
    open_home(home, "index").close()


def test_a_home_of_another_format_is_refused(home: Path) -> None:
    open_home(home, "app").close()
    change(home, format=2)
    assert refused(home, "HOME_VERSION").parameters["found"] == 2


def test_where_no_folder_can_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file", "HOME_UNUSABLE")
    refused(tmp_path / "file" / "below", "HOME_UNUSABLE")


# -- damage and torn writes --------------------------------------------------------------------------------------------


def change(home: Path, **values: Any) -> None:
    """Change values in falkirk.json."""
    content = json.loads((home / "falkirk.json").read_text())
    (home / "falkirk.json").write_text(json.dumps(content | values))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"x"', b"null", b"{}", b'{"format": 1}', b"\xff\xfe", b"5"])
def test_a_damaged_description_is_named(home: Path, content: bytes) -> None:
    open_home(home, "app").close()
    (home / "falkirk.json").write_bytes(content)
    refused(home, "HOME_DAMAGED")
    assert (home / "falkirk.json").read_bytes() == content


@pytest.mark.parametrize("identity", ["", "DEADBEEF", "deadbee", "deadbeef0", 5, None, "../../x", "deadbeef\n"])
def test_an_identity_is_eight_hexadecimal_digits(home: Path, identity: Any) -> None:
    open_home(home, "app").close()
    change(home, identity=identity)
    refused(home, "HOME_DAMAGED")


def test_decisions_without_a_description_are_damage(home: Path) -> None:
    open_home(home, "app").close()
    (home / "falkirk.json").unlink()
    refused(home, "HOME_DAMAGED")
    assert not (home / "falkirk.json").exists()


def test_a_crash_between_any_two_writes_of_making_a_home_is_mended(tmp_path: Path, monkeypatch: Any) -> None:
    """Stop at the first, second, … file-system step of making a home. The result must open as a new home."""
    steps = ("replace", "fsync", "open")
    reached = []
    for step in steps:
        real = getattr(os, step)
        for crash_at in range(1, 30):
            home, calls = tmp_path / f"{step}-{crash_at}", []

            def crashing(*args: Any, _real: Any = real, _at: int = crash_at, _calls: Any = calls, **kw: Any) -> Any:
                _calls.append(args)
                if len(_calls) == _at:
                    raise KeyboardInterrupt
                return _real(*args, **kw)

            monkeypatch.setattr(os, step, crashing)
            try:
                open_home(home, "app").close()
            except KeyboardInterrupt:
                crashed = True
            else:
                crashed = False
            monkeypatch.setattr(os, step, real)
            with open_home(home, "app") as mended:
                assert mended.store.region_names() == ()
            if not crashed:
                break
            reached.append(step)
    assert set(reached) == set(steps)


def test_left_over_temporary_files_do_no_harm_and_an_empty_database_is_torn(home: Path) -> None:
    with open_home(home, "app") as first:
        identity = first.identity
    (home / ".falkirk.json.12345").write_text('{"format": ')
    (home / ".processes.json.12345").write_text("")
    (home / "decisions.db").unlink()
    with open_home(home, "app") as without:
        assert without.identity == identity
    (home / "decisions.db").write_bytes(b"")
    with pytest.raises(FalkirkError) as caught:
        open_home(home, "app")
    assert caught.value.condition == "STORE_UNREADABLE"


def test_a_refused_home_can_be_opened_once_it_is_restored(home: Path) -> None:
    open_home(home, "app").close()
    whole = (home / "falkirk.json").read_text()
    (home / "falkirk.json").write_text("")
    refused(home, "HOME_DAMAGED")
    (home / "falkirk.json").write_text(whole)
    (home / "decisions.db").write_bytes(b"no database" * 1000)
    with pytest.raises(FalkirkError) as caught:
        open_home(home, "app")
    assert caught.value.condition == "STORE_UNREADABLE"
    (home / "decisions.db").unlink()
    open_home(home, "app").close()


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "status.json"
    write_atomically(file, "first")

    def fail(*_: object) -> None:
        raise OSError("crash")

    with monkeypatch.context() as crash:
        crash.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="crash"):
            write_atomically(file, "second")
    assert file.read_text() == "first"
    write_atomically(file, "third")
    assert file.read_text() == "third"
    assert [p.name for p in tmp_path.iterdir()] == ["status.json"]


# -- attaching ---------------------------------------------------------------------------------------------------------


def test_a_child_attaches_while_the_parent_holds_the_lock(home: Path) -> None:
    with open_home(home, "app") as held, attach_home(home, "app") as attached:
        assert attached.identity == held.identity
        attached.store.open_incarnation("counts", -1)
        assert len(held.store.incarnations("counts")) == 1
        refused(home, "HOME_IN_USE")
    open_home(home, "app").close()


def test_detaching_does_not_release_the_parents_lock(home: Path) -> None:
    with open_home(home, "app"):
        attach_home(home, "app").close()
        refused(home, "HOME_IN_USE")


def test_attaching_checks_whose_home_it_is(home: Path) -> None:
    open_home(home, "index").close()
    with pytest.raises(HomeError) as caught:
        attach_home(home, "app")
    assert caught.value.condition == "HOME_OF_ANOTHER"


# -- left-overs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def opened(home: Path) -> Iterator[Home]:
    """An open home."""
    with open_home(home, "app") as it:
        yield it


def test_a_left_over_process_is_killed(opened: Home, children: list["subprocess.Popen[str]"]) -> None:
    child = sleeper(children)
    record = ProcessRecord.of(child.pid, "jvm")
    opened.record_processes((record,), ())
    assert opened.kill_leftovers() == (record,)
    assert not psutil.pid_exists(child.pid) or psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
    assert opened.kill_leftovers() == ()


def test_a_stopped_one_is_killed_too(opened: Home, children: list["subprocess.Popen[str]"]) -> None:
    child = sleeper(children)
    child.send_signal(signal.SIGSTOP)
    process = psutil.Process(child.pid)
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED, 10, "the child to stop")
    opened.record_processes((ProcessRecord.of(child.pid, "jvm"),), ())
    assert len(opened.kill_leftovers()) == 1
    wait_until(lambda: record_is_gone(child.pid), 10, "the child to be gone")


def record_is_gone(pid: int) -> bool:
    """Return whether that process has ended completely."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("elsewhere", [True, False])
def test_another_process_with_the_same_pid_is_spared(
    opened: Home, children: list["subprocess.Popen[str]"], elsewhere: bool
) -> None:
    """A process that began at another time, or at the same time after another boot, perhaps on another machine."""
    child = sleeper(children)
    real = ProcessRecord.of(child.pid, "jvm")
    boot, ticks = real.began.split("/")
    began = f"another-boot/{ticks}" if elsewhere else f"{boot}/{int(ticks) - 60}"
    former = ProcessRecord(pid=child.pid, began=began, role="jvm")
    opened.record_processes((former,), ())
    assert former.find() is None
    assert opened.kill_leftovers() == ()
    assert child.poll() is None


def test_a_process_is_found_whatever_the_clock_was_set_to(
    opened: Home, children: list["subprocess.Popen[str]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a hung JVM were not found, it would write after the fence when it resumes."""
    child, when = sleeper(children), psutil.boot_time()
    record = ProcessRecord.of(child.pid, "jvm")
    before_s = psutil.Process(child.pid).create_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: when + 3600)
    monkeypatch.setattr("psutil._pslinux.BOOT_TIME", when + 3600, raising=False)
    assert psutil.Process(child.pid).create_time() == pytest.approx(before_s + 3600, abs=2), "the date has moved"
    assert record.find() is not None


def test_a_process_that_is_gone_or_a_zombie_counts_as_gone(
    opened: Home, children: list["subprocess.Popen[str]"]
) -> None:
    child = sleeper(children)
    record = ProcessRecord.of(child.pid, "jvm")
    child.kill()
    wait_until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE, 10, "the child to be a zombie")
    opened.record_processes((record,), ())
    assert record.find() is None
    assert opened.kill_leftovers() == ()
    child.wait()
    opened.record_processes((record,), ())
    assert opened.kill_leftovers() == ()


def test_the_caller_itself_is_spared(opened: Home) -> None:
    opened.record_processes((ProcessRecord.of(os.getpid(), "python"),), ())
    assert opened.kill_leftovers() == ()


def test_executors_are_found_by_their_application(opened: Home, children: list["subprocess.Popen[str]"]) -> None:
    ours = sleeper(children, "--app-id", "app-ours", "--cores", "1")
    theirs = sleeper(children, "--app-id", "app-theirs")
    torn = sleeper(children, "--app-id")
    opened.record_processes((), ("app-ours",))
    assert [(r.pid, r.role) for r in opened.kill_leftovers()] == [(ours.pid, "executor")]
    assert (theirs.poll(), torn.poll()) == (None, None)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"processes": [{}], "spark_applications": []}'])
def test_a_damaged_list_of_processes_is_named(opened: Home, content: str) -> None:
    (opened.path / "processes.json").write_text(content)
    with pytest.raises(HomeError) as caught:
        opened.kill_leftovers()
    assert caught.value.condition == "HOME_DAMAGED"
    assert (opened.path / "processes.json").exists()


def test_a_relative_home_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_home(Path("home"), "app") as home:
        monkeypatch.chdir("/")
        assert home.checkpoint("r") == tmp_path / "home" / "regions" / "r"


# -- a store elsewhere -------------------------------------------------------------------------------------------------


def test_a_home_may_keep_its_decisions_in_postgresql(home: Path, postgres: Postgres) -> None:
    url = postgres.url()
    with open_home(home, "app", url) as held:
        held.store.record_decision("kind", "name", 0, "kept")
        with attach_home(home, "app", url) as attached:
            assert attached.store.decision("kind", "name", 0) is not None
    assert not (home / "decisions.db").exists()
    with open_home(home, "app", url) as again:
        assert again.store.decision("kind", "name", 0) is not None
    assert refused(home, "HOME_STORE_CHANGED").parameters["found"] == "database"
    assert "password" not in (home / "falkirk.json").read_text()


def test_a_home_that_has_run_does_not_begin_anew_in_an_empty_store(home: Path, postgres: Postgres) -> None:
    open_home(home, "app").close()
    with pytest.raises(HomeError) as caught:
        open_home(home, "app", postgres.url())
    assert caught.value.condition == "HOME_STORE_CHANGED"
    (home / "regions").mkdir()
    (home / "decisions.db").unlink()
    with pytest.raises(StoreError):
        open_home(home, "app")
