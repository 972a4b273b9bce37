"""Tidy: the rules of the house that a program can check, over every tracked file."""

import ast
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import falkirk
from tests.unit.house.parsed import nodes, tree

ROOT = Path(__file__).parents[3]
LINES_MAX = 400
#: The modules that the theory may import: no clock, no randomness, no I/O, nothing from other packages.
PURE = {
    "abc", "bisect", "collections", "collections.abc", "contextlib", "dataclasses", "enum", "fractions", "functools",
    "gc", "heapq", "itertools", "math", "operator", "re", "types", "typing", "falkirk.errors",
    "falkirk.errors.conditions.theory",
}  # fmt: skip
#: Some letters are in brackets, so that this file itself does not match.
FORBIDDEN_TEXT = {
    "a path of one machine": r"[ \"'(=`]/(wor[k]|far[m]|hom[e]/[a-z]+|roo[t]|tm[p]/lab)/",
    "the address of a package registry": r"://[a-z0-9.-]*(mave[n]|pyp[i]|npmj[s]|crate[s]|sonatyp[e])[a-z0-9.-]*",
}
FORBIDDEN_IN_PYTHON = {
    "work left for later": r"\b(TOD[O]|FIXM[E]|XX[X])\b|NotImplementedErro[r]",
    "an error swallowed whole": r"except( Exception| BaseException)?:\s*\n\s*(pas[s]|\.\.[.])\s*\n",
}


def tracked(pattern: str) -> Iterator[Path]:
    """Yield the files that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = listed.stdout.splitlines()
    assert found, f"git lists no {pattern} in {ROOT}: {listed.stderr}"
    yield from (ROOT / name for name in sorted(set(found)) if (ROOT / name).is_file())


PYTHON_FILES = list(tracked("*.py"))
JAVA_FILES = list(tracked("*.java"))


def name(path: Path) -> str:
    """Return the path within the repository, as the name of a case."""
    return str(path.relative_to(ROOT))


def imports(path: Path) -> Iterator[str]:
    """Yield the full names of a module's imports, at any depth."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            yield ".".join(part for part in (base, node.module) if part)


def faults(rule: Callable[[Path], Iterator[str]], paths: Iterable[Path]) -> list[str]:
    """Return the faults that a rule finds in these files, each with its file.

    A test per rule and file would be thousands of tests, which take longer to collect and report than to run.
    """
    return [f"{name(path)}: {fault}" for path in paths for fault in rule(path)]


def impure(path: Path) -> Iterator[str]:
    """Yield the imports that the theory may not have: it knows neither Spark, a clock nor files."""
    yield from sorted({i for i in imports(path) if i not in PURE and i.split(".")[:2] != ["falkirk", "theory"]})


def test_theory_is_pure() -> None:
    assert not faults(impure, sorted((ROOT / "falkirk" / "theory").glob("**/*.py")))
    assert faults(impure, [ROOT / "falkirk" / "cli.py"])


#: The checker uses these for output alone. They judge nothing, and import no judged code.
SHARED_WITH_THE_CHECKER = {"falkirk.errors", "falkirk.errors.conditions.checker", "falkirk.platform.terminal"}


def shared_with_the_judged(path: Path) -> Iterator[str]:
    """Yield the imports that the checker may not have."""
    for each in sorted(set(imports(path))):
        package, *rest = each.split(".")
        is_ours = package == "falkirk" and rest[:1] != ["checker"] and each not in SHARED_WITH_THE_CHECKER
        if is_ours or package == "pyspark":
            yield each


def test_the_checker_shares_no_code_with_what_it_judges() -> None:
    assert not faults(shared_with_the_judged, sorted((ROOT / "falkirk" / "checker").glob("**/*.py")))
    assert not {i for i in imports(ROOT / "falkirk" / "platform" / "terminal.py") if i.split(".")[0] == "falkirk"}
    assert faults(shared_with_the_judged, [ROOT / "falkirk" / "cli.py", ROOT / "falkirk" / "spark_setup" / "spark.py"])


def long_or_without_a_sentence(path: Path) -> Iterator[str]:
    """Yield what is wrong with the length and the opening of a module."""
    text = path.read_text()
    if (lines := text.count("\n")) > LINES_MAX:
        yield f"{lines} lines: look for the second thing hiding inside"
    docstring = ast.get_docstring(tree(path))
    if text.strip() and not docstring:
        yield "a module begins with one defining sentence"
    if docstring and not re.search(r"[.:?]($|\s)", docstring):
        yield "its first sentence has no end"


def test_files_are_short_and_open_with_a_sentence(tmp_path: Path) -> None:
    assert not faults(long_or_without_a_sentence, PYTHON_FILES)
    planted = tmp_path / "planted.py"
    planted.write_text("x = 1\n" * (LINES_MAX + 1))
    assert len([*long_or_without_a_sentence(planted)]) == 2
    another = tmp_path / "another.py"
    another.write_text('"""No end"""')
    assert len([*long_or_without_a_sentence(another)]) == 1


