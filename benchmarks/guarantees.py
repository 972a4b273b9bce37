"""Guarantees bench: runs one job under each mechanism of the papers (`python -m benchmarks guarantees`).

It measures latency, throughput, durable bytes and the cost of a kill -9, and the checker judges the results. Each
mechanism must also show its signature, or the bench did not measure the mechanism that it names; the bench checks that.
The mechanisms run one after the other, each in a separate JVM.
"""

import json
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from benchmarks.durable import Durable
from benchmarks.kills import Killed, answered, incomplete, kill_under_load
from benchmarks.mechanisms import MECHANISMS, RunningSubject, Subject, is_expected, judge
from benchmarks.probe import LOOK_S, Probe
from benchmarks.report import Report
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.plan.shape import read_shape
from falkirk.runtime.spark.live.checkpoint import committed_at_s, last_committed_batch
from falkirk.spark_setup import broker as local_broker
from falkirk.theory.ids import LogId

PARTITIONS = 2
#: The number of letters in each record.
TEXT = 500
#: The limit between latencies: determinism answers faster than this, on a busy machine too, and a batch slower.
ON_ARRIVAL_MS = 100.0
#: From a checkpoint until its results are in the sink: the coordinator looks each half second, then a Spark job runs.
COPYING_S = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class GuaranteesSettings:
    """The settings: times in seconds, rates per second.

    Args: interval_s: between checkpoints of live regions. every_s: between epochs of batches. kill_after_s: of steady
        load, which is not counted; then the bench waits for a moment between two checkpoints. after_kill_s: of load
        after the kill.
    """

    mechanisms: tuple[str, ...] = MECHANISMS
    job: str = "count"
    rate: float = 200.0
    warm_up_s: float = 30.0
    window_s: float = 40.0
    interval_s: float = 10.0
    every_s: float = 5.0
    burst_records: int = 50_000
    kill_after_s: float = 13.0
    after_kill_s: float = 20.0

    @classmethod
    def quick(cls) -> "GuaranteesSettings":
        """Return settings that take less than eight minutes."""
        return cls(
            warm_up_s=8.0, window_s=8.0, interval_s=4.0, every_s=2.0, burst_records=5_000, kill_after_s=6.0,
            after_kill_s=7.0,
        )  # fmt: skip


def run_guarantees(settings: GuaranteesSettings, say: Callable[[str], None]) -> Report:
    """Measure, and return the report. Args: say: receives one line of progress at a time.

    Raises: SparkError: `BENCH_INCOMPLETE`: a subject failed, or did not answer all records.
    """
    report = Report(bench="guarantees", settings=asdict(settings))
    folder = Path(tempfile.mkdtemp(prefix="falkirk-bench-"))
    try:
        bootstrap = local_broker.start(folder / "broker").bootstrap
        for name in settings.mechanisms:
            subject = _subject(name, settings, bootstrap, folder)
            _measure(subject, settings, report, folder / "broker")
            say(f"{name}: {report.findings[f'{name}_verdict']}; {report.findings[f'{name}_signature']}")
        return report
    finally:
        local_broker.stop(folder / "broker")
        shutil.rmtree(folder, ignore_errors=True)


def _subject(name: str, settings: GuaranteesSettings, bootstrap: str, folder: Path) -> Subject:
    tag, topics = f"{name.replace('_', '-')}-{uuid.uuid4().hex[:6]}", Topics(Connection.of(bootstrap))
    for topic in (tag, f"{tag}-out"):
        topics.create(topic, PARTITIONS, {})
    return Subject(
        mechanism=name, job=settings.job, bootstrap=bootstrap, source=tag, sink=f"{tag}-out", home=folder / tag,
        interval_s=settings.interval_s, every_s=settings.every_s,
    )  # fmt: skip


def _measure(subject: Subject, settings: GuaranteesSettings, report: Report, broker: Path) -> None:
    name, figures = subject.mechanism, report.figures
    running = RunningSubject(subject)
    probe = Probe(subject.bootstrap, subject.source, subject.sink, each=True, text=TEXT)
    try:
        running.await_running()
        answered(probe.steady(settings.rate, settings.warm_up_s), running.label)
        _burst(probe, settings, running.label)
        with Durable(subject.home, *_logs(subject.home, broker)) as durable:
            window = answered(probe.steady(settings.rate, settings.window_s), running.label)
        throughput = _burst(probe, settings, running.label)
        running, killed = kill_under_load(
            running, lambda: RunningSubject(subject), probe, settings.rate,
            before_s=settings.kill_after_s, after_s=settings.after_kill_s, await_moment=lambda: _amid(subject),
        )  # fmt: skip
        figures[f"{name}_held_back_count"] = running.stop()
    finally:
        running.kill()
        probe.close()
    report.add_latencies(name, window.latencies_s)
    figures[f"{name}_records_per_s"] = round(throughput, 1)
    figures[f"{name}_durable_bytes_per_record"] = round(durable.bytes_made / len(window.latencies_s), 1)
    _judge(subject, killed, report)


