"""A pytest plugin that ends all processes of a test run when the run ends, for any reason.

Each process of a run has the run's mark in its environment, so a process without its parent, or in a new session, is
also found. A watcher process holds the read end of a pipe whose write end only pytest has. When pytest ends, even by
kill -9, the pipe closes, and the watcher kills all processes with the mark. If a process remains after a normal end, a
test is faulty: the process is named and the run fails. Python's resource tracker is no such process: it belongs to
pytest itself once a test has used `multiprocessing`, and ends with it.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

#: The environment variable with the mark: `RUN` in pytest itself, `RUN/WORKER` in the processes of a worker.
MARK = "FALKIRK_TEST_RUN"
#: A process that a test has stopped may need this long to end on a busy machine, as the children of a browser do.
GRACE_S = float(os.environ.get("FALKIRK_TEST_GRACE_S", "15"))
POLL_S = 0.1

#: The command of Python's resource tracker contains it.
TRACKER = "from multiprocessing.resource_tracker import main"

_WATCHER = pytest.StashKey["subprocess.Popen[str]"]()
_LEFT = pytest.StashKey[list[str]]()


def worker_mark() -> str:
    """Return the mark of this worker's processes."""
    return os.environ[MARK]


def pytest_configure(config: pytest.Config) -> None:
    """Mark this process and start the watcher; a worker of pytest-xdist adds its name to the inherited mark."""
    if hasattr(config, "workerinput"):
        os.environ[MARK] = f"{os.environ[MARK].partition('/')[0]}/{config.workerinput['workerid']}"
        return
    run = f"{os.getpid()}-{time.time_ns()}"
    os.environ[MARK] = f"{run}/main"
    config.stash[_WATCHER] = subprocess.Popen(
        [sys.executable, str(Path(__file__)), run],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let the watcher end the remaining processes after the workers have ended; fail the run if there were any."""
    watcher = session.config.stash.get(_WATCHER, None)
    if watcher is not None:
        session.config.stash[_LEFT] = watcher.communicate()[0].splitlines()
        if session.config.stash[_LEFT] and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the processes that tests left running."""
    left = config.stash.get(_LEFT, [])
    if left:
        terminalreporter.section("processes that tests left running", red=True)
        for line in left:
            terminalreporter.write_line(line)


def marked(run: str) -> Iterator[psutil.Process]:
    """Yield the processes of a run, without pytest itself and this process."""
    for process in psutil.process_iter():
        try:
            mine = process.pid != os.getpid() and process.environ().get(MARK, "").partition("/")[0] == run
            if mine and process.status() != psutil.STATUS_ZOMBIE and TRACKER not in " ".join(process.cmdline()):
                yield process
        except (psutil.Error, OSError):  # the process ended, or belongs to another user
            continue


def watch(run: str) -> None:
    """Wait for the end of pytest, then kill the remaining processes of its run and print them."""
    sys.stdin.read()
    deadline = time.monotonic() + GRACE_S
    while (left := list(marked(run))) and time.monotonic() < deadline:
        psutil.wait_procs(left, timeout=POLL_S)
    while left := list(marked(run)):  # a killed process may have just started another one
        for process in left:
            with contextlib.suppress(psutil.Error):
                told = f"{process.pid} {' '.join(process.cmdline())[:300]}"
                process.kill()
                with contextlib.suppress(BrokenPipeError):  # there is no reader if pytest was killed
                    print(told, flush=True)
        psutil.wait_procs(left, timeout=1)


if __name__ == "__main__":
    watch(sys.argv[1])
