"""Metadata: Ξ(p,f), the facts about a frontier that decide whether a processor can go back to it (Table 1).

Ξ contains all of Table 1 except the state S(p,f) and the logs L(e,f). Those are needed to restore, not to decide.
Source: Falkirk Wheel, §3.4.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce

from falkirk.errors.conditions.theory import FRONTIERS_UNORDERED, NO_WAY_BACK
from falkirk.theory.frontier import Frontier
from falkirk.theory.graph import Edge, Processor


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Ξ(p,f). It is safe to over-estimate `notified`, `delivered` and `discarded`, and to omit parts of `projected`.

    Args:
        frontier: f.
        notified: N̄(p,f), the smallest frontier that contains the notifications processed in f. None: no notifications.
        delivered: M̄(d,f) by input edge: the smallest frontier that contains the messages from d processed in f.
        projected: φ(e)(f) by output edge, if only the processor itself knows it.
        discarded: D̄(e,f) by output edge, in the receiver's domain: the smallest frontier that contains the messages
            sent in f and not logged.
        An edge without an entry has ∅. In `projected`, it has the frontier that the edge's projection computes.
    """

    frontier: Frontier
    notified: Frontier | None = None
    delivered: Mapping[str, Frontier] = field(default_factory=dict)
    projected: Mapping[str, Frontier] = field(default_factory=dict)
    discarded: Mapping[str, Frontier] = field(default_factory=dict)

    def fixed(self, edge: Edge) -> Frontier:
        """Return φ(e)(f) of one of the processor's output edges."""
        if self.frontier.is_top:
            return edge.domain.everything()  # no event is outside f, so no further message is sent
        recorded = self.projected.get(edge.name)
        if recorded is not None:
            return recorded
        return edge.domain if edge.projection is None else edge.projection.fixed(self.frontier)

    def fixes_no_more_than(self, other: "Metadata") -> bool:
        """Return whether everything that is fixed and recorded at this frontier is also fixed at `other`'s."""
        return other.frontier.is_top or all(
            fixed.is_empty or (edge in other.projected and fixed <= other.projected[edge])
            for edge, fixed in self.projected.items()
        )

    def demands_no_more_than(self, other: "Metadata") -> bool:
        """Return whether every state of the neighbours that permits `other`'s frontier also permits this one."""
        if self.notified is not None and not (other.notified is not None and self.notified <= other.notified):
            return False
        pairs = ((self.delivered, other.delivered), (self.discarded, other.discarded))
        return all(
            frontier.is_empty or (edge in theirs and frontier <= theirs[edge])
            for mine, theirs in pairs
            for edge, frontier in mine.items()
        )


class Checkpoints:
    """F*(p) of a processor that can go back only to its saved checkpoints: a chain ∅ ⊂ f1 ⊂ f2 …

    A processor whose times are only partially ordered adopts the lexicographic order for its checkpoints. With a chain
    there is exactly one greatest rollback, and a further checkpoint never makes it smaller (§3.6).

    Raises: InternalError: `FRONTIERS_UNORDERED` when two checkpoints are incomparable or equal, `NO_WAY_BACK` without
        ∅.
    """

    __slots__ = ("chain", "regular")

    def __init__(self, chain: Iterable[Metadata]) -> None:
        self.chain: list[Metadata] = []
        #: A larger frontier never demands less. So the smallest refused frontier also explains why larger ones are
        #: refused.
        self.regular = True
        for metadata in chain:
            self.add(metadata)
        if not self.chain or not self.chain[0].frontier.is_empty:
            raise NO_WAY_BACK.error()

    def add(self, metadata: Metadata) -> int:
        """Insert a further checkpoint into the chain, and return its index."""
        place = len(self.chain)
        while place > 0 and not self.chain[place - 1].frontier <= metadata.frontier:
            place -= 1
        regular = self.regular
        for other in (*self.chain[max(place - 1, 0) : place], *self.chain[place : place + 1]):
            above = other.frontier <= metadata.frontier
            lower, upper = (other, metadata) if above else (metadata, other)
            if above == (metadata.frontier <= other.frontier) or not lower.fixes_no_more_than(upper):
                raise FRONTIERS_UNORDERED.error(known_frontier=other.frontier, other_frontier=metadata.frontier)
            regular = regular and lower.demands_no_more_than(upper)
        self.regular = regular
        self.chain.insert(place, metadata)
        return place

    def at(self, frontier: Frontier) -> Metadata:
        """Return Ξ(p,f) of the checkpoint at `frontier`."""
        return next(m for m in reversed(self.chain) if m.frontier == frontier)

    def fixed(self, frontier: Frontier, edge: Edge) -> Frontier:
        """Return φ(e)(f). If only the processor itself knows φ, it is that of the greatest checkpoint within f."""
        if frontier.is_top:
            return edge.domain.everything()
        if edge.projection is not None:
            return edge.projection.fixed(frontier)
        return next((m.fixed(edge) for m in reversed(self.chain) if m.frontier <= frontier), edge.domain)

    def forget_below(self, frontier: Frontier) -> tuple[Metadata, ...]:
        """Remove and return the checkpoints strictly below `frontier`, except the metadata of the initial state.

        ∅ stays in the chain because Figure 6 needs it to converge. Its state may be deleted: a low watermark above ∅
        guarantees that no rollback needs it.
        """
        gone = tuple(m for m in self.chain[1:] if m.frontier <= frontier and m.frontier != frontier)
        self.chain = [m for m in self.chain if m not in gone]
        return gone


@dataclass(slots=True)
class Anywhere:
    """F*(p) of a processor that can go back to every frontier. It saves nothing itself.

    There are two such kinds. Either the processor keeps no state between times (§3.4: N̄ = M̄ = f). Or it is
    deterministic and its inputs are durable, so that a replay can reach every frontier of its inputs: full history,
    with the input log as the history.

    Args:
        reach: the end of its log of sent or received messages; it cannot go beyond. None: it needs no log, since other
            logs hold everything that it may need, or its senders send it again.
        discards: whether sent messages that are not logged are lost. Then D̄ is everything that its events may have
            sent.
        marks: for an output edge without a projection, pairs (f, φ(e)(f)), in any order. Each pair holds by itself, so
            φ at a frontier is the union of the pairs within it. This may be less than the truth, which is safe.
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
        """Merge all marks within `frontier` into one, which says the same as they for every frontier that holds it."""
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
            # If nobody knows which messages were sent, any message may have been sent.
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
"""F*(p), the frontiers to which a processor can go back."""
