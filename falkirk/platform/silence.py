"""Silence: how long a region or a host has shown no progress, as far as this process has looked.

A process that stands still looks at nothing: one in a container that is paused, or on a machine that is. Its regions
stand still with it, and none of them hangs. So of the time between two looks, only the first seconds count.
"""

from collections.abc import Callable

#: The time between two looks that counts at most. A turn takes about a second.
LOOK_MAX_S = 10.0
#: How many longer times between two looks are known. Older ones are before the last progress of any region.
_KNOWN = 100


class Silence:
    """The times at which this process has looked at a region or a host. Args: clock: in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._looked_at_s = clock, clock()
        #: The beginnings and ends of longer times without a look.
        self._unseen: list[tuple[float, float]] = []

    def since(self, progressed_at_s: float) -> float:
        """Look; return how long the silence has lasted. Args: progressed_at_s: the last progress."""
        now_s = self._clock()
        if now_s - self._looked_at_s > LOOK_MAX_S:
            self._unseen = [*self._unseen[1 - _KNOWN :], (self._looked_at_s, now_s)]
        self._looked_at_s = now_s
        unseen_s = sum(max(0.0, end - max(begin, progressed_at_s) - LOOK_MAX_S) for begin, end in self._unseen)
        return now_s - progressed_at_s - unseen_s

    def moved(self, progressed_at_s: float) -> float:
        """Look; return when the last progress would have been, if no time between two looks were left out."""
        return self._clock() - self.since(progressed_at_s)
