"""Clocks that tests move."""

import time as of_this_machine
from collections.abc import Callable


class MovedClock:
    """A clock as of `falkirk.platform.machine_time`, which stands, except while the code under test waits.

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

    def advance(self, seconds: float) -> None:
        """Move the clock, as a test does."""
        self.now_s += seconds

    def wait(self, seconds: float, /) -> None:
        """See `MachineTime.sleep`."""
        self.waits.append(seconds)
        self.now_s += seconds
        self.meanwhile()

    sleep = wait


class SetClock:
    """The clock of this machine, which somebody can set. Attributes: ahead_s: how far it is ahead of the real time."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def time(self) -> float:
        """See MachineTime."""
        return of_this_machine.time() + self.ahead_s

    def monotonic(self) -> float:
        """See MachineTime."""
        return of_this_machine.monotonic()

    sleep = staticmethod(of_this_machine.sleep)
