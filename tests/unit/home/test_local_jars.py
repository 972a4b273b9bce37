"""The cache of JVM dependencies matches the manifest; it is complete or absent, even if a process dies."""

import hashlib
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from falkirk.errors import MachineError
from falkirk.spark_setup import jars
from falkirk.spark_setup.cache import cache_home
from falkirk.spark_setup.doctor import check_machine
from falkirk.spark_setup.jars import JarKind
from tests.support import wait_until
from tests.unit.fakes import ROOT, fake_java

#: Fills the cache in a separate process. The fake resolver dies or waits if the test says so.
FILL = """
import sys
from pathlib import Path
from falkirk.spark_setup import jars
from falkirk.spark_setup.cache import cache_home
from tests.unit.home.test_local_jars import put_all

marks, behaviour = Path(sys.argv[1]), sys.argv[2]
jars.MANIFEST = marks / "jars.sha256"

def resolve(kind, folder):
    (folder / "half.jar").touch()
    with open(marks / "resolves", "a") as log:
        print("resolve", file=log)
    if behaviour == "wait":
        sys.stdin.readline()
    put_all(kind, folder)

print(jars.resolved("spark", resolve), flush=True)
"""


def put_all(kind: JarKind, folder: Path) -> None:
    """Create an empty file for each jar of a kind."""
    for name in jars.jar_digests(kind):
        (folder / name).touch()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache for this test only, and a manifest of empty jars."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FALKIRK_CACHE", str(folder))
    empty = hashlib.sha256(b"").hexdigest()
    (tmp_path / "jars.sha256").write_text("".join(f"{empty}  {jar}\n" for jar in jars.manifest()))
    monkeypatch.setattr(jars, "MANIFEST", tmp_path / "jars.sha256")
    return folder


