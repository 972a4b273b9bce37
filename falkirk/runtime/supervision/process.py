"""The process of a host: the Spark application, a child of the coordinator.

It reads the application's file, plans it, runs its regions, and writes its status each second. It dies with its parent,
because nobody would fence a host that nobody watches.
"""

import contextlib
import json
import math
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NoReturn

import psutil
from pyspark.sql import SparkSession

from falkirk.declare.application import Application
from falkirk.declare.load import broker_of, load_application
from falkirk.errors import FalkirkError, StoreError
from falkirk.errors.conditions.supervision import HOST_FAILED
from falkirk.errors.spark import first_line
from falkirk.kafka_client.topics import Topics
from falkirk.plan.explain.values import plan_values
from falkirk.plan.patterns import with_topics
from falkirk.plan.slots import slots_to_have
from falkirk.platform.disk import is_full
from falkirk.platform.durable import write_atomically
from falkirk.platform.signals import stop_on_signals
from falkirk.platform.terminal import log_as_text, plain_text
from falkirk.platform.traced import OFF, Recorder, step
from falkirk.recovery.ownership import guard
from falkirk.recovery.ownership.folder import Home, host_home
from falkirk.runtime.spark.status import RegionStatus
from falkirk.runtime.supervision.failures import PASSING, Failures
from falkirk.runtime.supervision.measurements import Launch
from falkirk.runtime.supervision.once import OnceStatus
from falkirk.runtime.supervision.prepared import Prepared
from falkirk.runtime.supervision.settings import EXIT_OVER, EXIT_UNUSABLE, PLAN, HostSettings
from falkirk.runtime.supervision.spans import is_recorded
from falkirk.runtime.supervision.start import application_session, assemble_host
from falkirk.spark_setup.spark import exposed as exposure
from falkirk.spark_setup.stopping import stop_session
from falkirk.spark_setup.submitted import add_py_files
from falkirk.theory.ids import LogId

_POLL_S = 0.5
#: The waits of a stop for batches, releases, views and tasks end this time after its begin, in seconds. The coordinator
#: kills a host after 30 s. The next start recovers from that, too.
_STOP_S = 20.0
#: The host ended because it needs a new Spark application.
EXIT_RESTART = 4


def write_status(
    home: Path,
    regions: tuple[RegionStatus, ...],
    push: Sequence[object] = (),
    *,
    foreign: Sequence[object] = (),
    exposed: Sequence[str] = (),
    failures: Failures | None = None,
    figures: Sequence[object] = (),
    once: OnceStatus | None = None,
    start: dict[str, object] | None = None,
    recorder: Recorder = OFF,
    error: FalkirkError | None = None,
) -> None:
    """Publish the host's status for the coordinator.

    Args: push: facts for the gateway. foreign: records in topics of this home that others have written. exposed:
        warnings about open ports of the Spark application. failures: counts for the next host. figures: as of
        `Host.figures`. once: as of `Host.once`. start: how long the start took, and whether a standby took over.
        recorder: of spans. error: the error that ends the host.
    """
    content = {
        "at_s": time.time(),
        "pid": os.getpid(),
        "regions": [asdict(r) for r in regions],
        "push": push,
        "foreign": foreign,
        "exposed": exposed,
        "failures": None if failures is None else failures.describe(),
        "figures": figures,
        "once": None if once is None else once.describe(),
        "start": start,
        "spans": recorder.recent(),
        "error": None if error is None else {"condition": error.condition, "text": str(error)},
    }
    try:
        write_atomically(home / "status.json", json.dumps(content))
    except OSError as error:
        if not is_full(error):
            raise
        _write_over(home / "status.json", json.dumps(content))


def _write_over(file: Path, text: str) -> None:
    """Overwrite a file in place, because a full disk has no space for a new one. A silent host would be replaced."""
    with contextlib.suppress(OSError), open(file, "r+", encoding="utf-8") as handle:
        handle.write(text)
        handle.truncate()


