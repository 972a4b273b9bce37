"""A Kafka broker on this machine, for ``--local``, the demo and tests only: one KRaft node, run from its jars.

Its folder says who it is: a live one is used again, one that crashed is started again with its data.
"""

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from falkirk.errors import MachineError
from falkirk.local.jars import broker_jars, cache_home
from falkirk.local.java import find_java

_HERE = Path(__file__).parent
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A running broker: its folder, process and ports on the loopback address."""

    folder: str
    pid: int
    created_at_s: float
    port: int
    controller_port: int

    @property
    def bootstrap(self) -> str:
        """What clients connect to."""
        return f"127.0.0.1:{self.port}"

    def process(self) -> psutil.Process | None:
        """Return the broker's process while it is alive."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.created_at_s) < 1.0 and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None

    def answers(self, timeout_s: float = 1.0) -> bool:
        """Tell whether it can be talked to."""
        options: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "log_level": 0, "error_cb": _quiet}
        client = AdminClient(options)
        try:
            client.list_topics(timeout=timeout_s)
        except KafkaException:
            return False
        return True


def _quiet(_error: object) -> None:
    """Drop the client's own report: the caller asks whether the broker answers."""


def default_folder() -> Path:
    """Return where `falkirk kafka start` keeps its data."""
    return cache_home() / "broker"


def status(folder: Path | None = None) -> Broker | None:
    """Return the broker of a folder while its process is alive."""
    known = _recorded(folder or default_folder())
    return known if known is not None and known.process() is not None else None


def start(folder: Path | None = None, *, settings: Mapping[str, str] | None = None, timeout_s: float = 60.0) -> Broker:
    """Return the running broker of a folder, starting it (with the data that is there) if need be.

    Args: folder: its data; the user's cache by default. settings: further broker settings.
    Raises: MachineError: `BROKER_NOT_STARTED`, with the last lines of its log.
    """
    folder = folder or default_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        running = status(folder)
        if running is not None:
            _await(running, timeout_s)
            return running
        before = _recorded(folder)
        failure: MachineError | None = None
        for attempt in range(_ATTEMPTS):
            keep = attempt == 0 and before is not None and _is_free(before.port) and _is_free(before.controller_port)
            ports = (before.port, before.controller_port) if keep and before else _free_ports()
            try:
                return _launch(folder, ports, settings or {}, timeout_s)
            except MachineError as error:  # a port may have been taken between choosing and binding
                failure = error
        assert failure is not None
        raise failure


def stop(folder: Path | None = None, *, timeout_s: float = 20.0) -> bool:
    """Stop the broker of a folder, keeping its data; return whether one ran."""
    running = status(folder)
    process = running.process() if running else None
    if process is None:
        return False
    process.terminate()
    try:
        process.wait(timeout_s)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait(timeout_s)
    return True


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with open(folder / ".lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _recorded(folder: Path) -> Broker | None:
    try:
        return Broker(**json.loads((folder / "broker.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _launch(folder: Path, ports: tuple[int, int], settings: Mapping[str, str], timeout_s: float) -> Broker:
    java, path = find_java().command, os.pathsep.join(map(str, broker_jars()))
    properties = folder / "server.properties"
    properties.write_text(_properties(folder, ports, settings))
    if not (folder / "data" / "meta.properties").exists():
        identity = subprocess.run(
            [java, "-cp", path, "kafka.tools.StorageTool", "random-uuid"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        subprocess.run(
            [java, "-cp", path, "kafka.tools.StorageTool", "format", "-t", identity, "-c", str(properties)],
            capture_output=True, check=True,
        )  # fmt: skip
    with open(folder / "broker.log", "ab") as log:
        process = subprocess.Popen(
            [
                java, "-Xms128m", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
                f"-Dlog4j2.configurationFile=file:{_HERE / 'broker-log4j2.properties'}",
                "-cp", path, "kafka.Kafka", str(properties),
            ],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    broker = Broker(
        folder=str(folder),
        pid=process.pid,
        created_at_s=psutil.Process(process.pid).create_time(),
        port=ports[0],
        controller_port=ports[1],
    )
    (folder / "broker.json").write_text(json.dumps(asdict(broker)))
    _await(broker, timeout_s, process)
    return broker


def _await(broker: Broker, timeout_s: float, process: "subprocess.Popen[bytes] | None" = None) -> None:
    deadline = time.monotonic() + timeout_s
    while not broker.answers():
        ended = process.poll() is not None if process else broker.process() is None
        if ended or time.monotonic() > deadline:
            if process is not None and not ended:
                process.kill()
            log = Path(broker.folder) / "broker.log"
            lines = log.read_text(errors="replace").splitlines()[-3:] if log.exists() else []
            raise MachineError(
                "BROKER_NOT_STARTED",
                f"the local broker {'ended' if ended else 'does not answer'}: {' '.join(lines)}",
                where=log,
                hint="Its log says more. `falkirk kafka stop`, or remove its folder to begin afresh.",
            )
        time.sleep(0.1)


def _properties(folder: Path, ports: tuple[int, int], settings: Mapping[str, str]) -> str:
    client, controller = ports
    own = {
        "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{client}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "log.dirs": str(folder / "data"),
        **settings,
    }
    return (_HERE / "broker.properties").read_text() + "".join(f"{k}={v}\n" for k, v in own.items())


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
