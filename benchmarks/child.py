"""Children: runs each measured subject in a separate process and JVM.

So no variant runs in a JVM that another one has warmed up, and the bench can kill a subject.
"""

import contextlib
import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Any, Protocol, TypeVar

import psutil

from falkirk.app import App
from falkirk.errors import SparkError
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.spark import spark_session

START_S = 180.0
STOP_S = 60.0

T = TypeVar("T")


class Child:
    """A subject that has been started. Leave it with `stop` or `kill`.

    Args: body: a function of a module. It is called in the child with `given` and a pipe, and calls `serve`.
        label: the name of the subject in errors.
    """

    def __init__(self, body: "Callable[[T, Pipe[Any, Any]], None]", given: T, label: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=body, args=(given, theirs), daemon=True)
        self.label = label
        self._process.start()
        theirs.close()

    def await_running(self) -> None:
        """Wait until the subject runs. Raises: SparkError: `BENCH_INCOMPLETE`: it failed."""
        self._receive(START_S)

    def stop(self) -> Any:
        """Stop the subject and return its account. Raises: SparkError: `BENCH_INCOMPLETE`: it failed before."""
        with contextlib.suppress(OSError):  # it has died, and its last message is in the pipe
            self._pipe.send("stop")
        account = self._receive(STOP_S)
        self._process.join(30.0)
        self.kill()
        return account

    def ask(self) -> Any:
        """Return what the running subject tells about itself. Raises: SparkError: `BENCH_INCOMPLETE`."""
        with contextlib.suppress(OSError):
            self._pipe.send("tell")
        return self._receive(STOP_S)

    def kill(self) -> None:
        """Kill the process and its JVM with -9, so that neither continues to write."""
        found = self.processes()
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(found, timeout=30)
        self._process.join(30.0)

    def processes(self) -> list[psutil.Process]:
        """Return the process, its JVM, and all other processes that it has started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        return []

    def _receive(self, timeout_s: float) -> Any:
        answer: Any = None
        with contextlib.suppress(EOFError, OSError):
            answer = self._pipe.recv() if self._pipe.poll(timeout_s) else None
        if answer is None or (isinstance(answer, str) and answer != "running"):
            self.kill()
            raise SparkError(
                "BENCH_INCOMPLETE",
                f"{self.label}: {answer or 'no answer'}.",
                hint="Read its output above for the cause.",
            )
        return answer


def serve(
    pipe: "Pipe[Any, Any]",
    start: Callable[[], T],
    finish: Callable[[T], object],
    tell: Callable[[T], object] | None = None,
) -> None:
    """Start the subject, run it until the bench stops it or dies, and send its account.

    Args: tell: what `Child.ask` returns.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the bench ends its children
    try:
        running = start()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # PySpark has installed its own handler
    except Exception as error:
        pipe.send(str(error).split("\n")[0])
        raise
    pipe.send("running")
    with contextlib.suppress(EOFError):
        while pipe.recv() == "tell" and tell is not None:
            pipe.send(tell(running))
    pipe.send(finish(running))


class Declared(Protocol):
    """Declares an application that is measured."""

    @property
    def bootstrap(self) -> str:
        """The address of the broker."""

    def application(self) -> App:
        """Return the application."""


def serve_application(given: Declared, pipe: "Pipe[Any, Any]") -> None:
    """Run an application in a child. Its account is the number of results that it computed again and suppressed.

    `Child.ask` returns the figures of its processors, as its status has them.
    """

    def start() -> Query:
        spark_session("falkirk-bench", master="local[24]")
        return run_here(given.application(), Connection.of(given.bootstrap), create_topics=True)

    def finish(query: Query) -> object:
        suppressed = sum(r.suppressed for r in query.status)
        query.stop()
        return suppressed

    serve(pipe, start, finish, lambda query: query._host.figures())
