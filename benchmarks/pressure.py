"""Backpressure bench: records waiting records and memory while a table accepts nothing, and the recovery after that.

`python -m benchmarks backpressure` runs an eager stream that writes a SQLite table. The bench itself locks the table:
it begins a transaction and keeps it open.
"""

import contextlib
import math
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from benchmarks.child import Child, serve
from benchmarks.jobs import KEYED_COUNT
from benchmarks.report import Report
from falkirk.app import App
from falkirk.declare.cut import OnArrival
from falkirk.declare.endpoints import Kafka, Sql
from falkirk.declare.policy import Eager
from falkirk.declare.stream import source_node
from falkirk.errors import SparkError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.recovery.ownership.folder import attach_home
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup import broker as local_broker
from falkirk.spark_setup.spark import spark_session
from falkirk.theory.ids import LogId

TOPIC, TABLE = "events", "kept"
PARTITIONS = 2
LOOK_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureSettings:
    """The settings: times in seconds, a rate per second.

    Args: before_s: of undisturbed load. closed_s: how long the table accepts nothing. patience_s: the longest wait
        until the stream has caught up; the load continues until then.
    """

    rate: float = 2_000.0
    before_s: float = 40.0
    closed_s: float = 60.0
    patience_s: float = 180.0

    @classmethod
    def quick(cls) -> "PressureSettings":
        """Return settings that take about two minutes."""
        return cls(rate=1_000.0, before_s=15.0, closed_s=20.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement.

    Args:
        at_s: seconds since the table was closed.
        sent, read, kept: the number of records in the source, in complete epochs, and in the table.
        epochs: the number of complete epochs that are not in the table.
        host_bytes, jvm_bytes: resident memory.
    """

    at_s: float
    sent: int
    read: int
    kept: int
    epochs: int
    host_bytes: int
    jvm_bytes: int


@dataclass(kw_only=True)
class PressureRun:
    """The results of the bench."""

    report: Report
    closed_s: float
    samples: list[Sample] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stream:
    bootstrap: str
    home: Path
    database: Path

    def application(self) -> App:
        app = App("bench-pressure", home=self.home)
        app.sources["events"] = source_node("events", Kafka(TOPIC, schema=KEYED_COUNT.schema, key="word"))
        app.add_processor(TABLE, _kept, reads=("events",), policy=Eager(), cut=OnArrival())
        app.sink(TABLE, TABLE, Sql(f"sqlite:///{self.database}", TABLE))
        return app


def _kept(events: Any) -> Any:
    return events.select("n", "word")


def _run(stream: _Stream, pipe: "Pipe[Any, Any]") -> None:
    def start() -> Query:
        spark_session("falkirk-bench", master="local[24]")
        return run_here(stream.application(), Connection.of(stream.bootstrap), create_topics=True)

    def finish(query: Query) -> object:
        query.stop()
        return True

    serve(pipe, start, finish)


def run_pressure(settings: PressureSettings, say: Callable[[str], None]) -> PressureRun:
    """Measure, and return the results. Args: say: receives one line of progress at a time.

    Raises: SparkError: `BENCH_INCOMPLETE`: the stream failed, or did not catch up.
    """
    run = PressureRun(report=Report(bench="backpressure", settings=asdict(settings)), closed_s=settings.closed_s)
    folder = Path(tempfile.mkdtemp(prefix="falkirk-bench-"))
    running: Child | None = None
    try:
        stream = _Stream(
            bootstrap=local_broker.start(folder / "broker").bootstrap,
            home=folder / "home",
            database=folder / "kept.db",
        )
        topics = Topics(Connection.of(stream.bootstrap))
        topics.create(TOPIC, PARTITIONS, {})
        running = Child(_run, stream, "backpressure")
        running.await_running()
        say("the stream runs")
        _Watch(stream, running, topics, settings, run, say).follow()
        running.stop()
        _judge(run, stream)
        return run
    finally:
        if running is not None:
            running.kill()
        local_broker.stop(folder / "broker")
        shutil.rmtree(folder, ignore_errors=True)


class _Watch:
    """Sends the load, closes the table, and takes samples."""

    def __init__(
        self, stream: _Stream, running: Child, topics: Topics, settings: PressureSettings, run: PressureRun,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._stream, self._running, self._topics, self._settings = stream, running, topics, settings
        self._run, self._say = run, say
        home = attach_home(stream.home, "bench-pressure")
        self._log = EpochLog(LogId.of_epochs(TABLE), TABLE, home.data_of(TABLE), home.store)
        self._closed_at_s = math.inf

    def follow(self) -> None:
        """Send, close the table, open it, and send until the stream has caught up."""
        done = threading.Event()
        load = threading.Thread(target=_send, args=(self._stream.bootstrap, self._settings.rate, done), daemon=True)
        load.start()
        try:
            began = time.monotonic()
            while _in_table(self._stream.database)[0] == 0:
                if time.monotonic() - began > self._settings.patience_s:
                    raise SparkError(
                        "BENCH_INCOMPLETE",
                        f"no record was in the table after {self._settings.patience_s:g} s.",
                        certainty="maybe",
                    )
                time.sleep(LOOK_S)
            self._closed_at_s = time.monotonic() + self._settings.before_s
            self._look_until(self._closed_at_s)
            with _closed(self._stream.database):
                self._look_until(self._closed_at_s + self._settings.closed_s)
            waits = self._sample()
            self._say(f"{waits.sent - waits.kept:,} records wait, of which {waits.read - waits.kept:,} in epochs")
            deadline = time.monotonic() + self._settings.patience_s
            while self._is_behind():
                if time.monotonic() > deadline:
                    raise SparkError(
                        "BENCH_INCOMPLETE",
                        f"the stream did not catch up within {self._settings.patience_s:g} s.",
                        certainty="maybe",
                    )
                time.sleep(LOOK_S)
        finally:
            done.set()
            load.join()
        self._say("the stream has caught up")
        deadline = time.monotonic() + self._settings.patience_s
        while (last := self._sample()).kept < last.sent and time.monotonic() < deadline:
            time.sleep(LOOK_S)

    def _is_behind(self) -> bool:
        """Return whether more records wait than before the table was closed."""
        usual = max((s.sent - s.kept for s in self._run.samples if s.at_s < 0), default=0)
        now = self._sample()
        return now.sent - now.kept > max(usual, self._settings.rate)

    def _look_until(self, at_s: float) -> None:
        while time.monotonic() < at_s:
            self._sample()
            time.sleep(LOOK_S)

    def _sample(self) -> Sample:
        sent = sum(self._topics.end_positions(TOPIC).values())
        complete = [e for e in self._log.epochs() if e.is_complete]
        memory = {"java": 0, "python": 0}
        for process in self._running.processes():
            with contextlib.suppress(psutil.Error):
                memory["java" if "java" in process.name() else "python"] += process.memory_info().rss
        kept, epoch = _in_table(self._stream.database)
        sample = Sample(
            at_s=time.monotonic() - self._closed_at_s,
            sent=sent,
            read=sum(complete[-1].last[LogId(TOPIC)].values()) if complete else 0,
            kept=kept,
            epochs=sum(e.number > epoch for e in complete),
            host_bytes=memory["python"],
            jvm_bytes=memory["java"],
        )
        self._run.samples.append(sample)
        return sample


def _in_table(database: Path) -> tuple[int, int]:
    """Return the number of rows in the table, and its last epoch."""
    with contextlib.closing(sqlite3.connect(database)) as db:
        if not db.execute(f"SELECT 1 FROM sqlite_master WHERE name = '{TABLE}'").fetchall():
            return 0, -1
        ((rows,),) = db.execute(f"SELECT count(*) FROM {TABLE}")
        ((epoch,),) = db.execute("SELECT max(epoch) FROM falkirk_marks")
        return int(rows), int(epoch)


@contextlib.contextmanager
def _closed(database: Path) -> Iterator[None]:
    """Lock the database against other writers. It can still be read."""
    with contextlib.closing(sqlite3.connect(database, timeout=60, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield


def _send(bootstrap: str, rate: float, done: threading.Event) -> None:
    """Send records at a rate, every tenth of a second, until `done` is set."""
    producer, sent = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0}), 0
    began = time.monotonic()
    while not done.wait(0.1):
        while sent < rate * (time.monotonic() - began):
            producer.produce(TOPIC, key=f"w{sent % 40}", value=f'{{"word": "w{sent % 40}", "n": "{sent}"}}')
            sent += 1
        producer.poll(0)
    producer.flush()


def _judge(run: PressureRun, stream: _Stream) -> None:
    with contextlib.closing(sqlite3.connect(stream.database)) as db:
        ((rows, distinct),) = db.execute(f"SELECT count(*), count(DISTINCT n) FROM {TABLE}")
    before = [s for s in run.samples if s.at_s < 0]
    during = [s for s in run.samples if 0 <= s.at_s < run.closed_s]
    after = [s for s in run.samples if s.at_s >= run.closed_s]
    usual = max(s.sent - s.kept for s in before)
    caught_up = [s.at_s for s in after if s.sent - s.kept <= max(usual, float(run.report.settings["rate"]))]  # type: ignore[arg-type]
    run.report.figures |= {
        "waiting_records_max": max(s.sent - s.kept for s in run.samples),
        "waiting_epochs_max": max(s.epochs for s in during),
        "waiting_records_in_epochs_max": max(s.read - s.kept for s in during),
        "catch_up_s": round(min(caught_up, default=run.samples[-1].at_s) - run.closed_s, 1),
        "repeated_count": rows - distinct,
        "missing_count": run.samples[-1].sent - distinct,
        "host_before_mib": _mib(s.host_bytes for s in before),
        "host_while_closed_mib": _mib(s.host_bytes for s in during),
        "host_after_mib": _mib(s.host_bytes for s in after),
        "jvm_before_mib": _mib(s.jvm_bytes for s in before),
        "jvm_while_closed_mib": _mib(s.jvm_bytes for s in during),
        "jvm_after_mib": _mib(s.jvm_bytes for s in after),
    }


def _mib(values: Iterator[int]) -> float:
    """Return the greatest value, in MiB."""
    return round(max(values) / 2**20, 1)
