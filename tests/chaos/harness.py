"""An application run as its user runs it, a load on it, and the checker's word about it."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from falkirk.check import (
    AggregateModel,
    Count,
    Guarantee,
    Input,
    Latest,
    Place,
    Verdict,
    check_keyed,
    outputs_of,
    read_topic,
)
from falkirk.coordinator.home import ProcessRecord
from falkirk.local.broker import Broker
from falkirk.logs.connection import Connection
from falkirk.logs.topics import Topics
from tests.support import wait_until

APPS = Path(__file__).parent / "apps"
START_S = 400.0


class Application:
    """`falkirk run` of a file, in processes of its own. Args: bootstrap: None where the file has a connection."""

    def __init__(self, file: Path, bootstrap: str | None, home: Path, env: Mapping[str, str], *options: str) -> None:
        self._command = [sys.executable, "-m", "falkirk.cli", "run", str(file), "--home", str(home)]
        self._command += [*([] if bootstrap is None else ["--kafka", bootstrap]), "--create-topics", *options]
        self._env, self.home = {**os.environ, "PYTHONFAULTHANDLER": "1", **env}, home
        self._process: subprocess.Popen[bytes] | None = None
        self._since_s = 0.0

    def start(self) -> None:
        """Start the coordinator, which starts the rest."""
        self.forget_status()
        self.home.mkdir(parents=True, exist_ok=True)
        with open(self.home / "run.log", "ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._env, stdout=log, stderr=log, start_new_session=True
            )

    def __enter__(self) -> "Application":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def runs(self) -> bool:
        """Tell whether the coordinator runs."""
        return self._process is not None and self._process.poll() is None

    def status(self) -> dict[str, Any]:
        """Return what the host last published."""
        with contextlib.suppress(FileNotFoundError):
            return json.loads((self.home / "status.json").read_text())
        return {"regions": [], "at_s": 0.0}

    def suppressed(self) -> int:
        """Return how many results the present incarnations have found released already."""
        return sum(r["suppressed"] for r in self.status()["regions"])

    def forget_status(self) -> None:
        """From now on only a status that is newer counts."""
        self._since_s = time.time()

    def wait_committed(self, batches: int) -> None:
        """Wait until every region runs and has committed a batch number of at least `batches`."""

        def ready() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self.log()
            status = self.status()
            regions = status["regions"]
            return bool(
                regions
                and status["at_s"] > self._since_s
                and all(r["state"] == "running" and r["last_commit"] >= batches for r in regions)
            )

        wait_until(ready, START_S, f"batch {batches} to be committed\n{self.log()}")

    def promises(self) -> dict[str, dict[str, Any]]:
        """Return what `falkirk plan` says of each sink."""
        command = [*self._command[:3], "plan", self._command[4], "--json", *self._command[7:9]]
        plan = json.loads(subprocess.run(command, env=self._env, stdout=subprocess.PIPE, check=True).stdout)
        return {promise["sink"]: promise for promise in plan["sinks"]}

    def last_commits(self) -> dict[str, int]:
        """Return the last batch that each live region has committed, by a status that counts; nothing until all run."""
        status = self.status()
        if status["at_s"] <= self._since_s or any(r["state"] != "running" for r in status["regions"]):
            return {}
        return {r["name"]: r["last_commit"] for r in status["regions"] if r["incarnation"]}

    def wait_next_commit(self) -> None:
        """Wait until every live region has committed a further batch."""
        before = self.last_commits()

        def is_beyond() -> bool:
            assert self.runs(), self.log()
            after = self.last_commits()
            return bool(after) and all(last > before.get(name, -1) for name, last in after.items())

        wait_until(is_beyond, START_S, f"a batch behind {before} to be committed\n{self.log()}")

    def log(self) -> str:
        """Return the end of what was printed, by the command and by the host, without the frames of stacks."""
        parts = []
        for name in ("run.log", "host.log"):
            with contextlib.suppress(FileNotFoundError):
                lines = (self.home / name).read_text(errors="replace").splitlines()
                parts.append("\n".join(line[:300] for line in lines if not line.startswith("\tat "))[-4000:])
        return "\n".join(parts)

    def processes(self) -> list[psutil.Process]:
        """Return every process of the application: coordinator, host, JVM, executors."""
        assert self._process is not None
        found = {}
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            for process in (root, *root.children(recursive=True)):
                found[process.pid] = process
        return list(found.values())

    def host(self) -> psutil.Process:
        """Return the host's Python process."""
        return psutil.Process(self.status()["pid"])

    def jvm(self) -> psutil.Process:
        """Return the driver's JVM."""
        content = json.loads((self.home / "processes.json").read_text())
        found = ProcessRecord(**content["processes"][0]).find()
        assert found is not None
        return found

    def executors(self) -> list[psutil.Process]:
        """Return the executor JVMs of a cluster on this machine."""
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
                if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def busy_executors(self, broker: Broker) -> list[psutil.Process]:
        """Return the executors that are connected to the broker: those that run tasks of a region."""
        return [
            executor
            for executor in self.executors()
            if any(c.raddr and c.raddr.port == broker.port for c in executor.net_connections("tcp"))
        ]

    def kill_everything(self, **env: str) -> None:
        """kill -9 of every process, the coordinator first, and start the application again. Args: env: from then on."""
        processes = self.processes()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=30)
        assert self._process is not None
        self._process.wait()
        self._env |= env
        self.start()

    def ended(self) -> int:
        """Wait until it has ended by itself; return the exit code."""
        assert self._process is not None
        return self._process.wait(90)

    def stop(self) -> int:
        """Ctrl-C, as a user stops it; return the exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(90)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"it did not stop\n{self._stacks()}\n{self.log()}") from None
        return self._process.returncode

    def _stacks(self) -> str:
        """End the coordinator with SIGABRT, whereupon it writes where its threads are, and all others; return that."""
        assert self._process is not None
        others = [process for process in self.processes() if process.pid != self._process.pid]
        self._process.send_signal(signal.SIGABRT)
        self._process.wait(30)
        for process in others:
            process.kill()
        return (self.home / "run.log").read_text(errors="replace")[-8000:]


def is_alive(process: psutil.Process) -> bool:
    """Tell whether a process runs; one that has ended and that nobody has asked for yet does not."""
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


class Load:
    """Keyed records at a steady rate, from a thread, until stopped. `record` may be another.

    `rate`, in records per second, may be changed meanwhile.
    """

    def __init__(self, bootstrap: str, topic: str, *, rate: float = 200.0, seed: int = 1, words: int = 40) -> None:
        settings = {"linger.ms": 2, "delivery.timeout.ms": 600_000, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": bootstrap, **settings})
        self._topic, self.rate, self._random, self._words = topic, rate, random.Random(seed), words
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._produce, daemon=True)
        self.sent = 0

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(120) == 0

    def _produce(self) -> None:
        due_s = time.monotonic()
        while not self._stopping.wait(max(0.0, due_s - time.monotonic())):
            due_s += 1 / self.rate
            key, value = self.record(self.sent)
            self._producer.produce(self._topic, key=key, value=json.dumps(value))
            self._producer.poll(0)
            self.sent += 1

    def record(self, number: int) -> tuple[str | None, dict[str, Any]]:
        """Return the key and value of a record."""
        word = f"w{self._random.randrange(self._words)}"
        return word, {"word": word, "n": number}


def settle(bootstrap: str, topic: str, expected: int, application: Application) -> None:
    """Wait until a topic has as many records as are expected, and the region has committed once more after that."""
    topics = Topics(Connection.of(bootstrap))
    wait_until(
        lambda: sum(topics.end_positions(topic).values()) >= expected,
        180,
        f"{expected} outputs; there are {sum(topics.end_positions(topic).values())}\n{application.log()}",
    )
    application.wait_next_commit()


def judge_counts(bootstrap: str, events: str, counts: str) -> Verdict:
    """Return the checker's verdict on the keyed count, from the two topics alone."""
    config = {"bootstrap.servers": bootstrap}
    inputs = []
    for record in read_topic(config, events):
        row = json.loads(record.value or b"{}")
        place = Place(record.topic, record.partition, record.offset)
        inputs.append(Input(key=row["word"], place=place, row=row))
    outputs = list(outputs_of(read_topic(config, counts)))
    return check_keyed(inputs, outputs, AggregateModel(["word"], {"version": Count(), "n": Latest("n")}))


