"""Frontiers: downward-closed sets of times. A frontier says how far a processor has come or must go back.

There are two shapes, one for each kind of time:
  - Over sequence numbers, a frontier is one prefix of each sequence, that is, a vector of lengths. The length of a
    prefix of a Kafka partition is the offset of the next record; Kafka calls it a position.
  - Over structured times, a frontier contains all times below finitely many greatest elements. Their coordinates may be
    ω, since every infinite ascent has a limit and there are no infinite antichains.
Both are exact and closed under union and intersection.
Source: Falkirk Wheel, §3.1. (In timely dataflow, a frontier is the set that is *not* yet complete: the opposite.)

    >>> pages = TopicPartition(topic="pages", partition=0)
    >>> read = OffsetFrontier.of({pages: 2})
    >>> SequenceTime(sequence=pages, offset=1) in read, SequenceTime(sequence=pages, offset=2) in read
    (True, False)
    >>> EMPTY <= read <= TOP
    True
    >>> StructuredTime(1, 7) in StructuredFrontier.below((1, OMEGA))
    True
    >>> StructuredFrontier.below((3,)) <= read
    Traceback (most recent call last):
    falkirk.errors.InternalError: frontiers of different domains can't be compared.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Self

from falkirk.errors import InternalError
from falkirk.errors.conditions.theory import FRONTIER_DOMAINS, FRONTIER_MALFORMED, FRONTIER_MALFORMED_BOUND
from falkirk.theory.ids import LogId, Offset, Positions
from falkirk.theory.times import OMEGA, Natural, SequenceTime, StructuredTime, Time, TopicPartition


class Frontier(ABC):
    """A downward-closed set f of times of one domain: if t ∈ f and s ≤ t, then s ∈ f. Frontiers are values.

    Every operation raises InternalError `FRONTIER_DOMAINS` if the other frontier or time is of another domain.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether this is ∅: the initial state, in which the processor has processed nothing."""

    @property
    @abstractmethod
    def is_top(self) -> bool:
        """Whether this is ⊤, which contains every time: the processor loses nothing."""

    @abstractmethod
    def __contains__(self, time: Time) -> bool:
        """Return whether time ∈ f."""

    @abstractmethod
    def __le__(self, other: "Frontier") -> bool:
        """Return whether f ⊆ g."""

    @abstractmethod
    def __or__(self, other: "Frontier") -> Self:
        """Return f ∪ g, the smallest frontier that includes both."""

    @abstractmethod
    def __and__(self, other: "Frontier") -> Self:
        """Return f ∩ g, the largest frontier that is included in both."""

    @abstractmethod
    def nothing(self) -> Self:
        """Return ∅ of this domain."""

    @abstractmethod
    def everything(self) -> Self:
        """Return ⊤ of this domain."""


def _mixed(one: Frontier, other: object) -> InternalError:
    return FRONTIER_DOMAINS.error(one=str(one), other=str(other))


@dataclass(frozen=True, slots=True)
class OffsetFrontier(Frontier):
    """A frontier over sequence numbers: a prefix of each sequence. `OffsetFrontier.of` and `down` make it.

    Args:
        prefixes: (sequence, length) for each length that differs from `rest`; each sequence once, sorted.
        rest: the length of every other sequence, 0 or ω. With ω this is ⊤ except for the named sequences.
    """

    prefixes: tuple[tuple[TopicPartition, Natural], ...]
    rest: Natural = 0

    @classmethod
    def of(cls, lengths: Mapping[TopicPartition, Natural], rest: Natural = 0) -> "OffsetFrontier":
        """Return the frontier {(e, s) : s < lengths[e]}. If `rest` is ω, it contains all other sequences as a whole.

        Raises: InternalError: `FRONTIER_MALFORMED` for a length below 0.
        """
        if lengths and min(lengths.values()) < 0:
            sequence, length = min(lengths.items(), key=lambda found: found[1])
            raise FRONTIER_MALFORMED.error(where=sequence, length=length)
        return cls(tuple(sorted([found for found in lengths.items() if found[1] != rest])), rest)

    @classmethod
    def before(cls, positions: Mapping[LogId, Mapping[int, Natural]]) -> "OffsetFrontier":
        """Return the frontier of the records before these positions, by log and partition."""
        return cls.of({
            TopicPartition(topic=log, partition=p): o for log, offsets in positions.items() for p, o in offsets.items()
        })  # fmt: skip

    @classmethod
    def prefix(cls, log: LogId, length: Natural) -> "OffsetFrontier":
        """Return the frontier of the first records of a log with one partition, such as a log of epochs."""
        return cls.before({log: {0: length}})

    def positions(self) -> Positions:
        """Return the position after each named prefix, which must be finite: `before` returns this frontier again."""
        found: Positions = {}
        for e, length in self.prefixes:
            found.setdefault(e.topic, {})[e.partition] = Offset(int(length))
        return found

    def length_of(self, log: LogId, partition: int = 0) -> Natural:
        """Return the number of records of a partition in this frontier, as `length` does."""
        return self.length(TopicPartition(topic=log, partition=partition))

    def total(self) -> int:
        """Return the number of records in all named prefixes, which must be finite."""
        return int(sum(length for _, length in self.prefixes))

    def length(self, sequence: TopicPartition) -> Natural:
        """Return the number of messages of `sequence` in this frontier. ω means all messages, present and future."""
        for name, length in self.prefixes:
            if name == sequence:
                return length
        return self.rest

    @property
    def is_empty(self) -> bool:
        return not self.prefixes and self.rest == 0

    @property
    def is_top(self) -> bool:
        return not self.prefixes and self.rest == OMEGA

    def __contains__(self, time: Time) -> bool:
        if not isinstance(time, SequenceTime):
            raise _mixed(self, time)
        return time.offset < self.length(time.sequence)

    def __le__(self, other: Frontier) -> bool:
        if not isinstance(other, OffsetFrontier):
            raise _mixed(self, other)
        if self.prefixes == other.prefixes:  # often asked of equal ones
            return self.rest <= other.rest
        if self.rest > other.rest:
            return False
        if self.rest == 0:  # only the prefixes named here can be too long
            theirs = dict(other.prefixes)
            return all(n <= theirs.get(e, other.rest) for e, n in self.prefixes)
        mine = dict(self.prefixes)
        return all(mine.get(e, self.rest) <= n for e, n in other.prefixes)

    def _join(self, other: Frontier, *, union: bool) -> "OffsetFrontier":
        if not isinstance(other, OffsetFrontier):
            raise _mixed(self, other)
        if self.prefixes == other.prefixes and self.rest == other.rest:
            return self
        mine, theirs = dict(self.prefixes), dict(other.prefixes)
        choose = max if union else min
        lengths = {e: choose(mine.get(e, self.rest), theirs.get(e, other.rest)) for e in mine.keys() | theirs.keys()}
        return OffsetFrontier.of(lengths, choose(self.rest, other.rest))

    def __or__(self, other: Frontier) -> "OffsetFrontier":
        return self._join(other, union=True)

    def __and__(self, other: Frontier) -> "OffsetFrontier":
        return self._join(other, union=False)

    def nothing(self) -> "OffsetFrontier":
        return EMPTY

    def everything(self) -> "OffsetFrontier":
        return TOP

    def only(self, sequences: Iterable[TopicPartition]) -> "OffsetFrontier":
        """Return the part of this frontier that lies in `sequences`."""
        mine = dict(self.prefixes)
        return OffsetFrontier.of({e: mine.get(e, self.rest) for e in sequences})

    def limit(self, bound: "OffsetFrontier", sequences: Iterable[TopicPartition]) -> "OffsetFrontier":
        """Return this frontier with each of `sequences` cut to its length in `bound`. Other sequences do not change."""
        if bound.is_top:
            return self
        mine, theirs = dict(self.prefixes), dict(bound.prefixes)
        cut = {e: min(mine.get(e, self.rest), theirs.get(e, bound.rest)) for e in sequences}
        return OffsetFrontier.of(mine | cut, self.rest)

    def __str__(self) -> str:
        if self.is_top:
            return "⊤"
        named = [f"{e.topic}-{e.partition}: {'all' if n == OMEGA else n}" for e, n in self.prefixes]
        return "∅" if self.is_empty else f"{{{', '.join(named + ['others: all'] * (self.rest == OMEGA))}}}"


EMPTY = OffsetFrontier(())
"""∅ over sequence numbers."""

TOP = OffsetFrontier((), OMEGA)
"""⊤ over sequence numbers. It equals no vector of lengths."""


def down(times: Iterable[SequenceTime]) -> OffsetFrontier:
    """Return ↓X, the smallest frontier that contains all of `times`."""
    lengths: dict[TopicPartition, Natural] = {}
    for time in times:
        lengths[time.sequence] = max(time.offset + 1, lengths.get(time.sequence, 0))
    return OffsetFrontier.of(lengths)


@dataclass(frozen=True, slots=True)
class StructuredFrontier(Frontier):
    """A frontier over structured times: all times below its greatest elements.

    Args:
        arity: 1 + the number of enclosing loops; 1 for plain epochs.
        maxima: the greatest elements, sorted. A coordinate may be ω. No element is below another.
    """

    arity: int
    maxima: tuple[tuple[Natural, ...], ...]

    @classmethod
    def of(cls, arity: int, bounds: Iterable[tuple[Natural, ...]]) -> "StructuredFrontier":
        """Return the frontier of all times below one of `bounds`.

        Raises: InternalError: `FRONTIER_MALFORMED` for a bound of another arity or below 0.
        """
        found = set(bounds)
        for bound in found:
            if len(bound) != arity or min(bound) < 0:
                raise FRONTIER_MALFORMED_BOUND.error(arity=arity, bound=bound)
        return cls(arity, tuple(sorted(a for a in found if not any(_below(a, b) for b in found if b != a))))

    @classmethod
    def below(cls, *bounds: tuple[Natural, ...]) -> "StructuredFrontier":
        """Return the frontier of all times below one of `bounds`. At least one bound is required."""
        return cls.of(len(bounds[0]), bounds)

    @classmethod
    def through_epoch(cls, epoch: Natural) -> "StructuredFrontier":
        """Return {0, …, epoch}, for plain epochs."""
        return cls(1, ((epoch,),))

    @property
    def is_empty(self) -> bool:
        return not self.maxima

    @property
    def is_top(self) -> bool:
        return bool(self.maxima) and min(self.maxima[0]) == OMEGA  # then it is the only maximum

    def __contains__(self, time: Time) -> bool:
        if not isinstance(time, StructuredTime) or time.arity != self.arity:
            raise _mixed(self, time)
        return any(_below(time.coordinates, b) for b in self.maxima)

    def __le__(self, other: Frontier) -> bool:
        if type(other) is not StructuredFrontier or other.arity != self.arity:
            raise _mixed(self, other)
        if self.arity == 1:  # the most common case, evaluated at every edge of a large application
            return self.maxima <= other.maxima  # () or ((t,),): Python's tuple order is the same
        return all(any(_below(a, b) for b in other.maxima) for a in self.maxima)

    def __or__(self, other: Frontier) -> "StructuredFrontier":
        if type(other) is not StructuredFrontier or other.arity != self.arity:
            raise _mixed(self, other)
        return StructuredFrontier.of(self.arity, (*self.maxima, *other.maxima))

    def __and__(self, other: Frontier) -> "StructuredFrontier":
        if type(other) is not StructuredFrontier or other.arity != self.arity:
            raise _mixed(self, other)
        if self.arity == 1:
            return self if self.maxima <= other.maxima else other
        lower = (tuple(map(min, zip(a, b, strict=True))) for a in self.maxima for b in other.maxima)
        return StructuredFrontier.of(self.arity, lower)

    def nothing(self) -> "StructuredFrontier":
        return StructuredFrontier(self.arity, ())

    def everything(self) -> "StructuredFrontier":
        return _top(self.arity)

    def __str__(self) -> str:
        if self.is_empty or self.is_top:
            return "∅" if self.is_empty else "⊤"
        named = [", ".join("ω" if c == OMEGA else str(c) for c in b) for b in self.maxima]
        return "≤ " + " or ".join(n if self.arity == 1 else f"({n})" for n in named)


@cache
def _top(arity: int) -> StructuredFrontier:
    return StructuredFrontier(arity, ((OMEGA,) * arity,))


def _below(a: tuple[Natural, ...], b: tuple[Natural, ...]) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True))
