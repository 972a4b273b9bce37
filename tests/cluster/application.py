"""`falkirk run` on a separate host: with its network and, like another machine, its process numbers."""

import contextlib
import json
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import psutil

from falkirk.checker import InputRow, OutputRow, RowPlace, Verdict, check_stateless, read_topic
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.ranges import read_range
from falkirk.runtime.spark.live.checkpoint import last_committed_batch
from falkirk.theory.stamp import Stamp
from tests.chaos.harness import Application, judge_counts, topics_of
from tests.cluster.net import Host
from tests.cluster.reading import Reading
from tests.cluster.spark import SparkCluster
from tests.support import wait_until

APPS = Path(__file__).parent / "apps"
WAITS_S = 240.0
#: The regions and the batch of apps/several.py.
OUTPUTS, BATCH = ("passed", "called", "counts", "drawn", "epochs"), "epochs"


class Remote(Application):
    """An application with its coordinator and driver on a host, and its executors on the workers of a cluster."""

    def __init__(
        self,
        host: Host,
        cluster: SparkCluster,
        bootstrap: str,
        folder: Path,
        regions: tuple[str, ...],
        *options: str,
        **env: str,
    ) -> None:
        self.bootstrap, self.regions, home = bootstrap, regions, folder / "home"
        self.topics = {name: f"{name}-{folder.name}" for name in ("events", *OUTPUTS)}
        for topic in self.topics.values():
            topics_of(bootstrap).create(topic, 2, {})
        names = {name.upper(): topic for name, topic in self.topics.items()}
        self._readers: dict[str, Reading[bytes]] = {}
        env = {
            "SPARK_LOCAL_IP": host.address,
            "REGIONS": " ".join(regions),
            **names,
            **env,
        }
        super().__init__(APPS / "several.py", bootstrap, home, env, "--master", cluster.address, *options)
        self._run = self._command
        # A machine's processes are its own: a fence there finds no executor of another one.
        self._command = host.inside(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *self._run])

    def coordinator(self) -> psutil.Process:
        """Return the coordinator's process."""
        return next(p for p in self.processes() if "falkirk.cli" in _line(p) and "unshare" not in _line(p))

    def jvm(self) -> psutil.Process:
        """Return the driver's JVM."""
        return next(p for p in self.processes() if "org.apache.spark.deploy.SparkSubmit" in _line(p))

    def kill_machine(self) -> None:
        """End all processes of the host at once, as a machine that goes down does."""
        assert self._process is not None
        processes = self.processes()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=30)
        self._process.wait()

    def stop(self) -> int:
        """Ctrl-C, as a user stops it; return the exit code."""
        assert self._process is not None
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        if self._process.poll() is None:
            self.coordinator().send_signal(signal.SIGINT)
            try:
                self._process.wait(90)
            except subprocess.TimeoutExpired:
                self.kill_machine()
                raise AssertionError(f"it did not stop\n{self.log()}") from None
        return self._process.returncode

    def incarnations(self) -> dict[str, int]:
        """Return the incarnation of each live region, by a status that counts."""
        status = self.status()
        known = {r["name"]: r["incarnation"] for r in status["regions"] if status["at_s"] > self._since_s}
        return {name: incarnation for name, incarnation in known.items() if name != BATCH}

    def is_replaced(self, before: dict[str, int]) -> bool:
        """Return whether a later incarnation of every region runs. Args: before: their numbers."""
        after = self.incarnations()
        return all(after.get(name, 0) > number for name, number in before.items())

    def wait_replaced(self, before: dict[str, int]) -> None:
        """Wait until a later incarnation of every region runs. Args: before: their numbers."""
        self.wait_for(lambda: self.is_replaced(before), lambda: f"incarnations behind {before}")

    def tell(self, command: str, *options: str) -> "subprocess.CompletedProcess[str]":
        """Run a command about the application on another machine."""
        about = [str(APPS / "several.py"), "--home", str(self.home), "--kafka", self.bootstrap, *options]
        words = [sys.executable, "-m", "falkirk.cli", command, *about]
        return subprocess.run(words, env=self._env, capture_output=True, text=True, timeout=900, check=False)

    def refuses(self) -> bool:
        """Return whether a start was refused because of an executor that can't end itself."""
        return "still accept connections" in (self.home / "run.log").read_text(errors="replace")

    def sent(self) -> int:
        """Return how many events there are."""
        return self._count("events")

    def results(self, name: str) -> int:
        """Return how many results of a region or the batch readers of committed records see."""
        if name not in self._readers:
            self._readers[name] = Reading(self.bootstrap, self.topics[name], bytes)
        return len(self._readers[name].all())

    def counted(self) -> dict[str, int]:
        """Return how many results of each region and the batch the present host has counted."""
        figures = {unit["name"]: unit["sinks"].values() for unit in self.status().get("figures", ())}
        return {name: sum(sink.get("records") or 0 for sink in figures.get(name, ())) for name in self.regions}

    def wait_results(self, name: str, count: int) -> None:
        """Wait until a region or the batch has this number of results."""
        self.wait_for(lambda: self._are_out({name: count}), lambda: f"{count} results of {name}")

    def wait_flowing(self) -> None:
        """Wait until there are results of every region behind a further checkpoint."""
        self.wait_next_commit()
        due = {name: self.results(name) + 100 for name in self.regions}
        self.wait_for(lambda: self._are_out(due), lambda: f"{due} results")

    def wait_within_a_batch(self, name: str) -> None:
        """Wait until a region has just begun a batch, and has sent results of it."""
        folder = self.home / "regions" / name
        last = last_committed_batch(folder)
        self.wait_for(lambda: last_committed_batch(folder) > last, lambda: f"a batch of {name} behind {last}")
        due = {name: self.results(name) + 10}
        self.wait_for(lambda: self._are_out(due), lambda: f"{due} results")

    def wait_released(self, sent: int) -> None:
        """Wait until all results of `sent` events are published, and every region has made a checkpoint after that."""
        due = {name: 2 * sent if name == "drawn" else sent for name in self.regions}
        self.wait_for(
            lambda: self._are_out(due), lambda: f"{due} results, there are { {n: self.results(n) for n in due} }"
        )
        self.wait_next_commit()

    def _are_out(self, due: dict[str, int]) -> bool:
        """Return whether each topic has its due results. Ends are quick to read, but count markers of transactions."""
        return all(self._count(name) >= count and self.results(name) >= count for name, count in due.items())

    def _count(self, name: str) -> int:
        return sum(topics_of(self.bootstrap).end_positions(self.topics[name]).values())

    def wait_for(self, condition: Callable[[], bool], what: Callable[[], str]) -> None:
        """Wait while it runs."""

        def met() -> bool:
            assert self.runs(), self.log()
            return condition()

        wait_until(met, WAITS_S, lambda: f"{what()}\n{self.log()}")


