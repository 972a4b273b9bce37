"""The docs are correct: their programs compile, imports and names exist, declarations work, links resolve."""

import ast
import configparser
import functools
import importlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner
from pyspark import SparkContext

import falkirk as fk
from falkirk import cli
from falkirk.errors.conditions import catalogue
from tests.unit.house.parsed import nodes

ROOT = Path(__file__).parents[3]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("**/*.md"))]
NEEDS_A_BROKER = "# needs a broker"
#: Pages whose programs run in order: tests/integration/plans/test_tutorial.py, tests/integration/kit/test_page.py.
IN_FULL = {"tutorial.md", "notebook.md", "testing.md"}
#: The modules of the project that `falkirk init shop` makes.
OF_A_PROJECT = {"shop", "test_shop"}
#: Kinds of code blocks. All but `text`, which is output, drawings, and lines for images have a check here or in
#: test_site.py.
KINDS = {"dockerfile", "ini", "mermaid", "python", "sh", "text", "yaml"}
#: Calls that run a program, which would need a broker.
RUNNING = {"write", "run", "awaitTermination"}
CONDITION = re.compile(r"[A-Z]+(?:_[A-Z]+)+")
#: Words in capitals in the docs that are not conditions: environment variables, and words of Spark and Kafka.
OTHER_CAPITALS = {
    "AT_LEAST_ONCE", "AT_MOST_ONCE", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_SECRET_ACCESS_KEY",
    "EXACTLY_ONCE", "FALKIRK_BUILD_PYTHON", "FALKIRK_CACHE", "FALKIRK_HTTP_TOKEN",
    "FALKIRK_IVY_SETTINGS", "FALKIRK_LOOPS", "FALKIRK_STANDBY", "FALKIRK_STRIKES", "HADOOP_CONF_DIR",
    "HADOOP_USER_NAME", "HTTPS_ONLY", "JAVA_HOME", "KAFKA_PASSWORD",
    "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SDK_DISABLED", "OTEL_SERVICE_NAME", "OTEL_TRACES_EXPORTER", "PYSPARK_PYTHON",
    "REGISTRY_PASSWORD",
    "CAP_SYS_NICE", "RLIMIT_NICE", "SASL_PLAINTEXT", "SASL_SSL", "SHOP_STORE", "SPARK_CONF_DIR",
    "SPARK_LOCAL_IP", "SYS_NICE",
}  # fmt: skip


def name(path: Path) -> str:
    """Return the page's path within the repository, as the name of a case."""
    return str(path.relative_to(ROOT))


def blocks(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the Python programs of a page, with the line at which each begins."""
    text = page.read_text()
    for match in re.finditer(r"^```python[^\n]*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield text[: match.start(1)].count("\n"), match[1]


def compiled(page: Path, line: int, code: str) -> Any:
    """Return the compiled program, with the line numbers of the page."""
    return compile("\n" * line + code, str(page), "exec")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_programs_compile_and_import_what_there_is(page: Path) -> None:
    own = OF_A_PROJECT | set(re.findall(r"^# file: (\w+)\.py$", page.read_text(), re.MULTILINE))
    for line, code in blocks(page):
        compiled(page, line, code)
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    importlib.import_module(alias.name)
            elif isinstance(node, ast.ImportFrom) and node.module and node.module not in own:
                module = importlib.import_module(node.module)
                missing = [a.name for a in node.names if not hasattr(module, a.name)]
                assert not missing, f"{name(page)}:{line + node.lineno}: {node.module} has no {missing}"


@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in IN_FULL], ids=name)
def test_programs_that_declare_do_so_without_spark(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of a page build on one another. The part that is guarded as main program is not run.

    A program that begins with the comment `# file: NAME.py` can be imported by those after it.
    """
    before = SparkContext._active_spark_context
    monkeypatch.setenv("KAFKA_PASSWORD", "for the programs that read it")
    space: dict[str, Any] = {"__name__": "__docs__"}
    for line, code in blocks(page):
        if NEEDS_A_BROKER in code:
            continue
        runs = sorted(_called_at_top_level(ast.parse(code)) & RUNNING)
        assert not runs, f"{name(page)}:{line}: {runs} wants the comment {NEEDS_A_BROKER!r}, or a guard as main program"
        exec(compiled(page, line, code), space)
        if file := re.match(r"# file: (\w+)\.py\n", code):
            module = ModuleType(file[1])
            vars(module).update(space)
            monkeypatch.setitem(sys.modules, file[1], module)
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
        for node in nodes(file):
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


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "status.md"], ids=name)
def test_command_lines_have_options_that_exist(page: Path) -> None:
    wrong = []
    for line in re.findall(r"^(?: {4,})?falkirk ([a-z].*)$", page.read_text(), re.MULTILINE):
        words = shlex.split(line, comments=True)
        command: click.Command = cli.main
        while isinstance(command, click.Group) and words:
            found = command.get_command(click.Context(command), words.pop(0))
            assert found is not None, f"{name(page)}: falkirk {line}"
            command = found
        known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)} | {"--help"}
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        wrong += [f"falkirk {line}: {option}" for option in sorted(given - known)]
    assert not wrong, f"{name(page)} has options that don't exist"


