"""Java is found and checked before any download: in Python for runs, in the shell for `make setup`."""

import subprocess
from pathlib import Path

import pytest

from falkirk.errors import MachineError
from falkirk.spark_setup.java import find_java, major_version
from tests.unit.fakes import ROOT, fake_java

VERSIONS = [
    ('java version "1.8.0_292"\nJava(TM) SE Runtime Environment (build 1.8.0_292-b10)', 8),
    ('openjdk version "11.0.22" 2024-01-16', 11),
    ('openjdk version "17" 2021-09-14', 17),
    ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)', 17),
    ('openjdk version "21-ea" 2023-09-19', 21),
    ('openjdk version "21.0.2" 2024-01-16 LTS\nOpenJDK 64-Bit Server VM Zulu21.32+17-CA', 21),
    ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.9" 2023-10-17', 17),
    ('java version "25" 2025-09-16 LTS', 25),
    ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
    ("", None),
]


@pytest.mark.parametrize(("output", "major"), VERSIONS)
def test_major_version(output: str, major: int | None) -> None:
    assert major_version(output) == major


@pytest.mark.parametrize(("output", "major"), VERSIONS)
def test_make_setup_judges_as_the_package_does(tmp_path: Path, output: str, major: int | None) -> None:
    done = check_machine({"JAVA_HOME": str(fake_java(tmp_path, output))})
    accepted = major is not None and major >= 17
    assert (done.returncode == 0) == accepted
    if not accepted:
        assert f"Java {major or '?'} is too old" in done.stderr
        assert done.stderr.count("\n") == 1


def test_make_setup_names_a_missing_java(tmp_path: Path) -> None:
    done = check_machine({"JAVA_HOME": str(tmp_path)})
    assert done.returncode == 1
    assert "Java was not found" in done.stderr
    assert "JAVA_HOME" in done.stderr
    assert done.stderr.count("\n") == 1


def test_make_setup_names_an_old_python(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = check_machine({"PYTHON": str(old)})
    assert done.returncode == 1
    assert "Python 3.11" in done.stderr
    assert done.stderr.count("\n") == 1


def test_missing_java_is_an_error_with_its_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MachineError) as caught:
        find_java()
    assert caught.value.condition == "JAVA_MISSING"
    assert str(tmp_path) in str(caught.value)
    assert caught.value.hint


def test_without_java_home_the_path_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path, 'openjdk version "17.0.1"')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{home / 'bin'}:/bin:/usr/bin")
    assert find_java().command == str(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError) as caught:
        find_java()
    assert caught.value.condition == "JAVA_MISSING"


def test_too_old_java_is_an_error_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, 'java version "1.8.0_292"')))
    with pytest.raises(MachineError) as caught:
        find_java()
    assert caught.value.condition == "JAVA_TOO_OLD"
    assert caught.value.parameters.items() >= {"version": 8}.items()


def check_machine(environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run the script with which `make setup` begins."""
    base = {"PATH": "/usr/bin:/bin", "PYTHON": "python3"}
    return subprocess.run(
        ["sh", str(ROOT / "tools" / "check-machine")],
        env={**base, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
