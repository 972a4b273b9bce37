"""JVM dependencies: the Kafka connector that Spark lacks, a broker for trials and a compiler, in a shared cache.

The Ivy inside pyspark resolves each kind once, when something needs it: an application with its own broker never
downloads the local one. A kind is complete or absent in the cache, see `falkirk.spark_setup.cache`. The registry that
serves a jar also serves its checksum, so a checksum proves nothing. `jars.sha256` is part of this package and contains
each jar's SHA-256. Falkirk compares jars with it after the download, and again in each process that uses them.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import pyspark

from falkirk.errors import MachineError
from falkirk.errors.conditions.spark_setup import (
    DEPENDENCIES_ALTERED,
    DEPENDENCIES_UNRESOLVED,
    DEPENDENCIES_UNRESOLVED_PARTLY,
)
from falkirk.spark_setup.cache import cache_home, filled
from falkirk.spark_setup.java import find_java

_HERE = Path(__file__).parent
_IVY = _HERE / "ivy.xml"
MANIFEST = _HERE / "jars.sha256"
"""In the format of `sha256sum`, so `sha256sum --check` can read it in a cache entry; written by tools/pin_jars.py."""
JarKind = Literal["spark", "broker", "compiler", "s3"]
JAR_KINDS: tuple[JarKind, ...] = ("spark", "broker", "compiler", "s3")
Resolver = Callable[[JarKind, Path], None]
"""Fills a folder with the jars of a kind."""
_CONTENT = {
    "spark": "Spark's connectors for Kafka and Avro, 10 MB",
    "broker": "a local Kafka broker, 43 MB",
    "compiler": "a Java compiler, 3 MB",
    "s3": "a client of object stores, 13 MB",
}


def spark_jars() -> tuple[Path, ...]:
    """Return the jars for Spark's class path; resolve them first if they are missing.

    Raises: MachineError: `DEPENDENCIES_ALTERED`, or the errors of `resolved`.
    """
    return _checked("spark")


def broker_jars() -> tuple[Path, ...]:
    """Return the class path of the local broker; resolve it first if it is missing.

    Raises: MachineError: `DEPENDENCIES_ALTERED`, or the errors of `resolved`.
    """
    return _checked("broker")


def compiler_jars() -> tuple[Path, ...]:
    """Return the class path of the Java compiler (ECJ); resolve it first if it is missing.

    Raises: MachineError: `DEPENDENCIES_ALTERED`, or the errors of `resolved`.
    """
    return _checked("compiler")


def s3_jars() -> tuple[Path, ...]:
    """Return the jars with which Spark reads and writes an object store; resolve them first if they are missing.

    Raises: MachineError: `DEPENDENCIES_ALTERED`, or the errors of `resolved`.
    """
    return _checked("s3")


def jars_entry() -> Path:
    """Return the folder of the jars for this version of Falkirk and pyspark, whether or not it exists.

    It has a folder for each kind.
    """
    text = _IVY.read_text() + MANIFEST.read_text() + pyspark.__version__
    return cache_home() / "jars" / hashlib.sha256(text.encode()).hexdigest()[:16]


def manifest() -> dict[str, str]:
    """Return the SHA-256 of each jar, by its path in an entry, such as `spark/kafka-clients-1.0.jar`."""
    lines = (line.split(maxsplit=1) for line in MANIFEST.read_text().splitlines())
    return {name: digest for digest, name in lines}


def connector_version() -> str:
    """Return the version of Spark's Kafka connector in the manifest."""
    (name,) = (jar for jar in manifest() if jar.startswith("spark/spark-sql-kafka-"))
    return name.removesuffix(".jar").rpartition("-")[2]


def jar_digests(kind: JarKind) -> dict[str, str]:
    """Return the SHA-256 of each jar of a kind, by its name in the kind's folder."""
    start = f"{kind}/"
    return {jar.removeprefix(start): digest for jar, digest in manifest().items() if jar.startswith(start)}


def jar_paths(kind: JarKind) -> tuple[Path, ...]:
    """Return the paths of the jars of a kind, whether or not they exist."""
    return tuple(sorted(jars_entry() / kind / name for name in jar_digests(kind)))


