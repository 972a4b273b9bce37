"""Rollback: the greatest consistent choice of frontiers, one per processor, with the reason for each.

Figure 6, computed from the beginning:

    f(p)   ← max { g ∈ F*(p) : g ⊆ f(p), N̄(p,g) ⊆ f_n(p),
                   D̄(e,g) ⊆ f(dst(e)) ∀e ∈ Out(p), M̄(d,g) ⊆ φ(d)(f(src(d))) ∀d ∈ In(p) }
    f_n(p) ← max { g ⊆ f_n(p) ∩ f(p) : g ⊆ φ(d)(f_n(src(d))) ∀d ∈ In(p) }

The solver starts at the top and repeats until nothing changes. It ends because nothing ever grows and ∅ ∈ F*(p) for all
p. It examines a processor again only when a neighbour went back, in the order of a queue. For each refusal it records
the broken constraint and the earlier refusals that had lowered the neighbour. Users see these records as the
explanation, and the monitor needs them to update the solution.
Source: Falkirk Wheel, §3.6, Figure 6.
"""

import gc
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from falkirk.errors.conditions.theory import NOT_NOTIFIED
from falkirk.theory.constraints import Constraint, has_sent_delivered, keeps_discarded
from falkirk.theory.frontier import Frontier, OffsetFrontier, StructuredFrontier
from falkirk.theory.graph import Edge, Graph
from falkirk.theory.metadata import Anywhere, Available, Checkpoints, Metadata


@dataclass(slots=True, eq=False)
class Variable:
    """One unknown of Figure 6: f(p) or f_n(p). There is one object for each.

    Args: touches: the unknowns whose rule reads this one.
    """

    processor: str
    notification: bool
    touches: "tuple[Variable, ...]" = ()

    def __str__(self) -> str:
        return f"{'f_n' if self.notification else 'f'}({self.processor})"


@dataclass(slots=True, eq=False)
class Refusal:
    """The reason why a variable can't have a frontier, nor a greater one. Refusals are compared by identity.

    Args:
        variable: the refused variable.
        refused: the frontier that it can't have. None: nothing greater is available, because it was never saved or is
            lost.
        left: the frontier that it can have, if it may have any. None if only checkpoints are available.
        constraint, edge: the broken constraint and its edge. The edge is None if the constraint is within the
            processor.
        because: the refusals that had lowered the neighbour to its present frontier. A path from refusal to refusal
            never forms a circle. It ends at something that is not available.
        therefore: the refusals that have this one in their `because`.
    """

    variable: Variable
    refused: Frontier | None = None
    left: Frontier | None = None
    constraint: Constraint | None = None
    edge: str | None = None
    because: tuple["Refusal", ...] = ()
    therefore: set["Refusal"] = field(default_factory=set, repr=False)


Objection = tuple[Constraint, Edge | None, Variable, Frontier | None]
"""A constraint that a candidate breaks, its edge, the variable whose value causes it, and the part that it permits."""


