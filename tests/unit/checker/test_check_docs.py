"""Runs the command lines of docs/check.md on the run that the page describes, and checks the statements of the page."""

import json
import re
import shlex
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from falkirk.checker.command import check_run
from falkirk.cli import main

PAGE = (Path(__file__).parents[3] / "docs" / "check.md").read_text()
LINES = re.findall(r"^    falkirk verify (run .*)$", PAGE, re.MULTILINE)
ORDERS = [("ada", 5), ("bob", 1), ("ada", 2)]
TOTALS = [("ada", 1, 5), ("bob", 1, 1), ("ada", 2, 7)]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a correct run: orders, totals as a log and as a table, a copy, shipments."""
    monkeypatch.chdir(tmp_path)
    _write("orders.jsonl", [{"user": user, "amount": amount} for user, amount in ORDERS])
    _write("totals.jsonl", [{"user": user, "count": count, "total": total} for user, count, total in TOTALS])
    _write("shipments.jsonl", [{"order": order, "state": state} for state in ("new", "paid") for order in (1, 2)])
    Path("copy.csv").write_text("user,amount\n" + "".join(f"{user},{amount}\n" for user, amount in ORDERS))
    with sqlite3.connect("shop.db") as database:
        database.execute("CREATE TABLE totals (user TEXT, count INTEGER, total INTEGER)")
        database.executemany("INSERT INTO totals VALUES (?, ?, ?)", TOTALS[1:])
    database.close()
    return tmp_path


def _write(name: str, rows: list[dict[str, object]]) -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_of_the_page_is_one(line: str) -> None:
    assert check_run.make_context("run", shlex.split(line)[1:]).params["outputs"]


@pytest.mark.parametrize("line", [line for line in LINES if "kafka:" not in line])
def test_a_command_line_of_the_page_passes_what_is_right_and_nothing_else(line: str, run: Path) -> None:
    passed = CliRunner().invoke(main, ["verify", *shlex.split(line)])
    assert passed.exit_code == 0, passed.output
    for name in ("totals.jsonl", "shipments.jsonl", "copy.csv"):
        path = Path(name)
        *rows, last = path.read_text().splitlines()
        path.write_text("\n".join([*rows, last, last]) + "\n")
    with sqlite3.connect("shop.db") as database:
        database.execute("UPDATE totals SET total = 6 WHERE user = 'ada'")
    database.close()
    assert CliRunner().invoke(main, ["verify", *shlex.split(line)]).exit_code == 1


def test_the_page_has_an_option_for_each_of_the_command() -> None:
    options = {option for each in check_run.params for option in each.opts if option.startswith("--")}
    assert not [option for option in sorted(options) if option not in PAGE]
