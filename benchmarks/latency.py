"""Latency bench: measures the latency of exactly-once against the same job without it (`python -m benchmarks latency`).

The experiment is that of Delivery, consistency, and determinism, §VI. It runs keyed count at 100 records/s and the word
index at 50 pages/s, with checkpoints every 10, 30 and 60 s. The timeline around a kill is its Figure 9. Further jobs
have one operator each: windows, a join, Python functions, at 100 records/s. The variants run one after the other, each
in a separate JVM: on two CPU cores, variants side by side would disturb each other.
"""

import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.client import Measured, Measurement, start_measuring
from benchmarks.job import PARTITIONS, Job, Records
from benchmarks.jobs import JOBS, MAIN, WORD_INDEX, count_records, page_records, timed_records, topics_of
from benchmarks.report import Report
from benchmarks.subject import Account, Running, Subject
from demo.pages import pages
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.ranges import read_range
from falkirk.kafka_client.topics import Topics
from falkirk.spark_setup import broker as local_broker

VARIANTS = ("none", "repeated", "exactly-once", "twins")
#: In the timeline: seconds of counted load before the kill.
KILL_AFTER_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySettings:
    """The settings: intervals and times in seconds, rates per second. `source`: text for the word index.

    Args: warm_up_s: time at the beginning whose records are not counted. window_s: counted time, extended to two
        intervals if it is shorter. timeline_s: the time of sending in the run with a kill; 0: no such run. variants:
        some of `VARIANTS`. jobs: some of `JOBS`, by name.
    """

    intervals_s: tuple[float, ...] = (10.0, 30.0, 60.0)
    count_rate: float = 100.0
    page_rate: float = 50.0
    warm_up_s: float = 40.0
    window_s: float = 50.0
    timeline_s: float = 60.0
    variants: tuple[str, ...] = VARIANTS
    jobs: tuple[str, ...] = tuple(job.name for job in MAIN)
    source: Path | None = None

    @classmethod
    def quick(cls, source: Path | None, jobs: tuple[str, ...]) -> "LatencySettings":
        """Return settings that take less than four minutes in all."""
        variants = ("none", "exactly-once")
        return cls(
            intervals_s=(5.0,), warm_up_s=12.0, window_s=10.0, timeline_s=0.0, variants=variants, jobs=jobs,
            source=source,
        )  # fmt: skip

    def window_of(self, interval_s: float) -> float:
        """Return the counted seconds at one interval; they include at least one checkpoint."""
        return max(self.window_s, 2 * interval_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The run with a kill. Args: points: for each record, its time in seconds since the kill, and its latency."""

    points: tuple[tuple[float, float], ...]


@dataclass(kw_only=True)
class LatencyRun:
    """The results of the bench. Args: latencies_s: by the stem of their figures."""

    report: Report
    latencies_s: dict[str, list[float]] = field(default_factory=dict)
    timeline: Timeline | None = None


def run_latency(settings: LatencySettings, say: Callable[[str], None]) -> LatencyRun:
    """Measure, and return the results. Args: say: receives one line of progress at a time.

    Raises: SparkError: `BENCH_INCOMPLETE`: a subject failed.
    """
    report = Report(
        bench="latency",
        settings={
            "intervals_s": list(settings.intervals_s),
            "count_rate_per_s": settings.count_rate,
            "page_rate_per_s": settings.page_rate,
            "warm_up_s": settings.warm_up_s,
            "window_s": [settings.window_of(interval_s) for interval_s in settings.intervals_s],
            "timeline_s": settings.timeline_s,
            "input": settings.source.name if settings.source else "docstrings",
        },
    )
    folder = Path(tempfile.mkdtemp(prefix="falkirk-bench-"))
    try:
        bootstrap = local_broker.start(folder / "broker").bootstrap
        run = LatencyRun(report=report)
        bench = _Bench(settings=settings, bootstrap=bootstrap, folder=folder, run=run, say=say)
        if settings.timeline_s:
            bench.timeline()
        for interval_s in settings.intervals_s:
            for job in settings.jobs:
                bench.compare(JOBS[job], interval_s)
        return run
    finally:
        local_broker.stop(folder / "broker")
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class _Bench:
    settings: LatencySettings
    bootstrap: str
    folder: Path
    run: LatencyRun
    say: Callable[[str], None]

    def compare(self, job: Job, interval_s: float) -> None:
        """Measure the variants of a job one after the other."""
        window_s = self.settings.window_of(interval_s)
        records, rate = self._records(job, self.settings.warm_up_s + window_s)
        report, none = self.run.report, figure_name(job.name, "none", interval_s)
        for variant in filter(job.has, self.settings.variants):
            name = figure_name(job.name, variant, interval_s)
            subject = self._subject(job, variant, interval_s)
            running = Running(subject)
            running.await_running()
            try:
                process, results = self._measure(job, subject, records, rate, self.settings.warm_up_s)
                measured: Measured = results.get()
                process.join()
                account = running.stop()
            finally:
                running.kill()
            self._take(name, measured.since(job.due_s), account, interval_s)
            if account.hops:
                bytes_written = self._bytes_in(account.hops)
                report.figures[f"{name}_hop_bytes_per_record"] = round(bytes_written / len(records), 1)
            if variant != "none" and job.is_plain:
                report.add_difference(f"{name}_minus_none", name, none)
            self._tell(name, f"{job.title}, {variant}, checkpoint every {interval_s:g} s")

    def timeline(self) -> None:
        """Kill the word index with -9 while pages arrive, start it again, and record the latency of each page."""
        interval_s, total_s = self.settings.intervals_s[0], self.settings.warm_up_s + self.settings.timeline_s
        subject = self._subject(WORD_INDEX, "exactly-once", interval_s)
        records, rate = self._records(WORD_INDEX, total_s)
        running = Running(subject)
        running.await_running()
        try:
            process, results = self._measure(WORD_INDEX, subject, records, rate, 0.0)
            time.sleep(self.settings.warm_up_s + KILL_AFTER_S)
            killed_at_s = time.monotonic()
            running.kill()
            running = Running(subject)
            running.await_running()
            measured: Measured = results.get()
            process.join()
            account = running.stop()
        finally:
            running.kill()
        came = [sent + latency - killed_at_s for sent, latency in measured.points()]
        figures = {
            "recovery_s": min((at for at in came if at > 1.0), default=total_s),
            "longest_latency_s": max(measured.latencies_s, default=total_s),
            "suppressed_count": account.suppressed,
            "repeated_count": measured.repeated,
            "missing_count": measured.missing,
        }
        self.run.report.figures |= {f"word_index_kill_{name}": round(value, 3) for name, value in figures.items()}
        self.run.timeline = Timeline(points=tuple((sent - killed_at_s, s) for sent, s in measured.points()))
        self.say(
            f"word index, killed with -9: results again after {figures['recovery_s']:.1f} s; {account.suppressed:,} "
            f"replayed and suppressed, {measured.repeated} repeated, {measured.missing} missing"
        )

    def _records(self, job: Job, total_s: float) -> tuple[Records, float]:
        rate = self.settings.count_rate
        if job.records is not None:
            return job.records(int(rate * total_s), rate), rate
        if not job.is_plain:
            return timed_records(int(rate * total_s), rate, job.sources), rate
        if job is not WORD_INDEX:
            return count_records(int(rate * total_s)), rate
        number = int(self.settings.page_rate * total_s)
        return page_records(list(pages(self.settings.source)), number), self.settings.page_rate

    def _subject(self, job: Job, variant: str, interval_s: float) -> Subject:
        tag = uuid.uuid4().hex[:6]
        source, sink = f"{job.name}-{tag}", f"{job.name}-{tag}-out"
        topics = Topics(Connection.of(self.bootstrap))
        for topic in (*topics_of(job, source).values(), sink):
            topics.create(topic, PARTITIONS, {})
        return Subject(
            job=job.name,
            variant=variant,
            interval_s=interval_s,
            bootstrap=self.bootstrap,
            source=source,
            sink=sink,
            home=self.folder / f"{job.name}-{tag}",
        )

    def _measure(
        self, job: Job, subject: Subject, records: Records, rate: float, warm_up_s: float
    ) -> "tuple[BaseProcess, Queue[Any]]":
        return start_measuring(
            Measurement(
                bootstrap=self.bootstrap,
                sources=tuple(topics_of(job, subject.source).values()),
                sink=subject.sink,
                identity_field=job.identity_field,
                records=records,
                rate=rate,
                warm_up_s=warm_up_s,
            )
        )

    def _take(self, name: str, measured: Measured, account: Account, interval_s: float) -> None:
        report = self.run.report
        report.figures[f"{name}_missing_count"] = measured.missing
        report.figures[f"{name}_repeated_count"] = measured.repeated
        self.run.latencies_s[name] = measured.latencies_s
        report.add_latencies(name, measured.latencies_s)
        pauses = measured.longest_per(interval_s)
        if pauses:
            report.figures[f"{name}_pause_ms"] = round(1000 * median(pauses), 1)
        for phase, value in account.phases_ms.items():
            report.figures[f"{name}_pause_{phase}_ms"] = round(value, 1)

    def _tell(self, name: str, title: str) -> None:
        figures = self.run.report.figures
        if f"{name}_p50_ms" not in figures:
            self.say(f"{title}: no results")
            return
        behind = f"; {figures[f'{name}_missing_count']:,} missing" if figures[f"{name}_missing_count"] else ""
        self.say(f"{title}: p50 {figures[f'{name}_p50_ms']:,} ms, p99 {figures[f'{name}_p99_ms']:,} ms{behind}")

    def _bytes_in(self, hops: tuple[str, ...]) -> int:
        """Return the bytes of keys, values and headers in some topics."""
        connection, total = Connection.of(self.bootstrap), 0
        topics = Topics(connection)
        for hop in hops:
            for record in read_range(connection, hop, topics.first_positions(hop), topics.end_positions(hop)):
                header = record.header.encode() if record.header else b""
                total += len(record.value or b"") + len(record.key or b"") + len(header)
        return total


def figure_name(job: str, variant: str, interval_s: float) -> str:
    """Return the stem of the figures of one variant, for example ``keyed_count_exactly_once_10s``."""
    return f"{job}_{variant.replace('-', '_')}_{interval_s:g}s"
