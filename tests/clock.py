"""Clocks that tests move."""

import time
from collections.abc import Callable
from time import sleep as real_sleep


class MovedClock:
    """A clock as of `falkirk.system.machine_time`, which stands, except while the code under test waits.

    Attributes: now_s: the present time. waits: the times waited so far. meanwhile: called during each wait, at its end.
    """

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s
        self.waits: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def time(self) -> float:
        """See MachineTime."""
        return self.now_s

    def monotonic(self) -> float:
        """See MachineTime."""
        return self.now_s

    def sleep(self, seconds: float, /) -> None:
        """See MachineTime."""
        self.waits.append(seconds)
        self.now_s += seconds
        self.meanwhile()


class SetClock:
    """The clock of this machine, which somebody can set. Attributes: ahead_s: how far it is ahead of the real time."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def time(self) -> float:
        """See MachineTime."""
        return time.time() + self.ahead_s

    def monotonic(self) -> float:
        """See MachineTime."""
        return time.monotonic()

    def sleep(self, seconds: float, /) -> None:
        """See MachineTime."""
        real_sleep(seconds)
