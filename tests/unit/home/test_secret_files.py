"""The file with the secret of a cluster, and the settings of its machines, are checked."""

import os
import stat
from pathlib import Path

import pytest

from falkirk.errors import MachineError
from falkirk.spark_setup import doctor, exposure
from falkirk.spark_setup.secure import PROTECTION, SECRET, lacking, secure_value
from falkirk.spark_setup.submitted import defaults

WORD = "0123456789abcdef0123456789abcdeF"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file with a secret."""
    return written(tmp_path / "cluster.secret", WORD)


def written(file: Path, text: str, mode: int = 0o600) -> Path:
    file.touch(mode=0o600)
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_file_with_a_secret_is_named_by_its_path(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(secret.parent)
    assert secure_value(secret.name) == str(secret)
    assert secure_value("generated") == "generated"
    written(secret, f"{WORD}\n")
    assert secure_value(secret) == str(secret), "the last line of a file ends"


@pytest.mark.parametrize(
    ("text", "mode", "why", "advice"),
    [
        (WORD, 0o640, "other users can open it", "chmod 600"),
        (WORD, 0o604, "other users can open it", "chmod 600"),
        (WORD, 0o440, "other users can open it", "chmod 600"),
        (WORD[1:], 0o600, "at least 32", "openssl rand"),
        (f"{WORD}\n{WORD}", 0o600, "one line", "openssl rand"),
        (f"{WORD}\\u0041", 0o600, "letters, digits", "openssl rand"),
        (f"{WORD}ß", 0o600, "letters, digits", "openssl rand"),
        (WORD * 200, 0o600, "one line", "openssl rand"),
        ("", 0o600, "at least 32", "openssl rand"),
    ],
)
def test_a_file_that_protects_nothing_is_refused_and_not_quoted(
    tmp_path: Path, text: str, mode: int, why: str, advice: str
) -> None:
    file = written(tmp_path / "cluster.secret", text, mode)
    with pytest.raises(MachineError, match=why) as refused:
        secure_value(file)
    assert refused.value.condition == "SECRET_FILE_INVALID"
    assert refused.value.parameters["path"] == str(file)
    assert advice in refused.value.hint
    assert text[:31] not in repr(refused.value) + str(refused.value.parameters) or not text


def test_no_file_is_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, why in ((tmp_path / "nothing", "no such file"), (tmp_path, "not a file")):
        with pytest.raises(MachineError, match=why):
            secure_value(path)
    theirs = written(tmp_path / "theirs", WORD)
    monkeypatch.setattr(os, "geteuid", lambda: theirs.stat().st_uid + 1)
    if theirs.stat().st_uid:
        with pytest.raises(MachineError, match="belongs to user"):
            secure_value(theirs)


@pytest.mark.parametrize(
    ("mode", "group", "is_refused"),
    [(0o440, 1000, False), (0o400, 1000, False), (0o640, 1000, False), (0o440, 1001, True), (0o444, 1000, True),
     (0o460, 1000, True)],
)  # fmt: skip
def test_a_secret_that_kubernetes_mounts(
    secret: Path, monkeypatch: pytest.MonkeyPatch, mode: int, group: int, *, is_refused: bool
) -> None:
    """Regression: it is root's, and the group of the pod may read it (fsGroup). Nobody in the pod can change that."""
    found, stat_of = secret.stat(), Path.stat
    mounted = os.stat_result((stat.S_IFREG | mode, *found[1:4], 0, group, *found[6:]))
    monkeypatch.setattr(Path, "stat", lambda path, **how: mounted if path == secret else stat_of(path, **how))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getegid", lambda: 1000)
    monkeypatch.setattr(os, "getgroups", lambda: [1000])
    if not is_refused:
        assert secure_value(secret) == str(secret)
        return
    with pytest.raises(MachineError, match="other users can open it") as refused:
        secure_value(secret)
    assert "defaultMode" in refused.value.hint


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with Spark's defaults."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path / "spark-defaults.conf"


def test_the_doctor_checks_the_file_with_the_secret(secret: Path, machine: Path) -> None:
    assert list(doctor._protection(None)) == []
    (good,) = doctor._protection(str(secret))
    assert (good.name, good.ok) == ("secret", True)
    assert good.detail.startswith(f"{secret}: long enough")
    secret.chmod(0o644)
    (bad,) = doctor._protection(str(secret))
    assert not bad.ok
    assert "other users" in bad.detail
    assert WORD not in str((good, bad))


def test_the_doctor_compares_the_settings_of_a_machine(machine: Path) -> None:
    lines = [f"{SECRET} {WORD}", *(f"{name} {value}" for name, value in PROTECTION.items())]
    written(machine, "\n".join(lines))
    (same,) = doctor._protection(None)
    assert (same.ok, same.is_advice) == (True, False)
    for less in (lines[1:], [f"{SECRET} {WORD[1:]}", *lines[1:]]):  # regression: a machine without a secret was right
        written(machine, "\n".join(less))
        (found,) = doctor._protection(None)
        assert (found.ok, found.is_advice) == (True, True)
        assert f"{SECRET}=" in found.fix
        assert "A cluster" in found.fix
        assert WORD[1:] not in found.fix
    written(machine, "\n".join([*lines, f"{exposure.TLS} true"]))
    (found,) = doctor._protection(None)
    assert f"{exposure.TLS}=false" in found.fix
    written(machine, "\n".join(["# a comment", "", "spark.authenticate=true", f"{SECRET} = {WORD}"]), 0o644)
    assert defaults() == {"spark.authenticate": "true", SECRET: WORD}
    shared, differs = doctor._protection(None)
    assert not shared.ok
    assert (differs.ok, differs.is_advice) == (True, True)
    assert exposure.CIPHER in differs.fix
    assert exposure.AUTHENTICATE not in differs.fix
    assert WORD not in str((same, shared, differs))
    assert lacking(defaults().get).keys() == PROTECTION.keys() - {exposure.AUTHENTICATE}