def verdicts(run: Remote) -> dict[str, Verdict]:
    """Return the checker's verdict on each output, from the topics alone."""
    config = {"bootstrap.servers": run.bootstrap}
    once, twice = list[InputRow](), list[InputRow]()
    for record in read_topic(config, run.topics["events"]):
        row, place = json.loads(record.value or b"{}"), RowPlace(record.topic, record.partition, record.offset)
        once.append(InputRow(key=row["word"], place=place, row=row))
        twice += [
            InputRow(key=row["word"], place=place._replace(sub_index=part), row={**row, "part": part})
            for part in (0, 1)
        ]
    judges = {
        "passed": lambda: check_stateless(once, _outputs(run, "passed")),
        "called": lambda: check_stateless(once, _outputs(run, "called")),
        "counts": lambda: judge_counts(run.bootstrap, run.topics["events"], run.topics["counts"]),
        "drawn": lambda: check_stateless(twice, _outputs(run, "drawn")),
        "epochs": lambda: check_stateless(once, _outputs(run, "epochs")),
    }
    return {name: judges[name]() for name in run.regions}


def contradictions(run: Remote) -> dict[int, set[str]]:
    """Return the events with two results that have different random values."""
    lots: dict[int, set[str]] = defaultdict(set)
    for record in read_topic({"bootstrap.servers": run.bootstrap}, run.topics["drawn"]):
        row = json.loads(record.value or b"{}")
        lots[row["n"]].add(row["lot"])
    return {n: found for n, found in lots.items() if len(found) > 1}


def repeated(run: Remote, name: str) -> dict[Stamp, list[int]]:
    """Return the results that a consumer sees more than once, with the incarnations that sent them."""
    found: dict[Stamp, list[int]] = defaultdict(list)
    topics, topic = topics_of(run.bootstrap), run.topics[name]
    first, ends = topics.first_positions(topic), topics.end_positions(topic)
    for record in read_range(Connection.of(run.bootstrap), topic, first, ends, committed=True):
        assert record.header is not None
        found[record.header.stamp].append(record.header.incarnation)
    return {stamp: sent for stamp, sent in found.items() if len(sent) > 1}


def _outputs(run: Remote, name: str) -> list[OutputRow]:
    found = []
    for record in read_topic({"bootstrap.servers": run.bootstrap}, run.topics[name]):
        row = json.loads(record.value or b"{}")
        row.pop("lot", None)
        place = RowPlace(record.topic, record.partition, record.offset)
        found.append(OutputRow(key=row["word"], place=place, values=row))
    return found


def _line(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return " ".join(process.cmdline())
    return ""
