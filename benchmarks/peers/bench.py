"""The bench of peers: runs the cases in alternating order, on one broker, with one input and one consumer."""

import json
import os
import queue
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from benchmarks.client import PATIENCE_S, Measured, Measurement, start_measuring
from benchmarks.job import PARTITIONS
from benchmarks.jobs import count_records
from benchmarks.peers.backlog import fill, sampled, speed
from benchmarks.peers.check import Result, true_counts, wrong_results
from benchmarks.peers.order import KINDS, SYSTEMS, Case, alternating, latency_cases, summary
from benchmarks.peers.systems import processor_s, started
from benchmarks.report import Report, percentile
from falkirk.errors import SparkError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.spark_setup import broker as local_broker


@dataclass(frozen=True, slots=True, kw_only=True)
class PeersSettings:
    """Args: kill_after_s, rest_s: seconds of load before and after a kill; 0: no case of recovery.
    backlog: number of records of a case of throughput; 0: no such case."""

    systems: tuple[str, ...] = tuple(SYSTEMS)
    kinds: tuple[str, ...] = KINDS
    intervals_s: tuple[float, ...] = (1.0, 10.0)
    rates: tuple[float, ...] = (100.0,)
    warm_up_s: float = 15.0
    window_s: float = 20.0
    repetitions: int = 3
    kill_after_s: float = 15.0
    rest_s: float = 30.0
    backlog: int = 2_000_000

    @classmethod
    def quick(cls) -> "PeersSettings":
        """Return settings for one short run of each case, to see that everything runs."""
        return cls(
            intervals_s=(1.0,), warm_up_s=6.0, window_s=4.0, repetitions=1, kill_after_s=6.0, rest_s=15.0,
            backlog=300_000,
        )  # fmt: skip

    @classmethod
    def long(cls) -> "PeersSettings":
        """Return settings with 60 s between checkpoints and 5,000 records/s too."""
        return cls(intervals_s=(1.0, 10.0, 60.0), rates=(100.0, 5000.0), warm_up_s=30.0, window_s=120.0)


def cases_of(settings: PeersSettings) -> list[Case]:
    """Return the cases of latency, recovery and throughput."""
    cases = latency_cases(settings.systems, settings.intervals_s, settings.rates)
    if settings.kill_after_s:
        cases += [
            Case(
                kind="recovery", system=system, guarantee=SYSTEMS[system][-1], interval_s=settings.intervals_s[0],
                rate=settings.rates[0],
            )
            for system in settings.systems
        ]  # fmt: skip
    if settings.backlog:  # a micro-batch gives fewer results than records, so its sink does not show its speed
        cases += [
            Case(
                kind="throughput", system=system, guarantee=SYSTEMS[system][-1], interval_s=settings.intervals_s[-1],
                rate=0.0,
            )
            for system in settings.systems
            if system != "spark-batch"
        ]  # fmt: skip
    return [case for case in cases if case.kind in settings.kinds]


def run_peers(settings: PeersSettings, say: Callable[[str], None]) -> tuple[Report, list[Case]]:
    """Measure all cases. A run that fails is a finding, and the others continue."""
    cases = cases_of(settings)
    load = os.getloadavg()[0]
    report = Report(bench="peers", settings={**asdict(settings), "load_before": load, "date": time.strftime("%F")})
    report.settings["cases"] = [asdict(case) for case in cases]
    order = alternating(cases, settings.repetitions)
    folder, runs = Path(tempfile.mkdtemp(prefix="falkirk-peers-")), dict[str, list[dict[str, float]]]()
    try:
        bootstrap = local_broker.start(folder / "broker").bootstrap
        for number, case in enumerate(order, 1):
            began_s = time.monotonic()
            say(f"{number} of {len(order)}: {case.name}")
            try:
                figures = _run(case, settings, bootstrap, folder)
            except Exception as error:  # an error of one system must not end the cases of others
                report.findings[case.name] = (str(error).splitlines() or [type(error).__name__])[0]
                say(f"  failed: {error}")
                continue
            runs.setdefault(case.name, []).append(figures)
            say("  " + ", ".join(f"{key} {value:g}" for key, value in figures.items()))
            say(f"  took {time.monotonic() - began_s:.0f} s")
    finally:
        local_broker.stop(folder / "broker")
        shutil.rmtree(folder, ignore_errors=True)
    report.figures |= summary(runs)
    return report, cases


