"""The process from which Spark forks the Python workers of a local session (`spark.python.daemon.module`).

Spark's own process imports little before it forks. So each worker imports PyArrow and half of PySpark again, from a zip
without compiled files. Spark also collects garbage after each task, which visits all imported objects. This process
does both once: a worker starts with its imports, and its garbage collection skips older objects.

In its first task, a worker forgets what Python knows about the folders and archives of modules. For an archive this
means to read its list again, even if nothing is imported from there: 0.1 s for the jar that Spark adds. An error is
reported with its lines of source code, whose files are read once as well.
"""

import gc
import linecache
import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from zipimport import zipimporter

#: The imports of tasks with Python functions, including those of collections that change. Missing packages are skipped.
_NEEDED = ("pyarrow.compute", "pyarrow.acero", "pyspark.worker", "falkirk.steps.differential.task")
#: Modules with functions that each error of a task names.
_REPORTED = ("pyspark.worker", "pyspark.util", "pyspark.sql.pandas.serializers")


def prefer_compiled(path: list[str]) -> list[str]:
    """Return the path without Spark's zip of PySpark's sources, if the same PySpark is installed as files."""
    zipped = [entry for entry in path if os.path.basename(entry) == "pyspark.zip"]
    others = [entry for entry in path if entry not in zipped]
    spec = PathFinder.find_spec("pyspark", others)
    home = os.environ.get("SPARK_HOME")
    if spec is None or spec.origin is None or home is None:
        return path
    return others if os.path.realpath(os.path.dirname(spec.origin)) == os.path.realpath(home) else path


def without_jars(path: list[str]) -> list[str]:
    """Return the path without Spark's own jars: Spark adds one, and there are no Python modules in it."""
    jars = os.path.join(os.path.realpath(os.environ.get("SPARK_HOME", "")), "jars")
    return [e for e in path if not (e.endswith(".jar") and os.path.dirname(os.path.realpath(e)) == jars)]


def forget_archives() -> None:
    """Forget the archives that are not in the path, and the folders in them."""
    for entry, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and finder.archive not in sys.path:
            del sys.path_importer_cache[entry]


def main() -> None:
    """Import the modules, and then serve like Spark's own daemon."""
    sys.path[:] = without_jars(prefer_compiled(sys.path))
    for name in _NEEDED:
        try:
            import_module(name)
        except ImportError:
            continue
    daemon = import_module("pyspark.daemon")
    forget_archives()
    for name in _REPORTED:
        if (module := sys.modules.get(name)) is not None and module.__file__ is not None:
            linecache.getlines(module.__file__)
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
