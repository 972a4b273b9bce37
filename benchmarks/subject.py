"""Subjects: one variant of a job in the latency bench, and the account that it gives at the end."""

from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.child import Child, serve
from benchmarks.job import PARTITIONS
from benchmarks.jobs import JOBS, application, plain
from falkirk.declare.policy import Delivery
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.spark import spark_session

#: Variants without Falkirk.
PLAIN = ("none", "micro-batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A variant of a job.

    Args: variant: `none` (Real-time Mode), `micro-batch`, a delivery, or `twins` (exactly-once with twins).
        interval_s: between checkpoints.
    """

    job: str
    variant: str
    interval_s: float
    bootstrap: str
    source: str
    sink: str
    home: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The account of a subject at its end.

    Args: hops: its internal topics. suppressed: the number of results that were already published. phases_ms: the
        median time of each phase at the boundary of a batch, of its last region.
    """

    hops: tuple[str, ...]
    suppressed: int
    phases_ms: dict[str, float]


class Running(Child):
    """A started subject of the latency bench. Its account is an `Account`."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(_run, subject, f"{subject.job}, {subject.variant}")


def _run(subject: Subject, pipe: "Pipe[Any, Any]") -> None:
    serve(pipe, lambda: _start(subject), lambda running: _finish(subject, *running))


def _finish(subject: Subject, query: Any, live: Any) -> Account:
    progress = live().recentProgress
    hops = query.hops if subject.variant not in PLAIN else ()
    suppressed = sum(r.suppressed for r in query.status) if subject.variant not in PLAIN else 0
    query.stop()
    return Account(hops=hops, suppressed=suppressed, phases_ms=_phases_ms(progress, subject.interval_s))


def _start(subject: Subject) -> tuple[Any, Any]:
    """Return the running query, and a function that returns the StreamingQuery of its last region."""
    job = JOBS[subject.job]
    session = spark_session("falkirk-bench", master="local[24]", state_partitions=PARTITIONS)
    topics = (subject.source, subject.sink)
    if subject.variant in PLAIN:
        interval_s = subject.interval_s if subject.variant == "none" else None
        query = plain(job, session, subject.bootstrap, *topics, interval_s, subject.home)
        return query, lambda: query
    twins = subject.variant == "twins"
    delivery = Delivery.EXACTLY_ONCE if twins else Delivery(subject.variant)
    app = application(job, *topics, delivery, subject.interval_s, subject.home, twins=twins)
    running = run_here(app, Connection.of(subject.bootstrap))
    return running, lambda: running.queries[-1]


def _phases_ms(progress: list[Any], interval_s: float) -> dict[str, float]:
    """Return the median of each phase over all batches of full length except the first, which is warm-up."""
    durations = [p["durationMs"] for p in progress[1:] if p["durationMs"].get("addBatch", 0) >= 1000 * interval_s]
    if not durations:
        return {}
    logs = [d.get("walCommit", 0) + d.get("commitOffsets", 0) + d.get("latestOffset", 0) for d in durations]
    return {
        "planning": median(d.get("queryPlanning", 0) for d in durations),
        "offsets_and_logs": median(logs),
        "end_of_batch": median(d["addBatch"] - 1000 * interval_s for d in durations),
    }
