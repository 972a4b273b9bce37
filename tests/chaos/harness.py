"""An application run as users run it, a load on it, and the checker's verdict."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from falkirk.checker import (
    AggregateModel,
    Count,
    InputRow,
    Latest,
    RowPlace,
    Verdict,
    check_keyed,
    outputs_of,
    read_topic,
)
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.recovery.ownership.process_records import ProcessRecord
from falkirk.spark_setup.broker import Broker
from tests.chaos import watched
from tests.support import suspend

APPS = Path(__file__).parent / "apps"
START_S = watched.START_S
#: How often each kind of kill is repeated; a higher number makes a soak.
AGAIN = int(os.environ.get("FALKIRK_STRIKES", "1"))
#: A checkpoint may come between the wait for a moment and the kill. Then the test waits for another moment.
MOMENTS_MAX = 20
#: Records of a load that are due within this time are sent together: one request each would use a fifth of a processor,
#: and each live region flushes its buffers for each request.
TOGETHER_S = 0.1
#: Records per second of a load that only has to leave results behind each checkpoint.
LIGHT = 50.0


@cache
def topics_of(bootstrap: str) -> Topics:
    """Return the topics of a broker. A new client for each look would cost it and this process CPU time."""
    return Topics(Connection.of(bootstrap))


class Application(watched.Watched):
    """`falkirk run` of a file, in separate processes. Args: bootstrap: None if the file has a connection."""

    def __init__(self, file: Path, bootstrap: str | None, home: Path, env: Mapping[str, str], *options: str) -> None:
        self._command = [sys.executable, "-m", "falkirk.cli", "run", str(file), "--home", str(home)]
        self._command += [*([] if bootstrap is None else ["--kafka", bootstrap]), "--create-topics", *options]
        self._env = {**os.environ, "PYTHONFAULTHANDLER": "1", **env}
        super().__init__(home)
        self._file, self._bootstrap = file, bootstrap
        self._process: subprocess.Popen[bytes] | None = None
        #: The file in the home with the output of the command.
        self.output_file = "run.log"

    def start(self) -> None:
        """Start the coordinator, which starts the other processes."""
        self.forget_status()
        self.home.mkdir(parents=True, exist_ok=True)
        with open(self.home / self.output_file, "ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._env, stdout=log, stderr=log, start_new_session=True
            )

    def runs(self) -> bool:
        """Return whether the coordinator runs."""
        return self._process is not None and self._process.poll() is None

    def status(self) -> dict[str, Any]:
        """Return the last published status of the host."""
        with contextlib.suppress(FileNotFoundError):
            return json.loads((self.home / "status.json").read_text())
        return {"regions": [], "at_s": 0.0}

    def verify(self, *sinks: str) -> dict[str, Any]:
        """Return the verdicts of `falkirk verify outputs` on sinks, by name. Call it when no record is in flight."""
        command = [sys.executable, "-m", "falkirk.cli", "verify", "outputs", str(self._file), "--home", str(self.home)]
        command += [] if self._bootstrap is None else ["--kafka", self._bootstrap]
        command += ["--json", *(word for name in sinks for word in ("--sink", name))]
        ended = subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=600, check=False)
        found, rest = {}, ended.stdout.strip()
        while rest:
            verdict, end = json.JSONDecoder().raw_decode(rest)
            found[verdict["sink"]], rest = verdict, rest[end:].strip()
        assert set(found) == set(sinks), ended.stderr
        return found

    def promises(self) -> dict[str, dict[str, Any]]:
        """Return the promise of each sink in the plan of the last start."""
        return {promise["sink"]: promise for promise in json.loads((self.home / "plan.json").read_text())["sinks"]}

    def log(self) -> str:
        """Return the end of the output of the command and the host, without stack frames."""
        parts = []
        for name in (self.output_file, "host.log"):
            with contextlib.suppress(FileNotFoundError):
                lines = (self.home / name).read_text(errors="replace").splitlines()
                parts.append("\n".join(line[:300] for line in lines if not line.startswith("\tat "))[-4000:])
        return "\n".join(parts)

    def output(self) -> str:
        """Return all that the command has printed."""
        return (self.home / self.output_file).read_text(errors="replace")

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the application: coordinator, host, JVM, executors."""
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
        """Return the executors with a connection to the broker: those that run tasks of a region."""
        return [
            executor
            for executor in self.executors()
            if any(c.raddr and c.raddr.port == broker.port for c in executor.net_connections("tcp"))
        ]

    def kill_everything(self, **env: str) -> None:
        """Kill all processes with kill -9, the coordinator first, and start the application again, with this `env`."""
        self.kill()
        self._env |= env
        self.start()

    def kill_everything_behind(self, checkpoints: Mapping[str, int], **env: str) -> bool:
        """Kill everything as above, and return True, if these are still the newest checkpoints of live regions.

        All processes are suspended while it looks. If a region has written another checkpoint, they are resumed.
        """
        if not self.stand_still(checkpoints):
            return False
        self.kill_everything(**env)
        return True

    def stand_still(self, checkpoints: Mapping[str, int]) -> list[psutil.Process]:
        """Suspend all processes and return them, unless one of these checkpoints is no longer the newest."""
        processes = self.processes()
        for act in (psutil.Process.suspend, suspend):  # the second one waits until all threads stand still
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    act(process)
        if all(self.newest_checkpoint(region) == number for region, number in checkpoints.items()):
            return processes
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        return []

    def kill(self) -> None:
        """Kill all processes with kill -9, the coordinator first."""
        processes = self.processes()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=30)
        assert self._process is not None
        self._process.wait()

    def ended(self) -> int:
        """Wait until the application ends by itself; return the exit code."""
        assert self._process is not None
        return self._process.wait(90)

    def stop(self) -> int:
        """Stop the application with Ctrl-C, as a user does; return the exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(90)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"the application did not stop\n{self._stacks()}\n{self.log()}") from None
        return self._process.returncode

    def _stacks(self) -> str:
        """Abort the coordinator and the other processes with SIGABRT; return the thread stacks that they write."""
        assert self._process is not None
        others = [process for process in self.processes() if process.pid != self._process.pid]
        self._process.send_signal(signal.SIGABRT)
        self._process.wait(30)
        for process in others:
            process.kill()
        return self.output()[-8000:]


def strike(
    application: Application,
    wait: Callable[[], Mapping[str, int]],
    kill: Callable[[Mapping[str, int]], bool],
    shows: Callable[[Counter[str]], bool],
    *,
    again: int = AGAIN,
    more: int = 0,
) -> Counter[str]:
    """Kill under load `again` times. Then each mechanism must have had work to do.

    Args: wait: waits for the moment of a kill, and returns the checkpoint of each region that published results follow.
        kill: kills all processes of the application, and starts it again, if these are still the newest checkpoints.
        shows: returns whether each mechanism had work, given how many results each region found already published.
        more: further kills, if one of them had none.
    Returns: these numbers over all kills.
    """
    suppressed = Counter[str]()
    for number in range(again + more):
        for _ in range(MOMENTS_MAX):
            if kill(wait()):
                break
        else:
            raise AssertionError(f"{MOMENTS_MAX} times a checkpoint came before the kill\n{application.log()}")
        application.wait_committed(0)
        suppressed.update(application.suppressed())
        if number + 1 >= again and shows(suppressed):
            break
    print(f"suppressed over all kills: {dict(suppressed)}")
    assert shows(suppressed), suppressed
    return suppressed


class Load:
    """Keyed records at a steady rate, from a thread, until stopped. Subclasses may override `record`.

    `rate`, in records per second, may change while the load runs; 0 pauses it.

    Args: together_s: records that are due within this time are sent together.
    """

    def __init__(
        self, bootstrap: str, topic: str, *, rate: float = 200.0, seed: int = 1, words: int = 40,
        together_s: float = TOGETHER_S,
    ) -> None:  # fmt: skip
        settings = {"linger.ms": 2, "delivery.timeout.ms": 600_000, "enable.idempotence": True, "log_level": 0}
        # With several requests in flight, a thread of the client runs without a pause while a broker stands still.
        settings |= {"max.in.flight": 1}
        self._producer = Producer({"bootstrap.servers": bootstrap, **settings})
        self._topic, self.rate, self._random, self._words = topic, rate, random.Random(seed), words
        self._together_s = together_s
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
            if not self.rate:
                due_s = time.monotonic() + self._together_s
                continue
            together = max(1, round(self.rate * self._together_s))
            due_s += together / self.rate
            for _ in range(together):
                key, value = self.record(self.sent)
                self._producer.produce(self._topic, key=key, value=json.dumps(value))
                self.sent += 1
            self._producer.poll(0)

    def record(self, number: int) -> tuple[str | None, dict[str, Any]]:
        """Return the key and value of a record."""
        word = f"w{self._random.randrange(self._words)}"
        return word, {"word": word, "n": number}


def settle(application: Application, bootstrap: str, expected: int, *topics: str) -> None:
    """Wait until each topic has the expected number of records, and for another checkpoint then."""
    known = Topics(Connection.of(bootstrap))

    def has_all(topic: str) -> bool:
        if sum(known.end_positions(topic).values()) < expected:
            return False
        return sum(1 for _ in read_topic({"bootstrap.servers": bootstrap}, topic)) >= expected  # offsets of markers

    for topic in topics:
        application.wait(partial(has_all, topic), 180, f"{expected} results in {topic}")
    application.wait_next_commit()


def judge_counts(bootstrap: str, events: str, counts: str) -> Verdict:
    """Return the checker's verdict on the keyed count, using only the two topics."""
    config = {"bootstrap.servers": bootstrap}
    inputs = []
    for record in read_topic(config, events):
        row = json.loads(record.value or b"{}")
        if "word" not in row:  # a dead letter
            continue
        place = RowPlace(record.topic, record.partition, record.offset)
        inputs.append(InputRow(key=row["word"], place=place, row=row))
    outputs = list(outputs_of(read_topic(config, counts)))
    return check_keyed(inputs, outputs, AggregateModel(["word"], {"version": Count(), "n": Latest("n")}))
