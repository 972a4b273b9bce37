"""docs/testing.md: all of its programs run, and its tests pass.

The tests of a project of `falkirk init` pass, too, and that of the tutorial, which is for such a project.
"""

import ast
import importlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from falkirk.testing import kit
from falkirk.user_tools.commands.init import make_project
from tests.integration.plans.test_tutorial import BLOCK, FILE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["kit"]
DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "testing.md"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, from which modules are imported for this test only."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("shop", "test_shop"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return tmp_path


def run_tests(names: dict[str, Any], kit: Any) -> int:
    """Call the tests among some names; return their number."""
    tests = [value for name, value in names.items() if name.startswith("test_")]
    for test in tests:
        test(**({"kit": kit} if "kit" in inspect.signature(test).parameters else {}))
    return len(tests)


def tutorials_test() -> str:
    """Return the file that the tutorial adds to a project."""
    files = {file[1]: m[2] for m in BLOCK.finditer((DOCS / "tutorial.md").read_text()) if (file := FILE.match(m[2]))}
    return files["test_more.py"]


def without_texts(code: str) -> str:
    """Return a program without its comments and docstrings, and without the names of modules and applications."""
    program = ast.parse(code)
    for node in ast.walk(program):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            del body[0]
    return ast.unparse(program)


def test_the_page_does_what_it_says_and_a_new_project_passes_its_tests(
    spark: "SparkSession", folder: Path, kit: Any
) -> None:
    project = make_project(folder / "shop")
    text, names = PAGE.read_text(), dict[str, Any](__name__="testing")
    for match in BLOCK.finditer(text):
        code = match[2]
        assert match[1] == "python"
        if file := FILE.match(code):
            (folder / file[1]).write_text(code)
        exec(compile("\n" * text[: match.start(2)].count("\n") + code, str(PAGE), "exec"), names)
    assert run_tests(names, kit) == 7
    # The project has the same pipeline, so it need not be planned again.
    assert without_texts((project / "shop.py").read_text()) == without_texts((folder / "shop.py").read_text())
    (folder / "test_shop.py").write_text((project / "test_shop.py").read_text())
    assert run_tests(vars(importlib.import_module("test_shop")), kit) == 2
    names = {"__name__": "test_more"}
    exec(compile(tutorials_test(), "test_more.py", "exec"), names)
    assert run_tests(names, kit) == 1
    del sys.modules["shop"], sys.modules["test_shop"]
