"""Layers: a package imports only packages below it, no modules or folders import each other, and the docs say so.

All imports count: those inside functions and those for type checkers, too.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from tests.unit.house.parsed import nodes

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "falkirk"
#: The folders of the package, each above those that it may import. Those with a dot are in a folder that only groups
#: them. `checker` shares no code with the judged parts: see test_tidy.py.
LAYERS = (
    "errors", "platform", "checker", "theory", "kafka_client", "declare", "recovery.decision_store",
    "recovery.ownership", "recovery.protocol", "spark_setup", "steps.dataframes", "steps.live", "steps.sources",
    "steps.static_analysis", "steps.differential", "steps.batch", "http_source", "plan", "runtime.spark",
    "runtime.supervision", "user_tools.determinism_check", "user_tools.redrive", "user_tools.commands",
    "user_tools.testkit", "api", "cli",
)  # fmt: skip
#: The folders that only group others. They have a docstring and no code.
GROUPS = {name.partition(".")[0] for name in LAYERS if "." in name}
#: The modules that users import, and those that only they import.
API = ("falkirk", "falkirk.app", "falkirk.reading", "falkirk.testing")
#: Java files import these packages alone.
JAVA_IMPORTS = (
    "com.fasterxml.jackson.",
    "io.netty.",
    "java.",
    "javax.net.ssl.",
    "net.jpountz.lz4.",
    "net.razorvine.pickle.",  # Spark's own pickles
    "org.falkirk.",
    "org.apache.avro.",  # in Spark's own jars
    "org.apache.hadoop.",
    "org.apache.spark.",
    "org.apache.kafka.",
    "org.slf4j.",
    "py4j.",
    "scala.",
)
#: The folders of the repository outside the package. They may import all of the package.
OUTSIDE = ("benchmarks", "demo", "formal", "tests", "examples", "tools")
#: The imports that the protocol may have: it knows Spark, Kafka and files by its ports alone.
OF_THE_PROTOCOL = {"recovery.decision_store", "errors", "recovery.protocol", "theory"}


def modules() -> dict[str, Path]:
    """Return the file of each module of the package, by name, without those of the folders that only group others."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: path for name, path in found.items() if name.removeprefix("falkirk.") not in GROUPS}


MODULES = modules()


def imported(path: Path, known: Mapping[str, object]) -> Iterator[str]:
    """Yield the modules of the package that a file imports anywhere, and all others by their first name."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [
                f"{node.module}.{a.name}" if f"{node.module}.{a.name}" in known else node.module for a in node.names
            ]
        else:
            continue
        for name in names:
            yield name if name in known else name.split(".")[0]


def layer(module: str) -> str:
    """Return the layer of a module."""
    _, *folders = module.split(".")
    inner = ".".join(folders[:2])
    return "api" if module in API else inner if inner in LAYERS else folders[0]


def upwards(module: str, imports: Iterator[str]) -> list[str]:
    """Return the imports of a module from a higher layer."""
    level = LAYERS.index(layer(module))
    return sorted({i for i in imports if i in MODULES and LAYERS.index(layer(i)) > level})


def test_a_module_imports_only_what_is_below_it() -> None:
    found = {module: set(imported(path, MODULES)) for module, path in MODULES.items()}
    wrong = {module: [*upwards(module, iter(each)), *sorted(each & {*OUTSIDE})] for module, each in found.items()}
    assert not {module: each for module, each in wrong.items() if each}


def test_the_protocol_knows_the_outside_by_its_ports_alone() -> None:
    protocol = {
        m: {layer(i) for i in imported(p, MODULES) if i in MODULES}
        for m, p in MODULES.items()
        if layer(m) == "recovery.protocol"
    }
    assert not {module: layers - OF_THE_PROTOCOL for module, layers in protocol.items() if layers - OF_THE_PROTOCOL}


def test_imports_are_absolute() -> None:
    relative = [m for m, p in MODULES.items() for n in nodes(p) if isinstance(n, ast.ImportFrom) and n.level]
    assert relative == []


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that all lead to each other (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            place = stack.index(node)
            found.append(sorted(stack[place:]))
            del stack[place:]

    for node in graph:
        if node not in index:
            visit(node)
    return [each for each in found if len(each) > 1]


def test_no_modules_import_each_other() -> None:
    graph = {m: {i for i in imported(path, MODULES) if i in MODULES and i != m} for m, path in MODULES.items()}
    assert not cycles(graph)


def folders(graph: Mapping[str, set[str]], folder_of: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the folders that the modules of each folder import, from the modules that each module imports."""
    found: dict[str, set[str]] = {folder: set() for folder in folder_of.values()}
    for module, imports in graph.items():
        found[folder_of[module]] |= {folder_of[each] for each in imports} - {folder_of[module]}
    return found


