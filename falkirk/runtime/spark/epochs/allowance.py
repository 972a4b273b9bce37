"""Allowance: limits how long the main thread deletes folders before it does its other work.

While an output was not compared with the home, nothing is deleted for hours or days. Afterwards there are thousands of
folders, each of which takes several requests in an object store. Meanwhile the host publishes nothing, and if it shows
no progress for 40 s, the coordinator kills it.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from falkirk.platform.machine_time import MachineTime
from falkirk.theory.ids import EpochNumber

Item = TypeVar("Item")
#: Deletions take at most `DELETING_S` of each `PERIOD_S`, and the time of one folder more. Both in seconds.
DELETING_S, PERIOD_S = 8.0, 10.0
#: States leave the rest of the time to results: an epoch is forgotten once both are deleted.
STATES_SHARE = 0.5


class Allowance:
    """The time that the batches of an application share for deletions.

    Args: clock: measures it. limit_s: of each `PERIOD_S`.
    """

    def __init__(self, clock: MachineTime = time, limit_s: float = math.inf) -> None:
        self._clock, self._limit_s = clock, limit_s
        self._began_s, self._spent_s = clock.monotonic(), 0.0

    def limited(self, items: Iterable[Item], share: float = 1.0) -> Iterator[Item]:
        """Yield items while time is left, and count the caller's work on each of them.

        Args: share: the part of the time that the caller may use up.
        """
        if (now_s := self._clock.monotonic()) - self._began_s >= PERIOD_S:
            self._began_s, self._spent_s = now_s, 0.0
        for item in items:
            began_s = self._clock.monotonic()
            if self._spent_s >= share * self._limit_s:
                return
            yield item
            self._spent_s += self._clock.monotonic() - began_s

    def drop(
        self, folders: Sequence[tuple[EpochNumber, str | None]], drop: Callable[[str], object], first: EpochNumber,
        below: EpochNumber, share: float = 1.0,
    ) -> EpochNumber:  # fmt: skip
        """Delete the folders of the epochs [first, below), in order; return the first epoch that is left, or `below`.

        Args: folders: by epoch, oldest first; None: it has none. drop: deletes one. share: as of `limited`.
        """
        due = [(number, folder) for number, folder in folders if folder is not None and first <= number < below]
        count = 0
        for _, folder in self.limited(due, share):
            drop(folder)
            count += 1
        return due[count][0] if count < len(due) else below