class Rollback:
    """The unknowns of Figure 6 over one graph, and the rules that lower them.

    Attributes:
        chosen: Ξ(p, f(p)).
        notified: f_n(p), for each processor with a path to a processor that asks for notifications. It restricts no
            other.
        refusals: the refusals of each variable, the oldest first.
    """

    def __init__(self, graph: Graph, available: Mapping[str, Available]) -> None:
        self.graph = graph
        self.available = dict(available)
        notifying = graph.upstream(name for name, p in graph.processors.items() if p.notified)
        self._f = {name: Variable(name, notification=False) for name in graph.processors}
        self._f_n = {name: Variable(name, notification=True) for name in graph.processors if name in notifying}
        self.variables = tuple(v for name in graph.processors for v in (self._f[name], self._f_n.get(name)) if v)
        for variable in self.variables:
            variable.touches = tuple(dict.fromkeys(self._touched_by(variable)))
        self.chosen: dict[str, Metadata] = {}
        self.notified: dict[str, Frontier] = {}
        self.refusals: dict[Variable, list[Refusal]] = {variable: [] for variable in self.variables}

    def _touched_by(self, variable: Variable) -> Iterator[Variable]:
        name = variable.processor
        if variable.notification:
            yield self._f[name]
            yield from (self._f_n[e.target] for e in self.graph.outputs[name] if e.target in self._f_n)
            return
        if name in self._f_n:
            yield self._f_n[name]
        yield from (self._f[edge.source] for edge in self.graph.inputs[name])
        yield from (self._f[edge.target] for edge in self.graph.outputs[name])

    def variables_of(self, name: str) -> tuple[Variable, ...]:
        """Return f(p), and f_n(p) if it has one."""
        return (self._f[name], self._f_n[name]) if name in self._f_n else (self._f[name],)

    def frontier(self, variable: Variable) -> Frontier:
        """Return the present f(p) or f_n(p)."""
        return self.notified[variable.processor] if variable.notification else self.chosen[variable.processor].frontier

    def why(self, processor: str) -> Iterator[Refusal]:
        """Yield why a processor can't go further: the constraint, the refusal of the neighbour that caused it, and so
        on. The last one is something that is not available."""
        refusals = self.refusals[self._f[processor]]
        while refusals:
            yield refusals[-1]
            refusals = list(refusals[-1].because)

    def is_ordered(self, variable: Variable) -> bool:
        """Return whether a variable's latest refusal implies the earlier ones.

        This holds if its frontiers form a chain and the greater ones demand more. Otherwise each refusal may restrict
        the variable in a different direction.
        """
        available = self.available[variable.processor]
        if isinstance(available, Checkpoints) and not variable.notification:
            return available.regular
        domain = self.graph.processors[variable.processor].domain
        return isinstance(domain, StructuredFrontier) and domain.arity == 1

    def binding(self, variable: Variable) -> tuple[Refusal, ...]:
        """Return the refusals that determine a variable's present value."""
        refusals = self.refusals[variable]
        return tuple(refusals[-1:] if self.is_ordered(variable) else refusals)

    # -- the rules ----------------------------------------------------------------------------------------------------

    def start(self, variable: Variable) -> None:
        """Give a variable the greatest value that its refusals permit."""
        name, refusals = variable.processor, self.refusals[variable]
        available = self.available[name]
        if isinstance(available, Checkpoints) and not variable.notification:
            if not refusals or refusals[0].refused is not None:
                refusals.insert(0, Refusal(variable))
            smallest = refusals[-1].refused
            chain = reversed(available.chain)
            self.chosen[name] = next(m for m in chain if smallest is None or not smallest <= m.frontier)
            return
        reach = available.reach if isinstance(available, Anywhere) and not variable.notification else None
        if reach is not None and (not refusals or refusals[0].refused is not None):
            refusals.insert(0, Refusal(variable, left=reach))
        greatest = refusals[-1].left if refusals else None
        self._put(variable, self.graph.processors[name].domain.everything() if greatest is None else greatest)

    def describe_again(self, name: str) -> None:
        """Update Ξ of a processor that can go anywhere, after new facts about its present frontier became known."""
        self._put(self._f[name], self.chosen[name].frontier)

    def _put(self, variable: Variable, frontier: Frontier) -> None:
        name = variable.processor
        if variable.notification:
            self.notified[name] = frontier
            return
        available, graph = self.available[name], self.graph
        assert isinstance(available, Anywhere), "a processor with checkpoints goes to one of them"
        self.chosen[name] = available.describe(
            frontier, graph.processors[name], graph.inputs[name], graph.outputs[name]
        )

    def lower(self, variable: Variable) -> bool:
        """Apply Figure 6 to one variable; return whether it went back."""
        available = self.available[variable.processor]
        if isinstance(available, Checkpoints) and not variable.notification:
            return self._lower_to_checkpoint(variable, available)
        before = frontier = self.frontier(variable)
        if frontier.is_empty:
            return False  # it can't go back any further
        for objection in self.objections(variable, before):
            left = objection[3]
            assert left is not None
            within = frontier & left
            if within is not frontier and within != frontier:
                self._record(self._refusal(variable, frontier, objection, within))
                frontier = within
                if frontier.is_empty:
                    break
        if frontier is before:
            return False
        self._put(variable, frontier)
        return True

    def _lower_to_checkpoint(self, variable: Variable, available: Checkpoints) -> bool:
        name = variable.processor
        before = self.chosen[name]
        found: list[Refusal] = []
        for metadata in reversed(available.chain):
            if not metadata.frontier <= before.frontier or self._contradicts_itself(name, metadata):
                continue
            objection = next(self.objections_to_checkpoint(variable, metadata), None)
            if objection is None:
                self.chosen[name] = metadata
                break
            found.append(self._refusal(variable, metadata.frontier, objection, None))
        for refusal in found[-1:] if available.regular else found:
            self._record(refusal)
        return self.chosen[name] is not before

    def _contradicts_itself(self, name: str, metadata: Metadata) -> bool:
        """Return whether a checkpoint is inconsistent with itself, on an edge from the processor to itself.

        This checkpoint counts as not available. No refusal records it, because the refusal could never fall.
        """
        return any(
            not keeps_discarded(edge, metadata, metadata) or not has_sent_delivered(edge, metadata, metadata)
            for edge in self.graph.inputs[name]
            if edge.source == name
        )

    def objections_to_checkpoint(self, variable: Variable, metadata: Metadata) -> Iterator[Objection]:
        """Yield the present objections to a processor's going to one of its checkpoints."""
        name = variable.processor
        if metadata.notified is not None and name not in self._f_n:
            raise NOT_NOTIFIED.error(where=name, name=name)
        if metadata.notified is not None and not metadata.notified <= self.notified[name]:
            yield Constraint.NOTIFIED, None, self._f_n[name], None
        for edge in self.graph.outputs[name] if metadata.discarded else ():
            if edge.target != name and not keeps_discarded(edge, metadata, self.chosen[edge.target]):
                yield Constraint.DISCARDED, edge, self._f[edge.target], None
        for edge in self.graph.inputs[name] if metadata.delivered else ():
            if edge.source != name and not has_sent_delivered(edge, self.chosen[edge.source], metadata):
                yield Constraint.DELIVERED, edge, self._f[edge.source], None

    def objections(self, variable: Variable, frontier: Frontier) -> Iterator[Objection]:
        """Yield the objections to a frontier of a variable that may have any, each with the part of the frontier that
        it permits."""
        name = variable.processor
        if variable.notification:
            yield from self._objections_to_promise(name, frontier)
            return
        available = self.available[name]
        assert isinstance(available, Anywhere), "a processor with checkpoints goes to one of them"
        if name in self._f_n and self.graph.processors[name].notified and not frontier <= self.notified[name]:
            yield Constraint.NOTIFIED, None, self._f_n[name], frontier & self.notified[name]
        for edge in self.graph.outputs[name] if available.discards else ():
            left = self._undiscarded(edge, frontier)
            if left is not frontier and left != frontier:
                yield Constraint.DISCARDED, edge, self._f[edge.target], left
        for edge in self.graph.inputs[name]:
            left = edge.limit(frontier, self.chosen[edge.source].fixed(edge))
            if left is not frontier and left != frontier:
                yield Constraint.DELIVERED, edge, self._f[edge.source], left

    def _undiscarded(self, edge: Edge, frontier: Frontier) -> Frontier:
        """Return the part of a frontier that the discarded messages on an edge permit."""
        target = self.chosen[edge.target].frontier
        if edge.projection is None:
            return frontier if edge.everything() <= target else frontier.nothing()
        bound = edge.projection.causes(target)
        if edge.sequences and isinstance(frontier, OffsetFrontier) and isinstance(bound, OffsetFrontier):
            return frontier.limit(bound, edge.sequences)
        return frontier if frontier <= bound else frontier & bound

    def _objections_to_promise(self, name: str, frontier: Frontier) -> Iterator[Objection]:
        chosen = self.chosen[name].frontier
        if not frontier <= chosen:
            yield Constraint.NOTIFIED, None, self._f[name], frontier & chosen
        for edge in self.graph.inputs[name]:
            left = edge.limit(frontier, self.available[edge.source].fixed(self.notified[edge.source], edge))
            if left is not frontier and left != frontier:
                yield Constraint.NOTIFIED, edge, self._f_n[edge.source], left

    def refuse_again(self, refusal: Refusal, shaken: Container[Refusal]) -> bool:
        """Find another reason for a refusal that does not depend on `shaken` refusals; return whether there is one."""
        variable, refused = refusal.variable, refusal.refused
        if refused is None or not self.is_ordered(variable):
            return False
        available = self.available[variable.processor]
        if isinstance(available, Checkpoints) and not variable.notification:
            found = self.objections_to_checkpoint(variable, available.at(refused))
        else:
            found = self.objections(variable, refused)
        for constraint, edge, holder, left in found:
            because = self.binding(holder)
            enough = left is None or (refusal.left is not None and left <= refusal.left)
            if enough and not any(older in shaken for older in because):
                for older in refusal.because:
                    older.therefore.discard(refusal)
                for older in because:
                    older.therefore.add(refusal)
                refusal.constraint, refusal.edge, refusal.because = (
                    constraint,
                    None if edge is None else edge.name,
                    because,
                )
                return True
        return False

    # -- records -------------------------------------------------------------------------------------------------------

    def _refusal(self, variable: Variable, refused: Frontier, objection: Objection, left: Frontier | None) -> Refusal:
        constraint, edge, holder, _ = objection
        name = None if edge is None else edge.name
        return Refusal(variable, refused, left, constraint, name, self.binding(holder))

    def _record(self, refusal: Refusal) -> None:
        self.refusals[refusal.variable].append(refusal)
        for older in refusal.because:
            older.therefore.add(refusal)


def lower_until_stable(
    rollback: Rollback, variables: Iterable[Variable], first: Iterable[Variable] | None = None
) -> None:
    """Lower these variables, and those among them that a change affects, until nothing changes. Others stay.

    Args: first: those for which less is available than before. None: any of them may have to go back.
    """
    free = dict.fromkeys(variables)
    waiting = deque(free if first is None else dict.fromkeys(first))
    queued = set(waiting)
    while waiting:
        variable = waiting.popleft()
        queued.discard(variable)
        if rollback.lower(variable):
            for other in variable.touches:
                if other in free and other not in queued:
                    waiting.append(other)
                    queued.add(other)


def solve(graph: Graph, available: Mapping[str, Available]) -> Rollback:
    """Return the greatest consistent choice.

    Args: available: F*(p) for every processor. For processors that have not failed, the last element is ⊤.
    """
    with _collector_paused():
        rollback = Rollback(graph, available)
        for variable in rollback.variables:
            rollback.start(variable)
        lower_until_stable(rollback, rollback.variables)
        return rollback


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause Python's garbage collection. It finds no garbage among millions of objects and takes 25 % of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
