"""Live first: after a start, batches compute no epoch before the queries of live regions have started.

A start of these queries takes seconds of processor time, and so do the epochs that a failure has interrupted. Results
of live regions are due within milliseconds, and those of epochs within seconds. So epochs wait.
"""

import time
from collections.abc import Callable, Iterable

#: Batches wait for at most this time after a start, since the broker may be away, for example.
LIMIT_S = 45.0


class LiveFirst:
    """Says when batches may work. Their threads ask it.

    Args: monotonic: a clock in seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic, self._until_s = monotonic, 0.0

    def begin(self) -> None:
        """Make batches wait, because live regions are about to start."""
        self._until_s = self._monotonic() + LIMIT_S

    def look(self, begins: Iterable[bool]) -> None:
        """Let batches work unless a live region is still about to start."""
        if not self.batches_may_work() and not any(begins):
            self._until_s = 0.0

    def batches_may_work(self) -> bool:
        """Return whether batches may work."""
        return self._monotonic() >= self._until_s