def _run(case: Case, settings: PeersSettings, bootstrap: str, folder: Path) -> dict[str, float]:
    tag = uuid.uuid4().hex[:6]
    source, sink, home = f"records-{tag}", f"counts-{tag}", folder / tag
    for topic in (source, sink):
        Topics(Connection.of(bootstrap)).create(topic, PARTITIONS, {})
    if case.kind == "throughput":
        return _work_off(case, settings.backlog, bootstrap, source, sink, home)
    is_kill = case.kind == "recovery"
    total_s = settings.kill_after_s + settings.rest_s if is_kill else (
        settings.warm_up_s + max(settings.window_s, 2 * case.interval_s)
    )  # fmt: skip
    records = count_records(int(case.rate * total_s))
    process = None
    killed_at_s = 0.0
    system = started(case, bootstrap, source, sink, home)
    try:
        system.await_running()
        process, results = start_measuring(
            Measurement(
                bootstrap=bootstrap, sources=(source,), sink=sink, identity_field="n",
                records=records, rate=case.rate,
                warm_up_s=0.0 if is_kill else settings.warm_up_s,
                silence_s=3.0 if case.system == "spark-batch" else 30.0,
            )
        )  # fmt: skip
        if is_kill:
            time.sleep(settings.kill_after_s)
            killed_at_s = time.monotonic()
            system.kill()
            system = started(case, bootstrap, source, sink, home)
            system.await_running()
        measured: Any = _answer(results, total_s)
    finally:
        system.kill()
        if process is not None:
            process.kill()
            process.join()
    counts = true_counts(records)
    return {**figures_of(measured, killed_at_s), "wrong": wrong_results(_published(bootstrap, sink), counts)}


def _answer(results: Any, total_s: float) -> Any:
    try:
        return results.get(timeout=total_s + PATIENCE_S + 60.0)
    except queue.Empty as error:
        raise SparkError(
            "BENCH_INCOMPLETE", "the measuring client gave no answer.", hint="Read its output above for the cause."
        ) from error


def _work_off(case: Case, number: int, bootstrap: str, source: str, sink: str, home: Path) -> dict[str, float]:
    records = count_records(number)
    fill(bootstrap, source, records)
    system = started(case, bootstrap, source, sink, home)
    try:
        system.await_running()
        figures = speed(sampled(bootstrap, sink, number, lambda: processor_s(system)))
    finally:
        system.kill()
    results = list(_published(bootstrap, sink, "read_uncommitted"))  # a last transaction may be open
    different = len({identity for identity, _ in results})
    wrong = wrong_results(results, true_counts(records))
    return {**figures, "missing": number - different, "repeated": len(results) - different, "wrong": wrong}


def _published(bootstrap: str, sink: str, isolation: str = "read_committed") -> Iterator[Result]:
    """Yield each result, until the sink's end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-check",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(sink, partition, 0) for partition in range(PARTITIONS)])
    ended: set[int | None] = set()
    try:
        while len(ended) < PARTITIONS:
            message = consumer.poll(10.0)
            if message is None:
                break
            if message.error() is not None:
                ended.add(message.partition())
                continue
            row = json.loads(message.value() or b"{}")
            yield str(row.get("n")), int(row.get("version", 0))
    finally:
        consumer.close()


def figures_of(measured: Measured, killed_at_s: float) -> dict[str, float]:
    """Return the figures of a run. Args: killed_at_s: on the monotonic clock; 0: there was no kill.

    The time to recover ends with the first result of a record that was sent after the kill.
    """
    figures: dict[str, float] = {"missing": measured.missing, "repeated": measured.repeated}
    if killed_at_s:
        came = [sent + late - killed_at_s for sent, late in measured.points() if sent > killed_at_s]
        if came:
            figures["recovery_s"] = round(min(came), 3)
        return figures
    ordered = sorted(measured.latencies_s)
    for name, point in (("p50", 50.0), ("p95", 95.0), ("p99", 99.0), ("max", 100.0)) if ordered else ():
        figures[f"{name}_ms"] = round(1000 * percentile(ordered, point), 2)
    return figures
