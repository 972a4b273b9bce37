"""The commands: where the dashboard is served, and with which token."""

import io
import socket
import stat
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from falkirk.cli import main
from falkirk.declare.address import as_dashboard_address
from falkirk.errors import DefinitionError, HomeError
from falkirk.platform.terminal import stderr_is_terminal
from falkirk.recovery.ownership.credentials import write_dashboard_token
from falkirk.runtime.supervision.coordinator import Coordinator
from falkirk.user_tools.commands.dashboard import serve as module
from tests.unit.metrics.test_coordinator import APP


class Commands:
    """Runs commands. Attributes: said: the lines of `falkirk run`, without the one that tells its end."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __call__(self, *arguments: object) -> tuple[int, str]:
        found = CliRunner().invoke(main, [str(a) for a in arguments])
        self.said += [line for line in found.stderr.splitlines() if not line.startswith("shop: stopped;")]
        return found.exit_code, found.output


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Commands, with a coordinator that ends at once."""
    monkeypatch.setattr(Coordinator, "run", lambda coordinator: None)
    return Commands()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "shop.py"
    file.write_text(APP.format(home=tmp_path / "home"))
    return file


def test_it_is_served_only_if_asked_for(shop: Path, ended: Commands) -> None:
    assert ended("run", shop)[0] == 0
    assert ended.said == []
    assert not (shop.parent / "home" / "dashboard.token").exists()


@pytest.mark.parametrize("first", [True, False])
def test_the_address_may_be_left_out_on_either_side_of_the_file(
    shop: Path, ended: Commands, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    monkeypatch.setattr(module, "_DEFAULT", "127.0.0.1:0")
    words = ["--dashboard", shop] if first else [shop, "--dashboard"]
    assert ended("run", *words, "--no-standby")[0] == 0
    assert [text.startswith("the dashboard is at http://127.0.0.1:") for text in ended.said] == [True]


@pytest.mark.parametrize("option", [["--dashboard", "0"], ["--dashboard=0"], ["--dashboard", "localhost:0"]])
def test_the_address_may_be_named(shop: Path, ended: Commands, option: list[str]) -> None:
    assert ended("run", *option, shop)[0] == 0
    assert [text.startswith("the dashboard is at http://") for text in ended.said] == [True]


def test_an_open_address_says_what_that_means(shop: Path, ended: Commands) -> None:
    assert ended("run", shop, "--dashboard", "0.0.0.0:0")[0] == 0
    assert len(ended.said) == 2
    assert "roll shop back" in ended.said[1]


def test_a_port_in_use_ends_the_run_unless_it_is_the_usual_one(
    shop: Path, ended: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, text = ended("run", shop, "--dashboard", port)
        assert (code, "ADDRESS_TAKEN" in text) == (1, True)
        assert not (shop.parent / "home").exists()
        monkeypatch.setattr(module, "_DEFAULT", f"127.0.0.1:{port}")
        assert ended("run", shop, "--dashboard")[0] == 0
    _, other_port, address = ended.said
    assert other_port == f"port {port} can't be used (it is in use), so the dashboard has another port"
    assert f":{port}" not in address


def test_another_address_is_refused(shop: Path, ended: Commands) -> None:
    assert ended("run", shop, "--dashboard=all")[0] == 1
    assert as_dashboard_address("8350") == ("127.0.0.1", 8350)
    with pytest.raises(DefinitionError) as refused:
        as_dashboard_address("all")
    assert refused.value.condition == "ADDRESS_INVALID"


def test_metrics_and_dashboard_may_share_an_address(shop: Path, ended: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert ended("run", shop, "--metrics", port, "--dashboard", port)[0] == 0
    assert ended.said[0] == "metrics are served beside the dashboard, at /metrics"
    assert ended.said[1].startswith(f"the dashboard is at http://127.0.0.1:{port}; its token is in ")
    assert len(ended.said) == 2


def test_an_open_address_that_metrics_share_says_what_everybody_can_read(shop: Path, ended: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert ended("run", shop, "--metrics", f"0.0.0.0:{port}", "--dashboard", f"0.0.0.0:{port}")[0] == 0
    assert [text for text in ended.said if text.startswith("everybody who can reach")] == [
        f"everybody who can reach http://0.0.0.0:{port} can read the names of topics and processors, and their counts"
    ]


def test_each_start_has_another_token(shop: Path, ended: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "stderr_is_terminal", lambda: True)
    for _ in range(3):
        assert ended("run", shop, "--dashboard", "0")[0] == 0
    tokens = {text.partition("/#token=")[2] for text in ended.said}
    assert len(tokens) == 3
    assert min(map(len, tokens)) > 40
    assert not (shop.parent / "home" / "dashboard.token").exists(), "a later process must not find it"


def test_without_a_terminal_the_token_is_only_in_a_file(shop: Path, ended: Commands) -> None:
    home = shop.parent / "home"
    file, found = home / "dashboard.token", set[str]()
    for _ in range(2):
        assert ended("run", shop, "--dashboard", "0")[0] == 0
        found.add(file.read_text())
        assert ended.said[-1].endswith(f"; its token is in {file}")
        assert not any(file.read_text() in text for text in ended.said)
    assert len(found) == 2, "a start must not use the token of a former one"
    for path, mode in ((home, 0o700), (file, 0o600)):
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_token_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home" / "dashboard.token").mkdir(parents=True, mode=0o700)
    (tmp_path / "home").chmod(0o700)
    with pytest.raises(HomeError) as refused:
        write_dashboard_token(tmp_path / "home", "token")
    assert refused.value.condition == "HOME_UNUSABLE"


def test_variables_that_ask_for_colours_make_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not stderr_is_terminal()


def test_help_names_the_page(ended: Commands) -> None:
    assert "dashboard" in ended("--help")[1]
    assert "--at" in ended("dashboard", "--help")[1]
