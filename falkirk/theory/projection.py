"""Projections: the part of an edge that is fixed once events at its source are fixed. There is one class per kind of
edge.

Domains differ between processors, and an edge joins two domains. Each kind has three functions:

    fixed   φ(e)(f): no event outside f makes the source send a message with a time in it. ∅ is always safe. A larger
            result is better, because the receiver can keep more work.
    sent    the smallest frontier that contains the times of all messages that events in f may cause. For a source
            that keeps no messages, it is D̄(e,f).
    causes  the largest frontier g with sent(g) ⊆ h: the limit for a source that keeps no messages, if its receiver
            goes back to h.

All three are monotone, and sent(g) ⊆ h iff g ⊆ causes(h).
Source: Falkirk Wheel, §3.2, Figure 2.

    >>> at_entry = StructuredFrontier.through_epoch(3)
    >>> inside = Enter().fixed(at_entry)
    >>> str(inside), str(Leave().fixed(inside)), str(Leave().fixed(StructuredFrontier.below((3, 5))))
    ('≤ (3, ω)', '≤ 3', '∅')
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from falkirk.errors.conditions.theory import (
    CUTS_UNORDERED,
    FRONTIER_DOMAINS_NOT_SEQUENCES,
    FRONTIER_DOMAINS_NOT_STRUCTURED,
)
from falkirk.theory.frontier import EMPTY, TOP, Frontier, OffsetFrontier, StructuredFrontier
from falkirk.theory.ids import EpochNumber
from falkirk.theory.times import OMEGA, Natural, TopicPartition


class Projection(Protocol):
    """A kind of edge. Raises InternalError `FRONTIER_DOMAINS` for a frontier of a domain that it does not join."""

    def fixed(self, frontier: Frontier) -> Frontier:
        """Return φ(e)(f), in the receiver's domain."""

    def sent(self, frontier: Frontier) -> Frontier:
        """Return the smallest frontier, in the receiver's domain, with all messages that events in f may cause."""

    def causes(self, frontier: Frontier) -> Frontier:
        """Return the largest frontier of the source whose events cause no message outside this frontier of the
        receiver."""


def _structured(frontier: Frontier, arity_min: int) -> StructuredFrontier:
    if not isinstance(frontier, StructuredFrontier) or frontier.arity < arity_min:
        raise FRONTIER_DOMAINS_NOT_STRUCTURED.error(frontier=frontier, loops=arity_min - 1)
    return frontier


def _offsets(frontier: Frontier) -> OffsetFrontier:
    if not isinstance(frontier, OffsetFrontier):
        raise FRONTIER_DOMAINS_NOT_SEQUENCES.error(frontier=frontier)
    return frontier


@dataclass(frozen=True, slots=True)
class Durable:
    """An edge from a log whose content never changes: φ(e)(f) = ⊤.

    If the source sends a message again, it is the same message and the receiver recognises it. So the receiver never
    has to undo received messages. But messages that the log has deleted count as discarded.
    """

    def fixed(self, frontier: Frontier) -> Frontier:
        return frontier.everything()

    def sent(self, frontier: Frontier) -> Frontier:
        return frontier

    def causes(self, frontier: Frontier) -> Frontier:
        return frontier


@dataclass(frozen=True, slots=True)
class Enter:
    """An edge into a loop: a message of time t gets the time (t, 0). φ(e)(f) = {(t, c) : t ∈ f, any c}."""

    def fixed(self, frontier: Frontier) -> Frontier:
        outer = _structured(frontier, 1)
        return StructuredFrontier.of(outer.arity + 1, ((*bound, OMEGA) for bound in outer.maxima))

    def sent(self, frontier: Frontier) -> Frontier:
        outer = _structured(frontier, 1)
        return StructuredFrontier.of(outer.arity + 1, ((*bound, 0) for bound in outer.maxima))

    def causes(self, frontier: Frontier) -> Frontier:
        inner = _structured(frontier, 2)
        return StructuredFrontier.of(inner.arity - 1, (bound[:-1] for bound in inner.maxima))


@dataclass(frozen=True, slots=True)
class Leave:
    """An edge out of a loop: a message of time (t, c) gets the time t. φ(e)(f) = {t : (t, c) ∈ f for every c}."""

    def fixed(self, frontier: Frontier) -> Frontier:
        inner = _structured(frontier, 2)
        return StructuredFrontier.of(inner.arity - 1, (b[:-1] for b in inner.maxima if b[-1] == OMEGA))

    def sent(self, frontier: Frontier) -> Frontier:
        inner = _structured(frontier, 2)
        return StructuredFrontier.of(inner.arity - 1, (bound[:-1] for bound in inner.maxima))

    def causes(self, frontier: Frontier) -> Frontier:
        outer = _structured(frontier, 1)
        return StructuredFrontier.of(outer.arity + 1, ((*bound, OMEGA) for bound in outer.maxima))


