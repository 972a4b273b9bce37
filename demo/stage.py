"""Stage: the common part of both demos: a folder with a broker, and an application that can be killed."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import psutil

from falkirk.declare.load import load_application
from falkirk.errors import FalkirkError
from falkirk.platform.terminal import Terminal
from falkirk.recovery.ownership.process_records import ProcessRecord
from falkirk.runtime.supervision.coordinator import Coordinator, read_status
from falkirk.runtime.supervision.settings import RunSettings
from falkirk.spark_setup import broker as local_broker
from falkirk.spark_setup.cache import cache_home

#: The longest time to wait for a warm standby before the kill. A machine without the memory for one has none.
STANDBY_S = 90.0


def example(file: str) -> Path:
    """Return an example of this repository."""
    return Path(__file__).parents[1] / "examples" / file


@contextlib.contextmanager
def workplace(*, keep: bool, console: Terminal) -> Iterator[Path]:
    """Yield a fresh folder for one run. At the end, stop its broker and remove it.

    First it removes the folders of demos that were killed with -9: each has a lock that no process holds.
    """
    root = cache_home() / "demo"
    root.mkdir(parents=True, exist_ok=True)
    with open(root / ".lock", "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        for former in sorted(root.glob("*/lock")):
            with contextlib.suppress(BlockingIOError):
                os.close(_lock(former))
                _clear(former.parent)
        folder = Path(tempfile.mkdtemp(dir=root))
        held = _lock(folder / "lock")
    try:
        yield folder
    finally:
        with undisturbed():
            if keep:
                (folder / "lock").unlink()
                console.print(f"kept {folder}; its broker still runs, so stop it yourself", soft_wrap=True)
            else:
                _clear(folder)
            os.close(held)


def _lock(file: Path) -> int:
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    return handle


def _clear(folder: Path) -> None:
    local_broker.stop(folder / "broker")
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C, so that a second one does not interrupt the clean-up after the first."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Audience(Protocol):
    """Receives the messages and the status of the application."""

    def say(self, text: str) -> None:
        """Receive a line. Any thread may call this."""

    def take(self, status: dict[str, Any]) -> None:
        """Receive the host's status. Any thread may call this."""


class Performance:
    """An application under its coordinator, in a separate thread."""

    def __init__(self, file: Path, bootstrap: str, home: Path, audience: Audience) -> None:
        self.home = home
        run = RunSettings(file=file, kafka=bootstrap, home=home)
        self._coordinator = Coordinator(load_application(file), run, say=audience.say, on_status=audience.take)
        self._error: FalkirkError | None = None
        self._thread = threading.Thread(target=self._run, name="demo-coordinator", daemon=True)

    def _run(self) -> None:
        try:
            self._coordinator.run()
        except FalkirkError as error:
            self._error = error

    def start(self) -> None:
        """Start the application."""
        self._thread.start()

    def has_ended(self) -> bool:
        """Return whether the application has ended."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Stop the application, and wait until all its processes have ended."""
        self._coordinator.stop()
        if self._thread.ident is not None:
            self._thread.join()

    def check(self) -> None:
        """Raise the error that ended the application, if any."""
        if self._error is not None:
            raise self._error

    def has_warm_standby(self) -> bool:
        """Return whether another Spark application is ready to take over."""
        return self._coordinator.standby.is_warm

    def kill(self) -> int:
        """Kill the host's Python and its JVM at once, like a power failure. Return the number of processes."""
        pids = [json.loads((self.home / "status.json").read_text())["pid"]]
        for entry in json.loads((self.home / "processes.json").read_text())["processes"]:
            if ProcessRecord(**entry).find() is not None:
                pids.append(entry["pid"])
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()
        return len(pids)


def suppressed(home: Path) -> dict[str, int]:
    """Return how many results the present incarnation of each region found already published."""
    status = read_status(home / "status.json") or {"regions": []}
    return {region["name"]: region["suppressed"] for region in status["regions"]}


class Counting(Protocol):
    """Counts the records that it has received."""

    received: int


def linger(*readers: Counting, quiet_s: float = 2.0) -> None:
    """Wait until the readers have received nothing for a while, because duplicates can arrive late."""
    last, since_s = [r.received for r in readers], time.monotonic()
    while time.monotonic() - since_s < quiet_s:
        now = [r.received for r in readers]
        if now != last:
            last, since_s = now, time.monotonic()
        time.sleep(0.05)
