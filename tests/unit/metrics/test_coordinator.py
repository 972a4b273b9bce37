"""The coordinator and its metrics: its loop is its pulse, and a port that is in use ends `falkirk run` at once."""

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

import falkirk as fk
from falkirk.cli import main
from falkirk.processes.coordinator import Coordinator
from falkirk.processes.metrics import Metrics
from falkirk.processes.settings import RunSettings
from tests.unit.home.test_failures_across_hosts import Cluster, Impatient
from tests.unit.metrics.statuses import value

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
