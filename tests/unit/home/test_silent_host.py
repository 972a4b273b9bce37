"""A host that hangs is distinguished from one whose coordinator had to wait for the store."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import falkirk as fk
from falkirk.platform.silence import LOOK_MAX_S
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.supervision import coordinator as supervise
from falkirk.runtime.supervision.coordinator import Coordinator
from falkirk.runtime.supervision.settings import SILENT_S, RunSettings
from tests.clock import MovedClock


class Host:
    """A host, and its store: `status` is written now and then, as long as it does not hang."""

    def __init__(self, status_file: Path, clock: MovedClock, *, hangs: bool) -> None:
        self._status, self._clock, self._hangs, self.killed, self.asked = status_file, clock, hangs, False, 0
        self.stdin = SimpleNamespace(write=lambda line: None, flush=lambda: None)
        self.write()

    def write(self) -> None:
        regions = [{"name": "counts", "state": "running", "last_commit": 1}]
        status = {"at_s": self._clock.time(), "regions": regions, "push": [], "error": None}
        self._status.write_text(json.dumps(status))

    def poll(self) -> int | None:
        return 1 if self.killed or self.asked > 3 * SILENT_S / LOOK_MAX_S else None

    def kill(self) -> None:
        self.killed = True

    def is_stop_asked(self, _store: object) -> bool:
        """The store answers the coordinator late. Meanwhile the host continues."""
        self.asked += 1
        for _ in range(4):
            self._clock.advance(SILENT_S / 2)
            if not self._hangs:
                self.write()
        return False


@pytest.mark.parametrize("hangs", [True, False])
def test_only_one_that_hangs_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, hangs: bool) -> None:
    app = fk.App("shop", kafka="127.0.0.1:1", home=tmp_path / "home")
    clock = MovedClock()
    coordinator = Coordinator(app, RunSettings(file=Path(__file__)), say=lambda _text: None, clock=clock)
    host = Host(tmp_path / "status.json", clock, hangs=hangs)
    monkeypatch.setattr(supervise, "stop_asked_if_reachable", host.is_stop_asked)
    with open_home(app.home, app.name) as home:
        coordinator._watch(cast(Any, host), tmp_path / "status.json", home)
    assert host.killed == hangs


class Paused(threading.Event):
    """The coordinator and its host stand still in the third wait of the coordinator, which then runs first."""

    def __init__(self, clock: MovedClock) -> None:
        super().__init__()
        self._clock, self.waits = clock, 0

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits += 1
        self._clock.advance(4 * SILENT_S if self.waits == 3 else timeout)
        return self.is_set()


class Working(Host):
    """A host that writes its status when it is looked at, but not right before the pause."""

    def poll(self) -> int | None:
        self.asked += 1
        if self.asked != 3:
            self.write()
        return 1 if self.killed or self.asked > 6 else None


def test_a_host_that_stood_still_with_its_coordinator_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `docker pause` for a minute."""
    app = fk.App("shop", kafka="127.0.0.1:1", home=tmp_path / "home")
    clock = MovedClock()
    coordinator = Coordinator(app, RunSettings(file=Path(__file__)), say=lambda _text: None, clock=clock)
    host, stopping = Working(tmp_path / "status.json", clock, hangs=False), Paused(clock)
    monkeypatch.setattr(coordinator, "_stopping", stopping)
    with open_home(app.home, app.name) as home:
        coordinator._watch(cast(Any, host), tmp_path / "status.json", home)
    assert stopping.waits > 3
    assert not host.killed


def test_the_next_host_knows_when_the_last_one_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of an outage of the broker is not that of a restart."""
    app = fk.App("shop", kafka="127.0.0.1:1", home=tmp_path / "home")
    coordinator = Coordinator(app, RunSettings(file=Path(__file__), standby=True), say=lambda _text: None)
    told = list[float | None]()

    def run_host(home: Any) -> str:
        settings = coordinator._host_settings(home)
        assert settings.keeps_standby, "the command asks for one"
        told.append(settings.died_at_s)
        coordinator._alive_at_s, coordinator._waits_for = 100.0 + len(told), "BROKER_AWAY" if len(told) == 2 else ""
        coordinator._commits = {"counts": len(told)}
        if len(told) == 4:
            coordinator.stop()
        return "killed by signal 9"

    monkeypatch.setattr(coordinator, "_run_host", run_host)
    monkeypatch.setattr(supervise, "AWAY_PAUSE_S", 0.01)
    coordinator.run()
    assert told == [None, 101.0, None, 103.0]
    by_itself = Coordinator(app, RunSettings(file=Path(__file__)), say=lambda _text: None)
    assert not by_itself._host_settings(None).keeps_standby, "memory and processors decide, so it may be missing"
