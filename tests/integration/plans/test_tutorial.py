"""The tutorial and two how-to pages, typed along: their programs run in order, and print the outputs on the page."""

import codeop
import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from click.testing import CliRunner

from falkirk.app import App
from falkirk.cli import main
from falkirk.declare.load import load_application
from falkirk.environment.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "tutorial.md"
BLOCK = re.compile(r"^```(python|text|sh)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: The part of a how-to page that does not run: it needs a database.
ASIDE = re.compile(r"^## A table that is updated in batches\n.*?(?=^## Move)", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# file: (\S+)\n")
#: Runs until Ctrl-C. The test starts the same application in its own process, with its own broker.
RUN = re.compile(r"falkirk run (\S+) --local\n")
#: The test calls it in its own process, which has a Spark session.
VERIFY = re.compile(r"falkirk verify outputs (\S+) --local\n")


def test_the_tutorial_does_what_it_says(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _type_along(PAGE, PAGE.read_text(), broker, {"__name__": "tutorial"})


@pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
@pytest.mark.parametrize("page", ["from-structured-streaming.md", "notebook.md"])
def test_how_to_pages_do_what_they_say(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    """They begin where the first section of the tutorial ends: with its two functions."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "notebook"}
    helpers = BLOCK.findall(PAGE.read_text())[0][1].replace("127.0.0.1:9092", broker.bootstrap)
    if page == "from-structured-streaming.md":
        exec(helpers.replace('"tutorial"', '"how-to"').replace('"clicks"', '"how-to-unused"'), names)
    path = DOCS / "how-to" / page
    _type_along(path, ASIDE.sub("", path.read_text()), broker, names)


def _type_along(page: Path, text: str, broker: Broker, names: dict[str, Any]) -> None:
    """Run the blocks of a page in order, and compare their output with the block of text that follows."""
    blocks = [(m[1], m[2], text[: m.start(2)].count("\n")) for m in BLOCK.finditer(text)]
    assert {kind for kind, _, _ in blocks} >= {"python", "text"}
    with contextlib.ExitStack() as stack:
        for number, (kind, block, line) in enumerate(blocks):
            code, printed = block.replace("127.0.0.1:9092", broker.bootstrap), ""
            if kind == "text":
                continue
            if kind == "sh" and (run := RUN.fullmatch(code)):
                query = cast(App, load_application(Path(run[1]))).start(kafka=broker.bootstrap, create_topics=True)
                stack.callback(query.stop)
            elif kind == "sh" and (verified := VERIFY.fullmatch(code)):
                result = CliRunner().invoke(main, ["verify", "outputs", verified[1], "--kafka", broker.bootstrap])
                assert result.exit_code == 0, result.output
                printed = result.stdout
            elif kind == "sh":
                printed = _shell(code)
            elif file := FILE.match(code):
                Path(file[1]).write_text(code)
            else:
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(compile("\n" * line + code, str(page), "exec"), names)
                printed = out.getvalue()
            following = blocks[number + 1] if number + 1 < len(blocks) else ("", "", 0)
            assert printed == (following[1] if following[0] == "text" else ""), f"{page.name}:{line}"


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
