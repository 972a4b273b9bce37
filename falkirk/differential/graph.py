"""Graph: what the collections of an iteration are made of, as the user's calls leave it.

Nodes that remember nothing are functions of DataFrames. Holders remember, or keep rows for a later job: joins and
reductions; where a loop begins and where it ends; what is asked for in the end.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from falkirk.differential.expressions import Steps
from falkirk.differential.operators import Join, Reduce
from falkirk.errors import DefinitionError
from falkirk.location import SourceLocation, caller


@dataclass(frozen=True, eq=False, kw_only=True)
class Scope:
    """A loop, or what is outside all loops.

    Args: parent: None outside. rounds: how often its body is applied, at most. restarts: each epoch's rounds begin with
        the loop's start; else where the epoch before has ended.
    """

    parent: "Scope | None" = None
    rounds: int = 1
    restarts: bool = True

    @property
    def depth(self) -> int:
        """In how many loops."""
        return 0 if self.parent is None else self.parent.depth + 1

    def is_within(self, other: "Scope") -> bool:
        """Whether it is the other one, or in it."""
        return self is other or (self.parent is not None and self.parent.is_within(other))


@dataclass(eq=False, kw_only=True)
class Node:
    """A collection. Args: schema: of its rows."""

    scope: Scope
    schema: StructType


@dataclass(eq=False, kw_only=True)
class Source(Node):
    """What changes from outside."""

    name: str


@dataclass(eq=False, kw_only=True)
class Mapped(Node):
    """Row by row. Args: how: gets a DataFrame of the rows with columns of ours, which it passes on. where: the user's
    line. steps: the same without Spark, where that is known."""

    of: Node
    how: Callable[[DataFrame], DataFrame]
    where: SourceLocation | None = None
    steps: Steps | None = None

    def __getstate__(self) -> dict[str, object]:
        """Leave `how` behind: it is of no use in a task."""
        return {**self.__dict__, "how": None}


@dataclass(eq=False, kw_only=True)
class Concat(Node):
    """All of several."""

    of: tuple[Node, ...]


@dataclass(eq=False, kw_only=True)
class Entered(Node):
    """What a loop reads from around it, the same in each round."""

    of: Node


@dataclass(eq=False, kw_only=True)
class Holder(Node):
    """A node that keeps something. `name` is its own in the graph."""

    name: str = ""


@dataclass(eq=False, kw_only=True)
class Joined(Holder):
    """A join."""

    of: tuple[Node, Node]
    operator: Join


@dataclass(eq=False, kw_only=True)
class Reduced(Holder):
    """A reduction."""

    of: Node
    operator: Reduce


@dataclass(eq=False, kw_only=True)
class Variable(Holder):
    """What goes round in a loop: in its first round `start`, and what the body has made of it in the next.

    In differences: start, and a round later what the body has come to, without the start.
    """

    start: Node | None
    body: Node | None = None


@dataclass(eq=False, kw_only=True)
class Left(Holder):
    """What a loop has come to, in the scope around it. Args: of: in the loop."""

    of: Node
    loop: Scope


@dataclass(eq=False, kw_only=True)
class Result(Holder):
    """What is asked for."""

    of: Node


def inputs_of(node: Node) -> tuple[Node, ...]:
    """Return what a node is made of; of a variable, what it starts with and what its body comes to."""
    if isinstance(node, Concat | Joined):
        return tuple(node.of)
    if isinstance(node, Mapped | Entered | Reduced | Left | Result):
        return (node.of,)
    if isinstance(node, Variable):
        return tuple(n for n in (node.start, node.body) if n is not None)
    return ()


def is_loose(node: Node) -> bool:
    """Tell whether its rows are in whatever partitions their sources have."""
    if isinstance(node, Mapped | Entered):
        return is_loose(node.of)
    return isinstance(node, Source) or (isinstance(node, Concat) and all(map(is_loose, node.of)))


def loop_left() -> DefinitionError:
    """Return the error of who reads a loop's collection where the loop is not."""
    return DefinitionError(
        "LOOP_LEFT",
        "what is made in the body of a loop is read outside of it.",
        where=caller(),
        hint="Return it from the body: what iterate() returns is what the loop has come to.",
    )


@dataclass(kw_only=True)
class Graph:
    """All that a result needs, in an order in which each comes behind what it reads; a variable comes first in its
    loop.

    Args: result: what is asked for. alone: the loops that one task can do alone, once that was found out.
    """

    result: Result
    nodes: list[Node] = field(default_factory=list)
    alone: frozenset[Scope] | None = None

    def __post_init__(self) -> None:
        seen: set[int] = set()
        self._visit(self.result, seen)
        for number, holder in enumerate(self.holders()):
            holder.name = f"{number}-{type(holder).__name__.lower()}"

    def _visit(self, node: Node, seen: set[int]) -> None:
        if id(node) in seen:
            return
        seen.add(id(node))
        if isinstance(node, Variable):
            if node.start is not None:
                self._visit(node.start, seen)
            self.nodes.append(node)
            assert node.body is not None, "a loop has a body once it is made"
            self._visit(node.body, seen)
            return
        for before in inputs_of(node):
            self._visit(before, seen)
        self.nodes.append(node)

    def holders(self) -> Iterator[Holder]:
        """Return the nodes that keep something."""
        return (node for node in self.nodes if isinstance(node, Holder))

    def sources(self) -> list[Source]:
        """Return what changes from outside."""
        return [node for node in self.nodes if isinstance(node, Source)]

    def shape(self) -> str:
        """Return what must stay the same for a state to be this graph's."""
        return "; ".join(
            f"{h.name}({', '.join(f'{f.name} {f.dataType.simpleString()}' for f in h.schema.fields)})"
            + (f" {h.operator}" if isinstance(h, Joined | Reduced) else "")
            for h in self.holders()
        )
