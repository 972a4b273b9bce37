"""The priority of processes that only use the time that others leave."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from falkirk.platform import priority
from falkirk.platform.priority import LOWEST, can_be_lowered, lower, restore

#: A process with a second thread and a child. It prints the pid of the child.
FAMILY = """
import subprocess, sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
child = subprocess.Popen(["sleep", "1000"])
print(child.pid, flush=True)
sys.stdin.read()
child.kill()
"""
NONE, SYS_NICE = "0000000000000000", "0000000000800000"


@pytest.fixture
def family() -> Iterator["subprocess.Popen[str]"]:
    """Start a process in a session of its own, which waits for a line before it has a child."""
    command = [sys.executable, "-c", "import sys; sys.stdin.readline()\n" + FAMILY]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def group_nice(pid: int) -> int:
    return int(Path(f"/proc/{pid}/autogroup").read_text().split()[2])


@pytest.mark.skipif(not can_be_lowered(), reason="this machine lets nobody set a lowered priority back")
def test_a_process_its_threads_and_its_children(family: "subprocess.Popen[str]") -> None:
    lower(family.pid)
    assert family.stdin is not None
    assert family.stdout is not None
    family.stdin.write("\n")
    family.stdin.flush()
    child = int(family.stdout.readline())
    threads = [thread.id for thread in psutil.Process(family.pid).threads()]
    assert len(threads) == 2
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    for change, nice in ((None, LOWEST), (restore, usual)):
        if change is not None:
            change(family.pid)
        if priority._may_raise(Path("/proc")):
            assert {os.getpriority(os.PRIO_PROCESS, each) for each in (*threads, child)} == {nice}
        if priority._has_groups(Path("/proc"), Path("/sys/fs/cgroup")):
            assert group_nice(child) == nice
    assert os.getpriority(os.PRIO_PROCESS, 0) == usual, "this process keeps its own"


def test_one_that_has_ended_is_no_error() -> None:
    process = subprocess.Popen(["true"], start_new_session=True)
    process.wait()
    lower(process.pid)
    restore(process.pid)


def test_the_group_of_this_process_keeps_its_value() -> None:
    """A process of the same session shares its group, whose value would count for this process, too."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        file = Path("/proc/self/autogroup")
        before = file.read_text() if file.exists() else ""
        lower(process.pid)
        assert (file.read_text() if file.exists() else "") == before
        process.kill()


@pytest.mark.parametrize(
    ("groups", "limited", "capabilities", "possible"),
    [
        ("1", False, NONE, True),
        ("0", False, NONE, False),
        (None, False, NONE, False),
        ("1", True, NONE, False),  # a container: its processes have no group by session
        ("1", True, SYS_NICE, True),
        (None, False, SYS_NICE, True),
        (None, False, None, False),
    ],
)
def test_where_it_can_be_set_back(
    groups: str | None, capabilities: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *,
    limited: bool, possible: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(priority.resource, "getrlimit", lambda which: (0, 0))
    if groups is not None:
        (tmp_path / "sys/kernel").mkdir(parents=True)
        (tmp_path / "sys/kernel/sched_autogroup_enabled").write_text(f"{groups}\n")
    if capabilities is not None:
        (tmp_path / "self").mkdir()
        (tmp_path / "self/status").write_text(f"Name:\tpython\nCapEff:\t{capabilities}\n")
    if limited:
        (tmp_path / "cpu.max").touch()
    assert can_be_lowered(tmp_path, tmp_path) == possible


def test_a_limit_of_nice_values_lets_it_be_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority.resource, "getrlimit", lambda which: (20, 20))
    assert can_be_lowered(tmp_path, tmp_path)
