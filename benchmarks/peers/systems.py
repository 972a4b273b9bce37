"""Systems: starts and kills one peer or Falkirk, each in separate processes."""

import contextlib
import subprocess
import threading
from pathlib import Path
from typing import Protocol

import psutil

from benchmarks.child import Child
from benchmarks.peers.jars import Kind, class_path
from benchmarks.peers.order import TWINS, Case, newest_checkpoint
from benchmarks.subject import Running, Subject
from falkirk.errors import SparkError
from falkirk.spark_setup.java import find_java

START_S = 120.0
_OPENS = tuple(
    f"--add-opens=java.base/{name}=ALL-UNNAMED"
    for name in ("java.lang", "java.util", "java.util.concurrent", "java.time", "java.nio", "java.net", "java.io")
)
_PROGRAMS: dict[str, tuple[Kind, str]] = {"flink": ("flink", "FlinkCount"), "streams": ("streams", "StreamsCount")}
_VARIANTS = {"at-least-once": "repeated", "exactly-once": "exactly-once", TWINS: "twins"}


class System(Protocol):
    """A started system."""

    def await_running(self) -> None:
        """Wait until it runs."""

    def kill(self) -> None:
        """Kill its processes with -9."""

    def processes(self) -> list[psutil.Process]:
        """Return its processes."""


class JavaPeer:
    """A peer in a JVM of its own. It starts from its newest checkpoint if it has one."""

    def __init__(self, case: Case, bootstrap: str, source: str, sink: str, home: Path) -> None:
        kind, program = _PROGRAMS[case.system]
        home.mkdir(parents=True, exist_ok=True)
        kept = [
            (str(file.parent), int(file.parent.name.removeprefix("chk-"))) for file in home.glob("*/chk-*/_metadata")
        ]
        restored = [newest_checkpoint(kept)] if case.system == "flink" else []
        arguments = [bootstrap, source, sink, case.guarantee, str(round(1000 * case.interval_s)), str(home), *restored]
        command = [find_java().command, "-Xmx1g", *_OPENS, "-cp", class_path(kind), program, *arguments]
        self._log = open(home / "log", "ab")  # noqa: SIM115
        self._home = home
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def processes(self) -> list[psutil.Process]:
        """Return the JVM."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [psutil.Process(self._process.pid)]
        return []

    def await_running(self) -> None:
        """Wait for the program's word. Raises: SparkError: `BENCH_INCOMPLETE`: it ended, or took too long."""
        assert self._process.stdout is not None
        timer = threading.Timer(START_S, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if line.strip() != "running":
            self.kill()
            tail = (self._home / "log").read_text(errors="replace")[-2000:]
            raise SparkError("BENCH_INCOMPLETE", f"the peer did not start:\n{tail}", hint="Read the lines above.")

    def kill(self) -> None:
        """Kill the JVM with -9."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self._log.close()


def started(case: Case, bootstrap: str, source: str, sink: str, home: Path) -> System:
    """Start the system of a case."""
    if case.system in _PROGRAMS:
        return JavaPeer(case, bootstrap, source, sink, home)
    variant = {"spark-rtm": "none", "spark-batch": "micro-batch"}.get(case.system) or _VARIANTS[case.guarantee]
    subject = Subject(
        job="keyed_count", variant=variant, interval_s=case.interval_s, bootstrap=bootstrap, source=source, sink=sink,
        home=home,
    )  # fmt: skip
    running: Child = Running(subject)
    return running


def processor_s(system: System) -> float:
    """Return the processor seconds that the processes of a system have used."""
    total = 0.0
    for process in system.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total
