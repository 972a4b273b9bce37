"""Coordinator: a small process without Spark that starts the host of the live regions, watches it, and replaces it.

A host is dead if its process has ended. It hangs if it has not written its status for a long time. In both cases the
coordinator kills all processes that the host left before it starts the next one.
"""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from falkirk.declare.application import Application
from falkirk.declare.load import broker_of
from falkirk.errors import AWAY, HomeError, SparkError
from falkirk.errors.conditions.supervision import HOST_KEEPS_FAILING, HOST_SILENT, ONCE_UNSUITABLE
from falkirk.platform.disk import is_full
from falkirk.platform.durable import write_atomically
from falkirk.platform.machine_time import MachineTime
from falkirk.platform.silence import Silence
from falkirk.platform.stored import parse_json
from falkirk.recovery.ownership.claim import refuse_copied
from falkirk.recovery.ownership.executors import await_executors
from falkirk.recovery.ownership.folder import Home
from falkirk.recovery.ownership.guard import EXIT_FATAL
from falkirk.recovery.ownership.lease import LASTS_S, kept_lease, opened_or_awaited
from falkirk.recovery.ownership.requests import fail_former, require_charge_if_reachable, stop_asked_if_reachable
from falkirk.recovery.protocol.down import stays_down
from falkirk.runtime.supervision.pulse import Pulse
from falkirk.runtime.supervision.settings import (
    COUNTS_FILE,
    EXIT_OVER,
    EXIT_UNUSABLE,
    SILENT_S,
    HostSettings,
    RunSettings,
)
from falkirk.runtime.supervision.standby import STANDBY_SILENT_S, Standby
from falkirk.runtime.supervision.starting import start_process

if TYPE_CHECKING:
    from falkirk.runtime.supervision.gateway import Gateway

#: Spark starts slowly on a busy machine, so the first status may be late: after this time a host counts as silent.
SILENT_AT_START_S = 180.0
#: Conditions that end an application at its start. Once its regions have run, they pass with a new Spark application:
#: a master that restarts can close a connection as one does that has another secret.
_ENDING_STARTS = ("MASTER_REFUSED",)
#: Conditions that the next host waits for without a limit: none of them is a fault of the application.
_AWAITED = (*AWAY, *_ENDING_STARTS)
#: After this many failures in a row, each without a checkpoint of any region, a further start would fail too.
FRUITLESS_MAX = 5
#: The time between two checks whether the broker, the store or the master is back.
AWAY_PAUSE_S = 1.0
#: The time between two checks whether executors on other machines have ended.
ALIVE_PAUSE_S = 1.0
#: If the log of former hosts is longer than this, the next start renames it to host.log.1.
LOG_BYTES_MAX = 50_000_000
#: A host starts only if its home has at least this much free space.
SPACE_BYTES = 1_000_000


