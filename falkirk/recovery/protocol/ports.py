"""Ports: the interfaces through which the recovery protocol uses regions and logs, and nothing else.

Spark and Kafka implement them, and in tests a simulation does. Every call may fail, and a crash may interrupt it at any
point. The next host then repeats it, so each method says what a repetition does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from falkirk.theory.frontier import Frontier, OffsetFrontier
from falkirk.theory.ids import CheckpointNumber, EpochNumber, LogId, Offset, Positions

LogRange = tuple[LogId, int, Offset, Offset]
"""Records of a topic: (topic, partition, first, last exclusive)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that a region can go back to.

    Args:
        number: grows with time; -1 is the initial state.
        read: for each partition of its inputs, how much is in the state.
        sent: for each partition of its output, a position before every record caused by input beyond `read`: φ. The
            later it is, the less its readers have to roll back.
        needs: the region never reads input before this again when it resumes from here; None: `read`, because most
            regions read each input once.
        made_at_s: when it became durable; None for the initial state.
        detail: a remark on how it was made.
    """

    number: CheckpointNumber
    read: OffsetFrontier
    sent: OffsetFrontier
    needs: OffsetFrontier | None = None
    made_at_s: float | None = None
    detail: str = ""

    @property
    def reads_from(self) -> OffsetFrontier:
        """The position before which no input is read again when the region resumes from here."""
        return self.read if self.needs is None else self.needs


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health of a region.

    Args: runs: False: it is dead, or was never started. progressed_at_s: when it last made progress or was seen to have
        no work. hung_after_s: if it runs without progress for longer than this, it hangs; a region that is only slow is
        left alone. ready_at_s: a dead region must not be started before this time.
    """

    runs: bool
    progressed_at_s: float = 0.0
    hung_after_s: float = math.inf
    ready_at_s: float = 0.0


class RegionPort(Protocol):
    """One region. At most one incarnation of it may be valid at any time, even if former ones still run."""

    def health(self) -> Health:
        """Return its health. Called at each tick; changes nothing."""

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Return the undamaged checkpoints, oldest first, from the region's own durable logs.

        They include -1 as long as the input reaches back to it.
        """

    def cuts(self, after: EpochNumber) -> Sequence[tuple[EpochNumber, OffsetFrontier]]:
        """Return where the epochs after a number end in the inputs, oldest first; nothing for a live region.

        These are all epochs that are decided and not void, complete or not, from the oldest of `checkpoints` on.
        """

    def fence(self) -> None:
        """Stop it, and ensure that no record of a former incarnation can still arrive in its output. Idempotent."""

    def beyond(self, number: CheckpointNumber, upto: Frontier) -> tuple[LogRange, ...]:
        """Return the records of its output that were caused by input beyond `upto` and are not void yet.

        The region is fenced, and goes back to checkpoint `number`, which lies within `upto`, a frontier of its time
        domain. A deterministic region computes the input between the two again with the same results, so these records
        stay. φ alone is not enough: it may lag, and records after it that are in the checkpoint's state would not be
        sent again.
        """

    def rewind(self, number: CheckpointNumber) -> None:
        """Make this checkpoint the newest, and delete later ones. The region is fenced. Idempotent."""

    def start(self, number: CheckpointNumber) -> None:
        """Start a new incarnation that resumes from its newest checkpoint, which is `number`. The region is fenced.

        It skips void records of its inputs. It does not send results again that are in its output beyond the checkpoint
        and are not void.
        """

    def keep_only(self, numbers: Sequence[CheckpointNumber]) -> None:
        """Keep these checkpoints until a later call omits them, and delete every other one before the last of them.

        The others are never needed again. `numbers` ascend; checkpoints after the last one stay. Idempotent.
        """

    def set_aside(self, numbers: Sequence[CheckpointNumber]) -> None:
        """Keep checkpoints as `keep_only`, and delete nothing. Spark may delete the others. Idempotent."""


class LogsPort(Protocol):
    """The logs between regions, and those to and from other systems."""

    def ends(self, topic: LogId) -> OffsetFrontier:
        """Return where each partition of a topic ends."""

    def copy(self, held: LogId, sink: str, first: OffsetFrontier, last: OffsetFrontier) -> OffsetFrontier:
        """Copy the records of `held` in [first, last) to the end of `sink`, in order and without void ones.

        Returns how far the copy reaches, because it may leave some records for the next call. It does not repeat
        records that an earlier call has copied, even if that call was interrupted.
        """

    def copied(self, held: LogId, sink: str) -> OffsetFrontier:
        """Return how much of `held` is in `sink`, according to the records in the sink."""

    def sink_ends(self, held: LogId, sink: str) -> Positions:
        """Return where the topics to which `held` is copied end now. They must never end earlier again.

        Sinks that are no topics are omitted: see `remains`.
        """

    def remains(self, held: LogId, sink: str, released: OffsetFrontier) -> OffsetFrontier:
        """Return how much of the recorded release of `held` the sink still has.

        It has less after somebody restored an older copy of the sink. Then the rest is copied again, if `held` still
        has it.

        Raises: HomeError: `SINK_BEHIND`: `held` no longer has it.
        """

    def delete_below(self, topic: LogId, below: OffsetFrontier) -> None:
        """Delete the records before these positions. Idempotent."""

    def acknowledge(self, topic: LogId, upto: OffsetFrontier) -> None:
        """Tell other systems that records before these positions are never read again. Idempotent."""
