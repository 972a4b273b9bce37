"""Executors on other machines: waits until they have ended, because this machine can't kill them.

If no driver answers an executor, `spark.executor.heartbeat.maxFailures` of its heartbeats fail, each after at most
`spark.executor.heartbeatInterval`, and then it exits. So all executors of a dead driver have ended after that time,
plus a margin for the exit of a process. Two observations refine this rule:

  - An executor listens on a port. If its machine refuses a connection to that port, the process has ended. If that
    holds for every executor that the driver ever had, the wait ends early. Only the driver itself can state that it had
    no others, after its last query was stopped: a driver that was killed may have had more executors.
  - A stopped process (SIGSTOP) can't end itself, and its machine accepts connections for it. So if an executor still
    accepts connections after that time, Falkirk starts nothing until somebody has killed it.
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

from pyspark.sql import SparkSession

from falkirk.errors import HomeError
from falkirk.errors.conditions.ownership import HOME_DAMAGED, LEFTOVER_ALIVE_EXECUTORS, SESSION_LOST
from falkirk.errors.spark import JVM_ERRORS
from falkirk.platform.disk import is_full
from falkirk.platform.durable import write_atomically
from falkirk.platform.stored import parse_json

log = logging.getLogger("falkirk")

#: The longest time between an executor's decision to exit and its end. Its tasks run on meanwhile. It waits 10 s for
#: the thread that sends heartbeats, which is the one that decided, and then stops everything else.
EXIT_S = 20.0
#: The longest time until an executor ends after its port was closed.
CLOSED_S = 3.0
_PROBE_S = 1.0
_PROBES = 16
_POLL_S = 0.2
_FILE = "executors.json"
_EVENTS_MS = 5_000


class Reach(Enum):
    """How a machine reacts to a connection to an executor's port."""

    REFUSED = "refused"
    ACCEPTED = "accepted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorRecord:
    """The executors of a Spark application, as its home records them.

    Args: application: Spark's id of the application. silence_s: the longest time between the death of the driver and
        an executor's decision to exit. addresses: where each listens, as host:port. complete: there are no others.
    """

    application: str
    silence_s: float
    addresses: tuple[str, ...]
    complete: bool


class Executors:
    """Records the executors of a session, if they are on other machines. Args: home: the folder."""

    def __init__(self, session: SparkSession, home: Path) -> None:
        self._session, self._home = session, home
        # The executors of local-cluster are on this machine too, where the next start kills them.
        self._elsewhere = not (session.sparkContext.master or "").startswith("local")
        self._written: ExecutorRecord | None = None

    def record(self, *, complete: bool = False) -> None:
        """Record all executors of the session. Args: complete: this session has run its last query."""
        if not self._elsewhere:
            return
        try:
            if complete:  # wait for Spark's events about further executors
                self._session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_EVENTS_MS)
            before = () if self._written is None else self._written.addresses
            addresses = tuple(sorted({*before, *_addresses(self._session)}))
            found = ExecutorRecord(
                application=self._session.sparkContext.applicationId,
                silence_s=silence_s(self._session),
                addresses=addresses,
                complete=complete,
            )
        except JVM_ERRORS as error:  # the JVM died: the last record stays valid
            log.warning("the executors could not be listed: %s", error)
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
    """Return how long an executor of this session may live after the last answer of its driver."""
    conf = session.sparkContext._jsc.sc().conf()
    interval_s = conf.getTimeAsMs("spark.executor.heartbeatInterval", "10s") / 1000
    return float((conf.getInt("spark.executor.heartbeat.maxFailures", 60) + 1) * interval_s)


def _addresses(session: SparkSession) -> Iterable[str]:
    """Yield the address of each present or former executor of this session."""
    known = session.sparkContext._jsc.sc().statusStore().executorList(False)
    for i in range(known.size()):
        summary = known.apply(i)
        host, _, port = str(summary.hostPort()).rpartition(":")
        if summary.id() != "driver" and host and port.isdigit():
            yield f"{host}:{port}"


def probe(address: str) -> Reach:
    """Return how an executor's machine reacts to a connection to its port."""
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
    """Wait until no executor of a former run can still write. The driver of that run must be dead.

    Args: application: Spark's id of the application that this process uses. since_s: when the driver was known to be
        dead, by `time.monotonic`; by default now. is_stopping: called at intervals. If it returns True, this returns,
        and the next start waits.
    Raises: HomeError: `LEFTOVER_ALIVE`: an executor still accepts connections at the end of the wait; `HOME_DAMAGED`.
        SparkError: `SESSION_LOST`: the former run used the same Spark application, whose executors stay alive.
    """
    known = _read(home)
    if known is None:
        return
    if known.application == application:
        raise SESSION_LOST.error(application=application)
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
            time.sleep(_POLL_S)


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
        raise HOME_DAMAGED.error(where=home / _FILE, file=_FILE) from error


def _alive(home: Path, alive: list[str], waited_s: float) -> HomeError:
    return LEFTOVER_ALIVE_EXECUTORS.error(where=home, executors=alive, waited_s=waited_s, file=_FILE)
