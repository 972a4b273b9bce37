"""Starved: notices a live region whose batches end before they have read a record, and chooses longer ones.

When Spark plans a batch of Real-time Mode, it fixes its end: one interval later. A busy machine may need longer than
that until the task reads for the first time. Its task then reads nothing, and the batch ends and is saved. If that
happens to each batch, the region makes checkpoint after checkpoint, and its input waits for ever. Spark offers no
shorter way to a batch's first record, so the remedy is a longer interval.
"""

import math
from collections.abc import Callable

from falkirk.recovery.protocol.ports import Checkpoint

#: A region is starved if this many checkpoints in a row, at least, cover no record although records waited throughout.
CHECKPOINTS = 5
#: The longest interval that is chosen for a starved region.
_INTERVAL_MAX_S = 60.0


class Starvation:
    """Watches one start of a region. Args: interval_s: the time between its checkpoints, as the region asks for."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        #: The first checkpoint with the present positions, or the one at which it was known that records wait.
        self._since: Checkpoint | None = None
        self._waits = False

    def update(self, newest: Checkpoint, has_input: Callable[[], bool]) -> float | None:
        """Take in the newest checkpoint; return a longer interval in seconds if the region is starved.

        A checkpoint takes as long as the machine needs to start a task, so twice that leaves as much time to read.

        Args: has_input: asks for records behind the newest checkpoint; called at each fifth checkpoint at most.
        """
        since = self._since
        if since is None or newest.read != since.read:
            self._since, self._waits = newest, False
            return None
        count = newest.number - since.number
        if count < CHECKPOINTS or self._interval_s >= _INTERVAL_MAX_S:
            return None
        if not self._waits:
            self._since, self._waits = newest, has_input()
            return None
        apart_s = ((newest.made_at_s or 0.0) - (since.made_at_s or 0.0)) / count
        return min(_INTERVAL_MAX_S, math.ceil(10 * 2 * max(apart_s, self._interval_s)) / 10)
