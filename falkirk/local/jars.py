"""JVM dependencies: the Kafka connector that Spark lacks, and a broker to try things out, in a cache shared by all
projects.

Resolved once by the Ivy that ships inside pyspark. The cache entry is complete or absent, see `falkirk.local.cache`.
The registry that serves a jar also serves its checksum, so neither proves the other. `jars.sha256` is part of this
package: it names each jar and its SHA-256. Jars are compared with it when they are fetched, and again in each process
that uses them.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pyspark

from falkirk.errors import MachineError
from falkirk.local.cache import cache_home, filled
from falkirk.local.java import find_java

_HERE = Path(__file__).parent
_IVY = _HERE / "ivy.xml"
MANIFEST = _HERE / "jars.sha256"
"""As `sha256sum` writes it, so `sha256sum --check` can read it in a cache entry; written by tools/pin_jars.py."""
KINDS = ("spark", "broker")
Resolver = Callable[[Path], None]
"""Fills a folder with `spark/*.jar` and `broker/*.jar`."""


def spark_jars() -> tuple[Path, ...]:
    """Return what goes on the class path of Spark, resolving it if it is not there yet.

    Raises: MachineError: `DEPENDENCIES_ALTERED`, or what `resolved` raises.
    """
    return _checked("spark")


def broker_jars() -> tuple[Path, ...]:
    """Return the class path of the embedded broker, resolving it if it is not there yet.

    Raises: MachineError: `DEPENDENCIES_ALTERED`, or what `resolved` raises.
    """
    return _checked("broker")


def entry() -> Path:
    """Return where the jars of this version of Falkirk and pyspark are or will be."""
    text = _IVY.read_text() + MANIFEST.read_text() + pyspark.__version__
    return cache_home() / "jars" / hashlib.sha256(text.encode()).hexdigest()[:16]


def manifest() -> dict[str, str]:
    """Return the SHA-256 of each jar, by its path in an entry: `spark/kafka-clients-1.0.jar`."""
    lines = (line.split(maxsplit=1) for line in MANIFEST.read_text().splitlines())
    return {name: digest for digest, name in lines}


def absent(folder: Path) -> tuple[str, ...]:
    """Return which jars of the manifest are not in `folder`."""
    return tuple(sorted(jar for jar in manifest() if not (folder / jar).is_file()))


def altered(folder: Path) -> tuple[str, ...]:
    """Return which jars in `folder` are not those of the manifest, by their content."""
    present = ((jar, digest) for jar, digest in manifest().items() if (folder / jar).is_file())
    return tuple(sorted(jar for jar, digest in present if sha256(folder / jar) != digest))


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file's content, computed once in a process while nothing touches the file."""
    found = file.stat()
    return _sha256(file, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@functools.lru_cache(maxsize=256)
def _sha256(file: Path, *_version: int) -> str:
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _checked(kind: str) -> tuple[Path, ...]:
    """Return the jars of one kind that the manifest names. Others in the folder are not used.

    All bytes are read again in each process: a record of an earlier check would lie beside the jars, and whoever
    replaces a jar can write that as well. 10 MB for Spark take 10 ms, 43 MB for the broker 40 ms.
    """
    folder = resolved()
    jars = {jar: digest for jar, digest in manifest().items() if jar.startswith(f"{kind}/")}
    bad = sorted(jar for jar, digest in jars.items() if not (folder / jar).is_file() or sha256(folder / jar) != digest)
    if bad:
        raise _altered(
            bad, folder, hint="Remove that folder; the next run fetches them again. Who else may write to it?"
        )
    return tuple(sorted(folder / jar for jar in jars))


def _altered(jars: Sequence[str], where: object, *, hint: str) -> MachineError:
    return MachineError(
        "DEPENDENCIES_ALTERED",
        f"JVM dependencies are not the files that this version of Falkirk was tested with: {', '.join(jars)}.",
        where=where,
        hint=hint,
        jars=tuple(jars),
    )


def resolved(resolve: Resolver | None = None) -> Path:
    """Return the complete cache entry, filling it first if it is absent.

    Raises: MachineError: `DEPENDENCIES_UNRESOLVED`, `DEPENDENCIES_ALTERED`: the cache is as it was.
        `FOLDER_NOT_OURS`: another user decides what is in the cache, and so what is run.
    """

    def fill(building: Path) -> None:
        (resolve or resolve_with_ivy)(building)
        lacking = absent(building)
        if lacking:
            raise MachineError(
                "DEPENDENCIES_UNRESOLVED",
                f"the JVM dependencies came without {', '.join(lacking)}.",
                hint="Do the Ivy settings of FALKIRK_IVY_SETTINGS leave them out?",
                lines=lacking,
            )
        other = altered(building)
        if other:
            source = os.environ.get("FALKIRK_IVY_SETTINGS") or "the registry of Ivy's settings"
            raise _altered(
                other,
                source,
                hint="Nothing of it was kept. A mirror must serve the original files; report it if it does.",
            )
        shutil.rmtree(building / "ivy", ignore_errors=True)

    waiting = "Another process is fetching the JVM dependencies; waiting for it."
    return filled(entry(), fill, waiting=waiting)


def resolve_with_ivy(folder: Path) -> None:
    """Fetch the jars of ivy.xml into `folder` with pyspark's own Ivy.

    FALKIRK_IVY_SETTINGS names other Ivy settings, for instance of a mirror.
    Raises: MachineError: `DEPENDENCIES_UNRESOLVED`, with the lines of Ivy that say why.
    """
    java = find_java()
    print("Fetching the JVM dependencies (53 MB, once per machine) …", file=sys.stderr, flush=True)
    jars = Path(pyspark.__file__).parent / "jars"
    command = [
        java.command, "-cp", str(jars / "*"), "org.apache.ivy.Main",
        "-cache", str(folder / "ivy"),
        "-settings", os.environ.get("FALKIRK_IVY_SETTINGS", str(_HERE / "ivysettings.xml")),
        "-ivy", str(_IVY),
        "-confs", *KINDS,
        "-retrieve", str(folder / "[conf]" / "[artifact]-[revision].[ext]"),
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = [x.strip() for x in (result.stdout + result.stderr).splitlines()]
        telling = [x for x in lines if any(w in x for w in ("not found", "FAILED", "ERROR", "Exception", "refused"))]
        raise MachineError(
            "DEPENDENCIES_UNRESOLVED",
            f"the JVM dependencies could not be fetched: {'; '.join(telling[:4]) or 'Ivy gave no reason'}.",
            hint="Is the network up? FALKIRK_IVY_SETTINGS can name an Ivy settings file of your mirror.",
            lines=telling,
        )