class Coordinator:
    """Runs one application until it is stopped.

    Args: app: as declared. settings: see `RunSettings`. say: takes one line for the user at each event. on_status:
        takes the host's status, a dictionary as `process.write_status` writes it. on_end: takes the last status of a
        host that has ended. start: starts a process of a host; see `start_process`. clock: of this machine.
    """

    def __init__(
        self,
        app: Application,
        settings: RunSettings,
        *,
        say: Callable[[str], None] = print,
        on_status: Callable[[dict[str, Any]], None] = lambda status: None,
        on_end: Callable[[dict[str, Any]], None] = lambda status: None,
        start: "Callable[[Path], subprocess.Popen[str]]" = start_process,
        clock: MachineTime = time,
    ) -> None:
        self._connection = broker_of(app, settings.kafka)
        if settings.once and app.pushed:
            source, pushed = next(iter(app.pushed.items()))
            raise ONCE_UNSUITABLE.error(where=pushed.where, source=source)
        self._app, self._settings, self._say, self._on_status, self._on_end = app, settings, say, on_status, on_end
        #: No lock of a file system protects a home in an object store, so its owner always holds a lease.
        self._lease_s = LASTS_S if app.data is not None and settings.lease_s is None else settings.lease_s
        self._gateway: Gateway | None = None
        self._stopping = threading.Event()
        self._path, self._start, self._clock = settings.home or app.home, start, clock
        wanted = False if settings.once and settings.standby is None else settings.standby
        self.standby = Standby(
            self._begin_standby, self._brief_standby, say, wanted=wanted, master=settings.master, clock=clock
        )
        #: Reset once regions run, so that a later loss is reported too.
        self._force = settings.force
        self._commits: dict[str, int] = {}
        #: How often the processors have failed, by the last status that says so, for the next host.
        self._failures: dict[str, dict[str, Any]] = {}
        #: The condition that ended the last host, if it reported one.
        self._waits_for = ""
        #: When a host was last seen alive, and when the last one died, if the next one starts at once.
        self._alive_at_s = 0.0
        self._has_run = False
        self._died_at_s: float | None = None
        #: The warnings about open ports of the Spark application that were already printed.
        self._warned: set[str] = set()
        #: The processors that stay down, by the last status, with their errors.
        self.down: dict[str, str] = {}
        #: How a run with `--once` has ended, as of `OnceStatus`; None: it was stopped.
        self.over: dict[str, Any] | None = None
        self.restarts = 0
        self.pulse = Pulse(SILENT_AT_START_S)

    def stop(self) -> None:
        """Ask `run` to stop everything and return."""
        self._stopping.set()

    def run(self) -> None:
        """Run until `stop`. Raises: FalkirkError: a permanent error ended the application."""
        if self._path.is_dir():
            self._await_space()  # becoming the owner needs a write
        lease_s, say, app = self._lease_s, self._say, self._app
        opened = None
        try:
            opened = opened_or_awaited(
                self._path, app.name, app.store, lease_s, pause=self._pause, say=say, data=app.data
            )
        finally:
            if opened is None:
                self.standby.end()
        if opened is None:
            return  # it was stopped while it waited
        with (
            opened as home,
            kept_lease(home, lease_s, say),
            self._entrance(home) as self._gateway,
            self.standby,
        ):
            fail_former(home.store)
            (home.path / COUNTS_FILE).unlink(missing_ok=True)
            fruitless = 0
            while not self._stopping.is_set():
                self.pulse.rest()
                require_charge_if_reachable(home.store)  # the processes that the home names may be of another owner
                for record in home.kill_leftovers(spare_pid=self.standby.pid):
                    self._say(f"killed {record.role} {record.pid} of a former run")
                self._await_executors()
                self._await_space()
                before, failed = dict(self._commits), self._failures
                reason = self._run_host(home)
                if self._stopping.is_set():
                    break
                if reason is None:
                    self._say("the standby can't take over (host.log has the reason); starting without it")
                    continue
                self._died_at_s = None if self._waits_for in _AWAITED else self._alive_at_s
                if self._waits_for in _AWAITED:
                    self._stopping.wait(AWAY_PAUSE_S)
                elif self._commits != before:
                    fruitless = 0
                elif not are_more(self._failures, failed):  # these have a separate limit, and end only a processor
                    fruitless += 1
                if fruitless >= FRUITLESS_MAX:
                    raise HOST_KEEPS_FAILING.error(where=self._path / "host.log", fruitless=fruitless, reason=reason)
                self.restarts += 1
                self._say(f"the Spark application ended ({reason}); starting it again")
            self.standby.end()
            home.kill_leftovers()

    def _pause(self, seconds: float) -> bool:
        self.pulse.rest_as_other()
        self.standby.watch_waiting(self._path)
        return self._stopping.wait(seconds)

    def _begin_standby(self) -> "subprocess.Popen[str]":
        return self._start(self._path)

    def _brief_standby(self, process: "subprocess.Popen[str]", home: Home | None, folder: Path) -> None:
        _send(process, self._host_settings(home, standby=str(folder)))

    def _entrance(self, home: Home) -> "contextlib.AbstractContextManager[Gateway | None]":
        """Return the gateway of requests, if there are any. Its import takes long, and most applications need none."""
        if not self._app.pushed:
            return contextlib.nullcontext()
        from falkirk.runtime.supervision.gateway import Gateway

        return Gateway(self._app, self._connection, home, self._say)

    def _await_executors(self) -> None:
        """Wait until no executor of a former run can still write. The wait has no limit."""
        since_s, said = time.monotonic(), ""
        while not self._rest_or_stop():
            try:
                await_executors(self._path, since_s=since_s, say=self._say, is_stopping=self._rest_or_stop)
                return
            except HomeError as error:
                if error.condition != "LEFTOVER_ALIVE":
                    raise
                if error.message != said:
                    self._say(str(error))
                said = error.message
            self._stopping.wait(ALIVE_PAUSE_S)

    def _rest_or_stop(self) -> bool:
        """Note that the coordinator waits: its length is no fault of the loop. Return whether to stop."""
        self.pulse.rest()
        return self._stopping.is_set()

    def _await_space(self) -> None:
        """Wait until the home can be written. On a full disk a host would end at once."""
        waited = False
        while not self._rest_or_stop():
            try:
                write_atomically(self._path / "space", " " * SPACE_BYTES)
                (self._path / "space").unlink()
                return
            except OSError as error:
                if not is_full(error):
                    raise
            if not waited:
                self._say(f"the disk is full: {self._path}; waiting for space")
            waited, self._died_at_s = True, None
            self._stopping.wait(1.0)

    def _run_host(self, home: Home) -> str | None:
        """Run one host to its end; return why it ended. None: it was a standby, and can't be used."""
        self.pulse.begin()
        status_file = self._path / "status.json"
        status_file.unlink(missing_ok=True)
        log_file = self._path / "host.log"
        if log_file.exists() and log_file.stat().st_size > LOG_BYTES_MAX:
            log_file.replace(self._path / "host.log.1")
        standby = self.standby.take()
        process = self._start(self._path) if standby is None else standby
        limit_s = SILENT_AT_START_S if standby is None else STANDBY_SILENT_S
        try:
            self._watch(process, status_file, home, silent_at_start_s=limit_s)
        finally:
            if self._stopping.is_set() and self._gateway is not None:
                self._gateway.stop()  # first, so that no client waits for a host that stops
            _end(process)
            self._on_end(read_status(status_file) or {})
        if standby is not None and process.returncode == EXIT_UNUSABLE:
            return None
        if process.returncode == EXIT_OVER:
            status = read_status(status_file) or {"regions": []}
            self._note_down(status)
            self.over = status.get("once") or {}
            self.stop()
            return "all input is processed"
        return self._reason(process, status_file, home)

    def _host_settings(self, home: Home | None, standby: str | None = None) -> HostSettings:
        """Return the settings of a host, or of a standby. Args: home: None: this process waits for it."""
        generation = 0 if home is None else home.store.generation
        assert generation is not None, "the holder of the home's lock has become its owner"
        return HostSettings(
            coordinator=os.getpid(),
            generation=generation,
            file=str(self._settings.file.resolve()),
            home=str(self._path.resolve()),
            kafka=self._settings.kafka,
            master=self._settings.master,
            create_topics=self._settings.create_topics,
            force=self._force,
            failures=self._failures,
            standby=standby,
            conf=dict(self._settings.conf),
            secure=self._settings.secure,
            once=self._settings.once,
            leased=self._lease_s is not None,
            keeps_standby=self.standby.is_certain,
            died_at_s=self._died_at_s,
            replaced=None if home is None else home.replaced,
        )

    def _watch(
        self, process: "subprocess.Popen[str]", status_file: Path, home: Home, *,
        silent_at_start_s: float = SILENT_AT_START_S,
    ) -> None:  # fmt: skip
        _send(process, self._host_settings(home))
        seen_at_s, last, limit_s = self._clock.monotonic(), 0.0, silent_at_start_s
        silence = Silence(self._clock.monotonic)
        while process.poll() is None and not self._stopping.wait(0.2):
            self.pulse.turn()
            self._alive_at_s = self._clock.time()
            status = read_status(status_file)
            if status is not None and status["at_s"] != last:
                limit_s = SILENT_AT_START_S if last == 0.0 else limit_s
                last, seen_at_s = status["at_s"], self._clock.monotonic()
                if any(r["state"] == "running" for r in status["regions"]):
                    limit_s, self._force, self._has_run = SILENT_S, False, True
                self.pulse.note_report(limit_s)
                self._commits |= {r["name"]: r["last_commit"] for r in status["regions"] if r["last_commit"] >= 0}
                self._warn(status)
                self._note_down(status)
                self._on_status(status)
                if self._gateway is not None:
                    self._gateway.update(status)
            # Before the request to the store, which may be slow and would make the host look silent.
            if silence.since(seen_at_s) > limit_s:
                self._say(f"the Spark application has been silent for {limit_s:.0f} s; replacing it")
                process.kill()
                return
            self.standby.watch(home, status)
            if stop_asked_if_reachable(home.store):
                self._say("asked to stop")
                self.stop()

    def _warn(self, status: dict[str, Any]) -> None:
        """Print each warning about open ports of the Spark application once."""
        for warning in status.get("exposed", ()):
            if warning not in self._warned:
                self._warned.add(warning)
                self._say(f"warning: {warning}")

    def _note_down(self, status: dict[str, Any]) -> None:
        """Note the processors that stay down, and say why, once each. Note how often others have failed."""
        if status.get("failures") is not None:
            self._failures = status["failures"]
        failed = [region for region in status["regions"] if region.get("condition")]
        self.down = {region["name"]: str(region["detail"]) for region in failed}
        for region in failed:
            name, error = region["name"], self.down[region["name"]]
            if error not in self._warned:
                self._warned.add(error)
                self._say(f"{name} {stays_down(region['condition'])}; independent processors continue. {error}")

    def _reason(self, process: "subprocess.Popen[str]", status_file: Path, home: Home) -> str:
        if (status := read_status(status_file)) is not None:
            self._note_down(status)
        error = (status or {}).get("error")
        self._waits_for = "" if error is None else str(error["condition"])
        if process.returncode == EXIT_FATAL and error is None:
            home.store.require_charge()  # a host that was replaced leaves the status file to its successor
            refuse_copied(home.path)
            raise HOST_SILENT.error(where=self._path / "host.log")
        passes = self._has_run and self._waits_for in _ENDING_STARTS
        if error is not None and process.returncode == EXIT_FATAL and not passes:
            raise SparkError(str(error["condition"]), str(error["text"]))
        if error is not None:
            return str(error["text"])
        return (
            f"killed by signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
        )


