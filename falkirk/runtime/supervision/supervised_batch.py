"""Supervised batch: a batch as the host watches it. It retries its epochs itself, and reports other failures."""

import logging
import math
import time
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from falkirk.errors import FalkirkError
from falkirk.errors.conditions.supervision import EPOCH_KEEPS_FAILING, SESSION_LOST_GONE
from falkirk.errors.spark import JVM_DIED, JVM_ERRORS, first_line
from falkirk.runtime.spark.dead_letters import DeadLetters
from falkirk.runtime.spark.epochs.log import Epoch
from falkirk.runtime.spark.epochs.region import BatchRegion
from falkirk.runtime.supervision.figures import BatchFigures, Published
from falkirk.runtime.supervision.supervised import Supervised, Supervision
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import LogId

log = logging.getLogger("falkirk")


class SupervisedBatch(Supervised):
    """One batch of a plan."""

    def __init__(self, batch: BatchRegion, watch: Supervision) -> None:
        super().__init__(batch.batch.name, batch.batch.where, watch)
        self._region, self._figures = batch, BatchFigures(batch, time.time())
        #: The newest complete epoch and the number of published epochs when dead letters were last counted.
        self._counted: tuple[int, int] | None = None
        #: The newest saved epoch, once it was looked at.
        self._saved: int | None = None
        #: The newest complete epoch, once it was looked at.
        self._complete: int | None = None

    @property
    def port(self) -> BatchRegion:
        """See Supervised."""
        return self._region

    def delays_deletion(self, error: FalkirkError | None) -> bool:
        """See Supervised. Its sinks are asked while it is down, too."""
        return self._region.releaser is not None and not self._region.releaser.has_compared

    def prepare(self) -> object:
        """See Supervised."""
        record = self._region.prepare()
        self.show_letters()
        return record

    @property
    def letters(self) -> DeadLetters | None:
        """See Supervised."""
        return self._region.letters

    @property
    def reads(self) -> tuple[LogId, ...]:
        """See Supervised."""
        return tuple(given.log for given in self._region.batch.inputs if given.topic is not None)

    def poll(self) -> FalkirkError | None:
        """See Supervised."""
        fatal = None
        if (error := self._region.failure()) is not None:
            self._region.end()
            fatal = self._fatal(error)
            if fatal.condition == "SESSION_LOST" and fatal.parameters.get("region") == self.name:
                self._failures.add(self.name, fatal.message)
        self._note_progress()
        return fatal

    def _note_progress(self) -> None:
        region, status, releaser = self._region, self.status, self._region.releaser
        epochs = region.epochs.epochs()
        self._figures.update(epochs)
        complete = [e for e in epochs if e.is_complete]
        if complete:
            status.last_commit = complete[-1].number
            # Dead letters are published with the epoch's results, which is later.
            so_far = status.last_commit, 0 if releaser is None else releaser.released()
            if self._counted != so_far:
                self.count_letters()
                self._counted = so_far if self.letters is None or self.letters.is_complete else None
        known, self._complete = self._complete, complete[-1].number if complete else -1
        if known is not None and self._complete > known and self._keeps_epochs:
            self._failures.note_progress(self.name)
        before, self._saved = self._saved, _last_saved(epochs)
        if before is not None and self._saved > before:
            self._failures.forget(self.name)
        made_at_s = complete[-1].made_at_s if complete else None
        status.checkpoint_age_s = None if made_at_s is None else time.time() - made_at_s
        if self._failures.waits(self.name):
            return
        status.detail = "; ".join(d for d in (region.jobs.detail, "" if releaser is None else releaser.detail) if d)
        status.state = "running" if region.health().runs else "starting"

    @property
    def _keeps_epochs(self) -> bool:
        """Whether a restart keeps complete epochs. If not, it repeats those since the last saved one: no progress."""
        return self._region.batch.deterministic or not self._region.batch.is_stateful

    def has_input(self) -> bool:
        """See Supervised."""
        return any(not epoch.is_complete for epoch in self._region.epochs.epochs())

    def _fatal(self, error: Exception) -> FalkirkError:
        if isinstance(error, FalkirkError):
            return error
        if isinstance(error, JVM_DIED):
            return SESSION_LOST_GONE.error()
        final = EPOCH_KEEPS_FAILING.error(where=self.where, region=self.name, reason=first_line(error))
        final.__cause__ = error
        return final

    def count_failure(self, reason: str) -> None:
        """See Supervised. A batch counts the failures of its epochs itself."""

    def refresh(self) -> None:
        """See Supervised. `look` does it."""

    def describe(self, published: Published, released: OffsetFrontier) -> dict[str, Any]:
        """See Supervised."""
        return self._figures.describe(released)

    def wait(self, reason: str) -> None:
        """See Supervised."""
        self.status.detail = reason

    def leave_off(self) -> None:
        """See Supervised. Running epochs may finish."""
        self._region.leave_off()

    def stop(self, until_s: float = math.inf) -> None:
        """See Supervised."""
        try:
            self._region.save_last(until_s)
        except (FalkirkError, *JVM_ERRORS) as error:  # the store is away, or another owner has the home
            log.warning("%s: its state was not saved at the stop: %s", self.name, error)
        self._region.end(until_s)
        self.close_letters()
        self.status.state = "stopped"

    def flush(self) -> None:
        """See Supervised. The host flushes the producers of all releases."""


def _last_saved(epochs: Sequence[Epoch]) -> int:
    """Return the newest saved epoch before the first one that is not complete, or -1."""
    return max((e.number for e in takewhile(lambda e: e.is_complete, epochs) if e.saved), default=-1)
