"""Helpers that tests share."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil

from falkirk.errors import FalkirkError
from falkirk.platform.data import DataPath, local_path

#: A wait ends with its condition. A machine with other work is several times slower, and a limit that fits an idle one
#: would fail a test by chance. CI took 24 min for these tests one day, and 67 min another day.
PATIENCE = 5.0


def wait_until(condition: Callable[[], object], timeout_s: float, what: str | Callable[[], str]) -> None:
    """Wait for a condition; after its time, fail with `what`: a text, or a function that returns one.

    Args: timeout_s: enough on an idle machine. The wait fails after `PATIENCE` times as long.
    """
    timeout_s *= PATIENCE
    deadline = time.monotonic() + timeout_s
    pause_s = 0.02
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for: {what if isinstance(what, str) else what()}"
        threading.Event().wait(pause_s)
        pause_s = min(pause_s * 1.5, 0.5)


def outcome(read: Callable[[], Any]) -> Any:
    """Return the result, or the condition of Falkirk's own error. Any other error fails the test."""
    try:
        return read()
    except FalkirkError as error:
        return error.condition


def children_with(text: str) -> list[psutil.Process]:
    """Return the living processes that this one has started, directly or not, whose command line contains a text."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
            if text in " ".join(process.cmdline()):
                found.append(process)
    return found


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process runs; a zombie does not."""
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def suspend(process: psutil.Process) -> None:
    """Stop a process with SIGSTOP, and return when all its threads stand still.

    The signal reaches one thread, which stops the others as soon as it runs. On a busy machine that takes up to 50 ms,
    in which a broker can still answer.
    """
    process.suspend()
    wait_until(lambda: not _runs(process.pid), 30, f"process {process.pid} to stop")


def suspend_all(processes: Iterable[psutil.Process]) -> None:
    """Stop processes, as above. One that has ended meanwhile, as helpers of Spark do, needs no stop."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            suspend(process)


def _runs(pid: int) -> bool:
    """Return whether a thread of the process is neither stopped (T), traced (t) nor ended (Z, X)."""
    states = []
    for file in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread ended
            states.append(file.read_text().rsplit(")", 1)[1].split()[0])
    return any(state not in "TtZX" for state in states)


def on_disk(data: DataPath) -> Path:
    """Return the path of a home's data on the local disk."""
    return local_path(data, "a test")
