"""The catalogue of conditions: each has its texts in one place, and a raise site gives only the values."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter

import pytest

from falkirk import errors
from falkirk.errors import FalkirkError, LogError
from falkirk.errors.condition import Condition
from falkirk.errors.conditions import catalogue
from tests.unit.house.parsed import nodes

ROOT = Path(__file__).parents[3]
CATALOGUE = list(catalogue())
#: The files that make an error with a text outside the catalogue, because Spark, Kafka, another process or a function
#: of the caller gives the text. The rest of the package may not. (`http_source/` has a separate class for HTTP
#: answers.)
OWN_TEXTS = {
    "steps/static_analysis/columns.py", "checker/described.py", "checker/rows.py", "user_tools/commands/verify.py",
    "steps/differential/checks.py", "runtime/supervision/coordinator.py", "runtime/supervision/host.py",
    "kafka_client/connection.py", "spark_setup/compiler.py",
    "plan/added.py", "plan/mechanisms.py", "runtime/spark/lanes.py", "runtime/spark/live/triage.py",
    "recovery/decision_store/engine.py", "platform/durable.py",
}  # fmt: skip


def made(file: Path) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls in a file that make an error of the catalogue, with the constant's name."""
    for node in nodes(file):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="error")) if name.isupper():
                yield name, node


FILES = [file for file in sorted((ROOT / "falkirk").rglob("*.py")) if "conditions" not in file.parts]


@cache
def raised() -> list[tuple[Path, str, ast.Call]]:
    """Return all such calls of the package. Parsing it takes a second, which only the worker with these tests needs."""
    return [(file, name, call) for file in FILES for name, call in made(file)]


def test_a_module_of_conditions_names_folders_and_modules_that_exist() -> None:
    """Regression: after the folders were renamed, eight files and their texts had the former names."""
    package = ROOT / "falkirk"
    for file in sorted((package / "errors" / "conditions").glob("[a-z]*.py")):
        (of, *_) = file.read_text().splitlines()
        for name in re.findall(r"`([\w/]+)`", of):
            assert (package / name).is_dir() or (package / f"{name}.py").is_file(), of
        if alone := re.fullmatch(r'"""Conditions of `(?:\w+/)?(\w+)`\."""', of):
            assert file.stem == alone[1]


def test_a_constant_is_named_after_its_condition() -> None:
    for name, condition in CATALOGUE:
        assert re.fullmatch(r"[A-Z]+(_[A-Z]+)*", condition.name), name
        assert name == condition.name or name.startswith(f"{condition.name}_")


def test_no_two_constants_have_the_same_name_or_the_same_texts() -> None:
    names = [name for name, _ in CATALOGUE]
    texts = [(c.name, c.message, c.hint) for _, c in CATALOGUE]
    assert len(names) == len(set(names))
    assert len(texts) == len(set(texts))


def test_every_text_is_raised_and_every_raised_condition_is_listed() -> None:
    assert {name for _, name, _ in raised()} == {name for name, _ in CATALOGUE}


def test_a_raise_site_gives_all_fields() -> None:
    known = dict(CATALOGUE)
    for file, name, call in raised():
        given = {keyword.arg for keyword in call.keywords}
        missing = set() if None in given else known[name].fields - given
        assert not missing, f"{file}:{call.lineno}: {name} has no {sorted(missing)}"
        assert not call.args


def test_only_listed_files_make_errors_with_texts_of_their_own() -> None:
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, FalkirkError)}
    found = {
        str(file.relative_to(ROOT / "falkirk"))
        for file in FILES
        for node in nodes(file)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds and node.args
    }
    assert found == OWN_TEXTS


def test_a_text_is_a_sentence() -> None:
    for name, condition in CATALOGUE:
        fields = [field for text in (condition.message, condition.hint) for _, field, _, _ in Formatter().parse(text)]
        assert all(field is None or field.isidentifier() for field in fields), name
        assert condition.message == condition.message.strip(), name
        assert condition.hint == condition.hint.strip(), name


def test_an_error_has_the_texts_with_values_and_the_values() -> None:
    condition = Condition("INPUT_GONE", LogError, "{topic!r} lost {count:,} records.", hint="Ask {who}.")
    error = condition.error(where="app.py:3", topic="clicks", count=1000, who="{them}")
    assert str(error) == "'clicks' lost 1,000 records. (app.py:3) Ask {them}."
    assert (type(error), error.condition, error.certainty) == (LogError, "INPUT_GONE", "definitely")
    assert error.parameters == {"topic": "clicks", "count": 1000, "who": "{them}"}
    assert condition.fields == {"topic", "count", "who"}
    with pytest.raises(KeyError, match="who"):
        condition.error(topic="clicks", count=1)


def test_a_text_lists_values() -> None:
    condition = Condition("INPUTS_GONE", LogError, "{topics:listed} lost records.")
    error = condition.error(topics=("clicks", "orders"))
    assert str(error) == "clicks, orders lost records."
    assert error.parameters == {"topics": ("clicks", "orders")}
