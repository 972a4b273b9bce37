"""The tutorial, typed along: its programs run in order, and print what stands behind them."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from falkirk.local.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(python|text|sh)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# file: (\S+)\n")


def test_the_tutorial_does_what_it_says(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    names: dict[str, Any] = {"__name__": "tutorial"}
    blocks = [(m[1], m[2], text[: m.start(2)].count("\n")) for m in BLOCK.finditer(text)]
    assert {kind for kind, _, _ in blocks} == {"python", "text", "sh"}
    for number, (kind, block, line) in enumerate(blocks):
        code = block.replace("localhost:9092", broker.bootstrap)
        if kind == "sh":
            _shell(code)
        elif kind == "python" and (file := FILE.match(code)):
            Path(file[1]).write_text(code)
        elif kind == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * line + code, str(PAGE), "exec"), names)
            following = blocks[number + 1] if number + 1 < len(blocks) else ("", "", 0)
            assert printed.getvalue() == (following[1] if following[0] == "text" else ""), f"tutorial.md:{line}"


def _shell(command: str) -> None:
    program, *arguments = command.split()
    assert program == "falkirk"
    done = subprocess.run(
        [sys.executable, "-m", "falkirk.cli", *arguments], env=os.environ, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    assert "ranks-by-link" in done.stdout