def absent(kind: JarKind, folder: Path) -> tuple[str, ...]:
    """Return the jars of a kind that are missing in `folder`."""
    return tuple(sorted(f"{kind}/{name}" for name in jar_digests(kind) if not (folder / name).is_file()))


def altered(kind: JarKind, folder: Path) -> tuple[str, ...]:
    """Return the jars of a kind in `folder` whose content differs from the manifest."""
    present = ((name, digest) for name, digest in jar_digests(kind).items() if (folder / name).is_file())
    return tuple(sorted(f"{kind}/{name}" for name, digest in present if sha256(folder / name) != digest))


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file's content; a process computes it once, as long as the file does not change."""
    found = file.stat()
    return _sha256(file, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@functools.lru_cache(maxsize=256)
def _sha256(file: Path, *_version: int) -> str:
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _checked(kind: JarKind) -> tuple[Path, ...]:
    """Return the jars of one kind that the manifest names; other jars in the folder are not used.

    Each process reads all bytes again. A stored result of an earlier check would be in the same folder, so an attacker
    who replaces a jar could replace the result too. 10 MB for Spark take 10 ms, 43 MB for the broker 40 ms.
    """
    folder = resolved(kind)
    if bad := sorted((*absent(kind, folder), *altered(kind, folder))):
        raise _altered(
            bad,
            folder,
            hint="Check who else may write to that folder. Remove it; the next run downloads the jars again.",
        )
    return jar_paths(kind)


def _altered(jars: Sequence[str], where: object, *, hint: str) -> MachineError:
    return DEPENDENCIES_ALTERED.error(where=where, jars=tuple(jars), advice=hint)


def resolved(kind: JarKind, resolve: Resolver | None = None) -> Path:
    """Return the complete folder of a kind in the cache; fill it first if it is absent.

    Raises: MachineError: `DEPENDENCIES_UNRESOLVED`, `DEPENDENCIES_ALTERED`: the cache is unchanged. `FOLDER_NOT_OURS`:
        another user controls the content of the cache, and so the code that runs.
    """

    def fill(building: Path) -> None:
        (resolve or resolve_with_ivy)(kind, building)
        lacking = absent(kind, building)
        if lacking:
            raise DEPENDENCIES_UNRESOLVED_PARTLY.error(lines=lacking)
        other = altered(kind, building)
        if other:
            source = os.environ.get("FALKIRK_IVY_SETTINGS") or "the registry of Ivy's settings"
            raise _altered(
                other,
                source,
                hint="Nothing was stored. Let the mirror serve the original files; if it does, report this error.",
            )
        shutil.rmtree(building / "ivy", ignore_errors=True)

    waiting = "Another process is downloading JVM dependencies; waiting for it."
    return filled(jars_entry() / kind, fill, waiting=waiting)


def resolve_with_ivy(kind: JarKind, folder: Path) -> None:
    """Download the jars of a kind in ivy.xml into `folder` with pyspark's own Ivy. Raises: as `retrieve`."""
    print(f"Downloading {_CONTENT[kind]} (once per machine) …", file=sys.stderr, flush=True)
    retrieve(_IVY, kind, folder)


def retrieve(ivy: Path, configuration: str, folder: Path) -> None:
    """Download the jars of a configuration in a file of Ivy into `folder`. The caller compares their checksums.

    FALKIRK_IVY_SETTINGS names another file of Ivy settings, for example for a mirror.
    Raises: MachineError: `DEPENDENCIES_UNRESOLVED`, with the lines of Ivy that give the reason.
    """
    jars = Path(pyspark.__file__).parent / "jars"
    command = [
        find_java().command, "-cp", str(jars / "*"), "org.apache.ivy.Main",
        "-cache", str(folder / "ivy"),
        "-settings", os.environ.get("FALKIRK_IVY_SETTINGS", str(_HERE / "ivysettings.xml")),
        "-ivy", str(ivy),
        "-confs", configuration,
        "-retrieve", str(folder / "[artifact]-[revision].[ext]"),
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = [x.strip() for x in (result.stdout + result.stderr).splitlines()]
        telling = [x for x in lines if any(w in x for w in ("not found", "FAILED", "ERROR", "Exception", "refused"))]
        raise DEPENDENCIES_UNRESOLVED.error(lines=telling, reason="; ".join(telling[:4]) or "Ivy gave no reason")
