"""Ports: what the coordinator needs of regions and of logs, and nothing else of the world.

Spark and Kafka stand behind them in earnest, a simulation in tests. Every call may fail, may be cut off by a crash at
any point, and is then made again by the next coordinator: so each says what doing it twice means.
"""

import math
from dataclasses import dataclass
from typing import Protocol

from falkirk.theory.frontier import OffsetFrontier

Range = tuple[str, int, int, int]
"""Records of a topic: (topic, partition, first, last exclusive)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A checkpoint that a region can go back to.

    Args:
        number: grows with time; -1 is the initial state.
        read: of each partition of its inputs, how much is in the state.
        sent: of each partition of its output, a position before everything that it has sent because of what lies
            beyond `read`: φ. The later, the less its readers have to go back with it.
        needs: what lies before it will never be read again by whoever goes on from here; None: `read`, since most read
            a thing once.
        made_at_s: when it became durable; None for the initial state.
        detail: what there is to say of how it was made.
    """

    number: int
    read: OffsetFrontier
    sent: OffsetFrontier
    needs: OffsetFrontier | None = None
    made_at_s: float | None = None
    detail: str = ""

    @property
    def reads_from(self) -> OffsetFrontier:
        """Before what nothing will be read again, going on from here."""
        return self.read if self.needs is None else self.needs


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How a region is.

    Args: runs: False: it is dead, or was never started. progressed_at_s: when it last got on or was seen to have
        nothing to do. hung_after_s: one that runs and has not got on for longer hangs; one that is only slow is left
        alone. ready_at_s: one that is dead is not to be started before.
    """

    runs: bool
    progressed_at_s: float = 0.0
    hung_after_s: float = math.inf
    ready_at_s: float = 0.0


class RegionPort(Protocol):
    """One region: at most one incarnation of it is wanted at any time, whatever former ones still do."""

    def health(self) -> Health:
        """Return how it is. Called at each tick; changes nothing."""

    def points(self) -> tuple[Point, ...]:
        """Return the checkpoints that are whole, oldest first, -1 among them while the input reaches back to it; read
        from the region's own durable logs."""

    def fence(self) -> None:
        """Stop it, and see to it that nothing of any former incarnation arrives in its output any more. Twice is as
        once."""

    def beyond(self, number: int, upto: OffsetFrontier) -> tuple[Range, ...]:
        """Return the records of its output that input beyond `upto` has caused, and that are not voided yet.

        The region is fenced, and goes back to checkpoint `number`, which lies within `upto`. A deterministic region
        computes the input between the two again with the same results, so these stay. φ alone would not do: it may
        lag, and records behind it that are in the checkpoint's state would not be sent again.
        """

    def rewind(self, number: int) -> None:
        """Make this checkpoint the newest, and drop what lies beyond it. The region is fenced. Twice is as once."""

    def start(self, number: int) -> None:
        """Start a new incarnation that goes on from its newest checkpoint, which is `number`. The region is fenced.

        What is recorded as voided of its inputs it skips; what is in its output beyond the checkpoint and is not
        voided it does not send again.
        """

    def discard_below(self, number: int) -> None:
        """Drop the checkpoints before this one. Nothing will ask for them again. Twice is as once."""


class LogsPort(Protocol):
    """The logs between regions, and to and from the outside."""

    def ends(self, topic: str) -> OffsetFrontier:
        """Return where each partition of a topic ends."""

    def copy(self, held: str, sink: str, first: OffsetFrontier, last: OffsetFrontier) -> OffsetFrontier:
        """Copy what `held` has in [first, last) to the end of `sink`, in order and without what is voided; return how
        far it came, for it may leave some of much for the next time.

        What an earlier call, cut off or not, has copied of it already is not copied again.
        """

    def copied(self, held: str, sink: str) -> OffsetFrontier:
        """Return how much of `held` is in `sink`, by what is found there."""

    def remains(self, held: str, sink: str, released: OffsetFrontier) -> OffsetFrontier:
        """Return how much of what was recorded as released of `held` the sink still has: less after somebody restored
        an older copy of the sink. The rest is copied again, so `held` still has it.

        Raises: HomeError: `SINK_BEHIND`: `held` no longer has it.
        """

    def delete_below(self, topic: str, below: OffsetFrontier) -> None:
        """Drop the records before these positions. Twice is as once."""

    def acknowledge(self, topic: str, upto: OffsetFrontier) -> None:
        """Tell the outside that what lies before these positions will never be read again. Twice is as once."""
