"""Overhead bench: runs the same jobs in plain Spark and with Falkirk, in pairs, and gives ratios.

Both sides of a pair run at the same time, each in a separate JVM, and receive the load in turns. So other work on the
machine affects both, and both are equally warm. A side without load uses about a seventh of a processor, with or
without Falkirk. The spread over the rounds, of the ratio and of the plain side alone, shows how reliable a ratio is.
"""

import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from confluent_kafka import Producer
from rich.table import Table

from benchmarks.pairs import PAIRS, RunningSide, Side
from benchmarks.probe import Probe, Window
from benchmarks.report import Report, percentile
from falkirk.errors import SparkError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.spark_setup import broker as local_broker

PARTITIONS = 2
SIDES = ("plain", "falkirk")
#: The measures, with the limit of the ratio.
MEASURES = {"p50_ms": 1.05, "p99_ms": 1.05, "records_per_s": 0.98}
#: Seconds between two turns, in which the other side completes its work.
SETTLE_S = 1.0
BURSTS_WARMING = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadSettings:
    """The settings: times in seconds, rates per second.

    Args: warm_up_s: of each side, before the rounds. window_s: of steady load, per side and round. burst_records: sent
        at once, per side and round; for the batch, one epoch. live_burst_records: the same for live pairs; the burst is
        so large that a checkpoint in it matters little. facts_rate: the input rate of the batch beside the live part.
    """

    pairs: tuple[str, ...] = PAIRS
    rounds: int = 6
    warm_up_s: float = 40.0
    window_s: float = 20.0
    interval_s: float = 10.0
    rate: float = 200.0
    burst_records: int = 200_000
    live_burst_records: int = 1_000_000
    facts_rate: float = 2_000.0

    @classmethod
    def quick(cls) -> "OverheadSettings":
        """Return settings that take about five minutes."""
        return cls(
            rounds=2, warm_up_s=10.0, window_s=10.0, interval_s=5.0, burst_records=50_000, live_burst_records=100_000
        )


@dataclass(kw_only=True)
class OverheadRun:
    """The results of the bench. Args: values: by pair, side and measure, one value per round."""

    report: Report
    values: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)

    def ratios(self, pair: str, measure: str) -> list[float]:
        """Return Falkirk's value divided by plain Spark's, for each round."""
        plain, falkirk = (self.values.get((pair, side, measure), []) for side in SIDES)
        return [f / p for f, p in zip(falkirk, plain, strict=True)]


def run_overhead(settings: OverheadSettings, say: Callable[[str], None]) -> OverheadRun:
    """Measure, and return the results. Args: say: receives one line of progress at a time.

    Raises: SparkError: `BENCH_INCOMPLETE`: a side failed, or did not answer all records.
    """
    run = OverheadRun(report=Report(bench="overhead", settings=asdict(settings)))
    folder = Path(tempfile.mkdtemp(prefix="falkirk-bench-"))
    try:
        bootstrap = local_broker.start(folder / "broker").bootstrap
        for pair in settings.pairs:
            _Pair(pair, settings, bootstrap, folder, run, say).measure()
        return run
    finally:
        local_broker.stop(folder / "broker")
        shutil.rmtree(folder, ignore_errors=True)