def read_status(file: Path) -> dict[str, Any] | None:
    """Return the status that the host published last, or None if there is none or it can't be read now.

    The caller ends the host only after a long silence.
    """
    try:
        content: dict[str, Any] = parse_json(file.read_text())
        known = isinstance(content["at_s"], int | float) and all(
            isinstance(r["state"], str) for r in content["regions"]
        )
        return content if known else None
    except (OSError, ValueError, KeyError, TypeError):  # on a full disk it is overwritten in place, and may be partial
        return None


def _send(process: "subprocess.Popen[str]", settings: HostSettings) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended, which its exit code shows
        process.stdin.write(settings.to_json() + "\n")
        process.stdin.flush()


def _end(process: "subprocess.Popen[str]", *, timeout_s: float = 30.0) -> None:
    """End the host: close its input, which asks it to stop, and kill it after `timeout_s`."""
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):  # it ended before it got its settings, which are still in the buffer
            process.stdin.close()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def are_more(after: Mapping[str, Mapping[str, Any]], before: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether any processor has failed more often in one description of the counts than in another."""

    def times(count: Mapping[str, Any]) -> int:
        return sum(int(count.get(kind, 0)) for kind in ("failures", "strays", "losses", "connections"))

    return any(times(count) > times(before.get(name, {})) for name, count in after.items())
