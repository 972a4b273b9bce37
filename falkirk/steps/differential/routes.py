"""Routes: computes which rows of a graph pass between nodes without a shuffle, and which must be stored for later jobs.

A row must be stored if a job ends between the node that makes it and the node that reads it. A job ends after each
round of a loop.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from falkirk.steps.differential.graph import (
    Holder,
    Joined,
    Left,
    LoopGraph,
    LoopNode,
    LoopVariable,
    Reduced,
    Result,
    Scope,
    inputs_of,
)  # fmt: skip
from falkirk.steps.differential.schemas import port_names
from falkirk.steps.differential.task import EdgeMove, LaterReader

Position = tuple[Scope, int]
"""A scope, and the number of loops directly in it that have ended before."""


@dataclass(kw_only=True)
class Routes:
    """The routes of one graph, by the identity of nodes.

    Attributes:
        readers: for the last node of a loop's body, where its rows go in later jobs.
        keeps: operators whose results are read in a later job.
        emits: operators whose results are read in the same job, with the number of readers.
        mixed: the names of variables whose rows reach the end of the body without passing an operator. A row must meet
            its removal before the next round, so that they cancel; otherwise both circulate for ever.
    """

    graph: LoopGraph
    readers: dict[int, list[LaterReader]] = field(default_factory=dict)
    keeps: set[int] = field(default_factory=set)
    emits: Counter[int] = field(default_factory=Counter)
    mixed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._readers: dict[int, list[tuple[LoopNode, int]]] = {}
        for node in self.graph.nodes:
            for port, of in enumerate(inputs_of(node)):
                self._readers.setdefault(id(of), []).append((node, port))
        self._parts = self._numbered()
        for node in self.graph.nodes:
            ends = [reader for reader, _ in self._readers.get(id(node), []) if _is_end(reader, node)]
            if ends:
                self.readers[id(node)] = [reader for end in ends for reader in self._later_readers(node, end)]
        for holder in self.graph.holders():
            if isinstance(holder, LoopVariable) and holder.body is not None and _passes(holder, holder.body):
                self.mixed.add(holder.name)
            if isinstance(holder, Joined | Reduced):
                for where in self._read_at(holder):
                    if self._is_in_same_job(holder, where):
                        self.emits[id(holder)] += 1
                    else:
                        self.keeps.add(id(holder))

    def readers_of(self, holder: Joined | Reduced) -> tuple[LaterReader, ...]:
        """Return where an operator's results are stored for later jobs: `readers`, and its own name if needed."""
        readers = tuple(self.readers.get(id(holder), ()))
        if id(holder) not in self.keeps:
            return readers
        return (*readers, LaterReader(holder=f"kept-{holder.name}", port=0, names=tuple(holder.schema.names)))

    def _numbered(self) -> dict[int, int]:
        """Return the number of loops that end before each holder in its scope, and in each scope in all."""
        current: dict[int, int] = {}
        found = {}
        for holder in self.graph.holders():
            number = current.get(id(holder.scope), 0)
            if isinstance(holder, Left):
                current[id(holder.scope)] = number = number + 1
            found[id(holder)] = number
        return found | current

    def _read_at(self, node: LoopNode) -> Iterator[Position]:
        """Return the positions at which a node's rows are read."""
        for reader, _ in self._readers.get(id(node), []):
            if _is_end(reader, node):
                if not isinstance(node, Joined | Reduced):  # an operator stores its own results
                    loop = reader.loop if isinstance(reader, Left) else reader.scope
                    yield loop, self._parts.get(id(loop), 0)
            elif isinstance(reader, LoopVariable):
                yield reader.scope, 0
                yield from self._read_at(reader)
            elif isinstance(reader, Holder):
                yield reader.scope, self._parts[id(reader)]
            else:
                yield from self._read_at(reader)

    def _is_in_same_job(self, holder: Holder, where: Position) -> bool:
        scope, part = where
        while scope is not holder.scope:
            if part:
                return False
            left = next(h for h in self.graph.holders() if isinstance(h, Left) and h.loop is scope)
            scope, part = left.scope, self._parts[id(left)] - 1  # a loop begins in the part that precedes its end
        return part == self._parts[id(holder)]

    def _later_readers(self, node: LoopNode, end: LoopNode) -> Iterator[LaterReader]:
        """Return the readers of a node's rows beyond the end of a loop."""
        assert isinstance(end, LoopVariable | Left)
        move: EdgeMove = "leave" if isinstance(end, Left) else "next" if end.scope.restarts else "stay"
        limit = end.scope.rounds if move == "next" else None
        readers = self._readers.get(id(end), [])
        direct = [(r, port) for r, port in readers if isinstance(r, Holder) and not _is_end(r, end) and _fits(node, r)]
        # A reader of the end needs all rows that wait there. In a loop of one round they meet the loop's start there.
        if len(direct) < len(readers) or limit == 1:
            direct = [(end, 0)]
        for reader, port in direct:
            yield LaterReader(holder=reader.name, port=port, names=port_names(reader, port), move=move, rounds=limit)


def _is_end(reader: LoopNode, node: LoopNode) -> bool:
    """Whether a node is the result of a loop's body, and the reader is the loop's variable or end."""
    return isinstance(reader, Left) or (isinstance(reader, LoopVariable) and reader.body is node)


def _passes(variable: LoopVariable, node: LoopNode) -> bool:
    """Whether rows of a variable reach a node without passing an operator."""
    if isinstance(node, Joined | Reduced):
        return False
    before = inputs_of(node)[:1] if isinstance(node, LoopVariable) else inputs_of(node)
    return node is variable or any(_passes(variable, of) for of in before if of is not node)


def _fits(node: LoopNode, reader: Holder) -> bool:
    """Whether a node's results are partitioned as a reader needs them."""
    if not isinstance(node, Joined | Reduced):
        return False
    if isinstance(reader, Result):
        return True  # equal rows have equal keys
    return isinstance(reader, Joined | Reduced) and reader.operator.keys == node.operator.keys
