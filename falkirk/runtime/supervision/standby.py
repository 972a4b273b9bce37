"""Standby: a second host that has started Spark and planned already, and waits to take over from the first.

A kill of the host costs a new JVM, a Spark session, planning, and the first query of each region with cold code. All
this happens before a host takes charge of its home, so a standby can do it while the first host runs (prepared.py).
When that host has ended and its processes are killed, the coordinator sends the standby the settings of a host. From
then on it is a host like any other.

A standby never ends an application. One that ends or hangs is started again, a few times.

A process that waits for the lease of a home has a standby too. The home does not record it, because the owner's standby
is recorded there. It ends when its coordinator dies.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from falkirk.platform import priority
from falkirk.platform.machine_time import MachineTime
from falkirk.platform.memory import available_bytes, idle_s
from falkirk.platform.processes import kill_tree
from falkirk.recovery.ownership.folder import SCRATCH, Home
from falkirk.recovery.ownership.process_records import ProcessRecord
from falkirk.runtime.supervision.settings import PLAN, STATE, WARM
from falkirk.spark_setup.exposure import is_local

#: The environment variable that decides if the command does not: 0 or 1.
VARIABLE = "FALKIRK_STANDBY"
#: A standby starts by itself only if this much memory is available. It uses a third of it.
NEEDED_BYTES = 2_500_000_000
#: A standby computes for half a minute, and would delay the results of an application that needs all CPU cores. If it
#: can't have the lowest priority meanwhile, it starts by itself only if this number of cores was idle over this time.
IDLE_PROCESSORS, MEASURED_S = 1.0, 10.0
#: The time until memory and processors are looked at again.
_POLL_S = 60.0
#: Results flow once a region has made a checkpoint, or all have run for this time.
STEADY_S = 30.0
#: A standby that has not planned after this time hangs. With the lowest priority, it may have to wait for the others.
READY_S, READY_AT_LOWEST_S = 180.0, 1800.0
#: A standby that has taken charge writes its first status within this time, or it hangs.
STANDBY_SILENT_S = 20.0
#: After this many standbys in a row that ended or hung, there is none. Before each, a longer pause.
TRIES_MAX = 3
FAILED_PAUSE_S = 30.0
_KILL_S = 20.0


class Standby:
    """At most one standby of a coordinator; a context manager that ends it. Not thread-safe.

    Args: start: starts a process that waits for settings. send: sends it those of a standby that has this scratch
        folder. say: receives a line for the user. wanted: True, False, or None: if the machine has memory for it.
        master: of Spark. clock: of this machine.
    """

    def __init__(
        self, start: "Callable[[], subprocess.Popen[str]]",
        send: "Callable[[subprocess.Popen[str], Home | None, Path], None]", say: Callable[[str], None], *,
        wanted: bool | None, master: str | None, clock: MachineTime = time,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._start, self._send, self._say, self._master = start, send, say, master
        setting = os.environ.get(VARIABLE, "")
        self._wanted = wanted if wanted is not None or setting not in ("0", "1") else setting == "1"
        self._is_possible = master is None or is_local(master)
        #: Whether one is kept without regard to memory and processors.
        self.is_certain = self._is_possible and self._wanted is True
        self._process: subprocess.Popen[str] | None = None
        #: The home that records it.
        self._home: Home | None = None
        self._folder: Path | None = None
        #: The folder of the standby that has become the host.
        self._former: Path | None = None
        self._began_s, self._next_s, self._tries = 0.0, 0.0, 0
        #: Whether it has warmed up.
        self.is_warm = False
        self._has_said = False
        #: Whether it has the lowest priority, while it warms up.
        self._is_lowered = False
        self._first: dict[str, int] | None = None
        self._running_since_s = 0.0
        #: When the processors were looked at, and for how many seconds they had been idle.
        self._idle: tuple[float, float] | None = None

    def __enter__(self) -> "Standby":
        if self._wanted and not self._is_possible:
            self._say(f"there is no standby with the master {self._master}: it needs a local one")
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int | None:
        """The process, if there is one."""
        return None if self._process is None else self._process.pid

    def watch(self, home: Home, status: dict[str, Any] | None) -> None:
        """Start a standby once results flow, and replace one that has failed. Call it a few times a second.

        Args: home: records the standby. status: the newest status of the host.
        """
        if self._process is not None:
            if self._look() and not self._has_said:
                self._has_said = True
                self._say("a warm standby is ready: after a failure, the application returns within seconds")
        elif self._may_start() and status is not None and self._is_steady(status) and self._has_room():
            self._begin(home)

    def watch_waiting(self, home: Path) -> None:
        """Do the same for a process that waits for the lease of a home. Args: home: the folder."""
        if self._process is not None:
            if self._look():
                self._say("waiting with a warm Spark application")
        elif self._may_start() and (home / PLAN).exists() and self._has_room():  # it has run, so its topics exist
            self._begin(None)

    def _look(self) -> bool:
        """Replace a standby that has ended or hangs. Return whether it has just become warm."""
        assert self._process is not None
        limit_s = READY_AT_LOWEST_S if self._is_lowered else READY_S
        if self._process.poll() is not None:
            self._fail(f"ended with exit code {self._process.returncode}")
        elif not self._is_ready() and self._clock.monotonic() - self._began_s > limit_s:
            self._fail(f"was not ready after {limit_s:.0f} s")
        elif not self.is_warm and self._folder is not None and _state(self._folder) == WARM:
            self.is_warm = True
            self._raise()
            return True
        return False

    def _raise(self) -> None:
        if self._is_lowered and self._process is not None:
            priority.restore(self._process.pid)
            self._is_lowered = False

    def take(self) -> "subprocess.Popen[str] | None":
        """Return the standby if it is ready, else kill it. Call it when the host has ended: another one begins."""
        self._first = self._idle = None
        if self._process is None or self._process.poll() is not None or not self._is_ready():
            self.end()
            return None
        self._raise()
        self.is_warm = False
        self._forget_former()
        self._former, self._folder = self._folder, None
        process, self._process, self._tries = self._process, None, 0
        return process

    def end(self) -> None:
        """Kill the standby, if there is one. No host that was one may run."""
        self._kill()
        self._forget_former()

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                kill_tree(psutil.Process(process.pid), _KILL_S)
            with contextlib.suppress(subprocess.TimeoutExpired):  # it writes nothing
                process.wait(_KILL_S)
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
            if self._home is not None:
                self._home.forget_standby()
            self.is_warm = self._is_lowered = False
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _forget_former(self) -> None:
        if self._former is not None:
            shutil.rmtree(self._former, ignore_errors=True)
            self._former = None

    def _may_start(self) -> bool:
        waits = self._clock.monotonic() < self._next_s or self._tries >= TRIES_MAX
        return self._is_possible and self._wanted is not False and not waits

    def _is_steady(self, status: dict[str, Any]) -> bool:
        """Return whether results flow, so that a standby delays none by its start."""
        regions = status["regions"]
        if not regions or any(r["state"] not in ("running", "failed") for r in regions):
            return False
        commits = {r["name"]: int(r["last_commit"]) for r in regions}
        if self._first is None:
            self._first, self._running_since_s = commits, self._clock.monotonic()
        flow = all(commits.get(name) != first for name, first in self._first.items())
        return flow or self._clock.monotonic() - self._running_since_s > STEADY_S

    def _has_room(self) -> bool:
        """Return whether the machine has memory and idle CPU cores for a standby, or the user wants one anyway."""
        if self._wanted:
            return True
        if priority.can_be_lowered() and available_bytes() >= NEEDED_BYTES:
            return True
        now_s, before, self._idle = self._clock.monotonic(), self._idle, (self._clock.monotonic(), idle_s())
        if before is None:
            self._next_s = now_s + MEASURED_S
            return False
        is_idle = self._idle[1] - before[1] >= IDLE_PROCESSORS * (self._idle[0] - before[0])
        if is_idle and available_bytes() >= NEEDED_BYTES:
            return True
        self._next_s = now_s + _POLL_S
        return False

    def _is_ready(self) -> bool:
        return self._folder is not None and (self._folder / STATE).exists()

    def _begin(self, home: Home | None) -> None:
        self._began_s, self._home = self._clock.monotonic(), home
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=SCRATCH))
            self._process = self._start()
            if priority.can_be_lowered():
                priority.lower(self._process.pid)
                self._is_lowered = True
            if home is not None:
                home.record_standby(ProcessRecord.of(self._process.pid, "standby"), self._folder)
            self._send(self._process, home, self._folder)  # not before: it fills the folder
        except (OSError, psutil.NoSuchProcess) as error:
            self._fail(f"could not be started ({error})")

    def _fail(self, reason: str) -> None:
        self._kill()
        self._tries += 1
        self._next_s = self._clock.monotonic() + FAILED_PAUSE_S * self._tries
        if self._tries == 1:
            self._say(f"the standby {reason}; host.log has more. The application continues")


def _state(folder: Path) -> str:
    try:
        return (folder / STATE).read_text()
    except OSError:
        return ""
