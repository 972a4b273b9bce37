"""The theory and the declarations do not need Spark."""

import pkgutil
import subprocess
import sys

import pytest

import falkirk.theory

MODULES = ["falkirk", *(m.name for m in pkgutil.walk_packages(falkirk.theory.__path__, "falkirk.theory."))]


@pytest.mark.parametrize("module", MODULES)
def test_importing_does_not_load_spark(module: str) -> None:
    """This needs a separate process: in this one, other tests have already loaded Spark."""
    code = f"import sys, {module}; print(*sorted({{'pyspark', 'py4j'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
