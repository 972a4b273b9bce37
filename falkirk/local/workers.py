"""The process that Spark forks the Python workers of a local session from (`spark.python.daemon.module`).

Spark's own imports little before it forks, so each worker imports PyArrow and half of PySpark anew, from a zip without
compiled files; and Spark collects garbage behind each task, which looks through all that was imported. Here both are
done once: a worker begins with what it needs, and what was there before it is no garbage of its own.
"""

import gc
import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder

#: What tasks with Python functions import, those of collections that change too. What is not installed is left out.
_NEEDED = ("pyarrow.compute", "pyarrow.acero", "pyspark.worker", "falkirk.differential.task")


def prefer_compiled(path: list[str]) -> list[str]:
    """Return a path without Spark's zip of PySpark's sources, where the same PySpark is installed as files."""
    zipped = [entry for entry in path if os.path.basename(entry) == "pyspark.zip"]
    others = [entry for entry in path if entry not in zipped]
    spec = PathFinder.find_spec("pyspark", others)
    home = os.environ.get("SPARK_HOME")
    if spec is None or spec.origin is None or home is None:
        return path
    return others if os.path.realpath(os.path.dirname(spec.origin)) == os.path.realpath(home) else path


def main() -> None:
    """Import, then serve as Spark's own does."""
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
