"""Failures: counts how often each processor has failed since its last checkpoint, across Spark applications.

Some failures end the Spark application: each failure of a live region on a cluster, and memory that ran out. The next
host would know nothing of them, and a value that causes one would restart Spark without end. So a host puts its counts
into its status, and the coordinator gives them to the next host. A processor that has failed too often is not started
there, and the others run. A new start of the application begins without counts. Without a coordinator, a file of the
home keeps them from one Spark application to the next (counts.py).

Not counted: a full disk, a schema registry that does not answer, a stray connection to a port of Spark's, and a machine
that is too busy for short batches. Others cause them, and they say nothing about the processor. A damaged checkpoint is
not counted either, and clears the count: it explains the failures before it, and the next start is from another
checkpoint. A connection that another task has closed counts a quarter, because the failure of that task is the cause.

An executor (or the JVM, on one machine) that dies says little: perhaps a value killed it, and perhaps its machine was
switched off. So such an end of the Spark application counts once for each processor that was running, had input, and
made no progress in that application. Progress clears the count. When a count is one short of the limit, the next host
starts these processors one at a time, each after the progress of the one before it. So at the last count, no other of
them is running, and only the processor whose input kills executors reaches the limit.
"""

from bisect import bisect_left
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from falkirk.errors import AWAY, SparkError
from falkirk.errors.conditions.supervision import REGION_KEEPS_FAILING, REGION_KEEPS_FAILING_LOSSES
from falkirk.errors.location import SourceLocation
from falkirk.platform.disk import is_full
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.runtime.spark.causes import is_lost_connection, is_stray, registry_away
from falkirk.runtime.spark.retry import FAILURES_MAX, pause_s
from falkirk.theory.ids import Offset
from falkirk.theory.times import TopicPartition

#: The number of lost Spark applications in a row, without progress, after which a processor stays down.
LOSSES_MAX = FAILURES_MAX
#: How many failures that name a lost connection alone count as one. Their cause is the failure of another task, which
#: the next try may show: a damaged checkpoint, for example, from which Falkirk can recover.
CONNECTIONS_PER_FAILURE = 4
#: Conditions that pass with a new Spark application, or once the broker is back.
PASSING = (*AWAY, "SESSION_LOST", "WRITER_STILL_RUNNING", "RELEASE_FAILED")
#: How long a region waits for space on a full disk before its next start.
FULL_S = 5.0
#: How long a region waits for a schema registry before its next start. It has waited longer for each record before.
REGISTRY_S = 2.0
#: A region that has run for so long, and has made a checkpoint, would have met the value on which it failed before.
IDLE_S = 150.0


class Cause(Enum):
    """The cause of a failure, with the beginning of its text in the status."""

    OWN = ""
    FULL = "the disk is full: "
    REGISTRY = "waiting for the schema registry: "
    STRAY = "a stray connection to a port of Spark's streaming shuffle: "
    LOSS = "an executor was lost: "
    CONNECTION = "another task ended first: "
    DAMAGE = "a damaged checkpoint: "
    STARVED = "batches too short: "


def cause_of(error: Exception, *, was_lost: bool) -> Cause:
    """Return the cause of the error that ended a query. Args: was_lost: Spark has lost an executor meanwhile."""
    if is_full(error):
        return Cause.FULL
    if registry_away(error) is not None:
        return Cause.REGISTRY
    if is_stray(error):
        return Cause.STRAY
    return Cause.LOSS if was_lost else Cause.CONNECTION if is_lost_connection(error) else Cause.OWN


def shown_reason(error: Exception) -> str:
    """Return the line about an error for the status: the registry's own, or else the first line of the error."""
    return (registry_away(error) or str(error).split("\n")[0])[:300]


@dataclass(kw_only=True)
class FailureCount:
    """The failures of one processor since its last checkpoint.

    Args: failures: how many count. strays: how many a stray connection caused. reason: the reason of the last one that
        counts. losses: how many Spark applications in a row ended without its progress because executors died.
        connections: how many failures named a lost connection alone.
    """

    failures: int = 0
    strays: int = 0
    reason: str = ""
    losses: int = 0
    connections: int = 0