@dataclass(frozen=True, kw_only=True)
class Counting:
    """Keyed counts to be tormented: their names in apps/counts.py, and the topic of the plain one."""

    bootstrap: str
    events: str
    counts: str
    counted: Sequence[str]
    application: Application

    def topic(self, name: str) -> str:
        """Return the topic of a count of apps/counts.py."""
        return self.counts if name == "counts" else f"{self.counts}.{name}"

    def released(self, topic: str | None = None) -> int:
        """Return how many results are in a topic. Args: topic: if not that of the plain count."""
        return sum(Topics(Connection.of(self.bootstrap)).end_positions(topic or self.counts).values())

    def prefix(self) -> str:
        """Return what the names of the application's own topics begin with."""
        identity = json.loads((self.application.home / "falkirk.json").read_text())["identity"]
        return f"falkirk.counts.{identity}."

    def suppressed(self) -> dict[str, int]:
        """Return how many results each region's present incarnation has found released already."""
        return {region["name"]: region["suppressed"] for region in self.application.status()["regions"]}


@contextlib.contextmanager
def counting(
    broker: Broker, home: Path, tag: str, *options: str, counted: Sequence[str] = ("counts",), **env: str
) -> Iterator[Counting]:
    """Run keyed counts on fresh topics until the end of the block. Args: counted: names of apps/counts.py."""
    events, counts = f"events-{tag}", f"counts-{tag}"
    env |= {"EVENTS": events, "COUNTS": counts, "COUNTED": " ".join(counted)}
    application = Application(APPS / "counts.py", broker.bootstrap, home, env, *options)
    run = Counting(bootstrap=broker.bootstrap, events=events, counts=counts, counted=counted, application=application)
    topics = Topics(Connection.of(broker.bootstrap))
    for topic in (events, *map(run.topic, counted)):
        topics.create(topic, 2, {})
    application.start()
    try:
        yield run
    finally:
        application.stop()


def assert_exactly_once(run: Counting, sent: int, name: str = "counts") -> None:
    """Wait for all results of a count, and let the checker judge."""
    settle(run.bootstrap, run.topic(name), sent, run.application)
    verdict = judge_counts(run.bootstrap, run.events, run.topic(name))
    print(f"{name}: {verdict.counts}")
    assert verdict.guarantee is Guarantee.EXACTLY_ONCE, (name, verdict.anomalies)
    assert verdict.counts.observed_outputs == verdict.counts.inputs >= sent


def some_behind_a_commit(run: Counting) -> None:
    """Wait until a checkpoint has been made and there are results since."""
    run.application.wait_next_commit()
    before = run.released()
    wait_until(lambda: run.released() > before + 100, 120, "results after the commit")
