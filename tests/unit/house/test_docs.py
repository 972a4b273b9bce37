"""The docs are correct: their programs compile, imports and names exist, declarations work, links resolve."""

import ast
import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from pyspark import SparkContext

import falkirk as fk
from falkirk import cli
from falkirk.errors.conditions import catalogue

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("**/*.md"))]
NEEDS_A_BROKER = "# needs a broker"
#: Calls that run a program, which would need a broker.
RUNNING = {"write", "run", "awaitTermination"}
CONDITION = re.compile(r"[A-Z]+(?:_[A-Z]+)+")
#: Words in capitals in the docs that are not conditions: environment variables, and words of Spark and Kafka.
OTHER_CAPITALS = {
    "AT_LEAST_ONCE", "AT_MOST_ONCE", "EXACTLY_ONCE", "FALKIRK_BUILD_PYTHON", "FALKIRK_CACHE", "FALKIRK_HTTP_TOKEN",
    "FALKIRK_IVY_SETTINGS", "FALKIRK_LOOPS", "FALKIRK_STANDBY", "FALKIRK_STRIKES", "JAVA_HOME", "KAFKA_PASSWORD",
    "SASL_PLAINTEXT", "SASL_SSL",
}  # fmt: skip


def name(path: Path) -> str:
    """Return the page's path within the repository, as the name of a case."""
    return str(path.relative_to(ROOT))


def blocks(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the Python programs of a page, with the line at which each begins."""
    text = page.read_text()
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield text[: match.start(1)].count("\n"), match[1]


def compiled(page: Path, line: int, code: str) -> Any:
    """Return the compiled program, with the line numbers of the page."""
    return compile("\n" * line + code, str(page), "exec")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_programs_compile_and_import_what_there_is(page: Path) -> None:
    for line, code in blocks(page):
        compiled(page, line, code)
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    importlib.import_module(alias.name)
            elif isinstance(node, ast.ImportFrom) and node.module:
                module = importlib.import_module(node.module)
                missing = [a.name for a in node.names if not hasattr(module, a.name)]
                assert not missing, f"{name(page)}:{line + node.lineno}: {node.module} has no {missing}"


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "tutorial.md"], ids=name)  # that one runs in full
def test_programs_that_declare_do_so_without_spark(page: Path) -> None:
    """The programs of a page build on one another. The part that is guarded as main program is not run."""
    before = SparkContext._active_spark_context
    space: dict[str, Any] = {"__name__": "__docs__"}
    for line, code in blocks(page):
        if NEEDS_A_BROKER in code:
            continue
        runs = sorted(_called_at_top_level(ast.parse(code)) & RUNNING)
        assert not runs, f"{name(page)}:{line}: {runs} wants the comment {NEEDS_A_BROKER!r}, or a guard as main program"
        exec(compiled(page, line, code), space)
    assert SparkContext._active_spark_context is before


def _called_at_top_level(program: ast.Module) -> set[str]:
    inert = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.If)
    statements = [s for s in program.body if not isinstance(s, inert)]
    calls = [n.func for s in statements for n in ast.walk(s) if isinstance(n, ast.Call)]
    return {f.attr for f in calls if isinstance(f, ast.Attribute)}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name(page)} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            assert anchor in {_anchor(h) for h in headings}, f"{name(page)} links to {target}"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@functools.cache
def raised_conditions() -> frozenset[str]:
    """Return the conditions of all errors that the package can raise."""
    found = {condition.name for _, condition in catalogue() if CONDITION.fullmatch(condition.name)}
    for file in (ROOT / "falkirk").glob("**/*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            values: list[ast.expr] = []
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                values = node.args[:1] if called.lower().endswith("error") else []
            elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
                values = node.value.elts[:1]
            texts = [v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str)]
            found |= {text for text in texts if CONDITION.fullmatch(text)}
    return frozenset(found)


def test_operations_lists_every_condition() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    missing = raised_conditions() - set(CONDITION.findall(page))
    assert not missing, f"docs/operations.md has no advice for {sorted(missing)}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_conditions_in_the_docs_exist(page: Path) -> None:
    named = set(re.findall(r"(?<![\w.\"])[A-Z]+(?:_[A-Z]+)+(?![\w=])", page.read_text())) - OTHER_CAPITALS
    assert not named - raised_conditions()


def test_reference_has_every_public_name() -> None:
    page = (ROOT / "docs" / "reference.md").read_text()
    assert not [n for n in fk.__all__ if f"fk.{n}" not in page]


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "status.md"], ids=name)
def test_commands_in_the_docs_exist(page: Path) -> None:
    missing = unknown_commands(page.read_text(), r"(?:`|^    )falkirk ([a-z]+)(?: ([a-z]+)\b(?![.:/]))?")
    assert not missing, f"{name(page)} names commands that don't exist"


def test_commands_in_the_package_exist() -> None:
    """Messages, hints, warnings and docstrings name no command that does not exist."""
    missing = [
        f"{name(file)}:{node.lineno}: falkirk {command}"
        for file in sorted((ROOT / "falkirk").glob("**/*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for command in unknown_commands(node.value, r"(?<![\w./-])falkirk ([a-z]+)(?: ([a-z]+)\b(?![.:/]))?")
    ]
    assert not missing


def unknown_commands(text: str, pattern: str) -> list[str]:
    """Return the commands and subcommands in a text that `falkirk` does not have. Args: pattern: of one command."""
    found = []
    for word, following in re.findall(pattern, text, re.MULTILINE):
        command = cli.main.get_command(click.Context(cli.main), word)
        if command is None:
            found.append(word)
        elif isinstance(command, click.Group) and following and following not in command.commands:
            found.append(f"{word} {following}")
    return found