def test_no_folders_import_each_other() -> None:
    """The modules beside the folders of a package count as a folder too."""
    graph = {m: {i for i in imported(path, MODULES) if i in MODULES} for m, path in MODULES.items()}
    inside = {m: str(path.parent.relative_to(PACKAGE)) for m, path in MODULES.items()}
    assert cycles(folders(graph, inside)) == []


def test_every_package_has_its_layer_and_the_architecture_page_names_it() -> None:
    assert {layer(m) for m in MODULES} == set(LAYERS)
    assert all(len(ast.parse((PACKAGE / group / "__init__.py").read_text()).body) == 1 for group in GROUPS)
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = [name.replace("/", ".") for name in re.findall(r"^\| `([\w/]+)` ", page, re.MULTILINE)]
    assert [name for name in named if name in LAYERS] == list(reversed(LAYERS))


def test_the_folders_of_a_group_are_beside_each_other() -> None:
    """So the groups are layers too."""
    outer = [name.partition(".")[0] for name in LAYERS]
    assert sum(a != b for a, b in pairwise(outer)) + 1 == len(set(outer))


def java_imports(path: Path) -> set[str]:
    """Return the names that a Java file imports."""
    return set(re.findall(r"^import (?:static )?([\w.]+)(?:\.\*)?;", path.read_text(), re.MULTILINE))


def test_a_java_file_is_ours_and_imports_what_each_machine_has() -> None:
    for path in sorted((ROOT / "java").rglob("*.java")):
        folder, *package = path.relative_to(ROOT / "java").parent.parts
        assert folder in {"src", "test"}, path
        assert package[:2] == ["org", "falkirk"], path
        assert f"package {'.'.join(package)};" in path.read_text(), path
        assert not {name for name in java_imports(path) if not name.startswith(JAVA_IMPORTS)}, path


def test_java_is_beside_the_package_and_the_page_of_internals_names_its_classes() -> None:
    assert not list(PACKAGE.rglob("*.java"))
    page = (ROOT / "docs" / "internals.md").read_text()
    table = page.partition("## The Java module")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(path.stem for path in (ROOT / "java" / "src").rglob("*.java"))


def test_these_tests_can_fail() -> None:
    assert upwards("falkirk.theory.times", iter(("falkirk.plan.planner", "falkirk.errors"))) == ["falkirk.plan.planner"]
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
    found = folders(
        {"x.a": {"y.b"}, "y.b": set(), "y.c": {"x.d"}, "x.d": set()},
        dict(zip(("x.a", "x.d", "y.b", "y.c"), "xxyy", strict=True)),
    )
    assert cycles(found) == [["x", "y"]]


#: Methods that the standard library, py4j and pyarrow call.
HOOKS = {
    "addInPlace", "can_convert", "get_file_info_selector", "get_type_name", "handle_error", "log_message",
    "normalize_path", "redirect_request", "seekable", "version_string",
}  # fmt: skip


def used_names(paths: Iterable[Path]) -> set[str]:
    """Return the names that code uses: names, attributes, keywords and texts. Imports and definitions do not count."""
    found = set[str]()
    for path in paths:
        for node in nodes(path):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.keyword) and node.arg:
                found.add(node.arg)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def defined_names(module: str) -> Iterator[str]:
    """Yield the functions, classes and methods of a module with the module, without those that Python itself calls."""
    for node in nodes(MODULES[module]):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("__"):
            yield f"{module}.{node.name}"


def unused(modules: Iterable[str], used: Collection[str]) -> list[str]:
    return [name for module in modules for name in defined_names(module) if name.rpartition(".")[2] not in used]


def test_the_theory_and_the_protocol_are_what_runs() -> None:
    """A function that only tests or benchmarks use belongs to them. The search is by name."""
    inner = [module for module in MODULES if layer(module) in ("theory", "recovery.protocol")]
    assert unused(inner, used_names(MODULES.values())) == []


def test_no_code_is_for_tests_alone() -> None:
    """Code of the package has a user in the repository, or is in the documentation for users. The search is by name."""
    tools = [path for folder in OUTSIDE if folder != "tests" for path in sorted((ROOT / folder).rglob("*.py"))]
    texts = [*(ROOT / "docs").glob("**/*.md"), ROOT / "README.md", *(ROOT / "java").rglob("*.java")]
    named = {word for path in texts if "decisions" not in path.parts for word in re.findall(r"\w+", path.read_text())}
    assert unused(MODULES, used_names([*MODULES.values(), *tools]) | named | HOOKS) == []
    assert unused(["falkirk.theory.stamp"], set()) == [
        f"falkirk.theory.stamp.{n}" for n in ("Stamp", "numbers", "encode")
    ]
