"""Regimes bench: runs one input under each policy, to help with the choice (`python -m benchmarks regimes`).

It measures latency, throughput, durable bytes, and the cost of a kill -9. The regimes run one after the other, each in
a separate JVM. Their results differ: an ephemeral region has no state, so it only passes records on; a lazy one has a
running count; the others count the new records of each epoch.
"""

import shutil
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from rich.table import Table

from benchmarks.child import Child, serve_application
from benchmarks.durable import Durable
from benchmarks.jobs import KEYED_COUNT, application
from benchmarks.kills import answered, incomplete, kill_under_load
from benchmarks.pairs import add_batch
from benchmarks.probe import Probe, Window
from benchmarks.report import Report
from falkirk.app import App
from falkirk.declare.cut import ByClock, OnArrival, records_between
from falkirk.declare.endpoints import Kafka
from falkirk.declare.policy import Delivery, Eager, Ephemeral, FullHistory, LogSends, Policy
from falkirk.declare.stream import Stream, source_node
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.recovery.ownership.folder import attach_home
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.spark_setup import broker as local_broker
from falkirk.theory.ids import LogId

REGIMES = ("ephemeral", "lazy", "eager", "log_sends", "full_history")
_EPOCHS: dict[str, Policy] = {"eager": Eager(), "log_sends": LogSends(), "full_history": FullHistory()}
PARTITIONS = 2
BURSTS_WARMING = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RegimesSettings:
    """The settings: times in seconds, rates per second.

    Args: interval_s: between checkpoints of live regions. every_s: between epochs of batches. kill_after_s: of steady
        load, which is not counted. after_kill_s: of load after the kill.
    """

    regimes: tuple[str, ...] = REGIMES
    rate: float = 200.0
    warm_up_s: float = 40.0
    window_s: float = 40.0
    interval_s: float = 10.0
    every_s: float = 5.0
    bursts: int = 3
    burst_records: int = 200_000
    kill_after_s: float = 12.0
    after_kill_s: float = 20.0

    @classmethod
    def quick(cls) -> "RegimesSettings":
        """Return settings that take about five minutes."""
        return cls(
            warm_up_s=8.0, window_s=10.0, interval_s=5.0, every_s=2.0, bursts=1, burst_records=50_000, kill_after_s=6.0,
            after_kill_s=8.0,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """A subject: a regime by name, topics, a home, and its intervals."""

    name: str
    bootstrap: str
    source: str
    sink: str
    home: Path
    interval_s: float
    every_s: float

    @property
    def each(self) -> bool:
        """Whether every record has a separate result."""
        return self.name not in _EPOCHS

    def application(self) -> App:
        """Return the application."""
        if self.name == "lazy":
            return application(KEYED_COUNT, self.source, self.sink, Delivery.EXACTLY_ONCE, self.interval_s, self.home)
        app = App("bench-regime", home=self.home)
        if self.name == "ephemeral":
            app.sources["records"] = source_node("records", Kafka(self.source, schema=KEYED_COUNT.schema, key="word"))
            app.add_processor("passed", _passed, reads=("records",), policy=Ephemeral())
            app.sink("passed", "passed", Kafka(self.sink, key="word"))
            return app
        cut = OnArrival() if self.name == "eager" else ByClock(every_s=self.every_s)
        add_batch(app, "records", self.source, self.sink, cut, _EPOCHS[self.name])
        return app

    def cut_off(self) -> int:
        """Return the number of records in epochs that were cut but not completed. Call it while the subject is down."""
        if self.each:
            return 0
        app = self.application()
        (batch,) = app.processors
        home = attach_home(self.home, app.name)
        try:
            log = EpochLog(LogId.of_epochs(batch), batch, home.data_of(batch), home.store)
            return sum(records_between(e.first, e.last) for e in log.epochs() if not e.is_complete)
        finally:
            home.close()


def _passed(records: Stream) -> Stream:
    return records.select("word", "n")


class RunningRegime(Child):
    """A started regime. Its account is the number of results that it computed again and suppressed."""

    def __init__(self, regime: Regime) -> None:
        super().__init__(serve_application, regime, regime.name)


def run_regimes(settings: RegimesSettings, say: Callable[[str], None]) -> Report:
    """Measure, and return the report. Args: say: receives one line of progress at a time.

    Raises: SparkError: `BENCH_INCOMPLETE`: a regime failed, or did not answer all records.
    """
    report = Report(bench="regimes", settings=asdict(settings))
    folder = Path(tempfile.mkdtemp(prefix="falkirk-bench-"))
    try:
        bootstrap = local_broker.start(folder / "broker").bootstrap
        for name in settings.regimes:
            _measure(_regime(name, settings, bootstrap, folder), settings, report)
            figures = {n.removeprefix(f"{name}_"): v for n, v in report.figures.items() if n.startswith(f"{name}_")}
            say(
                f"{name}: p50 {figures['p50_ms']:,} ms, {figures['records_per_s']:,.0f} records/s; killed with -9, "
                f"results again after {figures['recovery_s']:.1f} s, {figures['redone_count']:,} records done again"
            )
        return report
    finally:
        local_broker.stop(folder / "broker")
        shutil.rmtree(folder, ignore_errors=True)


def _regime(name: str, settings: RegimesSettings, bootstrap: str, folder: Path) -> Regime:
    tag, topics = f"{name}-{uuid.uuid4().hex[:6]}", Topics(Connection.of(bootstrap))
    for topic in (tag, f"{tag}-out"):
        topics.create(topic, PARTITIONS, {})
    return Regime(
        name=name,
        bootstrap=bootstrap,
        source=tag,
        sink=f"{tag}-out",
        home=folder / tag,
        interval_s=settings.interval_s,
        every_s=settings.every_s,
    )


def _measure(regime: Regime, settings: RegimesSettings, report: Report) -> None:
    running = RunningRegime(regime)
    probe = Probe(regime.bootstrap, regime.source, regime.sink, each=regime.each)
    try:
        running.await_running()
        _steady(regime, probe, settings.rate, settings.warm_up_s)
        for _ in range(BURSTS_WARMING):
            _burst(regime, probe, settings.burst_records)
        with Durable(regime.home) as durable:
            window = _steady(regime, probe, settings.rate, settings.window_s)
        report.add_latencies(regime.name, window.latencies_s)
        throughput = median(_burst(regime, probe, settings.burst_records) for _ in range(settings.bursts))
        running = _kill(regime, probe, running, settings, report)
        suppressed, beyond = running.stop(), probe.results_beyond()
    finally:
        running.kill()
        probe.close()
    name, figures = regime.name, report.figures
    figures[f"{name}_records_per_s"] = round(throughput, 1)
    figures[f"{name}_durable_bytes_per_record"] = round(durable.bytes_made / len(window.latencies_s), 1)
    figures[f"{name}_redone_count"] += suppressed
    figures[f"{name}_results_beyond_count"] = beyond


def _kill(
    regime: Regime, probe: Probe, running: RunningRegime, settings: RegimesSettings, report: Report
) -> RunningRegime:
    """Kill a regime with -9 under steady load, and start it again at once. Return the new one."""
    cut_off: list[int] = []

    def start() -> RunningRegime:
        cut_off.append(regime.cut_off())
        return RunningRegime(regime)

    again, killed = kill_under_load(
        running, start, probe, settings.rate, before_s=settings.kill_after_s, after_s=settings.after_kill_s
    )
    report.figures |= {
        f"{regime.name}_recovery_s": round(killed.recovery_s, 3),
        f"{regime.name}_kill_longest_latency_s": round(killed.longest_s, 3),
        f"{regime.name}_redone_count": cut_off[0],
    }
    return again


def _steady(regime: Regime, probe: Probe, rate: float, seconds: float) -> Window:
    return answered(probe.steady(rate, seconds), regime.name)


def _burst(regime: Regime, probe: Probe, records: int) -> float:
    burst = probe.burst(records)
    if burst is None:
        raise incomplete(regime.name, records)
    return burst.records / burst.since_first_s


def regimes_table(report: Report) -> Table:
    """Return a table with one line per regime."""
    columns = {
        "p50_ms": "p50, ms",
        "p99_ms": "p99, ms",
        "records_per_s": "records/s",
        "durable_bytes_per_record": "durable bytes a record",
        "recovery_s": "results again, s",
        "kill_longest_latency_s": "longest latency, s",
        "redone_count": "done again",
    }
    table = Table(title="regimes", title_justify="left")
    for title in ("", *columns.values()):
        table.add_column(title, justify="right" if title else "left")
    for name in REGIMES:
        if f"{name}_p50_ms" in report.figures:
            table.add_row(name, *[f"{report.figures[f'{name}_{c}']:,.1f}" for c in columns])
    return table
