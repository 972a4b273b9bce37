"""The Java tests of `java/test`, compiled once per test run."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from falkirk.spark_setup import archive, module
from falkirk.spark_setup.compiler import compile_java
from falkirk.spark_setup.java import find_java
from tests.running.shared import made_once

TESTS = module.REPOSITORY / "test"
Command = Callable[..., list[str]]


@pytest.fixture(scope="session")
def java_tests(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Return a function that returns the command which runs a class of `java/test`."""
    mine = tmp_path_factory.getbasetemp()
    class_path = (module.module_jar(), *module.compile_class_path())
    java = find_java()
    classes = made_once(
        mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine,
        "java-tests",
        lambda folder: compile_java(TESTS, folder, class_path=class_path, warnings_are_errors=True),
    )
    # The jars of the class archive come first, so that the JVM can use it.
    used = ":".join(map(str, dict.fromkeys((*archive.archive_class_path("spark"), *class_path, classes))))
    options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-ea", *archive.options("spark", java))

    def command(name: str, arguments: Sequence[str] = ()) -> list[str]:
        return [java.command, *options, "-cp", used, f"org.falkirk.{name}", *arguments]

    return command


def classes_with_tests() -> dict[str, Path]:
    """Return the file of each class with tests, by the name of the class."""
    return {f"org.falkirk.{file.stem}": file for file in sorted(TESTS.rglob("*Test.java"))}