def fill(tmp_path: Path, behaviour: str) -> "subprocess.Popen[str]":
    """Start a process that resolves."""
    return subprocess.Popen(
        [sys.executable, "-c", FILL, str(tmp_path), behaviour],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def resolves(tmp_path: Path) -> int:
    """Return how many times the fake resolver has started."""
    marks = tmp_path / "resolves"
    return len(marks.read_text().splitlines()) if marks.exists() else 0


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALKIRK_CACHE", "/a/cache")
    assert cache_home() == Path("/a/cache")
    monkeypatch.delenv("FALKIRK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/a/cache")
    assert cache_home() == Path("/a/cache/falkirk")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/someone")
    assert cache_home() == Path("/someone/.cache/falkirk")


def test_a_filled_cache_is_used_without_resolving() -> None:
    jars.resolved("spark", put_all)
    names = {path.name.partition("-0-10")[0] for path in jars.spark_jars()}
    assert "spark-sql-kafka" in names


def test_a_kind_that_nobody_needs_is_not_downloaded() -> None:
    jars.resolved("spark", put_all)
    assert [p.name for p in jars.jars_entry().iterdir() if p.is_dir()] == ["spark"]
    (found,) = (f for f in check_machine() if f.name == "JVM dependencies")
    assert found.ok
    assert found.detail.endswith("not downloaded before they are needed: broker, compiler, s3")
    jars.resolved("broker", put_all)
    assert jars.broker_jars()


def test_the_manifest_has_each_jar_that_ivy_xml_names_in_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    manifest = jars.manifest()
    named = ElementTree.parse(ROOT / "falkirk/spark_setup/ivy.xml").iter("dependency")
    wanted = {f"{d.attrib['conf'].partition('->')[0]}/{d.attrib['name']}-{d.attrib['rev']}.jar" for d in named}
    assert wanted <= manifest.keys(), "run tools/pin_jars.py"
    assert {jar.partition("/")[0] for jar in manifest} == set(jars.JAR_KINDS)
    assert all(len(digest) == 64 for digest in manifest.values())


def test_another_manifest_has_an_entry_of_its_own() -> None:
    first = jars.jars_entry()
    jars.MANIFEST.write_text(jars.MANIFEST.read_text().replace("spark/", "spark/new-"))
    assert jars.jars_entry() != first


def test_a_jar_that_is_not_the_one_of_the_manifest_is_not_taken() -> None:
    """The registry, or a machine between, serves another file with a matching checksum."""

    def forge(kind: JarKind, folder: Path) -> None:
        put_all(kind, folder)
        next(folder.glob("kafka-clients*")).write_text("forged")

    with pytest.raises(MachineError) as caught:
        jars.resolved("broker", forge)
    assert caught.value.condition == "DEPENDENCIES_ALTERED"
    assert [jar.rpartition("-")[0] for jar in caught.value.parameters["jars"]] == ["broker/kafka-clients"]
    assert [p.name for p in jars.jars_entry().iterdir()] == [".lock"]


@pytest.mark.parametrize("kind", jars.JAR_KINDS)
def test_a_jar_that_was_replaced_in_the_cache_is_not_used(kind: JarKind) -> None:
    use = {"spark": jars.spark_jars, "broker": jars.broker_jars, "compiler": jars.compiler_jars, "s3": jars.s3_jars}
    jars.resolved(kind, put_all)
    first = use[kind]()[0]
    first.write_text("replaced")
    with pytest.raises(MachineError) as caught:
        use[kind]()
    assert caught.value.condition == "DEPENDENCIES_ALTERED"
    assert caught.value.parameters["jars"] == (f"{kind}/{first.name}",)
    first.unlink()
    with pytest.raises(MachineError) as caught:
        use[kind]()
    assert caught.value.condition == "DEPENDENCIES_ALTERED"
    first.touch()
    assert use[kind]()


def test_a_jar_that_was_added_to_the_cache_is_not_used() -> None:
    place = jars.resolved("spark", put_all)
    (place / "added.jar").write_text("added")
    assert place / "added.jar" not in jars.spark_jars()


def test_an_incomplete_result_leaves_nothing() -> None:
    def lose_one(kind: JarKind, folder: Path) -> None:
        put_all(kind, folder)
        next(folder.glob("kafka-clients*")).unlink()

    with pytest.raises(MachineError) as caught:
        jars.resolved("spark", lose_one)
    assert caught.value.condition == "DEPENDENCIES_UNRESOLVED"
    assert "kafka-clients" in str(caught.value)
    assert [p.name for p in jars.jars_entry().iterdir()] == [".lock"]


def test_an_error_while_resolving_leaves_nothing() -> None:
    def fail(kind: JarKind, folder: Path) -> None:
        (folder / "half.jar").touch()
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        jars.resolved("spark", fail)
    assert [p.name for p in jars.jars_entry().iterdir()] == [".lock"]


def test_a_resolver_killed_half_way_leaves_no_entry_and_its_rest_is_swept(tmp_path: Path) -> None:
    doomed = fill(tmp_path, "wait")
    wait_until(lambda: resolves(tmp_path) == 1, 30, "the resolver is half way")
    doomed.send_signal(signal.SIGKILL)
    doomed.communicate()
    assert not (jars.jars_entry() / "spark").exists()
    assert len(list(jars.jars_entry().glob(".filling-*"))) == 1
    place = jars.resolved("spark", put_all)
    assert jars.absent("spark", place) == ()
    assert not (place / "half.jar").exists()
    assert sorted(p.name for p in jars.jars_entry().iterdir()) == [".lock", "spark"]


def test_of_two_processes_one_resolves_and_the_other_waits_and_says_so(tmp_path: Path) -> None:
    first = fill(tmp_path, "wait")
    wait_until(lambda: resolves(tmp_path) == 1, 30, "the first resolves")
    second = fill(tmp_path, "go")
    assert second.stderr is not None
    assert "waiting for it" in second.stderr.readline()
    assert not (jars.jars_entry() / "spark").exists()
    shown, _ = first.communicate("\n", timeout=30)
    also_shown, _ = second.communicate(timeout=30)
    assert shown == also_shown == f"{jars.jars_entry() / 'spark'}\n"
    assert resolves(tmp_path) == 1


def test_what_ivy_says_is_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path, 'openjdk version "17.0.1"')
    (home / "bin" / "java").write_text(
        "#!/bin/sh\n"
        'case "$1" in -version) echo \'openjdk version "17.0.1"\' >&2; exit 0;; esac\n'
        "echo ':: loading settings'; echo '\t\t:: org.example#lost;1.0: not found'; exit 1\n"
    )
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(MachineError) as caught:
        jars.spark_jars()
    assert caught.value.condition == "DEPENDENCIES_UNRESOLVED"
    assert caught.value.parameters["lines"] == [":: org.example#lost;1.0: not found"]
    assert not (jars.jars_entry() / "spark").exists()


def test_the_doctor_names_a_jar_that_has_gone_or_was_replaced() -> None:
    def finding() -> tuple[bool, str]:
        (found,) = (f for f in check_machine() if f.name == "JVM dependencies")
        return found.ok, found.detail

    assert finding()[0], "missing before the first download is fine"
    jars.resolved("broker", put_all)
    assert finding()[0]
    jar = jars.broker_jars()[0]
    for harm in (jar.unlink, lambda: jar.write_text("replaced")):
        harm()
        well, detail = finding()
        assert not well
        assert f"broker/{jar.name}" in detail
