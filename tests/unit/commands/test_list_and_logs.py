"""`falkirk list` and `falkirk logs`: the homes below a folder, and the log of one."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from falkirk.cli import main
from falkirk.plan.shape import Shape
from falkirk.recovery.ownership.folder import open_home
from falkirk.recovery.protocol.layout import Layout, Stage
from falkirk.theory.ids import LogId
from falkirk.user_tools.commands import logs as module
from falkirk.user_tools.commands.homes import homes_below


def home(folder: Path, name: str) -> Path:
    """Make the home of an application that has run."""
    path = folder / ".falkirk" / name
    open_home(path, name).close()
    stage = Stage(name="sales", inputs=(LogId("orders"),), output=LogId("sales"))
    layout = Layout(stages={"sales": stage}, partitions={LogId("orders"): 1, LogId("sales"): 1}, held={})
    Shape(layout=layout, regions=(), batches=(), processors={"sales": ("sales",)}).write(path)
    return path


def test_the_homes_below_a_folder_and_whether_they_run(tmp_path: Path) -> None:
    home(tmp_path / "a", "shop")
    runs = home(tmp_path / "b", "search")
    damaged = home(tmp_path, "torn")
    (damaged / "falkirk.json").write_text("{")
    (tmp_path / ".git" / "falkirk.json").parent.mkdir()
    (tmp_path / ".git" / "falkirk.json").write_text("{}")
    (tmp_path / "falkirk.json").write_text('{"title": "a dashboard, and no home"}')
    (tmp_path / "loop").symlink_to(tmp_path)
    status = {"at_s": 1.0, "regions": [{"name": "sales", "state": "recovering"}]}
    (runs / "status.json").write_text(json.dumps(status))
    with open_home(runs, "search"):
        found = list(homes_below(tmp_path))
        told = CliRunner().invoke(main, ["list", str(tmp_path)])
        as_json = json.loads(CliRunner().invoke(main, ["list", str(tmp_path), "--json"]).output)
    assert [(h.application, h.runs, h.units) for h in found] == [
        ("(damaged)", False, {}), ("shop", False, {"sales": ""}), ("search", True, {"sales": "recovering"}),
    ]  # fmt: skip
    assert found[2].since_s is not None
    assert told.exit_code == 0
    assert "search" in told.output
    assert "since" in told.output
    assert as_json == [h.as_json() for h in found]


def test_a_folder_without_homes_says_so(tmp_path: Path) -> None:
    told = CliRunner().invoke(main, ["list", str(tmp_path)])
    assert (told.exit_code, told.stdout) == (0, "")
    assert "No application has a home below" in told.stderr


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = home(tmp_path, "shop")
    file = tmp_path / "shop.py"
    file.write_text(f"import falkirk as fk\napp = fk.App('shop', home={str(path)!r})\n")
    return file


def log_of(shop: Path) -> Path:
    return shop.parent / ".falkirk" / "shop" / "host.log"


def test_the_last_lines_of_the_log_without_control_characters(shop: Path) -> None:
    log_of(shop).write_text("".join(f"line {n}\n" for n in range(500)) + "\x1b[2Jend\n")
    told = CliRunner().invoke(main, ["logs", str(shop), "-n", "3"])
    assert told.output == "line 498\nline 499\n[2Jend\n"
    assert len(CliRunner().invoke(main, ["logs", str(shop)]).output.splitlines()) == 200
    assert CliRunner().invoke(main, ["logs", str(shop), "-n", "0"]).output == ""


def test_a_home_without_a_log_says_who_has_it(shop: Path, tmp_path: Path) -> None:
    told = CliRunner().invoke(main, ["logs", str(shop)])
    assert told.exit_code == 1
    told = CliRunner().invoke(main, ["logs", str(shop), "--home", str(tmp_path / "nothing")])
    assert told.exit_code == 1


def test_following_prints_new_lines_also_after_the_log_got_another_name(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = log_of(shop)
    log.write_text("first\n")

    def grow() -> None:
        with open(log, "ab") as handle:
            handle.write("hälf".encode()[:2])

    def grow_more() -> None:
        with open(log, "ab") as handle:
            handle.write("hälf".encode()[2:] + b"\nlast of the old one\n")
        os.replace(log, log.with_name("host.log.1"))
        log.write_text("first of the new one\n")

    coming = [grow, grow_more, lambda: None]

    def wait(seconds: float) -> None:
        if not coming:
            raise KeyboardInterrupt
        coming.pop(0)()

    with pytest.raises(KeyboardInterrupt):
        module._print(log, 10, follow=True, wait=wait)
    assert capsys.readouterr().out == "first\nhälf\nlast of the old one\nfirst of the new one\n"
