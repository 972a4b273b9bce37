"""Strays: folders of a batch that no epoch uses, left by an interrupted run or by void epochs.

They are noted while the batch stands still, because a running one has folders without a record. They are deleted later:
if the home is an older copy, a sink of any processor may show it, and the right copy has records of these folders.
"""

import logging
import time
from functools import partial

from falkirk.errors import StoreError, is_away
from falkirk.platform.machine_time import MachineTime
from falkirk.platform.parallel import BackgroundCall
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.retry import pause_s

log = logging.getLogger("falkirk")


class Strays:
    """The strays of one batch. Args: epochs: its log. store: with the log's records. clock: measures pauses."""

    def __init__(self, epochs: EpochLog, store: Store, clock: MachineTime = time) -> None:
        self._epochs, self._store, self._clock = epochs, store, clock
        self._noted = list[str]()
        self._dropping: BackgroundCall[None] | None = None
        #: The folders that the thread has not deleted yet.
        self._left = list[str]()
        self._failures, self._not_before_s = 0, 0.0

    def note(self) -> None:
        """Note the folders that are there. The batch must stand still.

        Raises: StoreError: `HOME_TAKEN_OVER`: another owner may be writing some of them.
        """
        there = [path.name for path in self._epochs.folder.children()]
        self._store.require_charge()  # when these were listed, no other owner had begun a folder
        self._noted = there

    def drop_later(self) -> None:
        """Delete the noted folders that no epoch uses, in another thread: in an object store, each takes requests.

        Call it at intervals. After an error that passes, a later call deletes the others.

        Raises: StoreError: the deletion failed otherwise.
        """
        if self._dropping is not None:
            if not self._dropping.is_done:
                return
            self._take(self._dropping)
        if self._noted and self._clock.monotonic() >= self._not_before_s:
            self._left, self._noted = self._noted, []
            self._dropping = BackgroundCall(partial(self._drop, self._left), name=f"strays-{self._epochs.region}")

    def finish(self, timeout_s: float) -> bool:
        """Wait for the thread; return whether it has ended."""
        return self._dropping is None or self._dropping.wait(timeout_s)

    def _take(self, dropping: BackgroundCall[None]) -> None:
        """Take the result of the thread. Raises: as `drop_later`."""
        left, self._left, self._dropping = self._left, [], None
        self._noted = [*left, *(name for name in self._noted if name not in left)]
        try:
            dropping.result()
        except StoreError as error:
            if not is_away(error):
                raise
            if not self._failures:
                log.warning("%s: its old folders can't be deleted now: %s", self._epochs.region, error.message)
            self._failures += 1
            self._not_before_s = self._clock.monotonic() + pause_s(self._failures + 1)
        else:
            self._failures = 0

    def _drop(self, left: list[str]) -> None:
        """Delete folders. Args: left: the names of those that are not deleted yet; it shrinks."""
        used = self._epochs.used()
        while left:
            if left[-1] not in used:
                self._epochs.drop(left[-1])
            left.pop()
