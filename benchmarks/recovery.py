"""Recovery: the time from a kill -9 of the host until the next result, without and with a standby.

`falkirk run` runs a keyed count in separate processes, under a steady load. The bench kills all processes of its host,
but neither the coordinator nor the standby. The clock runs until the first result that was not on its way already. At
the end the bench counts every result: none may be lost or repeated.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.report import Report
from falkirk.errors import SparkError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.recovery.ownership.folder import STANDBY
from falkirk.recovery.ownership.process_records import ProcessRecord
from falkirk.runtime.supervision.settings import STATE, WARM
from falkirk.spark_setup import broker as local_broker

START_S = 240.0
#: Results that were on their way at the kill arrive within this time.
IN_FLIGHT_S = 0.3
#: The number of keys of the load.
KEYS = 40
#: A keyed count. {place} is for arguments of `fk.App` that name another home.
COUNT = """
import os

from pyspark.sql import functions as F

import falkirk as fk

app = fk.App("recovery"{place})
app.source("records", fk.Kafka({source!r}, schema="word STRING, n LONG", key="word"))


@app.stream(fk.Lazy("10 seconds"))
def counts(records):
    return records.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))


app.sink("counts", counts, fk.Kafka({sink!r}, key="word"))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySettings:
    """Args: kills: of each variant. rate: records per second. rest_s: idle time before a kill, and to measure in."""

    kills: int = 3
    rate: float = 50.0
    rest_s: float = 10.0

    @classmethod
    def quick(cls) -> "RecoverySettings":
        """Return settings for one kill of each variant."""
        return cls(kills=1, rest_s=3.0)


def run_recovery(settings: RecoverySettings, say: Callable[[str], None]) -> Report:
    """Kill the host of a keyed count, without and with a standby. Raises: SparkError: `BENCH_INCOMPLETE`."""
    report = Report(bench="recovery", settings={"kills": settings.kills, "rate": settings.rate})
    with tempfile.TemporaryDirectory(prefix="falkirk-bench-") as name:
        folder = Path(name)
        broker = local_broker.start(folder / "broker")
        try:
            for standby in (False, True):
                _measure(settings, folder, broker.bootstrap, report, say, standby=standby)
        finally:
            local_broker.stop(folder / "broker")
    return report


def _measure(
    settings: RecoverySettings, folder: Path, bootstrap: str, report: Report, say: Callable[[str], None], *,
    standby: bool,
) -> None:  # fmt: skip
    variant = "standby" if standby else "cold"
    with running(folder / variant, bootstrap, COUNT, standby=standby) as run:
        run.begin(settings.rate)
        times = []
        for _ in range(settings.kills):
            if standby:
                used, share, megabytes = run.await_standby(settings.rest_s)
                report.figures |= {"standby_processor_share": share, "standby_mb": megabytes}
                say(f"standby: {megabytes:.0f} MB, {100 * share:.1f} % of a processor")
            else:
                time.sleep(settings.rest_s)
            load = os.getloadavg()[0]
            times.append(run.kill())
            if standby and run.host().pid != used:
                raise incomplete("the standby was not used")
            say(f"{variant}: first result {times[-1]:.2f} s after kill -9, at a load of {load:.1f}")
        lost, repeated = run.finish()
        if lost or repeated:
            raise incomplete(f"{lost} results are lost, {repeated} repeated")
    report.figures |= {
        f"{variant}_first_result_s": round(median(times), 2),
        f"{variant}_first_result_least_s": round(min(times), 2),
        f"{variant}_first_result_most_s": round(max(times), 2),
    }


