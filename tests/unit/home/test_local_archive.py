"""The class archives of a machine: complete or absent, for one Java and one class path, and reported by the doctor."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from falkirk.errors import MachineError
from falkirk.spark_setup import archive, jars
from falkirk.spark_setup.archive import ARCHIVE_KINDS, ArchiveKind, archive_entry, archive_file, made, options
from falkirk.spark_setup.doctor import check_machine
from falkirk.spark_setup.java import Java
from falkirk.user_tools.commands import machine, training
from falkirk.user_tools.commands.machine import setup
from tests.unit.fakes import fake_java

JAVA = Java(command="java", version=17, build='openjdk version "17.0.1"')


@pytest.fixture(autouse=True)
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only jar of a machine whose cache is empty."""
    monkeypatch.setenv("FALKIRK_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "some.jar"
    path.write_text("classes")
    monkeypatch.setattr(archive, "archive_class_path", lambda kind: (path,))
    return path


def save(folder: Path) -> None:
    """Create the archive files, as the JVMs do in the training."""
    for kind in ARCHIVE_KINDS:
        archive_file(folder, kind).touch()


def test_a_jvm_is_told_of_its_archive_once_there_is_one() -> None:
    assert [options(kind, JAVA) for kind in ARCHIVE_KINDS] == [(), ()]
    place = made(JAVA, save)
    assert place == archive_entry(JAVA)
    for kind in ARCHIVE_KINDS:
        assert options(kind, JAVA)[0] == f"-XX:SharedArchiveFile={place / kind}.jsa"


@pytest.mark.parametrize("kind", ARCHIVE_KINDS)
def test_a_jvm_is_not_told_of_an_archive_whose_size_has_changed(kind: ArchiveKind) -> None:
    place = made(JAVA, save)
    archive_file(place, kind).write_text("more")
    assert options(kind, JAVA) == ()
    (other,) = set(ARCHIVE_KINDS) - {kind}
    assert options(other, JAVA)
    (place / "bytes.json").write_text("{")
    assert options(other, JAVA) == ()


def test_a_jvm_of_spark_does_not_wait_for_a_broker_that_is_not_downloaded(
    jar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("FALKIRK_CACHE", str(jar.parent / "cache"))
    monkeypatch.setattr(archive, "spark_jars", lambda: (jar,))
    monkeypatch.setattr(jars, "resolved", lambda *of: pytest.fail(f"downloads {of}"))
    assert options("spark", JAVA) == ()
    place = made(JAVA, save)
    assert options("spark", JAVA)[0] == f"-XX:SharedArchiveFile={place / 'spark'}.jsa"


def test_what_is_made_is_not_made_again() -> None:
    place = made(JAVA, save)
    assert made(JAVA, lambda folder: pytest.fail("trained again")) == place


def test_another_java_or_a_changed_jar_has_an_entry_of_its_own(jar: Path) -> None:
    first = archive_entry(JAVA)
    assert archive_entry(Java(command="java", version=17, build='openjdk version "17.0.2"')) != first
    jar.write_text("other classes")
    assert archive_entry(JAVA) != first


def test_an_entry_is_dropped_once_its_jars_are_gone(jar: Path) -> None:
    first, other_java = made(JAVA, save), made(Java(command="java", version=21, build="21"), save)
    assert first.is_dir(), "the jars still exist, and the other Java may be used again"
    jar.write_text("other classes")
    second = made(JAVA, save)
    assert sorted(p.name for p in second.parent.iterdir()) == sorted([".lock", second.name])
    assert not other_java.exists()


@pytest.mark.parametrize("kind", ARCHIVE_KINDS)
def test_a_jvm_that_saved_nothing_is_named_and_leaves_nothing(kind: ArchiveKind, tmp_path: Path) -> None:
    def lose_one(folder: Path) -> None:
        save(folder)
        archive_file(folder, kind).unlink()

    with pytest.raises(MachineError) as caught:
        made(JAVA, lose_one)
    assert caught.value.condition == "ARCHIVE_NOT_MADE"
    assert caught.value.parameters["lacking"] == [kind]
    assert [p.name for p in (tmp_path / "cache" / "archives").iterdir()] == [".lock"]


def test_a_class_path_too_long_for_a_command_names_our_jars_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "spark_jars", lambda: (Path("connector.jar"),))
    whole = archive.driver_class_path()
    assert whole[0] == Path("connector.jar")
    assert len(whole) > 100
    assert list(whole[1:]) == sorted(whole[1:])
    monkeypatch.setattr(archive, "CLASS_PATH_MAX", 1_000)
    assert archive.driver_class_path() == (Path("connector.jar"),)


def test_the_doctor_says_whether_there_are_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def finding() -> tuple[bool, str]:
        (found,) = (f for f in check_machine() if f.name == "class archives")
        return found.ok, found.detail

    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, JAVA.build)))
    assert finding() == (True, "none, so JVMs start more slowly; `falkirk setup` makes them")
    (jars.jars_entry() / "spark").mkdir(parents=True)
    assert finding()[0]
    place = made(JAVA, save)
    assert finding() == (True, f"in {place}")
    archive_file(place, "spark").unlink()
    assert finding() == (False, f"in {place}, damaged: spark")


def test_setup_goes_on_without_archives_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in jars.JAR_KINDS:
        (jars.jars_entry() / kind).mkdir(parents=True)
    monkeypatch.setattr(machine, "module_jar", lambda: Path("module.jar"))
    monkeypatch.setattr(training, "make_archives", lambda: made(JAVA, save))
    done = CliRunner().invoke(setup)
    assert (done.exit_code, done.output) == (
        0,
        f"JVM dependencies in {jars.jars_entry()}\nJava module in module.jar\n"
        f"class archives in {archive_entry(JAVA)}\n",
    )

    def refuse() -> Path:
        return made(Java(command="java", version=17, build="without archives"), lambda folder: None)

    monkeypatch.setattr(training, "make_archives", refuse)
    done = CliRunner().invoke(setup)
    assert done.exit_code == 0
    assert "ARCHIVE_NOT_MADE" in done.output


def test_the_training_keeps_the_java_module_out_of_the_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each change of a Java file would make the archive useless."""
    monkeypatch.setattr(archive, "spark_jars", lambda: (Path("connector.jar"),))
    monkeypatch.setattr(training, "module_jar", lambda: Path("module.jar"))
    settings = training._class_path()
    assert settings["spark.jars"] == "module.jar"
    assert "module.jar" not in settings["spark.driver.extraClassPath"]
