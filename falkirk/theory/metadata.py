"""Metadata: Ξ(p,f), all that must be known of a frontier to decide whether a processor can go back to it (Table 1).

Of Table 1 only the state S(p,f) and the logs L(e,f) are missing: they are needed to restore, not to decide.
Source: Falkirk Wheel, §3.4.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce

from falkirk.errors import InternalError
from falkirk.theory.frontier import Frontier
from falkirk.theory.graph import Edge, Processor


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Ξ(p,f). Over-estimating `notified`, `delivered` and `discarded` is safe; so is leaving out what is fixed.

    Args:
        frontier: f.
        notified: N̄(p,f), the smallest frontier containing the notifications processed in f; None: none.
        delivered: M̄(d,f) by input edge: the smallest frontier containing the messages from d processed in f.
        projected: φ(e)(f) by output edge, where only the processor itself knows it.
        discarded: D̄(e,f) by output edge, in the receiver's domain: the smallest frontier containing the messages sent
            in f that were not logged.
        An edge that is not there has ∅; for `projected`, what its projection says.
    """

    frontier: Frontier
    notified: Frontier | None = None
    delivered: Mapping[str, Frontier] = field(default_factory=dict)
    projected: Mapping[str, Frontier] = field(default_factory=dict)
    discarded: Mapping[str, Frontier] = field(default_factory=dict)

    def fixed(self, edge: Edge) -> Frontier:
        """Return φ(e)(f) of one of the processor's output edges."""
        if self.frontier.is_top:
            return edge.domain.everything()  # no event lies outside, so none sends anything
        recorded = self.projected.get(edge.name)
        if recorded is not None:
            return recorded
        return edge.domain if edge.projection is None else edge.projection.fixed(self.frontier)

    def fixes_no_more_than(self, other: "Metadata") -> bool:
        """Tell whether what is fixed at this frontier is fixed at `other`'s, where it was recorded."""
        return other.frontier.is_top or all(
            fixed.is_empty or (edge in other.projected and fixed <= other.projected[edge])
            for edge, fixed in self.projected.items()
        )

    def demands_no_more_than(self, other: "Metadata") -> bool:
        """Tell whether whatever lets a processor go to `other`'s frontier lets it go to this one's."""
        if self.notified is not None and not (other.notified is not None and self.notified <= other.notified):
            return False
        pairs = ((self.delivered, other.delivered), (self.discarded, other.discarded))
        return all(
            frontier.is_empty or (edge in theirs and frontier <= theirs[edge])
            for mine, theirs in pairs
            for edge, frontier in mine.items()
        )


def initial(processor: Processor) -> Metadata:
    """Return Ξ(p,∅): nothing was processed and nothing sent, and everyone can go back to it."""
    return Metadata(frontier=processor.domain)


