"""Jars of the peers: downloaded on request into a cache folder of their own, and compared with `jars.sha256`.

They never enter the project's environment. The compiled programs of `java/` are in the same entry of the cache.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Literal

import pyspark

from falkirk.errors.conditions.spark_setup import DEPENDENCIES_ALTERED, DEPENDENCIES_UNRESOLVED
from falkirk.spark_setup import jars
from falkirk.spark_setup.cache import cache_home, filled
from falkirk.spark_setup.compiler import compile_java
from falkirk.spark_setup.jars import sha256
from falkirk.spark_setup.java import find_java

Kind = Literal["flink", "streams"]
_HERE = Path(__file__).parent
_SPARK_JARS = Path(pyspark.__file__).parent / "jars"


def manifest(kind: Kind, text: str | None = None) -> dict[str, str]:
    """Return the SHA-256 of each jar of a peer, by its name. Args: text: of a manifest, in the format of sha256sum."""
    lines = (line.split(maxsplit=1) for line in (text or (_HERE / "jars.sha256").read_text()).splitlines())
    return {name.removeprefix(f"{kind}/"): digest for digest, name in lines if name.startswith(f"{kind}/")}


def differing(folder: Path, wanted: dict[str, str]) -> tuple[str, ...]:
    """Return the jars that are missing in a folder, have other content, or are not in the manifest."""
    present = {file.name for file in folder.glob("*.jar")}
    wrong = {name for name in present & wanted.keys() if sha256(folder / name) != wanted[name]}
    return tuple(sorted(wrong | (present ^ wanted.keys())))


def class_path(kind: Kind) -> str:
    """Return the class path of a peer's program; download and compile it first if it is missing.

    Raises: MachineError: `DEPENDENCIES_UNRESOLVED`, `DEPENDENCIES_ALTERED`, `MODULE_NOT_COMPILED`.
    """
    sources = sorted((_HERE / "java" / kind).glob("*.java"))
    inputs = [_HERE / "ivy.xml", _HERE / "jars.sha256", *sources]
    key = hashlib.sha256(b"".join(file.read_bytes() for file in inputs)).hexdigest()[:16]
    place = filled(
        cache_home() / "peers" / f"{kind}-{key}",
        lambda folder: _fill(kind, folder),
        waiting="Another process downloads this peer; waiting for it.",
    )
    _require_known(kind, place)
    return os.pathsep.join([str(place / "classes"), *map(str, sorted(place.glob("*.jar")))])


def _fill(kind: Kind, folder: Path) -> None:
    settings = Path(jars.__file__).with_name("ivysettings.xml")
    command = [
        find_java().command, "-cp", str(_SPARK_JARS / "*"), "org.apache.ivy.Main",
        "-cache", str(folder / "ivy"),
        "-settings", os.environ.get("FALKIRK_IVY_SETTINGS", str(settings)),
        "-ivy", str(_HERE / "ivy.xml"),
        "-confs", kind,
        "-retrieve", str(folder / "[artifact]-[revision].[ext]"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).splitlines()[-4:]
        raise DEPENDENCIES_UNRESOLVED.error(lines=lines, reason="; ".join(lines))
    _require_known(kind, folder)
    shutil.rmtree(folder / "ivy", ignore_errors=True)
    (folder / "classes").mkdir()
    compile_java(_HERE / "java" / kind, folder / "classes", class_path=tuple(sorted(folder.glob("*.jar"))))


def _require_known(kind: Kind, folder: Path) -> None:
    bad = differing(folder, manifest(kind))
    if bad:
        raise DEPENDENCIES_ALTERED.error(
            where=folder, jars=bad, advice="Remove that folder; the next run downloads the jars again."
        )