class Failures:
    """The counts of one host. Args: before: the counts of the host before it, as `describe` returns them."""

    def __init__(self, before: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._counts = {name: FailureCount(**count) for name, count in (before or {}).items()}
        #: The processors that failed in hosts before this one, and that this one has not started yet.
        self._unstarted = {*self._counts}
        #: The processors that have started in this host, and those that have made progress in it.
        self._started, self._progressed = set[str](), set[str]()
        #: The processor on trial, and those that wait for its progress.
        self._on_trial, self._waiting = "", list[str]()

    def of(self, name: str) -> FailureCount:
        """Return the count of a processor."""
        return self._counts.setdefault(name, FailureCount())

    def pause_s(self, name: str, cause: Cause) -> float:
        """Return the pause before the next try after a failure that is not counted yet."""
        count = self.of(name)
        if cause is Cause.REGISTRY:
            return REGISTRY_S
        return (
            FULL_S if cause is Cause.FULL else pause_s(1 + (count.strays if cause is Cause.STRAY else count.failures))
        )

    def add(self, name: str, reason: str, cause: Cause = Cause.OWN) -> None:
        """Count a failure of a processor."""
        count = self.of(name)
        match cause:
            case Cause.OWN:
                count.failures, count.reason = count.failures + 1, reason
            case Cause.STRAY:
                count.strays += 1
            case Cause.CONNECTION:
                count.connections += 1
                if count.connections % CONNECTIONS_PER_FAILURE == 0:
                    self.add(name, reason)
            case Cause.REGISTRY | Cause.STARVED:
                pass
            case Cause.FULL:
                count.failures = 0
            case Cause.DAMAGE:  # it explains the failures before it, and the next start is from another checkpoint
                count.failures = count.connections = 0

    def add_loss(self, name: str, reason: str) -> None:
        """Count, for a processor with input, that the Spark application ended because executors died."""
        if name in self._started and name not in self._progressed:
            count = self.of(name)
            count.losses, count.reason = count.losses + 1, reason

    def has_failed(self, name: str) -> bool:
        """Return whether a processor has failed, or was lost, since it last made progress."""
        return self.of(name) != FailureCount()

    def is_exhausted(self, name: str) -> bool:
        """Return whether a processor has reached the number of failures after which Falkirk gives up."""
        count = self.of(name)
        return count.failures >= FAILURES_MAX or count.losses >= LOSSES_MAX

    def note_progress(self, name: str) -> None:
        """Note that a processor has got further than all that executors have died of."""
        self._progressed.add(name)
        self.of(name).losses = 0

    def forget(self, name: str) -> None:
        """Forget the failures of a processor, because it has got further."""
        self._progressed.add(name)
        self._counts.pop(name, None)

    def forget_all(self) -> None:
        """Forget all failures, because a rollback was requested: the values that caused them may become invalid."""
        self._counts.clear()
        self._unstarted.clear()
        self._waiting.clear()

    # -- trials -------------------------------------------------------------------------------------------------------

    def line_up(self, names: Sequence[str]) -> str:
        """Have the processors with lost Spark applications start one at a time, if one of them is close to the limit.

        Args: names: all processors, upstream first. Returns: those that wait, with commas.
        """
        suspects = [name for name in names if 0 < self.of(name).losses < LOSSES_MAX]
        if any(self.of(name).losses >= LOSSES_MAX - 1 for name in suspects):
            self._on_trial, *self._waiting = suspects
        return ", ".join(self._waiting)

    def waits(self, name: str) -> bool:
        """Return whether a processor has to wait for the trial of another one."""
        return name in self._waiting

    def next_trial(self, down: Container[str]) -> str | None:
        """End the trial of a processor that has made progress or is down; return the next one, which may start now."""
        if not self._waiting or not (self._on_trial in self._progressed or self._on_trial in down):
            return None
        self._on_trial = self._waiting.pop(0)
        return self._on_trial

    # -- starts -------------------------------------------------------------------------------------------------------

    def begin(self, name: str, where: SourceLocation) -> None:
        """Begin a start of a processor.

        The first start in a host is refused if the processor had failed too often before. A later one comes with a
        rollback that moves the processor, and gives it all its tries again.

        Raises: SparkError: as `error`.
        """
        is_first = name in self._unstarted
        self._unstarted.discard(name)
        if self.is_exhausted(name):
            if is_first:
                raise self.error(name, where)
            self._counts.pop(name)
        self._started.add(name)

    def error(self, name: str, where: SourceLocation) -> SparkError:
        """Return the error of a processor that has failed too often."""
        count = self.of(name)
        if count.failures < FAILURES_MAX:
            return REGION_KEEPS_FAILING_LOSSES.error(where=where, region=name, losses=count.losses, reason=count.reason)
        return REGION_KEEPS_FAILING.error(where=where, region=name, failures=count.failures, reason=count.reason)

    def describe(self) -> dict[str, dict[str, Any]]:
        """Return the counts as plain values."""
        return {name: asdict(count) for name, count in sorted(self._counts.items()) if count != FailureCount()}


def has_progressed(
    checkpoints: Sequence[Checkpoint], restored: int, due: Mapping[TopicPartition, Offset], ran_s: float
) -> bool:
    """Return whether a live region has got further than the place where it failed before.

    That place is in the input that was there when it resumed, after the checkpoint from which it resumed. Its
    partition is not known. So the region has got further if a later checkpoint covers more of each partition that had
    input. Progress of other partitions alone says nothing: a batch ends at a time that is fixed when it begins, perhaps
    before the task that would meet the value has begun to read. A partition can't advance beyond the value, so the
    count is cleared only a limited number of times.

    A region without input when it resumed, or that has not failed, has got further if a checkpoint covers more input,
    or if it has run for a while.

    Args: checkpoints: the region's, oldest first. restored: the number of the checkpoint. due: the positions from which
        it resumed, of the partitions that had input; nothing if it has not failed. ran_s: how long it has run.
    """
    first = bisect_left(checkpoints, restored, key=lambda checkpoint: checkpoint.number)
    if len(checkpoints) - first < 2:
        return False
    newest = checkpoints[-1].read
    further = all(newest.length(e) > o for e, o in due.items()) if due else newest != checkpoints[first].read
    return further or ran_s > IDLE_S
