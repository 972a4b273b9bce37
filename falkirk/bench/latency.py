"""`falkirk bench latency`: what exactly-once costs in latency, against the same job without it, in one run.

The experiment of Delivery, consistency, and determinism, §VI: keyed count at 100 records/s and the word index at 50
pages/s, with checkpoints every 10, 30 and 60 s. The variants of the keyed count run side by side at the same time,
so the machine's drift falls on all of them alike; those of the word index, which load the machine, run in turn.
"""

import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from falkirk.bench.client import Measured, Measurement, start_measuring
from falkirk.bench.jobs import KEYED_COUNT, WORD_INDEX, Job, Records, application, count_records, page_records, plain
from falkirk.bench.report import Report
from falkirk.demo.pages import pages
from falkirk.errors import SparkError
from falkirk.local import broker as local_broker
from falkirk.local.spark import session as spark_session
from falkirk.logs.connection import Connection
from falkirk.logs.ranges import read_range
from falkirk.logs.topics import Topics
from falkirk.policy import Delivery
from falkirk.query import Query, run_here

VARIANTS = ("none", "repeated", "exactly-once")
PARTITIONS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySettings:
    """What is measured: intervals and times in seconds, rates per second. `source`: text for the word index."""

    intervals_s: tuple[float, ...] = (10.0, 30.0, 60.0)
    count_rate: float = 100.0
    page_rate: float = 50.0
    warm_up_s: float = 40.0
    window_s: float = 120.0
    source: Path | None = None

    @classmethod
    def quick(cls, source: Path | None) -> "LatencySettings":
        """Return settings that take less than four minutes in all."""
        return cls(intervals_s=(10.0,), warm_up_s=15.0, window_s=25.0, source=source)


def run_latency(settings: LatencySettings, say: Callable[[str], None]) -> Report:
    """Measure, and return the report. `say` takes a line of progress at a time."""
    report = Report(
        bench="latency",
        settings={
            "intervals_s": list(settings.intervals_s),
            "count_rate_per_s": settings.count_rate,
            "page_rate_per_s": settings.page_rate,
            "warm_up_s": settings.warm_up_s,
            "window_s": settings.window_s,
            "input": settings.source.name if settings.source else "docstrings",
        },
    )
    folder = Path(tempfile.mkdtemp(prefix="falkirk-bench-"))
    bootstrap = local_broker.start(folder / "broker").bootstrap
    session = spark_session("falkirk-bench", master="local[24]", state_partitions=PARTITIONS)
    bench = _Bench(settings=settings, bootstrap=bootstrap, session=session, folder=folder, report=report, say=say)
    try:
        for interval_s in settings.intervals_s:
            bench.keyed_count(interval_s)
            bench.word_index(interval_s)
    finally:
        session.stop()
        local_broker.stop(folder / "broker")
    return report


@dataclass(frozen=True, kw_only=True)
class _Bench:
    settings: LatencySettings
    bootstrap: str
    session: SparkSession
    folder: Path
    report: Report
    say: Callable[[str], None]

    def keyed_count(self, interval_s: float) -> None:
        """Measure the variants of the keyed count side by side."""
        total_s = self.settings.warm_up_s + self.settings.window_s
        self.say(f"keyed count, checkpoint every {interval_s:g} s: three variants side by side for {total_s:g} s")
        records = count_records(int(self.settings.count_rate * total_s))
        runs = [self._start(KEYED_COUNT, variant, interval_s) for variant in VARIANTS]
        clients = [self._measure(KEYED_COUNT, run, records, self.settings.count_rate) for run in runs]
        for variant, run, (process, results) in zip(VARIANTS, runs, clients, strict=True):
            self._take(KEYED_COUNT, variant, interval_s, results.get(timeout=total_s + 120))
            process.join()
            run.stop()
        self._compare(KEYED_COUNT, interval_s)

    def word_index(self, interval_s: float) -> None:
        """Measure the variants of the word index one after the other."""
        total_s = self.settings.warm_up_s + self.settings.window_s
        known = list(pages(self.settings.source))
        records = page_records(known, int(self.settings.page_rate * total_s))
        for variant in VARIANTS:
            self.say(f"word index, {variant}, checkpoint every {interval_s:g} s: {total_s:g} s")
            run = self._start(WORD_INDEX, variant, interval_s)
            process, results = self._measure(WORD_INDEX, run, records, self.settings.page_rate)
            self._take(WORD_INDEX, variant, interval_s, results.get(timeout=total_s + 240))
            process.join()
            run.stop()
            if variant == "exactly-once":
                hop_bytes = run.hop_bytes(self.bootstrap)
                self.report.figures[f"word_index_{interval_s:g}s_hop_bytes_per_page"] = round(
                    hop_bytes / len(records), 1
                )
        self._compare(WORD_INDEX, interval_s)

    def _start(self, job: Job, variant: str, interval_s: float) -> "_Run":
        tag = uuid.uuid4().hex[:6]
        source, sink = f"{job.name}-{tag}", f"{job.name}-{tag}-out"
        topics = Topics(Connection.of(self.bootstrap))
        for topic in (source, sink):
            topics.create(topic, PARTITIONS, {})
        home = self.folder / f"{job.name}-{tag}"
        if variant == "none":
            query = plain(job, self.session, self.bootstrap, source, sink, interval_s, home)
            return _Run(source=source, sink=sink, query=query)
        app = application(job, source, sink, Delivery(variant), interval_s, home)
        return _Run(source=source, sink=sink, query=run_here(app, Connection.of(self.bootstrap)))

    def _measure(self, job: Job, run: "_Run", records: Records, rate: float) -> Any:
        return start_measuring(
            Measurement(
                bootstrap=self.bootstrap,
                source=run.source,
                sink=run.sink,
                identity_field=job.identity_field,
                records=records,
                rate=rate,
                warm_up_s=self.settings.warm_up_s,
            )
        )

    def _take(self, job: Job, variant: str, interval_s: float, measured: Measured) -> None:
        if measured.missing:
            raise SparkError(
                "BENCH_INCOMPLETE",
                f"{job.name}, {variant}: {measured.missing} records did not come out.",
                hint="The machine may be too slow for the rate; the figures would mean nothing.",
                missing=measured.missing,
            )
        self.report.add_latencies(figure_name(job.name, variant, interval_s), measured.latencies_s)

    def _compare(self, job: Job, interval_s: float) -> None:
        none = figure_name(job.name, "none", interval_s)
        for variant in VARIANTS[1:]:
            one = figure_name(job.name, variant, interval_s)
            self.report.add_difference(f"{one}_minus_none", one, none)


def figure_name(job: str, variant: str, interval_s: float) -> str:
    """Return the stem of the figures of one variant, such as ``keyed_count_exactly_once_10s``."""
    return f"{job}_{variant.replace('-', '_')}_{interval_s:g}s"


@dataclass(frozen=True, kw_only=True)
class _Run:
    source: str
    sink: str
    query: Any

    def stop(self) -> None:
        self.query.stop()

    def hop_bytes(self, bootstrap: str) -> int:
        """Return the bytes of keys, values and headers that the run has written to its hops."""
        if not isinstance(self.query, Query):
            return 0
        topics, total = Topics(Connection.of(bootstrap)), 0
        for hop in self.query.hops:
            first, last = topics.first_positions(hop), topics.end_positions(hop)
            for record in read_range(Connection.of(bootstrap), hop, first, last):
                header = record.header.encode() if record.header else b""
                total += len(record.value or b"") + len(record.key or b"") + len(header)
        return total
