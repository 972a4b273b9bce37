"""The subject of a measurement: one variant of a job in a process and a JVM of its own, so that no variant is warmed
up by another, and one can be killed."""

import contextlib
import multiprocessing
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from falkirk.bench.jobs import JOBS, application, plain
from falkirk.errors import SparkError
from falkirk.local.spark import session as spark_session
from falkirk.logs.connection import Connection
from falkirk.policy import Delivery
from falkirk.query import run_here

PARTITIONS = 2
START_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What runs: a job by name, `none` or a delivery kind, a checkpoint interval in seconds, topics, and a folder."""

    job: str
    variant: str
    interval_s: float
    bootstrap: str
    source: str
    sink: str
    home: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What a subject tells in the end.

    Args: hops: its internal topics. suppressed: results that it found released already. phases_ms: of its last region's
        batches, the median time of each phase at a batch's boundary.
    """

    hops: tuple[str, ...]
    suppressed: int
    phases_ms: dict[str, float]


class Running:
    """A subject that has been started. Leave it with `stop` or `kill`."""

    def __init__(self, subject: Subject) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(subject, theirs), daemon=True)
        self._subject = subject
        self._process.start()
        theirs.close()

    def await_running(self) -> None:
        """Wait until its queries have been started. Raises: SparkError: `BENCH_INCOMPLETE`: it failed."""
        self._receive(START_S)

    def stop(self) -> Account:
        """Stop it, and return its account. Raises: SparkError: `BENCH_INCOMPLETE`: it had failed before."""
        self._pipe.send("stop")
        account: Account = self._receive(60.0)
        self._process.join(30.0)
        self.kill()
        return account

    def kill(self) -> None:
        """kill -9 of the process and its JVM, which must not be left behind as a writer."""
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            found = [root, *root.children(recursive=True)]
            for process in found:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(found, timeout=30)
        self._process.join(30.0)

    def _receive(self, timeout_s: float) -> Any:
        answer: Any = None
        with contextlib.suppress(EOFError):
            answer = self._pipe.recv() if self._pipe.poll(timeout_s) else None
        if answer is None or (isinstance(answer, str) and answer != "running"):
            self.kill()
            raise SparkError(
                "BENCH_INCOMPLETE",
                f"{self._subject.job}, {self._subject.variant}: {answer or 'no answer'}.",
                hint="What it printed above may say why.",
            )
        return answer


def _run(subject: Subject, pipe: "Pipe[Any, Any]") -> None:
    try:
        query, live = _start(subject)
    except Exception as error:
        pipe.send(str(error).split("\n")[0])
        raise
    pipe.send("running")
    with contextlib.suppress(EOFError):  # the bench is gone
        pipe.recv()
    progress = live().recentProgress
    hops = query.hops if subject.variant != "none" else ()
    suppressed = sum(r.suppressed for r in query.status) if subject.variant != "none" else 0
    query.stop()
    pipe.send(Account(hops=hops, suppressed=suppressed, phases_ms=_phases_ms(progress, subject.interval_s)))


def _start(subject: Subject) -> tuple[Any, Any]:
    """Return the running query, and how to come by the StreamingQuery of its last region."""
    job = JOBS[subject.job]
    session = spark_session("falkirk-bench", master="local[24]", state_partitions=PARTITIONS)
    topics = (subject.source, subject.sink)
    if subject.variant == "none":
        query = plain(job, session, subject.bootstrap, *topics, subject.interval_s, subject.home)
        return query, lambda: query
    app = application(job, *topics, Delivery(subject.variant), subject.interval_s, subject.home)
    running = run_here(app, Connection.of(subject.bootstrap))
    return running, lambda: running.queries[-1]


def _phases_ms(progress: list[Any], interval_s: float) -> dict[str, float]:
    """Return the median of each phase over the batches of full length, but the first, which warms up."""
    durations = [p["durationMs"] for p in progress[1:] if p["durationMs"].get("addBatch", 0) >= 1000 * interval_s]
    if not durations:
        return {}
    logs = [d.get("walCommit", 0) + d.get("commitOffsets", 0) + d.get("latestOffset", 0) for d in durations]
    return {
        "planning": median(d.get("queryPlanning", 0) for d in durations),
        "offsets_and_logs": median(logs),
        "end_of_batch": median(d["addBatch"] - 1000 * interval_s for d in durations),
    }
