"""Channels: the paths through a region on which order is kept, and what each has released so far.

Kafka keeps order within a partition and a pipelined shuffle between two tasks, so elements that share source
partition, state partition and output partition arrive in the order of their stamps. The barrier works per
channel.
"""

from collections.abc import Collection, Iterable, Mapping
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
    """Two elements of one channel whose stamps do not increase: a duplicate, or a broken order."""

    channel: Channel
    earlier: Stamp
    later: Stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedTail:
    """The greatest released stamp of each channel: "the last bundle that the consumer has accepted" (§V-A2).

    It tells what is out already only while what a channel has accepted is a *prefix* of what was sent on it.
    The barrier of the paper ensures that by awaiting every acknowledgement; here the producer does
    (idempotent, in order, never expiring). After an error that breaks it, the set of released stamps must be
    asked (`gaps` tells what the greatest would lose), until a commit covers everything that was released by
    then (`positions.is_caught_up`): one commit alone may cover less, and leave holes below the greatest stamp.
    """

    greatest: Mapping[Channel, Stamp] = field(default_factory=dict)

    def is_released(self, channel: Channel, stamp: Stamp) -> bool:
        """Tell whether an element is out already."""
        last = self.greatest.get(channel)
        return last is not None and stamp <= last

    def merge(self, other: "ReleasedTail") -> "ReleasedTail":
        """Return what is out according to either."""
        merged = dict(self.greatest)
        for channel, stamp in other.greatest.items():
            merged[channel] = max(stamp, merged.get(channel, stamp))
        return ReleasedTail(greatest=merged)


def fold_tail(records: Iterable[tuple[Channel, Stamp]]) -> tuple[ReleasedTail, tuple[Regression, ...]]:
    """Return the tail of records in log order, and where a channel's stamps did not increase."""
    greatest: dict[Channel, Stamp] = {}
    regressions = []
    for channel, stamp in records:
        last = greatest.get(channel)
        if last is not None and stamp <= last:
            regressions.append(Regression(channel=channel, earlier=last, later=stamp))
        else:
            greatest[channel] = stamp
    return ReleasedTail(greatest=greatest), tuple(regressions)


def gaps(
    sent: Iterable[tuple[Channel, Stamp]], released: Collection[tuple[Channel, Stamp]]
) -> tuple[tuple[Channel, Stamp], ...]:
    """Return what was sent and is not out although something later on its channel is, sorted.

    These are just the elements that a barrier made of the greatest stamps would lose. Where all that is out
    is in `sent`, there are none iff each channel has released a prefix. What is missing at a channel's end is
    no gap: a replay releases it.

    Args: sent: in any order. released: every released stamp, in any order, repeated or not.
    """
    out = frozenset(released)
    tail, _ = fold_tail(out)
    return tuple(sorted({s for s in sent if tail.is_released(*s) and s not in out}))
