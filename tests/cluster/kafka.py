"""Three Kafka brokers on this machine, each also a controller, for tests of replication.

Topics have three replicas, and a write needs two of them. A test stops a broker with SIGSTOP, kills it, or starts it
again with its data.
"""

import base64
import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import uuid
from pathlib import Path

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from falkirk.platform.free_ports import free_ports
from falkirk.spark_setup import archive
from falkirk.spark_setup import broker as local_broker
from falkirk.spark_setup.jars import broker_jars
from falkirk.spark_setup.java import find_java
from tests.support import suspend, wait_until

NODES = (1, 2, 3)
#: A broker that sends the controllers nothing for this long loses its leaderships and its place in the ISR.
SESSION_S = 12.0
_UP_S = 120.0
_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=64m")
_SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": str(round(SESSION_S * 1000)),
    "broker.heartbeat.interval.ms": "500",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "log.cleaner.enable": "false",
    # An idle controller writes no records of its own: by default it does so twice a second, and all brokers get them.
    "metadata.max.idle.interval.ms": "0",
}


class KafkaCluster:
    """Three brokers in a folder. A context manager that kills all brokers at its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ports = free_ports(2 * len(NODES))
        self._clients = dict(zip(NODES, ports[: len(NODES)], strict=True))
        self._controllers = dict(zip(NODES, ports[len(NODES) :], strict=True))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._stopped: set[int] = set()

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return ",".join(f"127.0.0.1:{port}" for port in self._clients.values())

    def address(self, node: int) -> str:
        """The address of one broker for clients."""
        return f"127.0.0.1:{self._clients[node]}"

    def __enter__(self) -> "KafkaCluster":
        try:
            self._format()
            for node in NODES:
                self.start(node)
            self.await_whole()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()  # SIGKILL also ends a stopped process
        for process in self._processes.values():
            process.wait()

    # -- brokers ------------------------------------------------------------------------------------------------------

    def start(self, node: int) -> None:
        """Start a broker with its data; it must not be running."""
        assert node not in self._processes or self._processes[node].poll() is not None
        self._processes[node] = self._java(node, "kafka.Kafka", self._properties(node))

    def kill(self, node: int) -> None:
        """End a broker with SIGKILL."""
        self._processes[node].kill()
        self._processes[node].wait()

    def stop(self, node: int) -> None:
        """Stop a broker with SIGSTOP: its sockets stay open, but do not answer."""
        suspend(psutil.Process(self._processes[node].pid))
        self._stopped.add(node)

    def resume(self, node: int) -> None:
        """Resume a stopped broker."""
        self._processes[node].send_signal(signal.SIGCONT)
        self._stopped.discard(node)

    def heal(self) -> None:
        """Restore all brokers, and wait until all replicas of all topics are in sync."""
        for node in sorted(self._stopped):
            self.resume(node)
        for node in NODES:
            if self._processes[node].poll() is not None:
                self.start(node)
        self.await_whole()

    # -- the state of the cluster -------------------------------------------------------------------------------------

    def controller(self) -> int:
        """Return the active controller according to the newest election that a running node knows, or -1."""
        known = []
        for node in NODES:
            file = self._folder / str(node) / "data" / "__cluster_metadata-0" / "quorum-state"
            if node not in self._stopped and self._processes[node].poll() is None:
                with contextlib.suppress(FileNotFoundError, ValueError):
                    state = json.loads(file.read_text())
                    known.append((int(state["leaderEpoch"]), int(state["leaderId"])))
        return max(known, default=(0, -1))[1]

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the leader of a partition, or -1."""
        return self._replicas(topic, partition)[0]

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        """Return the in-sync replicas of a partition."""
        return self._replicas(topic, partition)[1]

    def follower(self, topic: str, partition: int = 0) -> int:
        """Return a follower of a partition; if possible, one that is not the active controller."""
        leader, controller = self.leader(topic, partition), self.controller()
        return min((n for n in NODES if n != leader), key=lambda n: n == controller)

    def await_whole(self) -> None:
        """Wait until all three brokers run and all replicas are in sync."""
        wait_until(self._is_whole, _UP_S, lambda: f"three brokers in sync\n{self.log()}")

    def _is_whole(self) -> bool:
        try:
            found = self._admin().list_topics(timeout=2)
        except KafkaException:
            return False
        partitions = [p for topic in found.topics.values() for p in topic.partitions.values()]
        return len(found.brokers) == len(NODES) and all(len(p.isrs) == len(NODES) for p in partitions)

    def _replicas(self, topic: str, partition: int) -> tuple[int, set[int]]:
        """Return leader and in-sync replicas from any broker's metadata; -1 and an empty set if no broker answers."""
        try:
            found = self._admin().list_topics(topic, timeout=5).topics[topic].partitions[partition]
        except (KafkaException, KeyError):
            return -1, set()
        return found.leader, set(found.isrs)

    def _admin(self) -> AdminClient:
        running = [p for n, p in self._clients.items() if n not in self._stopped and self._processes[n].poll() is None]
        bootstrap = ",".join(f"127.0.0.1:{port}" for port in running)
        return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": lambda _error: None})

    def log(self) -> str:
        """Return the end of the brokers' logs."""
        parts = []
        for node in NODES:
            with contextlib.suppress(FileNotFoundError):
                lines = (self._folder / str(node) / "broker.log").read_text(errors="replace").splitlines()
                parts += [f"{node}: {line[:300]}" for line in lines if line and not line[0].isspace()][-10:]
        return "\n".join(parts)

    # -- files and processes ------------------------------------------------------------------------------------------

    def _format(self) -> None:
        """Make the data folders: Kafka makes the first one, and the others are copies with ids of their own."""
        first, *others = NODES
        made = self._java(first, "kafka.tools.StorageTool", "format", "-t", _id(), "-c", self._write(first))
        assert made.wait(_UP_S) == 0, self.log()
        for node in others:
            self._write(node)
            data = self._folder / str(node) / "data"
            shutil.copytree(self._folder / str(first) / "data", data)
            own = {"node.id": str(node), "directory.id": _id()}
            lines = (data / "meta.properties").read_text().splitlines()
            changed = [f"{key}={own[key]}" if (key := line.partition("=")[0]) in own else line for line in lines]
            assert {line.partition("=")[0] for line in lines} >= own.keys(), lines
            (data / "meta.properties").write_text("\n".join(changed) + "\n")

    def _properties(self, node: int) -> str:
        return str(self._folder / str(node) / "server.properties")

    def _write(self, node: int) -> str:
        folder = self._folder / str(node)
        folder.mkdir(parents=True)
        own = {
            "node.id": str(node),
            "listeners": f"PLAINTEXT://127.0.0.1:{self._clients[node]},CONTROLLER://127.0.0.1:{self._controllers[node]}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._clients[node]}",
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{self._controllers[n]}" for n in NODES),
            "log.dirs": str(folder / "data"),
        }
        Path(self._properties(node)).write_text("".join(f"{k}={v}\n" for k, v in (_SETTINGS | own).items()))
        return self._properties(node)

    def _java(self, node: int, *command: str) -> "subprocess.Popen[bytes]":
        logging = Path(local_broker.__file__).parent / "broker-log4j2.properties"
        classpath, java = os.pathsep.join(map(str, broker_jars())), find_java()
        options = (*_JVM, *archive.options("broker", java), f"-Dlog4j2.configurationFile=file:{logging}")
        with open(self._folder / str(node) / "broker.log", "ab") as log:
            return subprocess.Popen(
                [java.command, *options, "-cp", classpath, *command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_end_with_parent,
            )  # fmt: skip


def _end_with_parent() -> None:
    """Let the kernel kill this process when the test process dies, even by SIGKILL: PR_SET_PDEATHSIG of prctl(2)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _id() -> str:
    """Return a new id in Kafka's form. It never starts with a dash."""
    return "F" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