def main() -> int:
    """Run the host until its parent closes its standard input or asks it to stop."""
    log_as_text()
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        return guard.EXIT_ORPHANED  # the coordinator died before it sent the settings
    settings = HostSettings.of(line)
    stopping, lines = threading.Event(), queue.SimpleQueue[str]()
    guard.die_with_parent(settings.coordinator, stopping, lines.put)
    stop_on_signals(stopping.set, signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the coordinator decides
    prepared = None
    began_s = psutil.Process().create_time()
    if settings.standby is not None:
        prepared, settings = _stand_by(settings, lines, stopping)
        began_s = time.time()
    home_path, failures = Path(settings.home), Failures(settings.failures)
    recorder = Recorder(is_on=is_recorded())
    try:
        with contextlib.ExitStack() as starting:
            starting.enter_context(recorder.span("start", began_s=began_s, standby=prepared is not None))
            return _run(settings, home_path, stopping, failures, recorder, starting, prepared, began_s=began_s)
    except FalkirkError as error:
        guard.end_if_replaced(error, _say)
        write_status(home_path, (), failures=failures, recorder=recorder, error=error)
        return EXIT_RESTART if error.condition in PASSING else guard.EXIT_FATAL
    except Exception as error:
        # An error of Spark or the JVM: a new host may succeed. The reason is kept in case no host does.
        _say(traceback.format_exc())
        failure = HOST_FAILED.error(name=type(error).__name__, reason=first_line(error))
        write_status(home_path, (), failures=failures, recorder=recorder, error=failure)
        return EXIT_RESTART


def _stand_by(
    settings: HostSettings, lines: "queue.SimpleQueue[str]", stopping: threading.Event
) -> tuple[Prepared, HostSettings]:
    """Prepare a host; return it, and its settings, once it is to take charge. Else end this process."""
    try:
        prepared = Prepared(settings)
        found = prepared.await_settings(lines, stopping)
        if found is None:
            guard.end_at_once(0)
        if reason := prepared.difference(found):
            _end_unused(reason)
        return prepared, found
    except Exception:  # not into the status, which belongs to the host
        _end_unused(traceback.format_exc())


def _end_unused(reason: str) -> NoReturn:
    _say(f"this standby is not used: {reason}")
    guard.end_at_once(EXIT_UNUSABLE)


def _run(
    settings: HostSettings, home_path: Path, stopping: threading.Event, failures: Failures, recorder: Recorder,
    starting: contextlib.ExitStack, prepared: Prepared | None = None, *, began_s: float,
) -> int:  # fmt: skip
    """Run the host to its end; return its exit code. Args: starting: is closed once the application runs."""
    add_py_files(settings.conf)
    app = load_application(Path(settings.file), leased=settings.leased) if prepared is None else prepared.app
    connection = broker_of(app, settings.kafka)
    outages = set[str]()

    def report_waiting(waited_s: float, what: str = "broker") -> None:
        outages.add(what)
        _report_waiting(home_path, waited_s, what=what)

    home = _attach(app, settings, stopping, report_waiting)
    topics = Topics(connection)
    topics.await_broker(on_wait=report_waiting)
    for cluster in connection.others:
        topics.await_cluster(LogId.at("", cluster), math.inf, partial(report_waiting, what=f"cluster {cluster}"))
    if stopping.is_set():
        return 0  # the coordinator has stopped or died, so this host must not start anything
    launch = Launch(  # the outage of a broker or a store is no part of a restart
        began_s=None if outages else settings.died_at_s or began_s, standby=prepared is not None,
        keeps_standby=settings.keeps_standby,
    )  # fmt: skip

    def session_of(app: Application) -> SparkSession:
        wanted = slots_to_have(app, topics)
        if prepared is not None:
            _end_if_unfit(prepared, topics, wanted)
        with step("session"):
            if prepared is not None:
                return prepared.session
            return application_session(app, settings.master, wanted, settings.conf, secure=settings.secure)

    new = assemble_host(
        app, connection, home, session_of, create_topics=settings.create_topics, is_once=settings.once, launch=launch,
        failures=failures, recorder=recorder, on_claim=lambda claim: guard.watch_owner(claim.check, _say),
        planned=None if prepared is None else prepared.plan, say=_say, warn=_say,
    )  # fmt: skip
    host, claim, session, plan = new.host, new.claim, new.session, new.plan
    exposed = exposure(session)
    write_atomically(home_path / PLAN, json.dumps(plan_values(plan, new.slots, new.available), indent=1))
    write_status(home_path, host.status(), host.push())
    claim.await_former(stopping.is_set, replaced=settings.replaced if plan.transactional else None)
    if stopping.is_set():
        stop_session(session)
        return 0

    start: dict[str, object] = {}

    def publish() -> None:
        foreign = [*host.foreign, *claim.foreign_records()]
        write_status(
            home_path, host.status(), host.push(), foreign=foreign, exposed=exposed, failures=failures,
            figures=host.figures(), once=host.once, start=start or None, recorder=recorder,
        )  # fmt: skip

    if prepared is not None:
        prepared.await_rest()
    host.start(on_progress=publish, force=settings.force)
    starting.close()
    start |= {"took_s": round(time.time() - began_s, 2), "standby": prepared is not None}
    try:
        while not host.wait(_POLL_S, stopping):
            host.poll()
            publish()
    except FalkirkError as error:
        guard.end_if_replaced(error, _say)
        host.note_end(error)
        raise
    except Exception as error:
        host.note_end(error)
        raise
    finally:
        stops_until_s = time.monotonic() + _STOP_S
        host.stop(stops_until_s)
        write_status(home_path, host.status(), once=host.once, recorder=recorder)
    stop_session(session, until_s=stops_until_s)
    return EXIT_OVER if host.is_over else 0


def _end_if_unfit(prepared: Prepared, topics: Topics, wanted: int) -> None:
    """End this process if the topics have changed since the standby planned. Args: wanted: the slots needed now."""
    if with_topics(prepared.app, topics.names).lists != prepared.app.lists:
        _end_unused("a pattern matches other topics than when it was planned")
    if prepared.slots != wanted:
        _end_unused(f"topics have other partitions, and need {wanted} slots instead of {prepared.slots}")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the disk of the log is full
        print(plain_text(text), flush=True)


def _attach(
    app: Application, settings: HostSettings, stopping: threading.Event, report: Callable[[float, str], None]
) -> Home:
    """Open the home as soon as its store answers. Args: report: receives the time waited, and for what."""
    began_s, path = time.monotonic(), Path(settings.home)
    while True:
        try:
            return host_home(path, app.name, app.store, settings.generation, app.data)
        except StoreError as error:
            if error.condition not in ("DATA_AWAY", "STORE_AWAY") or stopping.wait(_POLL_S):
                raise
            report(time.monotonic() - began_s, "store" if error.condition == "STORE_AWAY" else "object store")


def _report_waiting(home: Path, waited_s: float, *, what: str = "broker") -> None:
    waiting = RegionStatus(name=what, state="waiting", detail=f"it has not answered for {waited_s:.0f} s")
    write_status(home, (waiting,))


if __name__ == "__main__":
    sys.exit(main())
