"""The theory and the declarations do not need Spark."""

import pkgutil
import subprocess
import sys

import falkirk.theory

MODULES = ["falkirk", *(m.name for m in pkgutil.walk_packages(falkirk.theory.__path__, "falkirk.theory."))]


def test_importing_does_not_load_spark() -> None:
    """This needs a separate process: in this one, other tests have already loaded Spark."""
    code = (
        f"import importlib, sys\nfor name in {MODULES}:\n    importlib.import_module(name)\n"
        "    if found := {'pyspark', 'py4j'} & set(sys.modules): sys.exit(f'{name} loads {found}')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
