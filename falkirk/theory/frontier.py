"""Frontiers: downward-closed sets of times, which say how far a processor has come or must go back.

Over sequence numbers a downward-closed set is one prefix of each edge, so a frontier is a vector of lengths.
The length of a prefix of a Kafka partition is the offset of the next record, which is what Kafka calls a
position.
Source: Falkirk Wheel, §3.1. (In timely dataflow a frontier is what is *not* yet complete: the opposite
sense.)

    >>> edge = Edge(topic="pages", partition=0)
    >>> read = OffsetFrontier.of({edge: 2})
    >>> SequenceTime(edge=edge, offset=1) in read, SequenceTime(edge=edge, offset=2) in read
    (True, False)
    >>> EMPTY <= read <= TOP
    True
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from falkirk.errors import InternalError
from falkirk.theory.times import Edge, SequenceTime


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFrontier:
    """A downward-closed set f of sequence-number times: if t ∈ f and s ≤ t then s ∈ f.

    Made by `OffsetFrontier.of` or `down`.

    Args: prefixes: (edge, length > 0), each edge once, sorted; an edge that is not there has length 0. None
        for ⊤, which holds every time of every edge and equals no vector of lengths.
    """

    prefixes: tuple[tuple[Edge, int], ...] | None

    @classmethod
    def of(cls, lengths: Mapping[Edge, int]) -> "OffsetFrontier":
        """Return the frontier {(e, s) : s < lengths[e]}.

        Raises: InternalError: `FRONTIER_MALFORMED` for a length below 0.
        """
        for edge, length in lengths.items():
            if length < 0:
                raise InternalError("FRONTIER_MALFORMED", f"a prefix has length {length}.", where=edge, length=length)
        return cls(prefixes=tuple(sorted((edge, length) for edge, length in lengths.items() if length)))

    def length(self, edge: Edge) -> int | None:
        """Return how many messages of `edge` this holds, None for ⊤: all there will ever be."""
        return None if self.prefixes is None else dict(self.prefixes).get(edge, 0)

    def __contains__(self, time: SequenceTime) -> bool:
        """Tell whether time ∈ f."""
        length = self.length(time.edge)
        return length is None or time.offset < length

    def __le__(self, other: "OffsetFrontier") -> bool:
        """Tell whether f ⊆ g."""
        if self.prefixes is None or other.prefixes is None:
            return other.prefixes is None
        theirs = dict(other.prefixes)
        return all(length <= theirs.get(edge, 0) for edge, length in self.prefixes)

    def __or__(self, other: "OffsetFrontier") -> "OffsetFrontier":
        """Return f ∪ g, the smallest frontier that includes both."""
        if self.prefixes is None or other.prefixes is None:
            return TOP
        lengths = dict(self.prefixes)
        for edge, length in other.prefixes:
            lengths[edge] = max(length, lengths.get(edge, 0))
        return OffsetFrontier.of(lengths)

    def __and__(self, other: "OffsetFrontier") -> "OffsetFrontier":
        """Return f ∩ g, the largest frontier that both include."""
        if self.prefixes is None:
            return other
        if other.prefixes is None:
            return self
        theirs = dict(other.prefixes)
        return OffsetFrontier.of({edge: min(length, theirs.get(edge, 0)) for edge, length in self.prefixes})

    def advance(self, time: SequenceTime) -> "OffsetFrontier":
        """Return f ∪ ↓{time}, the smallest frontier that includes this one and holds `time`."""
        return self | down([time])


EMPTY = OffsetFrontier(prefixes=())
"""∅, the frontier of a processor that has seen nothing: its initial state."""

TOP = OffsetFrontier(prefixes=None)
"""⊤, every time: the frontier of a processor that has not failed and loses nothing."""


def down(times: Iterable[SequenceTime]) -> OffsetFrontier:
    """Return ↓X, the smallest frontier that contains all of `times`."""
    lengths: dict[Edge, int] = {}
    for time in times:
        lengths[time.edge] = max(time.offset + 1, lengths.get(time.edge, 0))
    return OffsetFrontier.of(lengths)