@dataclass(frozen=True, slots=True)
class Feedback:
    """An edge back to a loop's head: the time (t, c) becomes (t, c+1). φ(e)(f) = {(t, 0)} ∪ {(t, c+1) : (t, c) ∈ f}.

    Round 0 is fixed in every epoch, since no message is ever fed back to it.
    """

    def fixed(self, frontier: Frontier) -> Frontier:
        loop = _structured(frontier, 2)
        return self.sent(loop) | StructuredFrontier.below((*[OMEGA] * (loop.arity - 1), 0))

    def sent(self, frontier: Frontier) -> Frontier:
        loop = _structured(frontier, 2)
        return StructuredFrontier.of(loop.arity, ((*bound[:-1], bound[-1] + 1) for bound in loop.maxima))

    def causes(self, frontier: Frontier) -> Frontier:
        loop = _structured(frontier, 2)
        return StructuredFrontier.of(loop.arity, ((*b[:-1], b[-1] - 1) for b in loop.maxima if b[-1] > 0))


@dataclass(frozen=True, slots=True)
class InTurn:
    """Two kinds of edges, one after the other, as one edge: the processor between them does not matter."""

    first: Projection
    second: Projection

    def fixed(self, frontier: Frontier) -> Frontier:
        return self.second.fixed(self.first.fixed(frontier))

    def sent(self, frontier: Frontier) -> Frontier:
        return self.second.sent(self.first.sent(frontier))

    def causes(self, frontier: Frontier) -> Frontier:
        return self.first.causes(self.second.causes(frontier))


@dataclass(frozen=True, slots=True)
class EpochsToSequence:
    """A transformer that forwards epoch t as the message with offset t of a log, for every content of the epoch.

    φ(e)(f) = {(e, 0) … (e, t)} for f = {0 … t}. The paper's transformer forwards n_i messages of epoch i, and here each
    n_i is 1.

    Args: sequence: the log that it writes.
    """

    sequence: TopicPartition

    def fixed(self, frontier: Frontier) -> Frontier:
        epochs = _structured(frontier, 1)
        return TOP if epochs.is_top else self.sent(epochs)

    def sent(self, frontier: Frontier) -> Frontier:
        epochs = _structured(frontier, 1)
        return EMPTY if epochs.is_empty else OffsetFrontier.of({self.sequence: epochs.maxima[0][0] + 1})

    def causes(self, frontier: Frontier) -> Frontier:
        length = _offsets(frontier).length(self.sequence)
        return StructuredFrontier.of(1, [(length - 1,)] if length else [])


@dataclass(slots=True, eq=False)
class Cuts:
    """Where a processor that counts in epochs has cut its input: recorded decisions, which only become more.

    Args: epochs: the numbers of the epochs, ascending. ends: for each, the frontier of all messages up to its end.
    """

    epochs: list[EpochNumber] = field(default_factory=list)
    ends: list[OffsetFrontier] = field(default_factory=list)

    @classmethod
    def of(cls, known: Iterable[tuple[EpochNumber, OffsetFrontier]]) -> "Cuts":
        """Return these cuts, oldest first. Raises: as `add`."""
        cuts = cls()
        for epoch, end in known:
            cuts.add(epoch, end)
        return cuts

    def add(self, epoch: EpochNumber, end: OffsetFrontier) -> None:
        """Add the cut of the next epoch.

        Raises: InternalError: `CUTS_UNORDERED`: it is no later epoch.
        """
        if self.epochs and epoch <= self.epochs[-1]:
            raise CUTS_UNORDERED.error(epoch=epoch, before=self.epochs[-1])
        self.epochs.append(epoch)
        self.ends.append(self.ends[-1] | end if self.ends else end)

    def within(self, messages: OffsetFrontier) -> EpochNumber | None:
        """Return the last epoch that has no message outside `messages`; None: there is none."""
        number = bisect_left(self.ends, True, key=lambda end: not end <= messages)
        return self.epochs[number - 1] if number else None

    def around(self, messages: OffsetFrontier) -> EpochNumber | None:
        """Return the first epoch by whose end all of `messages` are read; None: they are not cut yet."""
        number = bisect_left(self.ends, True, key=messages.__le__)
        return self.epochs[number] if number < len(self.epochs) else None

    def end(self, epoch: Natural) -> OffsetFrontier:
        """Return all messages of the epochs up to one."""
        number = bisect_right(self.epochs, epoch)
        return self.ends[number - 1] if number else EMPTY


@dataclass(frozen=True, slots=True)
class SequenceToEpochs:
    """A transformer that cuts sequences into epochs by wall clock, count or event time.

    φ(e)(f) = {0 … t} where every message of epochs ≤ t is in f.
    """

    cuts: Cuts

    def fixed(self, frontier: Frontier) -> Frontier:
        messages = _offsets(frontier)
        if messages.is_top:
            return StructuredFrontier.through_epoch(OMEGA)
        last = self.cuts.within(messages)
        return StructuredFrontier.of(1, [] if last is None else [(last,)])

    def sent(self, frontier: Frontier) -> Frontier:
        messages = _offsets(frontier)
        if messages.is_empty:
            return StructuredFrontier.of(1, [])
        last = self.cuts.around(messages)
        return StructuredFrontier.through_epoch(OMEGA if last is None else last)

    def causes(self, frontier: Frontier) -> Frontier:
        epochs = _structured(frontier, 1)
        if epochs.is_empty or epochs.is_top:
            return EMPTY if epochs.is_empty else TOP
        return self.cuts.end(epochs.maxima[0][0])
