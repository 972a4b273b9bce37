"""The unit tests of the Java module: each test of `java/test` is a case here. All run in one JVM."""

import re
import subprocess
from pathlib import Path

import pytest

from falkirk.spark_setup import module
from falkirk.spark_setup.compiler import compile_java
from tests.unit.java.conftest import Command, classes_with_tests

_TEST = re.compile(r"^    public void (\w+)\(\)", re.MULTILINE)
CASES = [f"{name}.{test}" for name, file in classes_with_tests().items() for test in _TEST.findall(file.read_text())]


@pytest.fixture(scope="module")
def outcomes(java_tests: Command) -> dict[str, str]:
    """The JVM's verdict on each test."""
    done = subprocess.run(java_tests("Runner", [*classes_with_tests()]), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = (line.partition(" ") for line in done.stdout.splitlines() if line.startswith("org.falkirk."))
    return {case: outcome for case, _, outcome in told}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.removeprefix("org.falkirk."))
def test_java(case: str, outcomes: dict[str, str]) -> None:
    assert outcomes.get(case, "did not run") == "ok"


def test_each_test_that_java_runs_is_a_case_here(outcomes: dict[str, str]) -> None:
    assert sorted(outcomes) == sorted(CASES)


def test_the_module_compiles_without_warnings(tmp_path: Path) -> None:
    compile_java(module.sources(), tmp_path, class_path=module.compile_class_path(), warnings_are_errors=True)