def untidy_java(path: Path) -> Iterator[str]:
    """Yield what is wrong with a Java file."""
    text = path.read_text()
    if (lines := text.count("\n")) > LINES_MAX:
        yield f"{lines} lines: look for the second thing hiding inside"
    if not re.search(r"^/\*\*(?:\n \*)? [A-Z][^@]*?[.:]", text, re.MULTILINE):
        yield "a class begins with a defining sentence"
    if re.search(FORBIDDEN_IN_PYTHON["work left for later"], text):
        yield "work left for later"
    if re.search(r"catch \([^)]*\) \{\s*\}", text):
        yield "an error swallowed whole"


def test_java_files_are_short_and_say_what_their_class_is_for(tmp_path: Path) -> None:
    assert not faults(untidy_java, JAVA_FILES)
    planted = tmp_path / "Planted.java"
    planted.write_text("class Planted {} // TOD" + "O\ncatch (IOException e) { }\n" + "\n" * LINES_MAX)
    assert len([*untidy_java(planted)]) == 4


def sleeping(path: Path) -> Iterator[str]:
    """Yield the lines of a test that wait for a fixed time."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if re.search(r"\bsleep\(", line):
            yield f"line {number}: wait for a condition instead"


def test_tests_wait_for_conditions(tmp_path: Path) -> None:
    folders = {ROOT / "tests", ROOT / "java" / "test"}
    assert not faults(sleeping, [p for p in (*PYTHON_FILES, *JAVA_FILES) if folders & {*p.parents}])
    planted = tmp_path / "planted.py"
    planted.write_text("time.sleep" + "(1)")
    assert [*sleeping(planted)]


def left_for_later_or_swallowed(path: Path) -> Iterator[str]:
    """Yield what a Python file may not contain."""
    text = path.read_text()
    yield from (what for what, pattern in FORBIDDEN_IN_PYTHON.items() if re.search(pattern, text))


def test_nothing_is_left_for_later_or_swallowed(tmp_path: Path) -> None:
    assert not faults(left_for_later_or_swallowed, PYTHON_FILES)
    planted = tmp_path / "planted.py"
    planted.write_text("# TOD" + "O\nexcept Exception:\n    " + "pass\n")
    assert len([*left_for_later_or_swallowed(planted)]) == len(FORBIDDEN_IN_PYTHON)


@pytest.mark.parametrize("what", FORBIDDEN_TEXT)
def test_tracked_files_name_no(what: str) -> None:
    pattern = re.compile(FORBIDDEN_TEXT[what])
    found = []
    for path in tracked("*"):
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:  # a picture
            continue
        found += [f"{name(path)}:{n}: {line.strip()}" for n, line in enumerate(lines, 1) if pattern.search(line)]
    assert not found, "\n".join([f"{what}:", *found])


#: The options of Spark's Kafka source. `steps/sources/reads.py` alone writes them.
OF_READS = {
    "kafka.bootstrap.servers", "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets",
    "includeHeaders", "failOnDataLoss", "kafka.isolation.level",
}  # fmt: skip


def reads_of_topics(path: Path) -> list[int]:
    """Return the lines of a module that build a read or write of Kafka by Spark."""
    found = []
    for node in nodes(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            names = [a.value for a in [*node.args, *(k.value for k in node.keywords)] if isinstance(a, ast.Constant)]
            found += [node.lineno] if names == ["kafka"] else []
        elif isinstance(node, ast.Constant) and node.value in OF_READS:
            found.append(node.lineno)
        elif isinstance(node, ast.keyword) and node.arg in OF_READS:
            found.append(node.value.lineno)
    return found


def test_one_module_builds_reads_of_topics() -> None:
    """All readers of a topic see the same records, and a new option reaches all of them."""
    builder = ROOT / "falkirk" / "steps" / "sources" / "reads.py"
    found = {name(p): reads_of_topics(p) for p in (ROOT / "falkirk").rglob("*.py") if p != builder}
    assert not {path: lines for path, lines in found.items() if lines}
    assert reads_of_topics(builder)


#: The classes of planned units, and of their facts while they do not run.
UNITS = {"Region", "Batch", "RegionLogs", "BatchLogs"}


def questions_about_units(tree: Iterable[ast.AST]) -> list[int]:
    """Return the lines that ask whether a unit is a region or a batch."""
    asked = [n for n in tree if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "isinstance"]
    return [call.lineno for call in asked if UNITS & {n.id for n in ast.walk(call) if isinstance(n, ast.Name)}]


def test_units_are_not_told_apart_by_their_class() -> None:
    """`plan/unit.py` has the facts in which regions and batches differ. A third kind of unit then needs no search."""
    found = {name(p): questions_about_units(nodes(p)) for p in (ROOT / "falkirk").rglob("*.py")}
    assert not {path: lines for path, lines in found.items() if lines}
    assert questions_about_units(ast.walk(ast.parse("isinstance(unit, Region | Iteration)"))) == [1]


def test_public_names() -> None:
    exported = falkirk.__all__
    assert exported == sorted(exported)
    assert not [n for n in exported if not getattr(falkirk, n).__doc__]


def test_a_public_class_has_a_name_of_its_own() -> None:
    """Readers who search for a class find one, and an import shows which one is meant."""
    homes: dict[str, list[str]] = {}
    for path in PYTHON_FILES:
        if name(path).startswith("falkirk/"):
            for node in nodes(path):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, []).append(name(path))
    assert not {each: found for each, found in homes.items() if len(found) > 1}
