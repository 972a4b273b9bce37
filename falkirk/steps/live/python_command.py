"""Python commands: how a task of a live region gets Python processes that answer its requests.

With a local master, a process imports modules from the same places as the application. On the executors of a cluster it
imports them as Spark's own Python workers do, and Falkirk's from an archive that comes with the application
(ExecutorPython.java).
"""

import hashlib
import os
import sys
from collections.abc import Callable
from typing import Any

import pyspark.cloudpickle as cloudpickle

from falkirk.platform import private
from falkirk.spark_setup.shipped import python_version, shipped_files
from falkirk.spark_setup.spark import writes_elsewhere
from falkirk.steps.live.on_executor import DRIVER

#: How long a worker may take to import what the function needs.
START_S = 60


def command(session: Any, calls: Callable[[bytes], bytes], timeout_s: float) -> Any:
    """Return for the Java module how to start a process that answers requests. Args: timeout_s: of a request."""
    setup = cloudpickle.dumps(calls)  # type: ignore[no-untyped-call]
    words, folder, shipped = [session.sparkContext.pythonExec], "", None
    environment = {
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),  # as Spark's own workers
        "OMP_NUM_THREADS": "1",  # it answers one row after the other
    }
    if writes_elsewhere(session):
        environment[DRIVER], shipped = python_version(), shipped_files(session)
    else:
        words += ["-m", "falkirk.steps.live.row_worker"]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        folder = str(private.temporary_folder())
    known = hashlib.sha256(setup)
    known.update(repr((words, sorted(environment.items()), shipped, timeout_s)).encode())
    return session._jvm.org.falkirk.PythonCommand(
        known.hexdigest(), words, environment, folder, setup, START_S * 1000, max(1, round(timeout_s * 1000)), shipped
    )
