"""The jar of the Java module fits its sources, and is complete or absent, even if a process dies or a disk is full."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from falkirk.errors import MachineError
from falkirk.spark_setup import archive, compiler, jars, module
from falkirk.spark_setup.doctor import check_machine
from falkirk.spark_setup.java import Java
from tests.support import wait_until
from tests.unit.fakes import ROOT, fake_java

#: Fills the cache in a separate process, with a compiler that waits if the test says so.
FILL = """
import sys
from pathlib import Path
from falkirk.spark_setup import module
from tests.unit.java.test_module import pretend

def compile_java(sources, classes, *, class_path):
    with open(Path(sys.argv[1]), "a") as log:
        print("compile", file=log)
    if sys.argv[2] == "wait":
        sys.stdin.readline()
    pretend(sources, classes, class_path=class_path)

module.compile_java, module.compile_class_path = compile_java, lambda: ()
print(module.module_jar(), flush=True)
"""

#: Forks a process for each step of a compilation that changes files, and kills it before that step.
DIE = """
import os, signal, sys
from falkirk.spark_setup import module
from tests.unit.java.test_module import pretend

module.compile_java, module.compile_class_path = pretend, lambda: ()
damaged = sys.argv[1] == "damaged"
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "shutil.rmtree", "fcntl.flock"}

def die_before(step):
    left = [step]
    def hook(event, arguments):
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if writes or event in CHANGES:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

killed = 0
while True:
    if damaged:
        os.truncate(module.module_jar(), 10)
    child = os.fork()
    if child == 0:
        die_before(killed)
        module.module_jar()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    place = module.module_entry()
    assert damaged or not place.exists() or module.find_jar().ok, f"a torn entry after {killed} steps"
    assert module.is_sound(module.module_jar().parent)
    if damaged and list(place.parent.glob(".filling-*")):  # killed before its last step: the next one removes it
        module.shutil.rmtree(place)
        module.module_jar()
    rest = sorted(path.name for path in place.parent.iterdir())
    assert rest == [".lock", place.name], rest
    if not os.WIFSIGNALED(status):
        break
    if not damaged:
        module.shutil.rmtree(place)
    killed += 1
print(killed)
"""


def pretend(sources: Path, classes: Path, *, class_path: Sequence[Path]) -> None:
    """Write one file, as the compiler does."""
    (classes / "org").mkdir()
    (classes / "org" / "X.class").write_bytes(b"class" * 100)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache for this test only, and a compiler that writes one file."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FALKIRK_CACHE", str(folder))
    monkeypatch.setattr(module, "compile_java", pretend)
    monkeypatch.setattr(module, "compile_class_path", lambda: ())
    return folder


@pytest.fixture
def own_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources, which the test may change."""
    folder = tmp_path / "java"
    shutil.copytree(module.sources(), folder / "src")
    monkeypatch.setattr(module, "REPOSITORY", folder)
    return folder / "src"


def refuse(*_: object, **__: object) -> None:
    pytest.fail("compiled again")


def test_the_jar_is_compiled_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = module.module_jar()
    monkeypatch.setattr(module, "compile_java", refuse)
    assert module.module_jar() == jar
    assert jar.parent.parent == cache / "module"
    with zipfile.ZipFile(jar) as packed:
        assert packed.namelist() == ["META-INF/MANIFEST.MF", "org/X.class"]
        assert f"Implementation-Version: {module.jar_key()}\n".encode() in packed.read("META-INF/MANIFEST.MF")


def test_only_the_user_may_enter_its_folder(cache: Path) -> None:
    place = module.module_jar().parent
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (cache, place)] == [0o700, 0o700]


