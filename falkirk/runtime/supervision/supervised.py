"""Supervised: one region or batch, as the host watches it.

The recovery protocol decides where a processor resumes, and starts it through its port. The host watches it: it
decides which errors are permanent, counts failures, and keeps the status that users see.
"""

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from falkirk.errors import FalkirkError, LogError, StoreError
from falkirk.errors.location import SourceLocation
from falkirk.platform.deadline import left_s
from falkirk.recovery.protocol.ports import RegionPort
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.dead_letters import DeadLetters
from falkirk.runtime.spark.status import AWAY_DETAIL, RegionStatus
from falkirk.runtime.supervision.failures import Failures
from falkirk.runtime.supervision.figures import Published
from falkirk.runtime.supervision.measurements import UNKNOWN, Launch
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import LogId, cluster_of

log = logging.getLogger("falkirk")

#: The end of a run with `--once` waits this long, in seconds, until the dead letters are counted.
_COUNTED_S = 10.0
#: Added to the detail of a processor, as long as its outputs were not compared with the home since the start.
KEEPS = "until its outputs are compared with the home, the application deletes no old data"
#: The detail in the status of a processor that waits for the trial of another one.
WAITS = "executors died repeatedly, so processors that had made no progress start one at a time"


@dataclass(frozen=True, kw_only=True)
class Supervision:
    """The parts that all processors of a host share.

    Args: say: receives one line for the user at each event. launch: the start of the host.
    """

    context: Context
    failures: Failures
    say: Callable[[str], None]
    launch: Launch = UNKNOWN


class Supervised(ABC):
    """A processor of an application. Args: where: the user's line that declares it.

    Attributes: status: its state, as users see it.
    """

    def __init__(self, name: str, where: SourceLocation, watch: Supervision) -> None:
        self.name, self.where, self.status = name, where, RegionStatus(name=name)
        self._context, self._failures, self._say = watch.context, watch.failures, watch.say

    @property
    @abstractmethod
    def port(self) -> RegionPort:
        """Through which the protocol starts and stops it."""

    @abstractmethod
    def delays_deletion(self, error: FalkirkError | None) -> bool:
        """Return whether old data stays because not all its outputs were compared with the home since the start.

        Args: error: for which it stays down; None: it does not.
        """

    @abstractmethod
    def prepare(self) -> object:
        """Check its inputs and outputs before anything starts. Raises: HomeError, LogError."""

    @property
    @abstractmethod
    def letters(self) -> DeadLetters | None:
        """Its dead letters. None: it has no topic for them, or was not prepared."""

    def count_letters(self, within_s: float = 0.0) -> None:
        """Count dead letters. Args: within_s: wait this long until all are counted. Raises: LogError, StoreError."""
        if (letters := self.letters) is not None:
            letters.count(self._context.topics.end_positions(letters.topic), within_s)
            self.show_letters()

    def show_letters(self) -> None:
        """Put their number at the last count into the status."""
        self.status.dead_letters = 0 if self.letters is None else self.letters.number

    def close_letters(self) -> None:
        """Close the reader of dead letters. Call it in `stop`."""
        if (letters := self.letters) is not None:
            letters.close()

    @property
    @abstractmethod
    def reads(self) -> tuple[LogId, ...]:
        """The topics that it reads."""

    def waits_for_cluster(self, *, ask: bool = False) -> bool:
        """Return whether another cluster, from which it reads, did not answer at the last look, or does not answer now.

        Its status then names this cluster. Args: ask: do not rely on the last look.
        """
        for topic in filter(cluster_of, self.reads):
            error = self._context.away(topic) or (self._context.ask(topic) if ask else None)
            if error is not None:
                self.wait(f"{AWAY_DETAIL}cluster {cluster_of(topic)}: {error.message}")
                return True
        return False

    def before_start(self) -> bool:
        """Return whether it may start now. Raises: FalkirkError: a start can't help."""
        if self.waits_for_cluster(ask=True):
            return False
        if self._failures.waits(self.name):
            self.status.state, self.status.detail = "waiting", WAITS
            return False
        self._failures.begin(self.name, self.where)
        return True

    @abstractmethod
    def has_input(self) -> bool:
        """Return whether there is input that it has not completed. Raises: LogError, StoreError."""

    @abstractmethod
    def poll(self) -> FalkirkError | None:
        """Check it once; return the error for which it has to stay down, if there is one.

        Raises: LogError, StoreError: the broker or the store is away. SparkError: `SESSION_LOST`.
        """

    @abstractmethod
    def count_failure(self, reason: str) -> None:
        """Count a failure, just before the protocol starts it again. Raises: SparkError: `REGION_KEEPS_FAILING`."""

    @abstractmethod
    def refresh(self) -> None:
        """Update the status if it was started since."""

    @abstractmethod
    def describe(self, published: Published, released: OffsetFrontier) -> dict[str, Any]:
        """Return its figures as plain values. Args: as of `figures.LiveFigures.describe`."""

    @abstractmethod
    def wait(self, reason: str) -> None:
        """Show the reason for the wait in the status, and do not count the time."""

    @abstractmethod
    def leave_off(self) -> None:
        """Begin no further work. Callers of `stop` wait only for a limited time."""

    @abstractmethod
    def stop(self, until_s: float = math.inf) -> None:
        """Stop it. Args: until_s: the monotonic time until which it may wait for work that can be done again."""

    @abstractmethod
    def flush(self) -> None:
        """Send the results that this process still holds for it; it must be stopped. May block. Raises: SparkError."""


def count_all_letters(units: Iterable[Supervised]) -> None:
    """Count the dead letters of a run that is over. No later turn counts those of its last results."""
    until_s = time.monotonic() + _COUNTED_S
    for unit in units:
        try:
            unit.count_letters(left_s(_COUNTED_S, until_s))
        except (LogError, StoreError) as error:  # the work is done, so the run does not wait
            log.warning("%s: not all of its dead letters are counted: %s", unit.name, error.message)


def statuses(
    units: Mapping[str, Supervised],
    down: Mapping[str, FalkirkError],
    waiting: Mapping[str, FalkirkError],
    *,
    may_delete: bool = True,
) -> tuple[RegionStatus, ...]:
    """Return a copy of the status of each processor, upstream first.

    Args: down: those that stay down. waiting: those whose results wait for their sink. may_delete: False: some outputs
        were not compared with the home since the start, so no old data is deleted.
    """
    found = [unit.status.copy() for unit in units.values()]
    for status in found:
        if (reason := waiting.get(status.name)) is not None:
            status.detail = f"results wait. {reason.condition}: {reason}"
    found = [status if (error := down.get(status.name)) is None else status.failed(error) for status in found]
    for status in found if not may_delete else ():
        if status.detail and units[status.name].delays_deletion(down.get(status.name)):
            status.detail = f"{status.detail}; {KEEPS}"
    return tuple(found)
