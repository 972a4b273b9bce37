"""Logical times: where an event stands in the partial order of the domain that its processor counts in.

So far one domain: sequence numbers. For Kafka an edge is a topic partition and a sequence number an offset.
Source: Falkirk Wheel, §3.1.
"""

from dataclasses import dataclass

from falkirk.errors import InternalError


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Edge:
    """A topic partition, which carries messages in an order of its own. Edges sort so that results reproduce."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceTime:
    """The time (e, s) of the message at `offset` of `edge`, counted from 0 as Kafka does.

    (d, s) ≤ (d', s') iff d = d' and s ≤ s': a partial order, since times on different edges are incomparable.
    So neither `a <= b` nor `b <= a` may hold, and `sorted` and `max` have no meaning here.

    Raises: InternalError: `TIME_MALFORMED` for an offset below 0.
    """

    edge: Edge
    offset: int

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise InternalError("TIME_MALFORMED", f"an offset is {self.offset}.", where=self.edge, offset=self.offset)

    def __le__(self, other: "SequenceTime") -> bool:
        return self.edge == other.edge and self.offset <= other.offset

    def __lt__(self, other: "SequenceTime") -> bool:
        return self.edge == other.edge and self.offset < other.offset
