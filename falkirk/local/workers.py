"""The process from which Spark forks the Python workers of a local session (`spark.python.daemon.module`).

Spark's own process imports little before it forks. So each worker imports PyArrow and half of PySpark again, from a zip
without compiled files. Spark also collects garbage after each task, which visits all imported objects. This process
does both once: a worker starts with its imports, and its garbage collection skips older objects.
"""

import gc
import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder

#: The imports of tasks with Python functions, including those of collections that change. Missing packages are skipped.
_NEEDED = ("pyarrow.compute", "pyarrow.acero", "pyspark.worker", "falkirk.differential.task")


def prefer_compiled(path: list[str]) -> list[str]:
    """Return the path without Spark's zip of PySpark's sources, if the same PySpark is installed as files."""
    zipped = [entry for entry in path if os.path.basename(entry) == "pyspark.zip"]
    others = [entry for entry in path if entry not in zipped]
    spec = PathFinder.find_spec("pyspark", others)
    home = os.environ.get("SPARK_HOME")
    if spec is None or spec.origin is None or home is None:
        return path
    return others if os.path.realpath(os.path.dirname(spec.origin)) == os.path.realpath(home) else path


def main() -> None:
    """Import the modules, and then serve like Spark's own daemon."""
    sys.path[:] = prefer_compiled(sys.path)
    for name in _NEEDED:
        try:
            import_module(name)
        except ImportError:
            continue
    daemon = import_module("pyspark.daemon")
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
