"""The theory, and declarations, need no Spark."""

import pkgutil
import subprocess
import sys

import pytest

import falkirk.theory

MODULES = ["falkirk", *(m.name for m in pkgutil.walk_packages(falkirk.theory.__path__, "falkirk.theory."))]


@pytest.mark.parametrize("module", MODULES)
def test_importing_does_not_load_spark(module: str) -> None:
    """In a process of its own: here something else has loaded it already."""
    code = f"import sys, {module}; print(*sorted({{'pyspark', 'py4j'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