@pytest.mark.parametrize("group", [cli.main, *(c for c in cli.main.commands.values() if isinstance(c, click.Group))])
def test_lists_of_commands_cut_no_summary_off(group: click.Group) -> None:
    """The first sentence of a command's help fits the line of a terminal with 80 columns."""
    shown = CliRunner().invoke(group, ["--help"], terminal_width=80).output.partition("Commands:")[2]
    assert shown
    assert "..." not in shown, shown


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_of_a_kind_that_is_checked(page: Path) -> None:
    text = page.read_text()
    fences = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert text.count("\n```") == 2 * len(fences), f"{name(page)}: a block has no end"
    assert {re.split(r"\W", kind)[0] for kind, _ in fences} <= KINDS
    for kind, code in fences:
        if kind == "ini":
            configparser.ConfigParser().read_string(code)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd")
def test_systemd_accepts_the_unit_on_the_page_about_monitoring(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "monitoring.md").read_text()
    unit = re.findall(r"^```ini\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[0]
    here = {"User=shop": "User=root", "/srv/shop/.venv/bin/falkirk": sys.executable, "/srv/shop": str(tmp_path)}
    for on_page, on_this_machine in here.items():
        assert on_page in unit
        unit = unit.replace(on_page, on_this_machine)
    file = tmp_path / "shop.service"
    file.write_text(unit)
    verified = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")


def test_alerts_on_the_page_about_monitoring_exist() -> None:
    page = (ROOT / "docs" / "how-to" / "monitoring.md").read_text()
    rules = (ROOT / "deploy" / "prometheus" / "falkirk.rules.yml").read_text()
    assert set(re.findall(r"`(Falkirk[A-Z]\w+)`", page)) == set(re.findall(r"alert: (\w+)", rules))


def test_mechanisms_and_tests_on_the_page_of_sequences_exist() -> None:
    """A renamed test would leave a row without evidence."""
    missing = []
    found = re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "docs" / "sequences.md").read_text())
    for path, symbol in found:
        files = [file for folder in ("falkirk", "tests") if (file := ROOT / folder / path).exists()]
        defined = rf"^ *(?:def|class) {symbol}\b|^{symbol}\b"
        if len(files) != 1 or not re.search(defined, files[0].read_text(), re.MULTILINE):
            missing.append(f"{path}::{symbol}")
    assert not missing
    assert len(found) > 90


def test_commands_in_the_package_exist() -> None:
    """Messages, hints, warnings and docstrings name no command that does not exist."""
    missing = [
        f"{name(file)}:{node.lineno}: falkirk {command}"
        for file in sorted((ROOT / "falkirk").glob("**/*.py"))
        for node in nodes(file)
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
