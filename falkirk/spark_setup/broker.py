"""A Kafka broker on this machine, only for ``--local``, the demo and tests: one KRaft node, run from its jars.

A file in the broker's folder identifies its process. A live broker is used again; one that crashed is restarted with
its data.
"""

import base64
import contextlib
import fcntl
import json
import os
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from falkirk.errors import MachineError
from falkirk.errors.conditions.spark_setup import BROKER_NOT_STARTED, BROKER_NOT_STARTED_FORMAT
from falkirk.platform import private, processes
from falkirk.platform.free_ports import free_ports, is_free
from falkirk.platform.stored import parse_json
from falkirk.spark_setup.archive import options
from falkirk.spark_setup.cache import cache_home
from falkirk.spark_setup.jars import broker_jars
from falkirk.spark_setup.java import find_java

_HERE = Path(__file__).parent
_PROPERTIES = "server.properties"
_RECORD = "broker.json"
_LOG = "broker.log"
_ATTEMPTS = 3
_POLL_S = 0.05
#: Kafka's usual port.
USUAL_PORT = 9092
#: After kill -9, a JVM counts as dead while its threads still hold its ports. A busy machine needs this time.
_RELEASE_S = 10.0
#: Options of the JVM of a broker under measurement: short pauses and fast code.
LONG_RUN = ("-Xms128m", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
#: Options of a JVM that runs for minutes with little to do: one fast compiler, with room for as much code as two have.
SHORT_RUN = ("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A running broker: its folder, process, ports, and address for clients."""

    folder: str
    pid: int
    began: str
    port: int
    controller_port: int
    address: str = "127.0.0.1"

    @property
    def bootstrap(self) -> str:
        """The address for clients, as host:port."""
        return f"{self.address}:{self.port}"

    def process(self) -> psutil.Process | None:
        """Return the broker's process while it is alive."""
        return processes.find_process(self.pid, self.began)

    def answers(self, timeout_s: float = 1.0) -> bool:
        """Return whether the broker answers requests."""
        options: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "log_level": 0, "error_cb": _quiet}
        client = AdminClient(options)
        try:
            client.list_topics(timeout=timeout_s)
        except KafkaException:
            return False
        return True


def _quiet(_error: object) -> None:
    """Ignore the client's own report: the caller finds out whether the broker answers."""


def default_folder() -> Path:
    """Return the folder in which `falkirk kafka start` stores its data."""
    return cache_home() / "broker"


def status(folder: Path | None = None) -> Broker | None:
    """Return the broker of a folder if its process is alive, otherwise None."""
    known = _recorded(folder or default_folder())
    return known if known is not None and known.process() is not None else None


def start(
    folder: Path | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    java_options: Sequence[str] = LONG_RUN,
    address: str = "127.0.0.1",
    timeout_s: float = 60.0,
) -> Broker:
    """Return the running broker of a folder; start it with its existing data if it is not running.

    A broker that does not answer in time is left alone, and the next call waits for it again: there is never a second
    one beside it.

    Args: folder: the folder of the data; by default in the user's cache. Then clients reach it at `USUAL_PORT`, unless
        another program has that port. settings: further broker settings. java_options: options of its JVM. address: an
        address of this machine, at which clients reach the broker.
    Raises: MachineError: `BROKER_NOT_STARTED`, with the last lines of its log.
    """
    wanted = USUAL_PORT if folder is None else 0
    folder = (folder or default_folder()).absolute()
    private.make(folder)
    with _locked(folder):
        running = status(folder)
        if running is not None and _comes_up(running, timeout_s):
            return running
        _end_unrecorded(folder)
        ports = _former_ports(folder) or _free_ports(wanted)
        for _ in range(_ATTEMPTS - 1):
            try:
                return _launch(folder, ports, address, settings or {}, java_options, timeout_s)
            except MachineError:  # a port may have been taken meanwhile; other errors are final
                # A broker that is slow has its ports and the lock of the data. The next call waits for it again.
                if status(folder) is not None or (is_free(ports[0]) and is_free(ports[1])):
                    raise
                ports = _free_ports()
        return _launch(folder, ports, address, settings or {}, java_options, timeout_s)


def stop(folder: Path | None = None, *, timeout_s: float = 20.0) -> bool:
    """Stop the broker of a folder and keep its data; return whether a broker was running."""
    running = status(folder)
    process = running.process() if running else None
    if running is None or process is None:
        return False
    process.terminate()
    if not _ends(running, timeout_s):
        process.kill()
        if not _ends(running, timeout_s):
            raise psutil.TimeoutExpired(timeout_s, process.pid)
    return True


def _ends(running: Broker, timeout_s: float) -> bool:
    """Wait for the end of a broker; return whether it has ended.

    Its parent may be another process, which may not wait for it. Then it stays as a zombie, and has ended all the same.
    """
    deadline_s = time.monotonic() + timeout_s
    while running.process() is not None:
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with open(folder / ".lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _recorded(folder: Path) -> Broker | None:
    try:
        return Broker(**parse_json((folder / _RECORD).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _former_ports(folder: Path) -> tuple[int, int] | None:
    """Return the ports of the folder's former broker, so that its clients find it again; None if they are taken."""
    before = _recorded(folder)
    if before is None:
        return None
    deadline = time.monotonic() + _RELEASE_S
    while not (is_free(before.port) and is_free(before.controller_port)):
        if time.monotonic() > deadline:
            return None
        time.sleep(_POLL_S)
    return before.port, before.controller_port


def _end_unrecorded(folder: Path) -> None:
    """Kill a broker that uses this folder but is not recorded, because its starter died first: it locks the data."""
    properties = str(folder / _PROPERTIES)
    for process in psutil.process_iter(["cmdline"]):
        if (process.info["cmdline"] or [""])[-1] == properties:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                process.wait()


def _launch(
    folder: Path,
    ports: tuple[int, int],
    address: str,
    settings: Mapping[str, str],
    java_options: Sequence[str],
    timeout_s: float,
) -> Broker:
    classpath = os.pathsep.join(map(str, broker_jars()))
    java = find_java()
    archived = options("broker", java)
    properties = folder / _PROPERTIES
    properties.write_text(_properties(folder, ports, address, settings))
    logging = f"-Dlog4j2.configurationFile=file:{_HERE / 'broker-log4j2.properties'}"
    with open(folder / _LOG, "ab") as log:
        if not (folder / "data" / "meta.properties").exists():
            _format(folder, [java.command, *SHORT_RUN, *archived, logging, "-cp", classpath], properties)
        process = subprocess.Popen(
            [
                java.command, *java_options, *archived, logging,
                "-cp", classpath, "kafka.Kafka", str(properties),
            ],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    broker = Broker(
        folder=str(folder),
        pid=process.pid,
        began=processes.began(process.pid),
        port=ports[0],
        controller_port=ports[1],
        address=address,
    )
    (folder / _RECORD).write_text(json.dumps(asdict(broker)))
    if not _comes_up(broker, timeout_s):
        raise _not_started(broker, "ended")
    return broker


def _format(folder: Path, java: list[str], properties: Path) -> None:
    """Make the data folder of a new broker. Like Kafka's own cluster ids, the id never starts with a dash."""
    cluster = "F" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
    done = subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise BROKER_NOT_STARTED_FORMAT.error(where=folder, last_words=_last_words(done.stdout + done.stderr))


def _comes_up(broker: Broker, timeout_s: float) -> bool:
    """Wait until a broker answers; return False if its process ends first.

    Raises: MachineError: `BROKER_NOT_STARTED`: the broker neither answers nor ends in time.
    """
    deadline = time.monotonic() + timeout_s
    while not broker.answers():
        if broker.process() is None:
            return False
        if time.monotonic() > deadline:
            raise _not_started(broker, "does not answer")
        time.sleep(_POLL_S)
    return True


def _not_started(broker: Broker, what: str) -> MachineError:
    log = Path(broker.folder) / _LOG
    return BROKER_NOT_STARTED.error(where=log, what=what, last_words=_last_words(log.read_text(errors="replace")))


def _last_words(output: str) -> str:
    """Return the last lines of a JVM's output, without stack frames."""
    return " ".join([line for line in output.splitlines() if line and not line[0].isspace()][-3:])


def _properties(folder: Path, ports: tuple[int, int], address: str, settings: Mapping[str, str]) -> str:
    client, controller = ports
    own = {
        "listeners": f"PLAINTEXT://{address}:{client},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://{address}:{client}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "log.dirs": str(folder / "data"),
        **settings,
    }
    return (_HERE / "broker.properties").read_text() + "".join(f"{k}={v}\n" for k, v in own.items())


def _free_ports(wanted: int = 0) -> tuple[int, int]:
    """Return a port for clients and one for the controller. Args: wanted: the one for clients, if it is free."""
    client, controller = free_ports(2)
    return wanted if wanted and is_free(wanted) else client, controller
