"""Graph: the nodes of an iteration's collections, as the user's calls created them.

Nodes without memory are functions of DataFrames. Holders have a memory, or keep rows for a later job: joins and
reductions, the begin and the end of a loop, and the result.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from falkirk.errors import DefinitionError
from falkirk.errors.conditions.differential import LOOP_LEFT
from falkirk.errors.location import SourceLocation, caller
from falkirk.steps.differential.expressions import Steps
from falkirk.steps.differential.operators import Join, Reduce

if TYPE_CHECKING:  # a task reads a graph without it
    from falkirk.steps.differential.tried import Tried


@dataclass(frozen=True, eq=False, kw_only=True)
class Scope:
    """A loop, or the scope outside all loops.

    Args: parent: None outside all loops. rounds: the greatest number of times that the body is applied. restarts:
        whether each epoch begins with the loop's start; otherwise it begins with the result of the former epoch.
    """

    parent: "Scope | None" = None
    rounds: int = 1
    restarts: bool = True

    @property
    def depth(self) -> int:
        """The number of loops around its nodes."""
        return 0 if self.parent is None else self.parent.depth + 1

    def is_within(self, other: "Scope") -> bool:
        """Whether it is the other scope, or inside it."""
        return self is other or (self.parent is not None and self.parent.is_within(other))


@dataclass(eq=False, kw_only=True)
class LoopNode:
    """A collection. Args: schema: the user's columns."""

    scope: Scope
    schema: StructType


@dataclass(eq=False, kw_only=True)
class Source(LoopNode):
    """An input of the graph."""

    name: str


@dataclass(eq=False, kw_only=True)
class Mapped(LoopNode):
    """A row-by-row step. Args: how: receives a DataFrame with the user's and Falkirk's columns, and passes Falkirk's
    on. tried: it on no rows. where: the user's line. steps: the same step without Spark, if it is known."""

    of: LoopNode
    how: Callable[[DataFrame], DataFrame]
    tried: "Tried | None"
    where: SourceLocation | None = None
    steps: Steps | None = None

    def __getstate__(self) -> dict[str, object]:
        """Return the state without `how` and `tried`, which a task can't use."""
        return {**self.__dict__, "how": None, "tried": None}


@dataclass(eq=False, kw_only=True)
class Concat(LoopNode):
    """The rows of several nodes."""

    of: tuple[LoopNode, ...]


@dataclass(eq=False, kw_only=True)
class Entered(LoopNode):
    """A node outside a loop as the loop reads it: the same rows in each round."""

    of: LoopNode


@dataclass(eq=False, kw_only=True)
class Holder(LoopNode):
    """A node that stores rows. Args: name: unique in the graph."""

    name: str = ""


@dataclass(eq=False, kw_only=True)
class Joined(Holder):
    """A join."""

    of: tuple[LoopNode, LoopNode]
    operator: Join


@dataclass(eq=False, kw_only=True)
class Reduced(Holder):
    """A reduction."""

    of: LoopNode
    operator: Reduce


@dataclass(eq=False, kw_only=True)
class LoopVariable(Holder):
    """The value that a loop computes: `start` in the first round, and then the body's result of the former round.

    In differences: the start in round 0; one round later the body's result, less the start.
    """

    start: LoopNode | None
    body: LoopNode | None = None


@dataclass(eq=False, kw_only=True)
class Left(Holder):
    """The result of a loop, in the scope around it. Args: of: the result inside the loop."""

    of: LoopNode
    loop: Scope


@dataclass(eq=False, kw_only=True)
class Result(Holder):
    """The result of the graph."""

    of: LoopNode


def inputs_of(node: LoopNode) -> tuple[LoopNode, ...]:
    """Return the inputs of a node; those of a variable are its start and the result of its body."""
    if isinstance(node, Concat | Joined):
        return tuple(node.of)
    if isinstance(node, Mapped | Entered | Reduced | Left | Result):
        return (node.of,)
    if isinstance(node, LoopVariable):
        return tuple(n for n in (node.start, node.body) if n is not None)
    return ()


def is_loose(node: LoopNode) -> bool:
    """Return whether the rows of a node are partitioned like the sources, and not by a key."""
    if isinstance(node, Mapped | Entered):
        return is_loose(node.of)
    return isinstance(node, Source) or (isinstance(node, Concat) and all(map(is_loose, node.of)))


def loop_left() -> DefinitionError:
    """Return the error for a loop's collection that is read outside the loop."""
    return LOOP_LEFT.error(where=caller())


@dataclass(kw_only=True)
class LoopGraph:
    """All nodes that a result needs, each after its inputs; a variable comes first in its loop.

    Args: result: the last node. alone: the loops that one task can compute alone; None until `prepare` has found them.
    """

    result: Result
    nodes: list[LoopNode] = field(default_factory=list)
    alone: frozenset[Scope] | None = None

    def __post_init__(self) -> None:
        seen: set[int] = set()
        self._visit(self.result, seen)
        for number, holder in enumerate(self.holders()):
            holder.name = f"{number}-{type(holder).__name__.lower()}"

    def _visit(self, node: LoopNode, seen: set[int]) -> None:
        if id(node) in seen:
            return
        seen.add(id(node))
        if isinstance(node, LoopVariable):
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
        """Return the nodes that store rows."""
        return (node for node in self.nodes if isinstance(node, Holder))

    def sources(self) -> list[Source]:
        """Return the inputs of the graph."""
        return [node for node in self.nodes if isinstance(node, Source)]

    def shape(self) -> str:
        """Return the shape of the graph as a text. A state belongs to every graph of the same shape."""
        return "; ".join(
            f"{h.name}({', '.join(f'{f.name} {f.dataType.simpleString()}' for f in h.schema.fields)})"
            + (f" {h.operator}" if isinstance(h, Joined | Reduced) else "")
            for h in self.holders()
        )
