"""Pulse: whether the coordinator's loop turns, and whether its host reports. Probes read it from another thread.

A machine that stands still is no fault of the loop or the host: see platform/silence.py. The server of the probes looks
often, so that a loop that hangs alone is distinguished from a machine that stood still.
"""

import threading
import time
from collections.abc import Callable

from falkirk.platform.silence import Silence

#: The loop stands still if the coordinator has not looked at its host for this time. A stop of a host takes up to 30 s.
TURN_S = 60.0


class Pulse:
    """The last signs of life of a coordinator and its host. Args: limit_s: a host that is silent for longer hangs."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._limit_s, self._at_start_s = clock, limit_s, limit_s
        self._turned_at_s = self._reported_at_s = clock()
        self._looking, self._silence = threading.Lock(), Silence(clock)
        self.hosts = 0
        #: Whether the present host has reported.
        self.has_reported = False
        #: Whether the coordinator waits, so that no host of its own runs.
        self._rests = False

    def begin(self) -> None:
        """Note that the coordinator starts a host."""
        self._turned_at_s = self._reported_at_s = self._clock()
        self._limit_s, self.has_reported, self._rests = self._at_start_s, False, False
        self.hosts += 1

    def turn(self) -> None:
        """Note that the coordinator looks at its host."""
        self._turned_at_s = self._clock()

    def rest(self) -> None:
        """Note that the coordinator waits before it starts a host, for example for space on the disk.

        The wait is no fault of the coordinator, so it stays healthy. But no host reports, and `silent_s` says so.
        """
        self._turned_at_s, self._rests, self.has_reported = self._clock(), True, False

    def rest_as_other(self) -> None:
        """Note that the coordinator waits for another process that runs the application, and so misses no report."""
        self.rest()
        self._reported_at_s = self._clock()

    def note_report(self, limit_s: float) -> None:
        """Note that the host has reported. Args: limit_s: a host that is silent for longer hangs."""
        self._limit_s, self.has_reported, self._rests = limit_s, True, False
        self._reported_at_s = self._clock()

    @property
    def silent_s(self) -> float:
        """The time since the last report of a host, or since the start of the present one."""
        return self._clock() - self._reported_at_s

    def look(self) -> None:
        """Note that this process runs. Call it several times within `LOOK_MAX_S` while probes are served."""
        self._silent_s(self._reported_at_s)

    def failing(self) -> str:
        """Return why the application is not healthy; empty: it is."""
        if (still_s := self._silent_s(self._turned_at_s)) > TURN_S:
            return f"the coordinator has not looked at its host for {still_s:.0f} s"
        if not self._rests and (silent_s := self._silent_s(self._reported_at_s)) > self._limit_s:
            return f"the host has been silent for {silent_s:.0f} s"
        return ""

    def _silent_s(self, since_s: float) -> float:
        with self._looking:  # each request has a thread
            return self._silence.since(since_s)
