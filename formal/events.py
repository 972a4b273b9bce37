"""Histories: the events that a processor has processed, and the part of them that a frontier keeps.

H(p) is the sequence of events, and H@f contains its events with times in f. A processor that is rolled back selectively
keeps H@f although it may not be a prefix of H. Then its state may be one that it never had before (Figure 3).
Source: Falkirk Wheel, §3.4, Figure 4.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from falkirk.theory.frontier import Frontier, OffsetFrontier, StructuredFrontier, down
from falkirk.theory.times import SequenceTime, StructuredTime, Time


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message on an edge; its time is in the receiver's domain."""

    edge: str
    time: Time
    content: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The delivery of a message, with the messages that it caused. Without a message: the notification of a complete
    time."""

    time: Time
    message: Message | None = None
    sent: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class History:
    """H(p), in the order of processing."""

    events: tuple[Event, ...] = ()

    def at(self, frontier: Frontier) -> "History":
        """Return H@f."""
        return History(tuple(e for e in self.events if e.time in frontier))

    def without(self, frontier: Frontier) -> "History":
        """Return the events of H that are not in H@f."""
        return History(tuple(e for e in self.events if e.time not in frontier))

    def is_prefix(self, frontier: Frontier) -> bool:
        """Return whether H@f is a prefix of H, so that the processor once had that state."""
        kept = self.at(frontier).events
        return kept == self.events[: len(kept)]

    @property
    def notifications(self) -> tuple[Time, ...]:
        """The times that the processor was notified of as complete."""
        return tuple(e.time for e in self.events if e.message is None)

    @property
    def delivered(self) -> Mapping[str, tuple[Message, ...]]:
        """The messages processed, by input edge."""
        return _by_edge(e.message for e in self.events if e.message is not None)

    @property
    def sent(self) -> Mapping[str, tuple[Message, ...]]:
        """The messages sent, by output edge."""
        return _by_edge(m for e in self.events for m in e.sent)


def _by_edge(messages: Iterable[Message]) -> Mapping[str, tuple[Message, ...]]:
    found: dict[str, list[Message]] = defaultdict(list)
    for message in messages:
        found[message.edge].append(message)
    return {edge: tuple(mine) for edge, mine in found.items()}


def closure(domain: Frontier, times: Iterable[Time]) -> Frontier:
    """Return ↓X in a domain, given as its ∅: the smallest frontier that contains all of `times`."""
    if isinstance(domain, OffsetFrontier):
        return down(t for t in times if isinstance(t, SequenceTime))
    assert isinstance(domain, StructuredFrontier)
    return StructuredFrontier.of(domain.arity, (t.coordinates for t in times if isinstance(t, StructuredTime)))