class Checkpoints:
    """F*(p) of a processor that can go back to what it has saved, and nowhere else: a chain ∅ ⊂ f1 ⊂ f2 …

    A processor whose times are only partially ordered adopts the lexicographic order for its checkpoints: with a
    chain the rollback is *the* greatest one, and a further checkpoint never makes it smaller (§3.6).

    Raises: InternalError: `FRONTIERS_UNORDERED` when two of them are incomparable or equal, `NO_WAY_BACK` without ∅.
    """

    __slots__ = ("chain", "regular")

    def __init__(self, chain: Iterable[Metadata]) -> None:
        self.chain: list[Metadata] = []
        #: A larger frontier never demands less: then the smallest one that is refused says why larger ones are.
        self.regular = True
        for metadata in chain:
            self.add(metadata)
        if not self.chain or not self.chain[0].frontier.is_empty:
            raise InternalError("NO_WAY_BACK", "a processor must be able to go back to its initial state.")

    def add(self, metadata: Metadata) -> int:
        """Put a further checkpoint into the chain; return its place."""
        place = len(self.chain)
        while place > 0 and not self.chain[place - 1].frontier <= metadata.frontier:
            place -= 1
        regular = self.regular
        for other in (*self.chain[max(place - 1, 0) : place], *self.chain[place : place + 1]):
            above = other.frontier <= metadata.frontier
            lower, upper = (other, metadata) if above else (metadata, other)
            if above == (metadata.frontier <= other.frontier) or not lower.fixes_no_more_than(upper):
                raise InternalError(
                    "FRONTIERS_UNORDERED",
                    f"checkpoints at {other.frontier} and {metadata.frontier}, or what they fix, have no order.",
                )
            regular = regular and lower.demands_no_more_than(upper)
        self.regular = regular
        self.chain.insert(place, metadata)
        return place

    def at(self, frontier: Frontier) -> Metadata:
        """Return Ξ(p,f) of one of the checkpoints."""
        return next(m for m in reversed(self.chain) if m.frontier == frontier)

    def fixed(self, frontier: Frontier, edge: Edge) -> Frontier:
        """Return φ(e)(f): that of the greatest checkpoint within f where only the processor itself knows it."""
        if frontier.is_top:
            return edge.domain.everything()
        if edge.projection is not None:
            return edge.projection.fixed(frontier)
        return next((m.fixed(edge) for m in reversed(self.chain) if m.frontier <= frontier), edge.domain)

    def forget_below(self, frontier: Frontier) -> tuple[Metadata, ...]:
        """Drop, and return, the checkpoints strictly below `frontier`, but for the initial state's metadata.

        ∅ stays as the floor that lets Figure 6 converge; its state may be gone, and a low watermark above it says
        that it will not be asked for.
        """
        gone = tuple(m for m in self.chain[1:] if m.frontier <= frontier and m.frontier != frontier)
        self.chain = [m for m in self.chain if m not in gone]
        return gone


@dataclass(slots=True)
class Anywhere:
    """F*(p) of a processor that can go back to every frontier. It saves nothing of its own.

    Either it keeps no state between times (§3.4: N̄ = M̄ = f), or it is deterministic and its inputs are durable, so
    that a replay takes it wherever they reach: full history, with the input log as the history.

    Args:
        reach: how far what it has logged reaches, messages sent or received; beyond that there is nothing to go to.
            None: it needs no log of its own, since all that it may need is in logs of others, or is sent again.
        discards: messages that it sent and has not logged are gone: D̄ is what its events may have sent.
        marks: for an output edge without a projection, what was fixed by when: (f, φ(e)(f)), in any order. Each holds
            by itself, so φ at a frontier is the union of those within it: no more than the truth, which is safe.
    """

    discards: bool
    reach: Frontier | None = None
    marks: dict[str, list[tuple[Frontier, Frontier]]] = field(default_factory=dict)

    def fixed(self, frontier: Frontier, edge: Edge) -> Frontier:
        """Return φ(e)(f)."""
        if frontier.is_top:
            return edge.domain.everything()
        if edge.projection is not None:
            return edge.projection.fixed(frontier)
        found = edge.domain
        for at, fixed in reversed(self.marks.get(edge.name, [])):
            if not fixed <= found and at <= frontier:
                found = found | fixed
        return found

    def forget_below(self, frontier: Frontier) -> None:
        """Make one mark of all those within `frontier`: what they say together of every frontier that holds it."""
        for marks in self.marks.values():
            within = [mark for mark in marks if mark[0] <= frontier]
            if len(within) > 1:
                beyond = [mark for mark in marks if not mark[0] <= frontier]
                marks[:] = [reduce(lambda a, b: (a[0] | b[0], a[1] | b[1]), within), *beyond]

    def describe(
        self, frontier: Frontier, processor: Processor, inputs: Iterable[Edge], outputs: Iterable[Edge]
    ) -> Metadata:
        """Return Ξ(p,f)."""
        outputs = tuple(outputs)
        discarded = {}
        for e in outputs if self.discards and not frontier.is_empty else ():
            # Where nobody knows what was sent, it may have been anything.
            sent = e.everything() if e.projection is None else e.projection.sent(frontier)
            discarded[e.name] = e.restrict(sent) if e.sequences else sent
        return Metadata(
            frontier=frontier,
            notified=frontier if processor.notified else None,
            delivered={d.name: d.restrict(frontier) for d in inputs},
            projected={e.name: self.fixed(frontier, e) for e in outputs},
            discarded=discarded,
        )


Available = Checkpoints | Anywhere
"""F*(p), the frontiers that a processor can go back to."""