def _burst(probe: Probe, settings: GuaranteesSettings, label: str) -> float:
    burst = probe.burst(settings.burst_records)
    if burst is None:
        raise incomplete(label, settings.burst_records)
    return burst.records / burst.since_first_s


def _logs(home: Path, broker: Path) -> list[Path]:
    """Return the folders in which the broker stores the application's internal logs."""
    identity = json.loads((home / "falkirk.json").read_text())["identity"]
    return [path for path in broker.rglob(f"falkirk.*.{identity}.*") if path.is_dir()]


def _amid(subject: Subject) -> None:
    """Wait for a moment between two checkpoints of the source's reader, so that every mechanism can lose results."""
    shape = read_shape(subject.home)
    assert shape is not None, "it has run"
    (reader,) = shape.layout.readers(LogId(subject.source))
    folder, until_s = subject.home / "regions" / reader.name, time.monotonic() + 1.5 * subject.interval_s
    while time.monotonic() < until_s and (last := last_committed_batch(folder)) >= 0:
        if 0.4 <= (time.time() - committed_at_s(folder, last)) / subject.interval_s <= 0.8:
            return
        time.sleep(LOOK_S)


def _judge(subject: Subject, killed: Killed, report: Report) -> None:
    name, figures = subject.mechanism, report.figures
    verdict, processed = judge(subject)
    counts = verdict.counts
    figures |= {
        f"{name}_recovery_s": round(killed.recovery_s, 3),
        f"{name}_kill_longest_latency_s": round(killed.longest_s, 3),
        f"{name}_processed_bytes_per_record": round(processed / counts.inputs, 1),
        f"{name}_repeated_count": counts.observed_outputs - counts.inputs,
        f"{name}_lost_count": counts.lost,
    }
    report.findings[f"{name}_verdict"] = verdict.guarantee.value
    mine = {figure.removeprefix(f"{name}_"): value for figure, value in figures.items() if figure.startswith(name)}
    text, shows = signature(name, mine, interval_s=subject.interval_s, every_s=subject.every_s)
    shows = shows and is_expected(name, verdict)
    report.findings[f"{name}_signature"] = f"{text}: {'seen' if shows else 'NOT seen'}"
    figures[f"{name}_signature_seen"] = int(shows)


def signature(name: str, found: Mapping[str, float], *, interval_s: float, every_s: float) -> tuple[str, bool]:
    """Return a mechanism's signature with its figures, and whether it shows. The verdict is checked separately.

    Args: found: the mechanism's figures.
    """
    p50_ms, durable, processed = (
        found.get(figure, 0.0) for figure in ("p50_ms", "durable_bytes_per_record", "processed_bytes_per_record")
    )
    if name == "determinism":
        text = f"p50 of {p50_ms:,.1f} ms is on arrival, {durable:,.0f} bytes made durable of {processed:,.0f} processed"
        return text, p50_ms < ON_ARRIVAL_MS and durable < processed
    if name == "snapshots":
        half_s = interval_s / 2
        return (
            f"p50 of {p50_ms / 1000:.1f} s is about half of {interval_s:g} s",
            0.8 * half_s <= p50_ms / 1000 <= 1.2 * half_s + COPYING_S,
        )
    if name == "strong_productions":
        return f"{durable:,.0f} bytes made durable of {processed:,.0f} processed", durable >= processed
    if name == "acknowledgements":
        repeated = found["repeated_count"]
        return f"{repeated:,.0f} results repeated after the kill", repeated > 0 and not found["lost_count"]
    if name == "micro_batches":
        return f"p50 of {p50_ms:,.0f} ms is that of a batch", p50_ms >= ON_ARRIVAL_MS
    return f"p50 of {p50_ms / 1000:.1f} s is at least half of {every_s:g} s", p50_ms / 1000 >= 0.8 * every_s / 2


def guarantees_table(report: Report) -> Table:
    """Return a table with one line per mechanism: durable bytes per record, seconds from the kill until the next
    results, the number of repeated results, and others."""
    columns = {
        "p50_ms": "p50 ms",
        "p99_ms": "p99 ms",
        "records_per_s": "rec/s",
        "durable_bytes_per_record": "bytes",
        "recovery_s": "again s",
        "repeated_count": "twice",
    }
    table = Table(title=f"guarantees: {report.settings['job']}", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for title in ("", *columns.values()):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    table.add_column("verdict")
    for name in MECHANISMS:
        if f"{name}_p50_ms" in report.figures:
            cells = [_short(report.figures[f"{name}_{c}"]) for c in columns]
            table.add_row(name.replace("_", " "), *cells, report.findings[f"{name}_verdict"])
    return table


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def all_seen(report: Report) -> bool:
    """Return whether each measured mechanism has shown its signature."""
    return all(value for name, value in report.figures.items() if name.endswith("_signature_seen"))
