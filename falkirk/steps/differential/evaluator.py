"""Evaluator: the rules by which the changes of a graph's nodes at a time follow from those of other nodes.

They are the same whether the changes are DataFrames, which Spark jobs compute (`jobs.py`), or tables in the memory of
one task (`in_memory.py`). The two subclasses say only how rows of their kind are mapped, united and read.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from falkirk.steps.differential.graph import (
    Concat,
    Entered,
    Holder,
    Joined,
    Left,
    LoopNode,
    LoopVariable,
    Mapped,
    Reduced,
    Scope,
    Source,
    inputs_of,
)  # fmt: skip
from falkirk.steps.differential.rows import LoopTime
from falkirk.steps.differential.schedule import WaitingKey

R = TypeVar("R")


@dataclass
class Evaluated(Generic[R]):
    """The evaluated nodes of one step.

    Args: made: the results of operators, by the operator's identity. idle: operators that had nothing to do, with the
        time. frames: the changes of nodes; None: there can be none. read: operators whose results were read.
    """

    made: dict[int, R] = field(default_factory=dict)
    idle: set[tuple[int, LoopTime]] = field(default_factory=set)
    frames: dict[tuple[int, LoopTime], R | None] = field(default_factory=dict)
    read: set[int] = field(default_factory=set)


class Evaluator(ABC, Generic[R]):
    """Evaluates the nodes of one step after the other.

    Args: pending: the rows that wait for a time, by holder, kind and time. entered: loops that began with the result of
        the former epoch; the time around them does not advance while they run.

    Attributes: left: rows that are left for the next epoch. read: rows that were taken from `pending`; they can be read
        again until their time is complete. count: the number of steps with work.
    """

    def __init__(self, pending: Mapping[WaitingKey, Sequence[Any]], entered: set[Scope]) -> None:
        self.pending: dict[WaitingKey, tuple[Any, ...]] = {key: tuple(rows) for key, rows in pending.items()}
        self.left: dict[WaitingKey, tuple[Any, ...]] = {}
        self.read: dict[tuple[str, LoopTime], Any] = {}
        self.entered = entered
        self.count = 0
        self.step: Evaluated[R] = Evaluated()

    def operate(self, holder: Joined | Reduced, now: LoopTime) -> None:
        """See Works."""
        frames = [self.frame(node, now) for node in inputs_of(holder)]
        waiting = self._take(holder, now)
        if not any(waiting.values()) and all(frame is None for frame in frames):
            self.step.idle.add((id(holder), now))
            return
        self.step.made[id(holder)] = self.operated(holder, now, frames, waiting)

    def _take(self, holder: Joined | Reduced, now: LoopTime) -> dict[str, tuple[Any, ...]]:
        """Return the rows that wait for an operator at a time, by their kind; they wait no more."""
        kinds = [*(f"deferred{port}" for port in range(len(inputs_of(holder)))), "due"]
        return {kind: self.pending.pop((holder.name, kind, now), ()) for kind in kinds}

    def frame(self, node: LoopNode, now: LoopTime) -> R | None:
        """Return the changes of a node at a time, or None if there can be none."""
        key = (id(node), now)
        if key not in self.step.frames:
            self.step.frames[key] = self._evaluate(node, now)
        return self.step.frames[key]

    def _evaluate(self, node: LoopNode, now: LoopTime) -> R | None:
        if isinstance(node, Source):
            return self.source(node)
        if isinstance(node, Mapped):
            of = self.frame(node.of, now)
            return None if of is None else self.mapped(node, of, now)
        if isinstance(node, Concat):
            return self._union(node, self.beside(node.of, now), now)
        if isinstance(node, Entered):
            enters = now[-1] == 0 and node.scope not in self.entered
            of = self.frame(node.of, now[:-1]) if enters else None
            return None if of is None else self.enter(node, of, now)
        assert isinstance(node, Holder)
        if id(node) in self.step.made:
            self.step.read.add(id(node))
            return self.step.made[id(node)]
        if (id(node), now) in self.step.idle:
            return None  # its stored results are read in later steps; readers in the same step received them directly
        if isinstance(node, LoopVariable):
            begins = node.start is not None and now[-1] == 0
            start = self.beside((node.start,), now) if begins and node.start is not None else []
            return self._union(node, [*start, self._again(node, node.name, now)], now)
        return self._again(node, node.name if isinstance(node, Left) else f"kept-{node.name}", now)

    def _again(self, node: Holder, name: str, now: LoopTime) -> R | None:
        """Return the rows that wait for a time; several readers may read them."""
        key = (name, now)
        if key not in self.read and (name, "deferred0", now) in self.pending:
            self.read[key] = self.taken(node, self.pending.pop((name, "deferred0", now)), now)
        return self.reading(node, self.read[key], now) if key in self.read else None

    def _union(self, node: LoopNode, frames: Iterable[R | None], now: LoopTime) -> R | None:
        found = [frame for frame in frames if frame is not None]
        return self.union(node, found, now) if found else None

    def beside(self, nodes: Sequence[LoopNode], now: LoopTime) -> list[R | None]:
        """Return the changes of nodes that are read in one union."""
        return [self.frame(node, now) for node in nodes]

    # -- rows of either kind -------------------------------------------------------------------------------------------

    @abstractmethod
    def operated(
        self,
        holder: Joined | Reduced,
        now: LoopTime,
        frames: Sequence[R | None],
        waiting: Mapping[str, tuple[Any, ...]],
    ) -> R:
        """Return the result of an operator. Args: frames: what arrives. waiting: rows that waited, by their kind."""

    @abstractmethod
    def source(self, node: Source) -> R | None:
        """Return the changed rows of a source."""

    @abstractmethod
    def mapped(self, node: Mapped, of: R, now: LoopTime) -> R:
        """Return rows after the steps of a node."""

    @abstractmethod
    def enter(self, node: Entered, of: R, now: LoopTime) -> R:
        """Return rows with their number of a loop's round, which is 0."""

    @abstractmethod
    def union(self, node: LoopNode, frames: Sequence[R], now: LoopTime) -> R:
        """Return all rows of at least one frame."""

    @abstractmethod
    def taken(self, node: Holder, rows: tuple[Any, ...], now: LoopTime) -> Any:
        """Return rows that waited, in the form in which `read` keeps them."""

    @abstractmethod
    def reading(self, node: Holder, rows: Any, now: LoopTime) -> R:
        """Return rows that `taken` returned, for a second reading."""
