"""The tool that asks for advisories: its questions, and that a missing answer does not count as a good one."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from falkirk.spark_setup import jars
from tests.unit.fakes import ROOT


def tool() -> Any:
    spec = importlib.util.spec_from_file_location("audit_tool", ROOT / "tools" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_packages_and_jars_are_the_same() -> None:
    packages = [package.rpartition("/")[2].replace("@", "-") for package in tool().PACKAGES.read_text().split()]
    assert sorted(packages) == sorted(Path(jar).stem for jar in jars.manifest())


def test_pysparks_jars_have_coordinates() -> None:
    packages = tool().packages_of_pyspark()
    assert len(packages) > 30
    assert any(package.startswith("pkg:maven/com.fasterxml.jackson.core/jackson-databind@") for package in packages)


def test_packages_with_advisories_are_named() -> None:
    asked: list[str] = []

    def ask(queries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        asked.extend(query["package"]["purl"] for query in queries)
        return [{}, {"vulns": [{"id": "GHSA-2"}, {"id": "GHSA-1"}]}]

    assert tool().jvm_advisories(["pkg:maven/a/a@1", "pkg:maven/b/b@2"], ask) == {
        "pkg:maven/b/b@2": ["GHSA-1", "GHSA-2"]
    }
    assert asked == ["pkg:maven/a/a@1", "pkg:maven/b/b@2"]


def test_an_answer_that_lacks_packages_is_none() -> None:
    with pytest.raises(OSError, match="2 questions"):
        tool().jvm_advisories(["pkg:maven/a/a@1", "pkg:maven/b/b@2"], lambda queries: [{}])


def report(*dependencies: dict[str, Any]) -> dict[str, Any]:
    """Return the report of pip-audit."""
    return {"dependencies": list(dependencies), "fixes": []}


CLEAN = {"name": "click", "version": "8.5.1", "vulns": []}
BAD = {"name": "pyarrow", "version": "23.0.0", "vulns": [{"id": "CVE-2026-25087"}]}
OURS = {"name": "falkirk", "skip_reason": "distribution marked as editable"}
UNKNOWN = {"name": "click", "skip_reason": "Dependency not found on PyPI and could not be audited: click (8.5.1)"}


@pytest.mark.parametrize(
    ("told", "code"), [([CLEAN, OURS], 0), ([CLEAN, BAD], 1), ([UNKNOWN, CLEAN], 2), ([UNKNOWN, BAD], 2)]
)
def test_a_python_package_of_which_nothing_is_known_is_not_taken_for_a_good_one(
    told: list[dict[str, Any]], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its service pip-audit skips all packages, reports no known vulnerabilities and exits with 0."""
    assert tool().audit_python(lambda: report(*told)) == code
    printed = capsys.readouterr().out
    assert ("pyarrow 23.0.0: CVE-2026-25087" in printed) is (BAD in told)
    assert ("not known: click" in printed) is (UNKNOWN in told)


def test_a_tool_that_is_not_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    audit = tool()
    monkeypatch.setattr(audit.sys, "executable", "true")
    assert audit.audit_python() == 2
