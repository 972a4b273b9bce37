"""Judges whether a choice of frontiers is consistent, by the four constraints of Falkirk Wheel, §3.5."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from falkirk.theory.constraints import Constraint, has_sent_delivered, keeps_discarded
from falkirk.theory.frontier import Frontier
from falkirk.theory.graph import Edge, Graph
from falkirk.theory.metadata import Available, Metadata
from falkirk.theory.times import Time


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A constraint that a choice breaks at a processor, on an edge or (None) within the processor."""

    constraint: Constraint
    processor: str
    edge: str | None


def may_checkpoint(frontier: Frontier, waiting: Iterable[Time]) -> bool:
    """Constraint 1: return whether no message with a time in f is still waiting on an input."""
    return not any(time in frontier for time in waiting)


def keeps_promises(edge: Edge, available: Available, source: Frontier, target: Frontier) -> bool:
    """Constraint 4: f_n(p) ⊆ φ(d)(f_n(src(d))). No message may still arrive at a time that was notified as complete.

    Args: available: F* of the edge's source. source, target: f_n of the edge's ends.
    """
    return edge.limit(target, available.fixed(source, edge)) == target


def violations(
    graph: Graph,
    available: Mapping[str, Available],
    chosen: Mapping[str, Metadata],
    notified: Mapping[str, Frontier],
) -> Iterator[Violation]:
    """Yield each violation of a constraint by a choice; nothing iff the choice is consistent.

    Args: available: F*(p). chosen: Ξ(p, f(p)). notified: f_n(p). Each has an entry for every processor.
    """
    for edge in graph.edges.values():
        source, target = chosen[edge.source], chosen[edge.target]
        if not keeps_discarded(edge, source, target):
            yield Violation(constraint=Constraint.DISCARDED, processor=edge.source, edge=edge.name)
        if not has_sent_delivered(edge, source, target):
            yield Violation(constraint=Constraint.DELIVERED, processor=edge.target, edge=edge.name)
        if not keeps_promises(edge, available[edge.source], notified[edge.source], notified[edge.target]):
            yield Violation(constraint=Constraint.NOTIFIED, processor=edge.target, edge=edge.name)
    for name, metadata in chosen.items():
        within = notified[name] <= metadata.frontier
        if not within or not (metadata.notified is None or metadata.notified <= notified[name]):
            yield Violation(constraint=Constraint.NOTIFIED, processor=name, edge=None)
