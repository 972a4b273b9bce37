"""Class archives: files from which a JVM maps prepared classes, instead of loading and verifying each class.

About half of the cost of a short Spark application is class loading. `user_tools/commands/training.py` makes the
archives once per machine; `options` names them to each JVM that Falkirk starts. The JVM itself checks that an archive
fits: its own version, the class path, the sizes and times of the jars, and checksums. If the archive does not fit, the
JVM silently loads classes as usual. So an archive only saves time; nothing depends on it.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pyspark

from falkirk.errors.conditions.spark_setup import ARCHIVE_NOT_MADE_PARTLY
from falkirk.spark_setup.cache import cache_home, filled
from falkirk.spark_setup.jars import jar_paths, spark_jars
from falkirk.spark_setup.java import Java

ArchiveKind = Literal["spark", "broker"]
ARCHIVE_KINDS: tuple[ArchiveKind, ...] = ("spark", "broker")
Trainer = Callable[[Path], None]
"""Fills a folder with an archive of each kind, as `archive_file` names them."""

#: On Linux, one argument of a command is at most 128 KiB; Spark passes the class path as part of one.
CLASS_PATH_MAX = 100_000
_KEY, _BYTES = "key.json", "bytes.json"
#: Hide the JVM's messages about an archive that it can't use: users do not need them.
_QUIET = "-Xlog:cds*=off"
#: Without this option the JVM trusts the content of an archive, and a damaged archive could crash it.
_CHECKSUMS = "-XX:+VerifySharedSpaces"


def driver_class_path() -> tuple[Path, ...]:
    """Return the start of a local driver's class path: Falkirk's jars, then Spark's own.

    An archive fits class paths that start with the class path of its making. Spark itself adds its configuration
    folder, and then its jars by a wildcard. An archive can cover neither: the order of a wildcard may differ, and a
    folder is not allowed.
    """
    spark_home = os.environ.get("SPARK_HOME")
    # Without links: the same jars under another path would not fit the archive.
    home = Path(spark_home or Path(pyspark.__file__).parent).resolve()
    ours = spark_jars()
    whole = (*ours, *sorted((home / "jars").glob("*.jar")))
    return whole if sum(len(str(jar)) + 1 for jar in whole) <= CLASS_PATH_MAX else ours


def archive_class_path(kind: ArchiveKind) -> tuple[Path, ...]:
    """Return the class path that the archive of this kind covers. The broker's jars may not be downloaded yet."""
    return driver_class_path() if kind == "spark" else jar_paths("broker")


def archive_file(folder: Path, kind: ArchiveKind) -> Path:
    """Return the path of the archive of this kind in an entry of the cache."""
    return folder / f"{kind}.jsa"


def archive_entry(java: Java) -> Path:
    """Return the cache entry of the archives for this Java and these jars, whether or not it exists."""
    return _archives() / hashlib.sha256(json.dumps(_key(java)).encode()).hexdigest()[:16]


def options(kind: ArchiveKind, java: Java) -> tuple[str, ...]:
    """Return the options with which a JVM uses its archive; none while there is no complete archive."""
    place = archive_entry(java)
    file = archive_file(place, kind)
    return () if kind in damaged_kinds(place) else (f"-XX:SharedArchiveFile={file}", _CHECKSUMS, _QUIET)


def damaged_kinds(place: Path) -> tuple[ArchiveKind, ...]:
    """Return the kinds of archives in an entry that are missing or no longer have their original size.

    A JVM dies if it maps a file that is too short. It detects all other damage by itself.
    """
    try:
        sizes = json.loads((place / _BYTES).read_text())
    except (FileNotFoundError, ValueError):
        return ARCHIVE_KINDS
    return tuple(kind for kind in ARCHIVE_KINDS if _size(archive_file(place, kind)) != sizes.get(kind))


def made(java: Java, train: Trainer) -> Path:
    """Return the entry of this Java and these jars; if it is absent, make it with `train` and drop entries of old jars.

    Raises: MachineError: `ARCHIVE_NOT_MADE`, or the errors of `train`; the cache is then unchanged.
    """

    def fill(building: Path) -> None:
        train(building)
        lacking = [kind for kind in ARCHIVE_KINDS if not archive_file(building, kind).is_file()]
        if lacking:
            raise ARCHIVE_NOT_MADE_PARTLY.error(where=java.command, lacking=lacking, missing=" and ".join(lacking))
        for kind in ARCHIVE_KINDS:
            _sync(archive_file(building, kind))
        sizes = {kind: _size(archive_file(building, kind)) for kind in ARCHIVE_KINDS}
        (building / _BYTES).write_text(json.dumps(sizes))
        (building / _KEY).write_text(json.dumps(_key(java)))
        for key in _archives().glob(f"*/{_KEY}"):
            if not _jars_are_unchanged(json.loads(key.read_text())):
                shutil.rmtree(key.parent, ignore_errors=True)  # a JVM that has mapped the file keeps it

    return filled(archive_entry(java), fill, waiting="Another process is making the class archives; waiting for it.")


def _archives() -> Path:
    return cache_home() / "archives"


def _key(java: Java) -> dict[str, Any]:
    """Return the identity of an archive: the Java, and each jar with its size and time."""
    return {"java": java.build, "jars": [_jar(jar) for kind in ARCHIVE_KINDS for jar in archive_class_path(kind)]}


def _jar(path: Path) -> list[str | int | None]:
    try:
        found = path.stat()
    except FileNotFoundError:
        return [str(path), None, None]
    return [str(path), found.st_size, found.st_mtime_ns]


def _jars_are_unchanged(key: dict[str, Any]) -> bool:
    return all(_jar(Path(path)) == [path, size, time_ns] for path, size, time_ns in key["jars"])


def _size(file: Path) -> int | None:
    return file.stat().st_size if file.is_file() else None


def _sync(file: Path) -> None:
    with open(file, "rb") as handle:
        os.fsync(handle.fileno())