class Run:
    """A running application under load.

    Attributes: source, sink: its topics. sent_at_s: when each record was sent. seen_at_s: when the result of each one
        came.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", home: Path, bootstrap: str, topics: tuple[str, str]) -> None:
        self._process, self._home, self._bootstrap, (self.source, self.sink) = process, home, bootstrap, topics
        self.sent_at_s: list[float] = []
        self.seen_at_s: dict[int, float] = {}
        self.repeated = 0
        self._stopping, self._ends = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []

    def runs(self) -> bool:
        """Return whether the coordinator runs."""
        return self._process.poll() is None

    def begin(self, rate: float) -> None:
        """Begin the load of a keyed count, with so many records per second, and wait for the first result."""
        for work in (lambda: self._produce(rate), self._consume):
            self._threads.append(threading.Thread(target=work, daemon=True))
            self._threads[-1].start()
        self._await(lambda: self.seen_at_s, "the first result")

    def _produce(self, rate: float) -> None:
        producer, began_s = (
            Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0, "log_level": 0}),
            time.monotonic(),
        )
        while not self._stopping.wait(max(0.0, began_s + len(self.sent_at_s) / rate - time.monotonic())):
            n = len(self.sent_at_s)
            self.sent_at_s.append(time.monotonic())
            word, value = record(n)
            producer.produce(self.source, key=word, value=value)
            producer.poll(0)
        producer.flush()

    def _consume(self) -> None:
        options = {"bootstrap.servers": self._bootstrap, "group.id": "bench", "log_level": 0}
        consumer = Consumer({**options, "enable.auto.commit": False})
        consumer.assign([TopicPartition(self.sink, p, 0) for p in range(2)])
        while not self._ends.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            n = int(json.loads(message.value() or b"{}")["n"])
            self.repeated += n in self.seen_at_s
            self.seen_at_s[n] = time.monotonic()
        consumer.close()

    def host(self) -> psutil.Process:
        """Return the process that has written the newest status."""
        return psutil.Process(json.loads((self._home / "status.json").read_text())["pid"])

    def await_standby(self, rest_s: float) -> tuple[int, float, float]:
        """Wait until the standby is warm; return its pid, its share of a processor, and its megabytes."""
        tree: list[psutil.Process] = []

        def is_warm() -> bool:
            with contextlib.suppress(OSError, ValueError, KeyError):
                content = json.loads((self._home / STANDBY).read_text())
                found = ProcessRecord(**content["process"]).find()
                if found is not None and found != self.host():
                    java = [p for p in found.children(recursive=True) if p.name() == "java"]
                    tree[:] = [found, *java]
                    return Path(content["folder"], STATE).read_text() == WARM
            return False

        self._await(is_warm, "a standby")
        time.sleep(2.0)
        try:
            before_s, began_s = _processor_s(tree), time.monotonic()
            time.sleep(rest_s)
            share = (_processor_s(tree) - before_s) / (time.monotonic() - began_s)
            return tree[0].pid, round(share, 4), round(sum(p.memory_info().rss for p in tree) / 1e6)
        except psutil.NoSuchProcess as error:
            raise incomplete(f"the standby has ended ({error})\n{self._log()}") from error

    def _log(self) -> str:
        return "".join(
            f.read_text(errors="replace")[-3000:] for f in (self._home.parent / "log", self._home / "host.log")
        )

    def kill(self) -> float:
        """Kill all processes of the host; return the seconds until the next result."""
        host = self.host()
        tree = [host, *host.children(recursive=True)]
        killed_at_s = time.monotonic()
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

        def later() -> list[float]:
            return [at for at in list(self.seen_at_s.values()) if at > killed_at_s + IN_FLIGHT_S]

        self._await(later, "a result after the kill")
        return min(later()) - killed_at_s

    def finish(self) -> tuple[int, int]:
        """End the load; return the number of lost and of repeated results."""
        self._stopping.set()
        self._threads[0].join()
        with contextlib.suppress(SparkError):
            self._await(lambda: len(self.seen_at_s) >= len(self.sent_at_s), "all results", 60.0)
        time.sleep(2.0)
        self._ends.set()
        self._threads[1].join()
        return len(self.sent_at_s) - len(self.seen_at_s), self.repeated

    def _await(self, condition: Callable[[], Any], what: str, timeout_s: float = START_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise incomplete(f"there was no sign of {what}")
            time.sleep(0.02)


def record(n: int) -> tuple[str, str]:
    """Return the key and the value of a record of the load."""
    word = f"w{n % KEYS}"
    return word, json.dumps({"word": word, "n": n})


@contextlib.contextmanager
def running(folder: Path, bootstrap: str, application: str, *, standby: bool, place: str = "") -> Iterator[Run]:
    """Run an application in separate processes, until the end of the block.

    Args: application: its text, with {source}, {sink} and {place}.
    """
    folder.mkdir()
    tag = uuid.uuid4().hex[:6]
    source, sink = f"records-{tag}", f"counts-{tag}"
    for topic in (source, sink):
        Topics(Connection.of(bootstrap)).create(topic, 2, {})
    (folder / "app.py").write_text(application.format(source=source, sink=sink, place=place))
    command = [sys.executable, "-m", "falkirk.cli", "run", str(folder / "app.py"), "--kafka", bootstrap]
    command += ["--home", str(folder / "home"), "--standby" if standby else "--no-standby"]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    run = Run(process, folder / "home", bootstrap, (source, sink))
    try:
        yield run
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()


def _processor_s(tree: list[psutil.Process]) -> float:
    return sum(times.user + times.system for times in (p.cpu_times() for p in tree))


def incomplete(reason: str) -> SparkError:
    """Return the error of a bench that did not measure all."""
    return SparkError("BENCH_INCOMPLETE", f"{reason}.", hint="Run it again on an idle machine.")
