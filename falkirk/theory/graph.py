"""Graphs: processors, each with its own time domain, and the edges between them."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from falkirk.errors.conditions.theory import GRAPH_MALFORMED, GRAPH_MALFORMED_EDGE
from falkirk.theory.frontier import Frontier, OffsetFrontier
from falkirk.theory.projection import Projection
from falkirk.theory.times import OMEGA, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """A step of an application.

    Args:
        name: unique in its graph.
        domain: ∅ of its time domain.
        notified: whether it may ask for a notification when a time is complete. No processor of a running application
            does: `recovery/protocol/layout.py` says why. The formal model and the monitor's bench have some that do.
    """

    name: str
    domain: Frontier
    notified: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A path of messages from one processor to another. The times of messages are in the receiver's domain.

    Args:
        name: unique in its graph.
        projection: the kind of the edge. None if only the source knows which messages it has sent (sequence numbers).
            Each Ξ(p,f) of the source then records φ(e)(f).
        domain: ∅ of the receiver's time domain.
        sequences: if the receiver counts in sequence numbers, the sequences that this edge carries.
    """

    name: str
    source: str
    target: str
    projection: Projection | None
    domain: Frontier
    sequences: frozenset[TopicPartition] = frozenset()

    def everything(self) -> Frontier:
        """Return the frontier of all messages that this edge can ever carry."""
        if isinstance(self.domain, OffsetFrontier):
            return OffsetFrontier.of(dict.fromkeys(self.sequences, OMEGA))
        return self.domain.everything()

    def restrict(self, frontier: Frontier) -> Frontier:
        """Return the part of a frontier of the receiver that concerns messages of this edge."""
        return frontier.only(self.sequences) if isinstance(frontier, OffsetFrontier) else frontier

    def limit(self, frontier: Frontier, bound: Frontier) -> Frontier:
        """Return the largest part of a frontier of the receiver that has no message of this edge outside `bound`.

        Over sequence numbers, a bound on one edge does not restrict the other edges: it does not contain their times.
        """
        if type(frontier) is not OffsetFrontier:  # called at every edge: a negative isinstance() is slow
            return frontier & bound
        assert isinstance(bound, OffsetFrontier), "frontiers of one edge are of one domain"
        return frontier.limit(bound, self.sequences)


class Graph:
    """Processors and edges in the order in which they were given, so that results computed over them are reproducible.

    Raises: InternalError: `GRAPH_MALFORMED` if a name is not unique, or if an edge's end is not one of the processors.
    """

    def __init__(self, processors: Iterable[Processor], edges: Iterable[Edge]) -> None:
        given, paths = tuple(processors), tuple(edges)
        self.processors = {p.name: p for p in given}
        self.edges = {e.name: e for e in paths}
        if len(self.processors) < len(given) or len(self.edges) < len(paths):
            raise GRAPH_MALFORMED.error()
        into: dict[str, list[Edge]] = defaultdict(list)
        out: dict[str, list[Edge]] = defaultdict(list)
        for edge in paths:
            if edge.source not in self.processors or edge.target not in self.processors:
                raise GRAPH_MALFORMED_EDGE.error(edge=edge.name)
            into[edge.target].append(edge)
            out[edge.source].append(edge)
        self.inputs = {name: tuple(into.get(name, ())) for name in self.processors}
        self.outputs = {name: tuple(out.get(name, ())) for name in self.processors}

    def upstream(self, names: Iterable[str]) -> frozenset[str]:
        """Return these processors and all processors from which a path leads to them."""
        return self._closure(names, lambda name: (e.source for e in self.inputs[name]))

    @staticmethod
    def _closure(names: Iterable[str], step: Callable[[str], Iterable[str]]) -> frozenset[str]:
        waiting = list(names)
        found = set(waiting)
        while waiting:
            for name in step(waiting.pop()):
                if name not in found:
                    found.add(name)
                    waiting.append(name)
        return frozenset(found)
