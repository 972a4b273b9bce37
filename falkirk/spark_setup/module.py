"""The Java module: Falkirk's own classes in Spark's JVMs, as one small jar that is compiled from `java/src`.

The jar is named by a key: the SHA-256 of its sources, of the jars that it is compiled with, and of Spark's version. A
wheel carries the sources and a prebuilt jar. If its key fits, Falkirk uses it. Otherwise Falkirk compiles the sources
once per machine, and keeps the jar in the cache, complete or absent like all entries (`falkirk.spark_setup.cache`). A
file beside the jar has its SHA-256, so that a jar that a power loss truncated is found and compiled again.
"""

import hashlib
import os
import shutil
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyspark

from falkirk.errors.conditions.spark_setup import MODULE_NOT_COMPILED
from falkirk.spark_setup import jars
from falkirk.spark_setup.cache import cache_home, filled, writing_to
from falkirk.spark_setup.compiler import compile_java, java_files

_PACKAGE = Path(__file__).parents[1]
#: In a wheel: the prebuilt jar, and the sources in `src`.
PACKAGED = _PACKAGE / "java"
#: In a checkout: the sources in `src`, and their tests in `test`.
REPOSITORY = _PACKAGE.parent / "java"
#: A change of the options of the compiler or of the layout of the jar makes another jar.
_RECIPE = "1"
_KEY_DIGITS = 16
_MANIFEST = "META-INF/MANIFEST.MF"
#: The oldest time that a zip file can store. Equal classes make an equal jar.
_NO_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The jar in use. Args: origin: of the jar. jar: its path, even if it does not exist. ok: it is complete."""

    origin: Literal["prebuilt", "compiled"]
    jar: Path
    ok: bool


def module_jar() -> Path:
    """Return the jar of the Java module: the prebuilt one if it fits, or else a compiled one; compile it if absent.

    Raises: MachineError: `MODULE_NOT_COMPILED`; `CACHE_NOT_WRITTEN`, `FOLDER_NOT_OURS`; or the errors of missing Java
        or jars. The cache is then unchanged.
    """
    found = find_jar()
    if found.ok:
        return found.jar
    waiting = "Another process is compiling the Java module; waiting for it."
    return jar_in(filled(module_entry(), build, waiting=waiting, sound=is_sound))


def application_jars() -> tuple[Path, ...]:
    """Return the jars that a Spark application needs: the connector with its dependencies, and the Java module.

    Raises: MachineError: the errors of `spark_jars` and `module_jar`.
    """
    return *jars.spark_jars(), module_jar()


def find_jar() -> Found:
    """Return the jar that a run would use, without compiling it."""
    if is_sound(PACKAGED):
        return Found(origin="prebuilt", jar=jar_in(PACKAGED), ok=True)
    return Found(origin="compiled", jar=jar_in(module_entry()), ok=is_sound(module_entry()))


def sources() -> Path:
    """Return the folder with the sources: that of the wheel, or else that of the checkout.

    Raises: MachineError: `MODULE_NOT_COMPILED`: there are none.
    """
    for folder in (PACKAGED / "src", REPOSITORY / "src"):
        if java_files(folder):
            return folder
    raise MODULE_NOT_COMPILED.error(where=PACKAGED, lines=())


def jar_key() -> str:
    """Return the identity of the jar: of all that it is made from."""
    folder = sources()
    known = hashlib.sha256(f"{_RECIPE} {pyspark.__version__}\n".encode())
    for jar, digest in sorted(jars.manifest().items()):
        if jar.startswith(("spark/", "compiler/")):
            known.update(f"{digest}  {jar}\n".encode())
    for file in java_files(folder):
        known.update(f"{jars.sha256(file)}  {file.relative_to(folder).as_posix()}\n".encode())
    return known.hexdigest()[:_KEY_DIGITS]


def module_entry() -> Path:
    """Return the cache entry of the compiled jar, whether or not it exists."""
    return cache_home() / "module" / jar_key()


def jar_in(folder: Path) -> Path:
    """Return the path of the jar in a folder. Its name has the key, since Spark tells jars apart by their names."""
    return folder / f"falkirk-java-{jar_key()}.jar"


def is_sound(folder: Path) -> bool:
    """Return whether the folder has the jar of these sources, unchanged since it was built."""
    jar = jar_in(folder)
    try:
        return _sum_of(jar).read_text() == _sum(jar)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


def compile_class_path() -> tuple[Path, ...]:
    """Return the jars that the module is compiled with: Spark's, and the connector with its dependencies."""
    return *sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar")), *jars.spark_jars()


def build(folder: Path) -> None:
    """Compile the sources into a jar in `folder`, which contains nothing else afterwards.

    Raises: MachineError: as `module_jar`.
    """
    print("Compiling the Java module (a few seconds, once per machine) …", file=sys.stderr, flush=True)
    classes, jar = folder / "classes", jar_in(folder)
    with writing_to(folder):
        classes.mkdir()
        compile_java(sources(), classes, class_path=compile_class_path())
        _pack(classes, jar)
        shutil.rmtree(classes)
        _sum_of(jar).write_text(_sum(jar))


def _pack(classes: Path, jar: Path) -> None:
    """Write a jar. Its manifest has the key as the version, by which a session's jar is compared with this one."""
    manifest = f"Manifest-Version: 1.0\nImplementation-Title: falkirk\nImplementation-Version: {jar_key()}\n\n"
    with zipfile.ZipFile(jar, "w") as packed:
        packed.writestr(_entry(_MANIFEST), manifest)
        for file in sorted(classes.rglob("*.class")):
            packed.writestr(_entry(file.relative_to(classes).as_posix()), file.read_bytes())
    with open(jar, "rb") as handle:
        os.fsync(handle.fileno())


def _entry(name: str) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name, _NO_TIME)
    made.compress_type = zipfile.ZIP_DEFLATED
    made.external_attr = 0o600 << 16
    return made


def _sum_of(jar: Path) -> Path:
    return jar.with_name(f"{jar.name}.sha256")


def _sum(jar: Path) -> str:
    """Return the line of `sha256sum` for a jar."""
    return f"{jars.sha256(jar)}  {jar.name}\n"
