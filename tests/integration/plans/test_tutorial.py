"""The tutorial and two how-to pages, typed along: their programs run in order, and print the outputs on the page.

Commands that only look at an application print nothing else: a real session's log and the JVM's warnings stay off the
terminal.
"""

import codeop
import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from click.testing import CliRunner

from falkirk.app import App
from falkirk.cli import main
from falkirk.declare.load import load_application
from falkirk.spark_setup.broker import Broker
from tests.integration.live import Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "tutorial.md"
BLOCK = re.compile(r"^```(python|text|sh)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: The part of a how-to page that does not run: it needs a database.
ASIDE = re.compile(r"^## A table that is updated in batches\n.*?(?=^## Move)", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# file: (\S+)\n")
#: The address of the broker in the pages. Tests use another broker.
ADDRESS = "127.0.0.1:9092"
#: Runs until Ctrl-C. The test starts the same application in its own process, with its own broker.
RUN = re.compile(r"falkirk run (\S+) --local\n")
#: The test calls it in its own process, which has a Spark session.
VERIFY = re.compile(r"falkirk verify outputs (\S+) --local\n")

#: Runs commands of `falkirk` in one process, which starts one JVM. Each makes a session of its own.
SEVERAL = """
import sys
from falkirk.cli import main

for command in sys.argv[1:]:
    print("--", command, flush=True)
    main(command.split(), standalone_mode=False)
"""
QUIET = """
import falkirk as fk

app = fk.App("quiet", kafka="{broker}")
app.source("words", fk.Kafka("{words}", schema="word STRING NOT NULL", key="word"))


@app.stream(fk.Lazy("5 seconds"))
def counts(words):
    return words.groupBy("word").count()


app.sink("counts", counts, fk.Kafka("{counts}", key="word"))
"""


def test_the_tutorial_does_what_it_says_and_commands_print_nothing_but_the_answer(
    spark: "SparkSession", broker: Broker, tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process of the tutorial's command also runs two commands on another application, with a broker."""
    monkeypatch.chdir(tmp_path)
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    topics = {name: wire.topic(name, 2) for name in ("words", "counts")}
    wire.send(topics["words"], [{"word": "a"}], key="a")
    wire.send(topics["counts"], [{"word": "a", "count": 1}], key="a")
    Path("quiet.py").write_text(QUIET.format(broker=broker.bootstrap, **topics))
    more = ("plan quiet.py", "verify outputs quiet.py")
    (answers,) = _type_along(PAGE, PAGE.read_text(), broker, {"__name__": "tutorial"}, more)
    assert len(answers) == len(more)
    assert all("counts" in answer for answer in answers), answers


@pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
@pytest.mark.parametrize("page", ["from-structured-streaming.md", "notebook.md"])
def test_how_to_pages_do_what_they_say(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    """They begin where the first section of the tutorial ends: with its two functions."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "notebook"}
    _, helpers, _ = _blocks(PAGE.read_text(), broker.bootstrap)[0]
    if page == "from-structured-streaming.md":
        exec(helpers.replace('"tutorial"', '"how-to"').replace('"clicks"', '"how-to-unused"'), names)
    path = DOCS / "how-to" / page
    _type_along(path, ASIDE.sub("", path.read_text()), broker, names)


@pytest.mark.parametrize("page", ["tutorial.md", "how-to/from-structured-streaming.md", "how-to/notebook.md"])
def test_a_page_names_the_address_that_the_tests_replace(page: str) -> None:
    """Regression: two pages had `localhost:9092`, so their programs would have used a broker of the machine."""
    assert any("other:1" in block for _, block, _ in _blocks((DOCS / page).read_text(), "other:1"))


def _blocks(text: str, bootstrap: str) -> list[tuple[str, str, int]]:
    """Return the kind, the text and the line of each block of a page, with the address of the test's broker."""
    found = [(m[1], m[2], text[: m.start(2)].count("\n")) for m in BLOCK.finditer(text)]
    assert any(ADDRESS in block for _, block, _ in found), "a program uses the broker of the page"
    assert not any("localhost:9092" in block for _, block, _ in found), "the page names the same broker otherwise"
    return [(kind, block.replace(ADDRESS, bootstrap), line) for kind, block, line in found]


def _type_along(
    page: Path, text: str, broker: Broker, names: dict[str, Any], more: Sequence[str] = ()
) -> list[list[str]]:  # fmt: skip
    """Run the blocks of a page in order, and compare their output with the block of text that follows.

    Args: more: the process of each command of the page runs these afterwards. Returns: their outputs, by process.
    """
    answers = []
    blocks = _blocks(text, broker.bootstrap)
    assert {kind for kind, _, _ in blocks} >= {"python", "text"}
    with contextlib.ExitStack() as stack:
        for number, (kind, code, line) in enumerate(blocks):
            printed = ""
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
                printed, *others = _shell(code, more)
                answers.append(others)
            elif file := FILE.match(code):
                Path(file[1]).write_text(code)
            else:
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(compile("\n" * line + code, str(page), "exec"), names)
                printed = out.getvalue()
            following = blocks[number + 1] if number + 1 < len(blocks) else ("", "", 0)
            assert printed == (following[1] if following[0] == "text" else ""), f"{page.name}:{line}"
    return answers


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


def _shell(command: str, more: Sequence[str]) -> list[str]:
    """Return the output of a command of the page, and those of others. They print nothing else."""
    program, _, first = command.strip().partition(" ")
    assert program == "falkirk"
    run = [sys.executable, "-c", SEVERAL, first, *more]
    done = subprocess.run(run, env=os.environ, capture_output=True, text=True, timeout=180)
    assert (done.stderr, done.returncode) == ("", 0), done.stdout
    nothing, *answers = done.stdout.split("-- ")
    assert nothing == ""
    assert all(map(str.startswith, answers, (first, *more))), answers
    return [answer.partition("\n")[2] for answer in answers]
