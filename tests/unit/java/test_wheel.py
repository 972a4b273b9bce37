"""A wheel has the sources of the Java module and a jar that fits; a build that can't compile it says so."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from falkirk.spark_setup import module
from tests.unit.fakes import ROOT

pytest.importorskip("hatchling", reason="run `make setup` to install hatchling")

FIND = """
import falkirk
from falkirk.spark_setup import module

found = module.find_jar()
print(falkirk.__file__, found.origin, found.ok, module.module_jar(), module.sources(), sep="\\n")
"""


def build(folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Build the wheel of this checkout."""
    inherited = {name: value for name, value in os.environ.items() if name != "FALKIRK_BUILD_PYTHON"}
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, env={**inherited, **variables},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip


def content(folder: Path) -> set[str]:
    """Return the names of the files of the Java module in the only wheel of a folder."""
    (wheel,) = folder.glob("falkirk-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        return {name.removeprefix("falkirk/java/") for name in packed.namelist() if name.startswith("falkirk/java/")}


SOURCES = {file.relative_to(module.REPOSITORY).as_posix() for file in (module.REPOSITORY / "src").rglob("*.java")}
JAR = f"falkirk-java-{module.jar_key()}.jar"


def test_an_installed_wheel_uses_its_prebuilt_jar(tmp_path: Path) -> None:
    """Equal sources make an equal jar: the wheel's is compiled anew, and has the bytes of this machine's."""
    done = build(tmp_path, FALKIRK_BUILD_PYTHON=sys.executable)
    assert done.returncode == 0, done.stdout
    assert content(tmp_path) == {*SOURCES, JAR, f"{JAR}.sha256"}
    (wheel,) = tmp_path.glob("falkirk-*.whl")
    installed, cache = tmp_path / "installed", tmp_path / "cache"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(installed)
    paths = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    found = subprocess.run(
        [sys.executable, "-c", FIND],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths, "FALKIRK_CACHE": str(cache)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    package = installed / "falkirk"
    expected = (package / "__init__.py", "prebuilt", True, package / "java" / JAR, package / "java" / "src")
    assert found.stdout.splitlines() == [*map(str, expected)]
    assert not cache.exists(), "no jar was downloaded and nothing was compiled"
    assert (package / "java" / JAR).read_bytes() == module.module_jar().read_bytes()


def test_a_build_that_can_not_compile_says_so_and_has_the_sources(tmp_path: Path) -> None:
    done = build(tmp_path, JAVA_HOME=str(tmp_path))
    assert done.returncode == 0, done.stdout
    assert "This wheel has no prebuilt Java module" in done.stdout
    assert "Java was not found" in done.stdout
    assert content(tmp_path) == SOURCES


def test_a_build_that_must_have_the_jar_fails_without_it(tmp_path: Path) -> None:
    done = build(tmp_path, JAVA_HOME=str(tmp_path), FALKIRK_BUILD_PYTHON=sys.executable)
    assert done.returncode != 0
    assert "Java was not found" in done.stdout
    assert not list(tmp_path.glob("*.whl"))
