"""The coordinator and its metrics: its loop is its pulse, and a port that is in use ends `falkirk run` at once."""

import errno
import json
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import falkirk as fk
from falkirk.cli import main
from falkirk.recovery.ownership import executors
from falkirk.runtime.supervision import coordinator as module
from falkirk.runtime.supervision.coordinator import SILENT_AT_START_S, Coordinator
from falkirk.runtime.supervision.metrics import Metrics
from falkirk.runtime.supervision.pulse import Pulse
from falkirk.runtime.supervision.settings import RunSettings
from tests.unit.home.test_failures_across_hosts import Cluster, Impatient
from tests.unit.metrics.statuses import Clock, value
from tests.unit.metrics.statuses import full as full_status

APP = """
import falkirk as fk
app = fk.App("shop", kafka="127.0.0.1:1", home="{home}")
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "shop.py"
    file.write_text(APP.format(home=tmp_path / "home"))
    return file


def test_each_host_after_the_first_is_a_restart(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "home", "a", commits=True)
    seen: list[tuple[float | None, bool]] = []

    def take(status: dict[str, object]) -> None:
        metrics.update(status)
        seen.append((value(metrics, "falkirk_host_restarts_total"), metrics.health()[0] and metrics.ready()[0]))

    app = fk.App("shop", kafka="127.0.0.1:1", home=tmp_path / "home")
    settings = RunSettings(file=Path(__file__))
    coordinator = Coordinator(app, settings, say=lambda text: None, on_status=take, start=cluster.start)
    metrics = Metrics("shop", coordinator.pulse)
    coordinator._stopping = Impatient()
    cluster.stop = coordinator.stop
    coordinator.run()
    assert cluster.hosts == coordinator.restarts + 1 > 3
    # Only `good` is in the statuses of these hosts, and it runs.
    assert seen == [(float(n), True) for n in range(cluster.hosts)]


@pytest.mark.parametrize("waits_for", ["space", "an executor that hangs", "executors"])
def test_the_application_is_healthy_while_the_coordinator_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits_for: str
) -> None:
    """Such a wait has no limit, and the orchestrator that restarts the container changes nothing about its cause.

    But no processor runs, although the last status of the host that ended says that they do.
    """
    clock, told = Clock(), list[tuple[bool, dict[str, object]]]()
    shown = list[tuple[bool, float | None, float | None]]()
    coordinator = Coordinator(
        fk.App("shop", kafka="127.0.0.1:1", home=tmp_path), RunSettings(file=Path(__file__)), say=lambda text: None
    )
    coordinator.pulse = Pulse(SILENT_AT_START_S, clock)
    metrics = Metrics("shop", coordinator.pulse, clock)
    coordinator.pulse.begin()
    coordinator.pulse.note_report(40.0)
    metrics.update(full_status())
    assert metrics.ready()[0]

    def pause(seconds: float | None = None) -> bool:
        for _ in range(8):  # the server of the probes looks meanwhile
            clock.now_s += 5
            metrics.look()
        told.append(metrics.health())
        age_s = value(metrics, "falkirk_host_status_age_seconds")
        runs = value(metrics, "falkirk_processor_state", processor="sales", state="running")
        shown.append((metrics.ready()[0], age_s, runs))
        if len(told) == 10:
            coordinator.stop()
        return coordinator._stopping.is_set()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if waits_for == "executors":  # nobody reaches them
        record = {"application": "app-1", "silence_s": 1e6, "addresses": ["192.0.2.1:1"], "complete": False}
        (tmp_path / "executors.json").write_text(json.dumps(record))
        monkeypatch.setattr(executors, "probe", lambda address: executors.Reach.UNKNOWN)
        monkeypatch.setattr(executors, "time", SimpleNamespace(monotonic=clock, sleep=pause))
    elif waits_for == "an executor that hangs":
        record = {"application": "app-1", "silence_s": -1e6, "addresses": ["192.0.2.1:1"], "complete": False}
        (tmp_path / "executors.json").write_text(json.dumps(record))
        monkeypatch.setattr(executors, "probe", lambda address: executors.Reach.ACCEPTED)
    monkeypatch.setattr(module, "write_atomically", full)
    monkeypatch.setattr(coordinator._stopping, "wait", pause)
    coordinator._await_space() if waits_for == "space" else coordinator._await_executors()
    assert told == [(True, {"status": "ok"})] * 10
    assert shown == [(False, 40.0 * n, 0.0) for n in range(1, 11)]


def test_a_process_that_waits_for_the_owner_misses_no_report(tmp_path: Path) -> None:
    """Otherwise the alert about a silent host would fire for each pod that waits."""
    clock = Clock()
    coordinator = Coordinator(fk.App("shop", kafka="127.0.0.1:1", home=tmp_path), RunSettings(file=Path(__file__)))
    coordinator.pulse = Pulse(SILENT_AT_START_S, clock)
    metrics = Metrics("shop", coordinator.pulse, clock)
    coordinator.stop()  # so that the pause ends at once
    for _ in range(10):
        clock.now_s += 50
        assert coordinator._pause(0.5)
    assert (metrics.health()[0], metrics.ready()[0]) == (True, False)
    assert value(metrics, "falkirk_host_status_age_seconds") == 0


def test_a_port_in_use_ends_the_run_before_anything_starts(shop: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ended = CliRunner().invoke(main, ["run", str(shop), "--metrics", str(other.getsockname()[1])])
    assert ended.exit_code == 1
    assert "ADDRESS_TAKEN" in ended.output
    assert not (shop.parent / "home").exists()


def test_another_address_ends_the_run(shop: Path) -> None:
    ended = CliRunner().invoke(main, ["run", str(shop), "--metrics", "all"])
    assert (ended.exit_code, "ADDRESS_INVALID" in ended.output) == (1, True)


@pytest.mark.parametrize(("options", "served"), [([], False), (["--metrics", "0"], True)])
def test_metrics_are_served_only_if_asked_for(
    shop: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], served: bool
) -> None:
    monkeypatch.setattr(Coordinator, "run", lambda coordinator: None)
    ended = CliRunner().invoke(main, ["run", str(shop), *options])
    *said, end = ended.stderr.splitlines()
    assert (ended.exit_code, end) == (0, "shop: stopped; the next start resumes from here")
    assert [text.startswith("metrics are served at http://127.0.0.1:") for text in said] == [True] * served
