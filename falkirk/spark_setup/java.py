"""Finds Java and checks its version, before anything is downloaded or started."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from falkirk.errors.conditions.spark_setup import JAVA_MISSING, JAVA_TOO_OLD

#: The oldest Java on which Spark 4 runs.
VERSION_MIN = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime: the path of its command, its major version, and the full text about its version."""

    command: str
    version: int
    build: str


def find_java() -> Java:
    """Return the Java that Spark will use: from JAVA_HOME, or else from the PATH.

    Raises: MachineError: `JAVA_MISSING`, `JAVA_TOO_OLD`.
    """
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if command is None or not Path(command).exists():
        where = f"JAVA_HOME={home}" if home else None
        raise JAVA_MISSING.error(where=where, version_min=VERSION_MIN)
    output = subprocess.run([command, "-version"], capture_output=True, text=True, check=False).stderr
    version = major_version(output)
    if version is None or version < VERSION_MIN:
        raise JAVA_TOO_OLD.error(where=command, version=version, found=version or "?", version_min=VERSION_MIN)
    build = "\n".join(line for line in output.splitlines() if not line.startswith("Picked up "))
    return Java(command=command, version=version, build=build)


def major_version(output: str) -> int | None:
    """Return the major version in the output of ``java -version``; version 1.8 counts as 8."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', output)
    if match is None:
        return None
    first = int(match[1])
    return int(match[2]) if first == 1 and match[2] else first
