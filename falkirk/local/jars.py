"""JVM dependencies: the Kafka connector that Spark lacks, and a broker to try things out, in a cache shared by all
projects.

Resolved once by the Ivy that ships inside pyspark. The cache entry is complete or absent, see `falkirk.local.cache`.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pyspark

from falkirk.errors import MachineError
from falkirk.local.cache import cache_home, filled
from falkirk.local.java import find_java

_HERE = Path(__file__).parent
_IVY = _HERE / "ivy.xml"
_KINDS = ("spark", "broker")
Resolver = Callable[[Path], None]
"""Fills a folder with `spark/*.jar` and `broker/*.jar`."""


def spark_jars() -> tuple[Path, ...]:
    """Return what goes on the class path of Spark, resolving it if it is not there yet."""
    return tuple(sorted((resolved() / "spark").glob("*.jar")))


def broker_jars() -> tuple[Path, ...]:
    """Return the class path of the embedded broker, resolving it if it is not there yet."""
    return tuple(sorted((resolved() / "broker").glob("*.jar")))


def entry() -> Path:
    """Return where the jars of this version of Falkirk and pyspark are or will be."""
    text = _IVY.read_text() + pyspark.__version__
    return cache_home() / "jars" / hashlib.sha256(text.encode()).hexdigest()[:16]


def absent(folder: Path) -> tuple[str, ...]:
    """Return which jars that ivy.xml names are not in `folder`, as paths in it: `spark/kafka-clients-1.0.jar`."""
    named = ElementTree.parse(_IVY).iter("dependency")
    wanted = (f"{d.attrib['conf'].partition('->')[0]}/{d.attrib['name']}-{d.attrib['rev']}.jar" for d in named)
    return tuple(sorted(jar for jar in wanted if not (folder / jar).is_file()))


def resolved(resolve: Resolver | None = None) -> Path:
    """Return the complete cache entry, filling it first if it is absent.

    Raises: MachineError: `DEPENDENCIES_UNRESOLVED`; the cache is as it was. `FOLDER_NOT_OURS`: another user decides
        what is in the cache, and so what is run.
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
        "-confs", *_KINDS,
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
