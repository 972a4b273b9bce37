"""Executors on other machines: nobody here can kill them, so the next incarnation waits until they have ended.

An executor that no driver answers ends itself: `spark.executor.heartbeat.maxFailures` heartbeats fail, each after at
most `spark.executor.heartbeatInterval`, and it exits. So all executors of a driver that is dead have ended once that
time has passed, and a margin in which a process exits. Two observations go with that:

  - An executor listens on a port. Where its machine refuses a connection to that port, the process has ended. If that
    holds for every executor that the driver ever had, nobody waits for the time to pass. The driver has to say so
    itself, after its last query was stopped: one that was killed may have had further executors.
  - A stopped process (SIGSTOP) can't end itself, and its machine accepts connections for it. So one that still accepts
    them after that time is not waited for in vain and then forgotten: nothing starts until it has been killed.
"""

import json
import logging
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from falkirk.coordinator.disk import is_full
from falkirk.coordinator.home import write_atomically
from falkirk.errors import HomeError, SparkError
from falkirk.stored import parse_json

log = logging.getLogger("falkirk")

#: How long an executor takes to exit, from when it decides to; its tasks go on until then. It waits 10 s for the thread
#: that sends heartbeats, and which is the one that decided, and then stops everything else.
EXIT_S = 20.0
#: How long one takes to exit whose port is closed already.
CLOSED_S = 3.0
_PROBE_S = 1.0
_PROBES = 16
_LOOK_S = 0.2
_FILE = "executors.json"
_EVENTS_MS = 5_000


class Reach(Enum):
    """What a machine says of an executor's port."""

    REFUSED = "refused"
    ACCEPTED = "accepted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorRecord:
    """What a home knows of the executors of its Spark application.

    Args: application: Spark's identity of it. silence_s: how long an executor lives at most whose driver is dead, until
        it decides to exit. addresses: where each listens, as host:port. complete: there were no others.
    """

    application: str
    silence_s: float
    addresses: tuple[str, ...]
    complete: bool


class Executors:
    """Records the executors of a session, where they are on other machines. Args: home: the folder."""

    def __init__(self, session: SparkSession, home: Path) -> None:
        self._session, self._home = session, home
        self._elsewhere = not (session.sparkContext.master or "").startswith("local")
        self._written: ExecutorRecord | None = None

    def record(self, *, complete: bool = False) -> None:
        """Write down which executors there were. Args: complete: no query of this session runs any more, or will."""
        if not self._elsewhere:
            return
        try:
            if complete:  # what Spark is about to tell of further ones
                self._session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_EVENTS_MS)
            before = () if self._written is None else self._written.addresses
            addresses = tuple(sorted({*before, *_addresses(self._session)}))
            found = ExecutorRecord(
                application=self._session.sparkContext.applicationId,
                silence_s=silence_s(self._session),
                addresses=addresses,
                complete=complete,
            )
        except (Py4JError, OSError) as error:  # the JVM is gone: what was written holds
            log.warning("asking for executors said: %s", error)
            return
        if found == self._written:
            return
        try:
            write_atomically(self._home / _FILE, json.dumps(asdict(found), indent=1))
            self._written = found
        except OSError as error:
            if self._written is None or not is_full(error):
                raise


def silence_s(session: SparkSession) -> float:
    """Return how long an executor of this session lives at most after the last answer of its driver."""
    conf = session.sparkContext._jsc.sc().conf()
    interval_s = conf.getTimeAsMs("spark.executor.heartbeatInterval", "10s") / 1000
    return float((conf.getInt("spark.executor.heartbeat.maxFailures", 60) + 1) * interval_s)


def _addresses(session: SparkSession) -> Iterable[str]:
    """Yield where each executor listens that this session has or had."""
    known = session.sparkContext._jsc.sc().statusStore().executorList(False)
    for i in range(known.size()):
        summary = known.apply(i)
        host, _, port = str(summary.hostPort()).rpartition(":")
        if summary.id() != "driver" and host and port.isdigit():
            yield f"{host}:{port}"


def probe(address: str) -> Reach:
    """Return what the machine of an executor says of its port."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_S):
            return Reach.ACCEPTED
    except ConnectionRefusedError:
        return Reach.REFUSED
    except OSError:
        return Reach.UNKNOWN


def await_executors(
    home: Path,
    *,
    application: str | None = None,
    since_s: float | None = None,
    say: Callable[[str], None] = log.info,
    is_stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Wait until no executor of a former run can still write. The driver of that run is dead.

    Args: application: Spark's identity of the one that this process goes on using. since_s: when the driver was known
        to be dead, by `time.monotonic`; now by default. is_stopping: asked now and then; once it is so, this returns,
        and the next start waits.
    Raises: HomeError: `LEFTOVER_ALIVE`: an executor accepts connections although its time has passed; `HOME_DAMAGED`.
        SparkError: `SESSION_LOST`: the former run was in the same Spark application, whose executors go on living.
    """
    known = _read(home)
    if known is None:
        return
    if known.application == application:
        raise SparkError(
            "SESSION_LOST",
            f"executors of Spark application {application} may still write for its former run of this home.",
            certainty="maybe",
            hint="Stop this Spark session, and start again with a new one.",
            application=application,
        )
    since_s = time.monotonic() if since_s is None else since_s
    until_s, left = since_s + known.silence_s + EXIT_S, set(known.addresses)
    has_said = False
    with ThreadPoolExecutor(_PROBES, "falkirk-probe") as probes:
        while not is_stopping():
            reached = dict(zip(sorted(left), probes.map(probe, sorted(left)), strict=True))
            left = {address for address, reach in reached.items() if reach is not Reach.REFUSED}
            if known.complete and not left:
                until_s = min(until_s, time.monotonic() + CLOSED_S)
                known = replace(known, complete=False)
            if time.monotonic() >= until_s:
                alive = sorted(address for address in left if reached[address] is Reach.ACCEPTED)
                if alive:
                    raise _alive(home, alive, known.silence_s + EXIT_S)
                (home / _FILE).unlink()
                return
            if not has_said:
                say(f"waiting up to {until_s - time.monotonic():.0f} s until executors of the former run have ended")
                has_said = True
            time.sleep(_LOOK_S)


def _read(home: Path) -> ExecutorRecord | None:
    try:
        content = parse_json((home / _FILE).read_text())
        return ExecutorRecord(
            application=str(content["application"]),
            silence_s=float(content["silence_s"]),
            addresses=tuple(map(str, content["addresses"])),
            complete=bool(content["complete"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise HomeError(
            "HOME_DAMAGED",
            f"{_FILE} can't be read, so the executors of the former run are not known.",
            where=home / _FILE,
            hint="Make sure that no executor of this application runs, remove the file, and start again.",
        ) from error


def _alive(home: Path, alive: list[str], waited_s: float) -> HomeError:
    return HomeError(
        "LEFTOVER_ALIVE",
        f"executors of the former run still accept connections {waited_s:.0f} s after their driver died: "
        f"{', '.join(alive)}.",
        where=home,
        hint="Kill them on their machines: a stopped process can't end itself, and writes when it resumes. Then start "
        f"again. If other processes use these addresses, remove {_FILE} from the home.",
        executors=alive,
    )
