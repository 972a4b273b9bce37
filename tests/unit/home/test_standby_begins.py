"""When a coordinator starts a standby: for which masters and settings, with how much room, and after which pauses."""

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from falkirk.platform import priority
from falkirk.platform.memory import available_bytes
from falkirk.recovery.ownership.folder import STANDBY, Home, open_home
from falkirk.runtime.supervision import standby as standbys
from falkirk.runtime.supervision.standby import FAILED_PAUSE_S, MEASURED_S, STEADY_S, TRIES_MAX, VARIABLE, Standby
from tests.clock import MovedClock


def waiting() -> "subprocess.Popen[str]":
    """Start a process that does nothing."""
    return subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def ignored(process: "subprocess.Popen[str]", home: Home, folder: Path) -> None:
    """Send no settings."""


def status(commit: int, state: str = "running") -> dict[str, Any]:
    return {"regions": [{"name": "counts", "state": state, "last_commit": commit}]}


@pytest.mark.parametrize(
    ("wanted", "variable", "master", "available", "starts"),
    [
        (None, None, None, 3e9, True),
        (None, None, "local[4]", 3e9, True),
        (None, None, None, 2e9, False),
        (True, None, None, 2e9, True),
        (False, None, None, 3e9, False),
        (None, "0", None, 3e9, False),
        (True, "0", None, 2e9, True),
        (None, "1", None, 2e9, True),
        (None, None, "spark://host:7077", 3e9, False),
        (True, None, "local-cluster[2,1,512]", 3e9, False),
    ],
)
def test_when_there_is_one(
    wanted: bool | None, variable: str | None, master: str | None, available: float, *, starts: bool,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(standbys, "available_bytes", lambda: available)
    monkeypatch.setattr(standbys, "idle_s", itertools.count(0.0, 1000.0).__next__)
    monkeypatch.delenv(VARIABLE, raising=False)
    if variable is not None:
        monkeypatch.setenv(VARIABLE, variable)
    said: list[str] = []
    clock = MovedClock()

    with (
        open_home(tmp_path / "home", "shop") as home,
        Standby(waiting, ignored, said.append, wanted=wanted, master=master, clock=clock) as standby,
    ):
        for commit in (1, 1, 2):
            assert standby.pid is None, "results do not flow yet"
            standby.watch(home, status(commit))
        clock.advance(MEASURED_S)
        standby.watch(home, status(2))  # the first look at the processors only begins the measurement
        assert (standby.pid is not None) == starts
    assert len(said) == bool(wanted and master)


@pytest.mark.parametrize(("idle", "starts"), [(9.0, False), (11.0, True)])
def test_it_needs_an_idle_processor(
    idle: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, starts: bool
) -> None:
    """On two busy processors, a standby with the usual priority made the demo's answers take four times as long."""
    monkeypatch.setattr(standbys, "available_bytes", lambda: 3e9)
    monkeypatch.setattr(priority, "can_be_lowered", lambda: False)
    monkeypatch.setattr(standbys, "idle_s", itertools.count(0.0, idle).__next__)
    monkeypatch.delenv(VARIABLE, raising=False)
    clock = MovedClock()

    with (
        open_home(tmp_path / "home", "shop") as home,
        Standby(waiting, ignored, print, wanted=None, master=None, clock=clock) as standby,
    ):
        for commit, passes_s in ((1, 0.0), (2, 0.0), (2, MEASURED_S - 0.1), (2, 0.1)):
            assert standby.pid is None, "the processors are not measured yet"
            clock.advance(passes_s)
            standby.watch(home, status(commit))
        assert (standby.pid is not None) == starts


@pytest.mark.parametrize(("available", "starts"), [(2e9, False), (3e9, True)])
def test_one_with_the_lowest_priority_needs_only_memory(
    available: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, starts: bool
) -> None:
    monkeypatch.setattr(standbys, "available_bytes", lambda: available)
    monkeypatch.setattr(priority, "can_be_lowered", lambda: True)
    monkeypatch.setattr(priority, "lower", lambda pid: None)
    monkeypatch.delenv(VARIABLE, raising=False)

    with (
        open_home(tmp_path / "home", "shop") as home,
        Standby(waiting, ignored, print, wanted=None, master=None) as standby,
    ):
        for commit in (1, 2):
            standby.watch(home, status(commit))
        assert (standby.pid is not None) == starts


def test_results_must_flow(tmp_path: Path) -> None:
    started: list[Path] = []
    clock = MovedClock()

    def brief(process: "subprocess.Popen[str]", home: Home, folder: Path) -> None:
        """Note what a next coordinator would find if this one died now."""
        started.append(folder)
        assert json.loads((home.path / STANDBY).read_text())["folder"] == str(folder)

    with (
        open_home(tmp_path / "home", "shop") as home,
        Standby(waiting, brief, print, wanted=True, master=None, clock=clock) as standby,
    ):
        standby.watch(home, None)
        standby.watch(home, {"regions": []})
        standby.watch(home, status(1, "starting"))
        standby.watch(home, status(2, "restarting"))
        clock.advance(STEADY_S + 1.0)
        standby.watch(home, status(-1))
        clock.advance(STEADY_S)
        standby.watch(home, status(-1))
        assert started == [], "all run since a moment only"
        clock.advance(0.1)
        standby.watch(home, status(-1))
        assert len(started) == 1, "all run for a while, although no checkpoint is due yet"


def test_one_that_can_not_be_started_is_tried_after_growing_pauses(tmp_path: Path) -> None:
    tries, clock, said = list[float](), MovedClock(), list[str]()

    def refused() -> "subprocess.Popen[str]":
        tries.append(clock.now_s)
        raise OSError("no memory")

    with (
        open_home(tmp_path / "home", "shop") as home,
        Standby(refused, ignored, said.append, wanted=True, master=None, clock=clock) as standby,
    ):
        for commit in range(int(10 * FAILED_PAUSE_S)):
            standby.watch(home, status(commit))
            clock.advance(1.0)
    assert [later - before for before, later in itertools.pairwise(tries)] == [FAILED_PAUSE_S, 2 * FAILED_PAUSE_S]
    assert len(tries) == TRIES_MAX
    assert len(said) == 1


def test_memory_is_that_of_the_container(tmp_path: Path) -> None:
    free = available_bytes(tmp_path / "none")
    assert 0 < free <= psutil.virtual_memory().total
    for name, text in (
        ("memory.max", "900"),
        ("memory.current", "500"),
        ("memory.stat", "anon 400\ninactive_file 50\n"),
    ):
        (tmp_path / name).write_text(text)
    assert available_bytes(tmp_path) == 450
    (tmp_path / "memory.max").write_text("max")
    assert available_bytes(tmp_path) > 450
