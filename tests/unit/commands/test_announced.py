"""The lines of `falkirk run`: where its broker is, when all processors run, and when they run again."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from falkirk import cli
from falkirk.runtime.supervision.settings import RunSettings
from falkirk.user_tools.commands.announced import Announced


def lines(*statuses: str) -> list[str | None]:
    """Return the line at each status, given as the states of the processors a, b, …"""
    announced = Announced("shop")
    return [
        announced.line({"regions": [{"name": n, "state": s} for n, s in zip("abc", each.split(), strict=False)]})
        for each in statuses
    ]


def test_a_line_comes_when_all_run_and_when_they_run_again() -> None:
    assert lines("starting running", "running running", "running running", "waiting running", "running running") == [
        None, "shop: all processors run", None, None, "shop: all processors run again",
    ]  # fmt: skip


def test_a_new_host_that_starts_with_nothing_is_no_standstill_that_never_ends() -> None:
    assert lines("running", "", "starting", "running") == [
        "shop: all processors run", None, None, "shop: all processors run again",
    ]  # fmt: skip


def test_those_that_failed_for_good_are_named() -> None:
    assert lines("running failed", "failed failed") == ["shop: all processors but b run", None]


def test_a_processor_that_is_tried_again_runs_again() -> None:
    """Somebody has a transaction open in its output, and commits it later."""
    announced = Announced("shop")
    a = {"name": "a", "state": "running", "condition": ""}
    found = [
        announced.line({"regions": [a, {"name": "b", "state": state, "condition": condition}]})
        for state, condition in (
            ("failed", "SINK_UNSETTLED"), ("running", ""), ("failed", "SINK_UNSETTLED"), ("running", ""),
            ("failed", "INPUT_EXPIRED"),
        )
    ]  # fmt: skip
    assert found == [None, "shop: all processors run", None, "shop: all processors run again", None]


def test_a_local_run_says_where_its_broker_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs, such as `send.py` of a new project, need the address."""
    file, found = tmp_path / "shop.py", list[RunSettings]()
    file.write_text("import falkirk as fk\napp = fk.App('shop')\n")
    monkeypatch.setattr("falkirk.user_tools.commands.running.local_broker", lambda: "127.0.0.1:9192")
    monkeypatch.setattr(cli, "run_in_terminal", lambda app, settings: found.append(settings))
    done = CliRunner().invoke(cli.main, ["run", str(file), "--local"])
    assert (done.exit_code, done.stderr) == (0, "the broker is at 127.0.0.1:9192\n")
    assert (found[0].kafka, found[0].create_topics) == ("127.0.0.1:9192", True)
