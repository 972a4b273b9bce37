"""Channels: the paths through a region on which order is kept, and the results published on each so far.

Kafka keeps order within a partition, and a pipelined shuffle keeps order between two tasks. So elements that share
source partition, state partition and output partition arrive in the order of their stamps. The barrier works per
channel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from falkirk.theory.stamp import Stamp


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Channel:
    """A path (source, source partition) → state partition (0 where there is no state) → output partition."""

    source: int
    source_partition: int
    state_partition: int
    output_partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """Two elements of one channel whose stamps do not increase: a duplicate or a broken order."""

    channel: Channel
    earlier: Stamp
    later: Stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedTail:
    """The greatest published stamp of each channel: "the last bundle that the consumer has accepted" (§V-A2).

    The greatest stamp is enough only while the elements that a channel has accepted are a *prefix* of the elements sent
    on it. The paper's barrier ensures this by waiting for every acknowledgement. Here the producer ensures it: it is
    idempotent, keeps order and never gives up a record.

    After a producer error that breaks the prefix, the barrier must compare with the set of published stamps: with the
    greatest ones it would lose elements (`gaps` in tests/theory/model.py). It does so until a commit covers everything
    that was published by then (`positions.is_caught_up`). The next commit alone may cover less, and leave holes below
    the greatest stamp.
    """

    greatest: Mapping[Channel, Stamp] = field(default_factory=dict)

    def merge(self, other: "ReleasedTail") -> "ReleasedTail":
        """Return the elements that are published according to either tail."""
        merged = dict(self.greatest)
        for channel, stamp in other.greatest.items():
            merged[channel] = max(stamp, merged.get(channel, stamp))
        return ReleasedTail(greatest=merged)
