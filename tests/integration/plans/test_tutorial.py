"""The tutorial, typed along: its programs run in order, and print what stands behind them."""

import codeop
import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from falkirk.declare.load import load_application
from falkirk.local.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[3] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(python|text|sh)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# file: (\S+)\n")
#: Runs until Ctrl-C. The test starts the same application in its own process, with its own broker.
RUN = re.compile(r"falkirk run (\S+) --local\n")


def test_the_tutorial_does_what_it_says(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    names: dict[str, Any] = {"__name__": "tutorial"}
    blocks = [(m[1], m[2], text[: m.start(2)].count("\n")) for m in BLOCK.finditer(text)]
    assert {kind for kind, _, _ in blocks} == {"python", "text", "sh"}
    with contextlib.ExitStack() as stack:
        for number, (kind, block, line) in enumerate(blocks):
            code, printed = block.replace("localhost:9092", broker.bootstrap), ""
            if kind == "text":
                continue
            if kind == "sh" and (run := RUN.fullmatch(code)):
                query = load_application(Path(run[1])).start(kafka=broker.bootstrap, create_topics=True)
                stack.callback(query.stop)
            elif kind == "sh":
                printed = _shell(code)
            elif file := FILE.match(code):
                Path(file[1]).write_text(code)
            else:
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(compile("\n" * line + code, str(PAGE), "exec"), names)
                printed = out.getvalue()
            following = blocks[number + 1] if number + 1 < len(blocks) else ("", "", 0)
            assert printed == (following[1] if following[0] == "text" else ""), f"tutorial.md:{line}"


def test_the_programs_of_the_tutorial_can_be_pasted() -> None:
    """At Python's prompt, an empty line ends a compound statement: one follows each, and none is inside."""
    programs = [match[2] for match in BLOCK.finditer(PAGE.read_text()) if match[1] == "python"]
    for program in programs:
        waiting: list[str] = []
        for line in [] if FILE.match(program) else [*program.splitlines(), ""]:
            waiting.append(line)
            if codeop.compile_command("\n".join(waiting)) is not None:
                waiting.clear()
        assert not waiting, program


def _shell(command: str) -> str:
    """Return the output of a command of the page."""
    program, *arguments = command.split()
    assert program == "falkirk"
    done = subprocess.run(
        [sys.executable, "-m", "falkirk.cli", *arguments], env=os.environ, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
