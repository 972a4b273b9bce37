"""Names: each public name of the package stands for one thing, so one module alone defines it."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.unit.house.parsed import tree

PACKAGE = Path(__file__).parents[3] / "falkirk"
#: Each module has its own logger, and each program its own `main`.
OF_EACH_MODULE = {"log", "main"}


def _is_command(function: ast.FunctionDef) -> bool:
    """Whether a function is a command of the terminal, whose name users type."""
    return any(".command" in ast.unparse(each) or ".group" in ast.unparse(each) for each in function.decorator_list)


def _is_type_variable(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) in ("TypeVar", "ParamSpec")


def defined(path: Path) -> Iterator[str]:
    """Yield the public names that a module defines. Commands and type variables do not count."""
    for node in tree(path).body:
        names: list[str] = []
        if isinstance(node, ast.ClassDef) or (isinstance(node, ast.FunctionDef) and not _is_command(node)):
            names = [node.name]
        elif isinstance(node, ast.Assign) and not _is_type_variable(node.value):
            names = [each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        yield from (name for name in names if not name.startswith("_") and name not in OF_EACH_MODULE)


def repeated(paths: Iterable[Path]) -> dict[str, set[Path]]:
    """Return the names that several modules define, with these modules."""
    found: dict[str, set[Path]] = {}
    for path in paths:
        for name in defined(path):
            found.setdefault(name, set()).add(path)
    return {name: places for name, places in found.items() if len(places) > 1}


def test_one_module_defines_a_public_name(tmp_path: Path) -> None:
    assert not repeated(PACKAGE.rglob("*.py"))
    for name in ("one", "other"):
        (tmp_path / f"{name}.py").write_text(
            'from typing import TypeVar\nlog, LIMIT_S = 1, 2.0\n_own = 3\nT = TypeVar("T")\nclass Rows: ...\n'
            "@click.command()\ndef stop(): ...\ndef shown(): ...\n"
        )
    assert {*repeated(tmp_path.glob("*.py"))} == {"LIMIT_S", "Rows", "shown"}
