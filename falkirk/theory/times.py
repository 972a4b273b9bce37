"""Logical times: the place of an event in the partial order of its processor's time domain.

Each processor has its own domain, so one application can mix regimes:

    sequence numbers   the s-th message of a sequence; times of different sequences are incomparable
    epochs             the number of an epoch; total order
    structured         an epoch and one counter per enclosing loop; product order

An epoch is a structured time without a loop, so there are only two classes.
Source: Falkirk Wheel, §2 and §3.1, Figure 2.

    >>> StructuredTime(1, 4) <= StructuredTime(2, 4), StructuredTime(1, 4) <= StructuredTime(2, 3)
    (True, False)
"""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

from falkirk.errors.conditions.theory import TIME_MALFORMED, TIME_MALFORMED_STRUCTURED
from falkirk.theory.ids import LogId

Natural = int | float
"""A natural number, or `OMEGA`."""

OMEGA: Final = math.inf
"""ω, greater than every natural number: the coordinate of a frontier without an end."""


class TopicPartition(NamedTuple):
    """A sequence of messages with its own order. Sequences can be sorted, so that results are reproducible.

    The paper numbers the messages of an edge. An edge that is a Kafka topic has as many sequences as the topic has
    partitions, and a sequence number is an offset.
    """

    topic: LogId
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceTime:
    """The time (e, s) of the message at `offset` of `sequence`, counted from 0 as in Kafka.

    (d, s) ≤ (d', s') iff d = d' and s ≤ s'. This is a partial order, since times of different sequences are
    incomparable. It is possible that neither `a <= b` nor `b <= a` holds, so `sorted` and `max` have no meaning here.

    Raises: InternalError: `TIME_MALFORMED` for an offset below 0.
    """

    sequence: TopicPartition
    offset: int

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise TIME_MALFORMED.error(where=self.sequence, offset=self.offset)

    def __le__(self, other: "SequenceTime") -> bool:
        return self.sequence == other.sequence and self.offset <= other.offset

    def __lt__(self, other: "SequenceTime") -> bool:
        return self.sequence == other.sequence and self.offset < other.offset


@dataclass(frozen=True, slots=True, init=False)
class StructuredTime:
    """The time (epoch, c1, …, ck) inside k loops, outermost first. All numbers count from 0. Product order.

    Raises: InternalError: `TIME_MALFORMED` without an epoch, or for a number below 0.
    """

    coordinates: tuple[int, ...]

    def __init__(self, *coordinates: int) -> None:
        if not coordinates or min(coordinates) < 0:
            raise TIME_MALFORMED_STRUCTURED.error(coordinates=coordinates)
        object.__setattr__(self, "coordinates", coordinates)

    @property
    def arity(self) -> int:
        """1 + the number of enclosing loops."""
        return len(self.coordinates)

    def __le__(self, other: "StructuredTime") -> bool:
        return self.arity == other.arity and all(
            a <= b for a, b in zip(self.coordinates, other.coordinates, strict=True)
        )

    def __lt__(self, other: "StructuredTime") -> bool:
        return self <= other and self != other


Time = SequenceTime | StructuredTime
