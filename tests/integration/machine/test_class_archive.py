"""Class archives on a real JVM: they are used, and one that does not fit or is damaged costs time and nothing else."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from falkirk.spark_setup import archive
from falkirk.spark_setup.archive import ArchiveKind, archive_entry, archive_file, made, options
from falkirk.spark_setup.broker import Broker
from falkirk.spark_setup.jars import broker_jars
from falkirk.spark_setup.java import find_java

JAVA = find_java()
#: A JVM that ends within a second takes a third less CPU time with these.
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def run(
    folder: Path, *flags: str, class_path: Sequence[Path] = (), jvm: Sequence[str] = QUICK
) -> tuple[int, str]:  # fmt: skip
    """Run a small program of Kafka's; return how many classes came from the archive, and all that it printed.

    Args: flags: those of the archive. jvm: the JVM's other flags.
    """
    loaded = folder / "loaded.txt"
    done = subprocess.run(
        [
            JAVA.command, *jvm, *flags, f"-Xlog:class+load:file={loaded}",
            "-cp", os.pathsep.join(map(str, class_path or broker_jars())), "kafka.tools.StorageTool", "random-uuid",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return loaded.read_text().count("shared objects file (top)"), done.stdout


def train(folder: Path) -> None:
    """Save the classes of that program."""
    run(folder, f"-XX:ArchiveClassesAtExit={archive_file(folder, 'broker')}")
    shutil.copy(archive_file(folder, "broker"), archive_file(folder, "spark"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of that program."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setattr(archive, "cache_home", lambda: folder)
        return archive_file(made(JAVA, train), "broker")


@pytest.fixture
def file(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that archive, as the one of this machine, that may be damaged."""
    monkeypatch.setattr(archive, "cache_home", lambda: tmp_path)
    place = archive_entry(JAVA)
    shutil.copytree(saved.parent, place)
    copy = archive_file(place, "broker")
    copy.chmod(0o644)
    return copy


def is_uuid(printed: str) -> bool:
    """Return whether only the program's own line was printed."""
    return re.fullmatch(r"[\w-]{22}\n", printed) is not None


def test_a_jvm_takes_its_classes_from_the_archive(file: Path, tmp_path: Path) -> None:
    shared, printed = run(tmp_path, *options("broker", JAVA), jvm=())
    assert shared > 500
    assert is_uuid(printed), printed


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def overwrite_the_header(file: Path) -> None:
    with open(file, "r+b") as handle:
        handle.write(b"none" * 100)


def overwrite_the_middle(file: Path) -> None:
    with open(file, "r+b") as handle:
        handle.seek(file.stat().st_size // 2)
        handle.write(b"none" * 100_000)


def remove(file: Path) -> None:
    file.unlink()


#: A file without content, and no file, are a soak: half of a file, and one that goes as the JVM starts, are not.
DAMAGES = [truncate, overwrite_the_header, overwrite_the_middle]
DAMAGES += [empty, remove] if "FALKIRK_STRIKES" in os.environ else []


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_archive_is_not_used_and_nothing_is_said(
    file: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    damage(file)
    shared, printed = run(tmp_path, *options("broker", JAVA))
    assert shared == 0
    assert is_uuid(printed), printed


def test_an_archive_that_is_removed_as_a_jvm_starts_is_not_used(file: Path, tmp_path: Path) -> None:
    flags = options("broker", JAVA)
    file.unlink()
    shared, printed = run(tmp_path, *flags)
    assert shared == 0
    assert is_uuid(printed), printed


@pytest.mark.parametrize("flags", ["-XX:+UseSerialGC -XX:TieredStopAtLevel=1", "-XX:+UseParallelGC -Xmx4g"])
def test_the_archive_fits_other_collectors_compilers_and_heaps(file: Path, tmp_path: Path, flags: str) -> None:
    shared, printed = run(tmp_path, *options("broker", JAVA), jvm=flags.split())
    assert shared > 500
    assert is_uuid(printed), printed


def test_an_archive_of_another_class_path_is_not_used_and_nothing_is_said(file: Path, tmp_path: Path) -> None:
    flags = options("broker", JAVA)
    shared, printed = run(tmp_path, *flags, class_path=[*broker_jars(), tmp_path])
    assert shared > 500, "what is behind does not matter, not even a folder"
    shared, printed = run(tmp_path, *flags, class_path=tuple(reversed(broker_jars())))
    assert shared == 0
    assert is_uuid(printed), printed
    changed = [tmp_path / "changed.jar", *broker_jars()[1:]]
    shutil.copyfile(broker_jars()[0], changed[0])
    shared, printed = run(tmp_path, *flags, class_path=changed)
    assert shared == 0
    assert is_uuid(printed), printed


def test_a_jvm_whose_pointers_are_wider_starts_without_it(file: Path, tmp_path: Path) -> None:
    shared, printed = run(tmp_path, "-XX:-UseCompressedOops", *options("broker", JAVA))
    assert shared == 0
    assert is_uuid(printed), printed


def test_the_jvms_of_this_machine_map_their_archives(spark: SparkSession, broker: Broker) -> None:
    driver = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr, operator]
    kinds: dict[ArchiveKind, int] = {"spark": driver, "broker": broker.pid}
    for kind, pid in kinds.items():
        made_here = archive_file(archive_entry(JAVA), kind)
        assert made_here.is_file(), "this machine has no class archives: run `falkirk setup`"
        assert str(made_here) in Path(f"/proc/{pid}/maps").read_text()
