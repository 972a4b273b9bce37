"""The build hook of the wheel: adds the sources of the Java module, and the jar that is compiled from them.

A build needs no javac: ECJ compiles on a JRE. It needs the packages that Falkirk requires, pyspark among them, and an
isolated build environment lacks them. FALKIRK_BUILD_PYTHON names a Python that has them, and the build then fails if
the jar can't be compiled (`make wheel`). Without the variable, the wheel may lack the jar. The build says so, and an
installation compiles the sources.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PYTHON = "FALKIRK_BUILD_PYTHON"
_COMPILE = "import sys, pathlib, falkirk.spark_setup.module as module; module.build(pathlib.Path(sys.argv[1]))"


class WheelHook(BuildHookInterface[Any]):
    """Adds `falkirk/java` to a wheel. An editable installation uses the sources of its checkout."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it packs the files."""
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory(prefix="falkirk-wheel-")
        added = build_data["force_include"]
        added[str(Path(self.root) / "java" / "src")] = "falkirk/java/src"
        reason = compiled(Path(self.root), Path(self._folder.name))
        if reason is None:
            added |= {str(file): f"falkirk/java/{file.name}" for file in Path(self._folder.name).iterdir()}
        elif _PYTHON in os.environ:
            raise RuntimeError(f"The Java module could not be compiled: {reason}")
        else:
            self.app.display_warning(
                f"This wheel has no prebuilt Java module: {reason}\nEach machine compiles it at `falkirk setup`. To "
                f"build a wheel with it, run `make wheel`, or set {_PYTHON} to a Python with Falkirk's requirements."
            )

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called by hatchling after it has packed the files."""
        if version != "editable":
            self._folder.cleanup()


def compiled(root: Path, folder: Path) -> str | None:
    """Compile the jar into a folder. Return the reason if that fails."""
    python, inherited = os.environ.get(_PYTHON), os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(root), *([inherited] if inherited and not python else [])])
    done = subprocess.run(
        [python or sys.executable, "-c", _COMPILE, str(folder)],
        cwd=root, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    last = next((n for n in reversed(range(len(lines))) if not lines[n].startswith(" ") and "Error" in lines[n]), -1)
    return "\n".join(lines[last:]) or f"Python ended with code {done.returncode}"