def test_another_source_compiler_connector_or_spark_makes_another_jar(
    cache: Path, own_sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [module.module_jar()]

    def changed() -> None:
        assert module.module_jar() not in made, "the jar of other sources is used"
        made.append(module.module_jar())

    (own_sources / "org" / "falkirk" / "Header.java").write_text("class Header {}\n")
    changed()
    (own_sources / "org" / "falkirk" / "Wire.java").rename(own_sources / "org" / "falkirk" / "Wires.java")
    changed()
    (own_sources / "notes.txt").write_text("not Java")
    assert module.module_jar() == made[-1]
    listed, own = jars.MANIFEST.read_text(), tmp_path / "jars.sha256"
    monkeypatch.setattr(jars, "MANIFEST", own)
    own.write_text(listed.replace("broker/", "broker/new-"))
    assert module.module_jar() == made[-1], "the broker's jars do not matter"
    for kind in ("spark/", "compiler/"):
        own.write_text(listed.replace(kind, f"{kind}new-"))
        changed()
    monkeypatch.setattr(module.pyspark, "__version__", "4.3.99")
    changed()
    assert all(jar.is_file() for jar in made), "a process that uses an older one keeps it"


def truncate(jar: Path) -> None:
    os.truncate(jar, jar.stat().st_size // 2)


def empty(jar: Path) -> None:
    os.truncate(jar, 0)


def overwrite(jar: Path) -> None:
    with open(jar, "r+b") as handle:
        handle.seek(100)
        handle.write(b"none")


def remove(jar: Path) -> None:
    jar.unlink()


def remove_its_sum(jar: Path) -> None:
    jar.with_name(f"{jar.name}.sha256").unlink()


def truncate_its_sum(jar: Path) -> None:
    os.truncate(jar.with_name(f"{jar.name}.sha256"), 10)


DAMAGES = [truncate, empty, overwrite, remove, remove_its_sum, truncate_its_sum]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_jar_is_found_and_compiled_again(cache: Path, damage: Callable[[Path], None]) -> None:
    jar = module.module_jar()
    whole = jar.read_bytes()
    damage(jar)
    assert finding() == (False, f"{jar} is missing or damaged")
    assert module.module_jar() == jar
    assert jar.read_bytes() == whole
    assert finding()[0]
    assert sorted(p.name for p in (cache / "module").iterdir()) == sorted([".lock", jar.parent.name])


@pytest.mark.parametrize("before", ["absent", "damaged"])
def test_a_kill_before_any_step_leaves_no_torn_jar(cache: Path, before: str) -> None:
    done = subprocess.run([sys.executable, "-c", DIE, before], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 10, "the process was killed before too few steps"


def fill(log: Path, behaviour: str) -> "subprocess.Popen[str]":
    """Start a process that compiles."""
    return subprocess.Popen(
        [sys.executable, "-c", FILL, str(log), behaviour],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_of_two_processes_one_compiles_and_the_other_waits_and_says_so(cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = fill(log, "wait")
    wait_until(log.exists, 30, "the first process compiles")
    second = fill(log, "go")
    assert second.stderr is not None
    assert "waiting for it" in second.stderr.readline()
    shown, _ = first.communicate("\n", timeout=30)
    also_shown, _ = second.communicate(timeout=30)
    assert shown == also_shown == f"{module.module_jar()}\n"
    assert log.read_text() == "compile\n"


def test_the_rest_of_a_killed_compilation_is_removed_by_the_next(cache: Path, tmp_path: Path) -> None:
    doomed = fill(tmp_path / "log", "wait")
    wait_until((tmp_path / "log").exists, 30, "the process compiles")
    doomed.send_signal(signal.SIGKILL)
    doomed.communicate()
    assert not module.module_entry().exists()
    assert list((cache / "module").glob(".filling-*"))
    module.module_jar()
    assert not list((cache / "module").glob(".filling-*"))


def test_a_cache_that_can_not_be_written_is_named(cache: Path) -> None:
    cache.write_text("a file where the folder belongs")
    with pytest.raises(MachineError) as caught:
        module.module_jar()
    assert caught.value.condition == "CACHE_NOT_WRITTEN"
    assert caught.value.parameters["path"] == str(cache)
    cache.unlink()
    cache.mkdir()
    (cache / "module").write_text("another one")
    with pytest.raises(MachineError) as caught:
        module.module_jar()
    assert caught.value.parameters["path"] == str(cache / "module")


def test_a_disk_without_room_is_named_and_nothing_is_stored(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_pack", no_room)
    with pytest.raises(MachineError, match="No space left on device") as caught:
        module.module_jar()
    assert caught.value.condition == "CACHE_NOT_WRITTEN"
    assert [p.name for p in (cache / "module").iterdir()] == [".lock"]


def test_without_the_network_and_without_a_compiler_the_error_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path, 'openjdk version "17.0.1"')
    (home / "bin" / "java").write_text(
        "#!/bin/sh\n"
        'case "$1" in -version) echo \'openjdk version "17.0.1"\' >&2; exit 0;; esac\n'
        "echo '\t\t:: org.eclipse.jdt#ecj;3.43.0: not found'; exit 1\n"
    )
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("FALKIRK_CACHE", str(tmp_path / "cache"))
    with pytest.raises(MachineError, match="ecj") as caught:
        module.module_jar()
    assert caught.value.condition == "DEPENDENCIES_UNRESOLVED"
    assert not module.module_entry().exists()


def test_a_compile_error_has_the_words_of_the_compiler(
    own_sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "cache_home", lambda: tmp_path / "cache")
    for file in own_sources.rglob("*.java"):  # a compilation of all of them takes 3 s of CPU time more
        file.unlink()
    (own_sources / "org" / "falkirk" / "Broken.java").write_text(
        "package org.falkirk;\n\nclass Broken {\n    int number = nothing;\n}\n"
    )
    with pytest.raises(MachineError) as caught:
        module.module_jar()
    assert caught.value.condition == "MODULE_NOT_COMPILED"
    message = str(caught.value)
    assert "ERROR in org/falkirk/Broken.java (at line 4)" in message
    assert "nothing cannot be resolved to a variable" in message
    assert [p.name for p in (tmp_path / "cache" / "module").iterdir()] == [".lock"]


def test_the_compiler_is_on_no_class_path_of_an_application() -> None:
    paths = (
        *module.application_jars(),
        *archive.driver_class_path(),
        *module.compile_class_path(),
        *jars.broker_jars(),
    )
    assert not [path for path in paths if path.name.startswith("ecj")]


@pytest.mark.parametrize(
    ("version", "is_jdk", "wanted"), [(17, False, "--release"), (25, False, "-source"), (25, True, "--release")]
)
def test_a_newer_java_without_the_list_of_older_classes_compiles_with_its_own(
    tmp_path: Path, version: int, is_jdk: bool, wanted: str
) -> None:
    """Seen: on a JRE 25, ECJ dies of a NullPointerException with `--release 17`."""
    home = fake_java(tmp_path, f'openjdk version "{version}"')
    (home / "lib").mkdir()
    if is_jdk:
        (home / "lib" / "ct.sym").touch()
    java = Java(command=str(home / "bin" / "java"), version=version, build="")
    assert compiler._release(java)[0] == wanted


@pytest.fixture
def prebuilt(cache: Path, tmp_path: Path, own_sources: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed wheel with the sources and the prebuilt jar."""
    folder = tmp_path / "installed"
    shutil.copytree(own_sources, folder / "src")
    monkeypatch.setattr(module, "PACKAGED", folder)
    module.build(folder)
    return folder


def test_a_prebuilt_jar_that_fits_is_used(prebuilt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "compile_java", refuse)
    assert module.module_jar() == module.jar_in(prebuilt)
    assert finding()[0]
    assert finding()[1].startswith(f"prebuilt, {module.jar_in(prebuilt)}, ")


def change_spark(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.pyspark, "__version__", "4.3.99")


def change_sources(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "src" / "org" / "falkirk" / "Wire.java").write_text("class Wire {}\n")


def tear(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truncate(module.jar_in(folder))


@pytest.mark.parametrize("change", [change_spark, change_sources, tear], ids=lambda change: change.__name__)
def test_a_prebuilt_jar_that_does_not_fit_is_not_used(
    prebuilt: Path, cache: Path, change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(prebuilt, monkeypatch)
    assert "does not fit" in finding()[1]
    assert module.module_jar() == module.jar_in(module.module_entry())
    assert finding()[0]
    assert finding()[1].startswith(f"compiled, {module.jar_in(module.module_entry())}, ")


def finding() -> tuple[bool, str]:
    """Return the finding of the doctor about the module."""
    (found,) = (f for f in check_machine() if f.name == "Java module")
    return found.ok, found.detail


def test_the_doctor_does_not_compile(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "compile_java", refuse)
    assert finding() == (True, "not compiled yet; `falkirk setup` or the first run does it")
    assert not cache.exists()


def test_classes_that_extend_spark_classes_are_as_quiet_in_the_log() -> None:
    """A stop of a query printed stack traces: code of Spark logs under the name of the class that extends it."""
    properties = Path(module.__file__).with_name("log4j2.properties").read_text()
    names = dict(re.findall(r"^logger\.(\w+)\.name = (\S+)$", properties, re.MULTILINE))
    quiet = [name for key, name in names.items() if f"logger.{key}.level = off" in properties]
    assert "org.apache.spark.shuffle.streaming" in quiet
    sources = [file.read_text() for file in sorted((module.REPOSITORY / "src").rglob("*.java"))]
    found = [name for text in sources for name in re.findall(r"class (\w+)\S* extends StreamingShuffle", text)]
    assert found
    for name in found:
        assert any(f"org.falkirk.{name}".startswith(each) for each in quiet), name