class _Pair:
    """One pair, with its topics and measurements."""

    def __init__(
        self, name: str, settings: OverheadSettings, bootstrap: str, folder: Path, run: OverheadRun,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._name, self._settings, self._bootstrap, self._folder = name, settings, bootstrap, folder
        self._run, self._say = run, say
        self._latencies_s: dict[str, list[float]] = {side: [] for side in SIDES}
        self._sides = {side: self._side(side) for side in SIDES}

    @property
    def _is_live(self) -> bool:
        return self._name in ("live", "beside")

    def _side(self, side: str) -> Side:
        tag = f"{self._name}-{side}-{uuid.uuid4().hex[:6]}"
        topics = Topics(Connection.of(self._bootstrap))
        names = {name: f"{tag}-{name}" for name in ("source", "sink", "facts", "tallies")}
        for topic in names.values():
            topics.create(topic, PARTITIONS, {})
        return Side(
            pair=self._name,
            falkirk=side == "falkirk",
            bootstrap=self._bootstrap,
            home=self._folder / tag,
            interval_s=self._settings.interval_s,
            records=self._settings.burst_records,
            **names,
        )

    def measure(self) -> None:
        """Start both sides, warm them up, and send them the load in turns."""
        settings, running, probes = self._settings, [], {}
        try:
            for side in SIDES:
                running.append(RunningSide(self._sides[side]))
                running[-1].await_running()
                it = self._sides[side]
                probes[side] = Probe(self._bootstrap, it.source, it.sink, each=self._is_live)
            self._say(f"{self._name}: both sides run; warming up")
            for side in SIDES:
                with self._beside(side):
                    if self._name != "batch":
                        self._steady(probes[side], settings.warm_up_s)
                    for _ in range(BURSTS_WARMING):
                        self._burst(probes[side])
            for number in range(settings.rounds):
                for side in SIDES if number % 2 == 0 else reversed(SIDES):
                    time.sleep(SETTLE_S)
                    with self._beside(side):
                        self._take_turn(side, probes[side])
                self._tell(number)
            for each_side in running:
                each_side.stop()
        finally:
            for each_side in running:
                each_side.kill()
            for probe in probes.values():
                probe.close()
        self._report()

    def _take_turn(self, side: str, probe: Probe) -> None:
        if self._name != "batch":
            ordered = sorted(self._steady(probe, self._settings.window_s).latencies_s)
            self._latencies_s[side] += ordered
            self._note(side, "p50_ms", 1000 * percentile(ordered, 50.0))
            self._note(side, "p99_ms", 1000 * percentile(ordered, 99.0))
        self._note(side, "records_per_s", self._burst(probe))

    def _steady(self, probe: Probe, seconds: float) -> Window:
        window = probe.steady(self._settings.rate, seconds)
        if window.missing or not window.latencies_s:
            raise _incomplete(self._name, window.missing)
        return window

    def _burst(self, probe: Probe) -> float:
        """Return the answered records per second; for a batch, from the moment when its whole epoch was sent."""
        records = self._settings.live_burst_records if self._is_live else self._settings.burst_records
        burst = probe.burst(records)
        if burst is None:
            raise _incomplete(self._name, records)
        return burst.records / (burst.since_there_s if self._name == "batch" else burst.since_first_s)

    @contextmanager
    def _beside(self, side: str) -> Iterator[None]:
        """Send input to the batch beside the live part, if there is one."""
        if self._name != "beside":
            yield
            return
        done = threading.Event()
        arguments = (self._bootstrap, self._sides[side].facts, self._settings.facts_rate, done)
        sender = threading.Thread(target=_send, args=arguments, daemon=True)
        sender.start()
        try:
            yield
        finally:
            done.set()
            sender.join()

    def _note(self, side: str, measure: str, value: float) -> None:
        self._run.values.setdefault((self._name, side, measure), []).append(value)

    def _tell(self, number: int) -> None:
        found = []
        for measure, label in (("p50_ms", "median {:,.1f} and {:,.1f} ms"), ("records_per_s", "{:,.0f} and {:,.0f}/s")):
            last = [self._run.values.get((self._name, side, measure), [])[-1:] for side in SIDES]
            if all(last):
                found.append(label.format(*(value for (value,) in last)))
        self._say(f"{self._name}, round {number + 1} of {self._settings.rounds}, plain and Falkirk: {'; '.join(found)}")

    def _report(self) -> None:
        report = self._run.report
        for side in SIDES:
            if self._latencies_s[side]:
                report.add_latencies(f"{self._name}_{side}", self._latencies_s[side])
        for measure in MEASURES:
            ratios = self._run.ratios(self._name, measure)
            if not ratios:
                continue
            plain = self._run.values[self._name, "plain", measure]
            name, short = self._name, measure.rpartition("_")[0] if measure.endswith("_ms") else "throughput"
            if short == "throughput":
                for side in SIDES:
                    found = median(self._run.values[name, side, measure])
                    report.figures[f"{name}_{side}_records_per_s"] = round(found, 1)
            report.figures[f"{name}_{short}_ratio"] = round(median(ratios), 4)
            report.figures[f"{name}_{short}_ratio_min"] = round(min(ratios), 4)
            report.figures[f"{name}_{short}_ratio_max"] = round(max(ratios), 4)
            report.figures[f"{name}_{short}_plain_spread"] = round(max(plain) / min(plain), 4)


def _send(bootstrap: str, topic: str, rate: float, done: threading.Event) -> None:
    """Send records at a rate, every tenth of a second, until `done` is set."""
    producer, sent = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0}), 0
    while not done.wait(0.1):
        for _ in range(int(rate / 10)):
            producer.produce(topic, key=f"w{sent % 40}", value=f'{{"word": "w{sent % 40}", "n": {sent}}}')
            sent += 1
        producer.poll(0)
    producer.flush()


def _incomplete(pair: str, missing: int) -> SparkError:
    return SparkError(
        "BENCH_INCOMPLETE",
        f"{pair}: {missing:,} records were not answered.",
        hint="Read its output above for the cause.",
    )


def overhead_table(run: OverheadRun, pairs: Sequence[str]) -> Table:
    """Return a table of both sides of each pair, with the median, least and greatest ratio. A ratio is within the limit
    if it is so in each round, and unclear if the rounds disagree."""
    table = Table(title="overhead: plain Spark and Falkirk", title_justify="left")
    for column in ("", "plain", "Falkirk", "ratio", "least", "greatest", "alone", "within"):
        table.add_column(column, justify="right" if column else "left", no_wrap=not column)
    for pair in pairs:
        for measure, bound in MEASURES.items():
            ratios = run.ratios(pair, measure)
            if not ratios:
                continue
            plain, falkirk = (run.values[pair, side, measure] for side in SIDES)
            ratio = median(ratios)
            within = {r <= bound if bound > 1 else r >= bound for r in ratios}
            verdict = "unclear" if len(within) > 1 else "yes" if within == {True} else "no"
            cells = (f"{median(plain):,.1f}", f"{median(falkirk):,.1f}", f"{ratio:.3f}", f"{min(ratios):.3f}")
            spread = max(plain) / min(plain)
            name = measure.replace("_", " ", 1).replace("records per_s", "records/s")
            table.add_row(f"{pair}, {name}", *cells, f"{max(ratios):.3f}", f"×{spread:.2f}", verdict)
    return table
