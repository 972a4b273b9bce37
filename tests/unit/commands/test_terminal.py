"""The terminal: text of records and errors is shown as text, and can't control the operator's screen."""

import ast
import io
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType
from rich.table import Table
from rich.text import Text

import falkirk as fk
from falkirk import cli
from falkirk.errors import SparkError
from falkirk.platform.terminal import Terminal, one_line, plain_text
from falkirk.runtime.spark.sinks.console import ConsoleTarget
from falkirk.runtime.spark.status import CONSOLE
from falkirk.runtime.supervision.settings import RunSettings
from falkirk.user_tools.commands import run

PACKAGE = Path(fk.__file__).parent
#: Markup that names no tag, a window title, a clearing of the screen, reversed text, and half a character.
HOSTILE = "[/x] :+1: \x1b]0;owned\x07 \x1b[2J\x9b2J \u202egnp.exe \udcff [red]x[/red]\rgone"
SHOWN = "[/x] :+1: ]0;owned [2J2J gnp.exe ? [red]x[/red]gone"


def test_hostile_text_is_shown_as_text() -> None:
    assert plain_text(HOSTILE) == SHOWN
    assert one_line(f"{HOSTILE}\n\tforged") == f"{SHOWN}\\n\\tforged"
    assert plain_text("Grüße,\n日本\tनमस्ते 👩‍🚀") == "Grüße,\n日本\tनमस्ते 👩‍🚀", "normal text stays unchanged"


@given(st.text(st.characters()))
def test_whatever_comes_no_control_is_left(text: str) -> None:
    shown = plain_text(text)
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]
    shown.encode("utf-8")
    assert "\n" not in one_line(text)


@pytest.mark.parametrize("form", ["text", "cell", "title", "styled", "status", "update"])
def test_a_console_shows_hostile_text_as_text(form: str) -> None:
    """Before, rich's markup raised an error for `[/x]` in the status line, which ended the application."""
    out = io.StringIO()
    terminal = Terminal(file=out, force_terminal=True, color_system=None, width=200)
    if form in ("status", "update"):
        with terminal.status(HOSTILE if form == "status" else "begins") as line:
            if form == "update":
                line.update(HOSTILE)
    else:
        table = Table(title=HOSTILE if form == "title" else "table")
        table.add_column(HOSTILE)
        table.add_row(HOSTILE)
        shown: Any = {"text": HOSTILE, "styled": Text(HOSTILE, style="red")}.get(form, table)
        terminal.print(shown)
    written = out.getvalue()
    assert SHOWN in written
    assert not [bad for bad in ("\x1b]", "\x07", "\x1b[2J", "\x9b", "\u202e") if bad in written]


class _HostileRun:
    """A coordinator whose application has a hostile record."""

    def __init__(self, app: fk.App, settings: RunSettings, *, say: Any, on_status: Any, on_end: Any) -> None:
        self._say, self._on_status = say, on_status

    def stop(self) -> None:
        """See Coordinator."""

    def run(self) -> None:
        """See Coordinator."""
        region = {"name": "words", "state": "restarting", "detail": HOSTILE, "checkpoint_age_s": 1.0,
                  "suppressed": 0, "dead_letters": 0}  # fmt: skip
        self._on_status({"regions": [region]})
        self._say(f"the Spark application ended ({HOSTILE}); starting it again")
        raise SparkError("QUERY_ENDED", HOSTILE, certainty="maybe")


def test_an_error_that_quotes_a_record_does_not_end_the_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "Coordinator", _HostileRun)
    monkeypatch.setattr(run, "stop_on_signals", lambda stop: None)
    with pytest.raises(SparkError):
        run.run_in_terminal(fk.App("shop"), RunSettings(file=tmp_path))
    assert f"({SHOWN})" in capsys.readouterr().err


def test_the_error_that_ends_a_command_is_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: Path) -> fk.App:
        raise SparkError("QUERY_ENDED", HOSTILE, certainty="maybe")

    monkeypatch.setattr("falkirk.user_tools.commands.status.load_application", fail)
    done = CliRunner().invoke(cli.main, ["status", "shop.py"])
    assert done.exit_code == 1
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert f"QUERY_ENDED {SHOWN}" in done.stderr


def test_a_host_logs_hostile_text_as_text() -> None:
    """An operator who looks at host.log does so in a terminal."""
    code = (
        "import logging\nfrom falkirk.platform.terminal import log_as_text\n"
        f"log_as_text()\nlogging.warning({HOSTILE!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == f"{SHOWN}\n"


def test_a_row_in_the_terminal_can_forge_no_other_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, a cell with a line end looked like a row, or like the heading of an epoch."""

    class _Rows:
        def collect(self) -> list[Any]:
            return [self]

        def asDict(self) -> dict[str, str]:
            return {"name": f"{HOSTILE}\n── out, epoch 7: 0 row(s)"}

        schema = StructType([])
        drop = limit = lambda self, *_: self

    monkeypatch.delenv(CONSOLE, raising=False)
    monkeypatch.setattr("falkirk.runtime.spark.sinks.console.sorted_by_place", lambda rows, few: rows)
    written: list[str] = []
    ConsoleTarget(fk.Console(), "out", written.append).deliver(1, _Rows())  # type: ignore[arg-type]
    assert written == [f"── out, epoch 1: 1 row(s)\nname={SHOWN}\\n── out, epoch 7: 0 row(s)\n"]


def test_nothing_else_makes_a_console() -> None:
    """A console that is made elsewhere would interpret records as markup."""
    for path, text in ((path, path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))):
        if "rich" not in text and "from_markup" not in text:
            continue  # parsing the other files takes 1 s of CPU time
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rich"):
                names = {alias.name for alias in node.names}
                assert path.name == "terminal.py" or not names & {"Console", "print", "escape"}, path
            assert not (isinstance(node, ast.Attribute) and node.attr == "from_markup"), path
