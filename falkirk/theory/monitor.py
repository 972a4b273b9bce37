"""Monitor: the solution of Figure 6 for "everything fails now", kept up to date as metadata arrives.

It says, at any moment, the low watermark f_low(p): no failure can ever roll p back beyond it, and it only grows.

How it stays cheap. Every variable that is not as great as it could be was refused something, because of older refusals
elsewhere: the solver writes them down. They form a forest whose roots are refused for nothing but that there is
nothing greater. When something becomes available, only the refusals above that root fall; every other one stands, and
with it the value of its variable. So just the variables whose refusal fell are raised and lowered again. While most
of an application's checkpoints of an epoch are still to come the trees are small, and where one checkpoint is the
last that all others wait for, all of them really do move.

It rests on frontiers growing with what is available, which they do where checkpoints are chains (§3.6).
Source: Falkirk Wheel, §4.2.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from falkirk.errors import InternalError
from falkirk.theory.frontier import Frontier
from falkirk.theory.graph import Edge, Graph
from falkirk.theory.metadata import Anywhere, Available, Metadata
from falkirk.theory.rollback import Refusal, Variable, settle, solve


class Monitor:
    """Low watermarks of the processors of one graph.

    Args: graph. available: F*(p) at the beginning, without ⊤; the monitor keeps and extends it.
    Attributes: solution: as it stands, with its reasons.
    """

    def __init__(self, graph: Graph, available: Mapping[str, Available]) -> None:
        self.solution = solve(graph, available)

    def low_watermark(self, processor: str) -> Frontier:
        """Return f_low(p)."""
        return self.solution.chosen[processor].frontier

    def add_checkpoint(self, processor: str, metadata: Metadata) -> tuple[str, ...]:
        """Take in Ξ(p,f) of a checkpoint whose state, log and metadata are all durable.

        Returns: the processors whose low watermark grew.
        Raises: InternalError: `FRONTIERS_UNORDERED`; `NO_CHECKPOINTS`, it is said to go anywhere already.
        """
        variable = self.solution.variables_of(processor)[0]
        available = self.solution.available[processor]
        if isinstance(available, Anywhere):
            raise InternalError("NO_CHECKPOINTS", f"{processor!r} saves no checkpoints.", where=processor)
        is_greatest = available.add(metadata) == len(available.chain) - 1
        refusals = self.solution.refusals[variable]
        if is_greatest and available.regular:
            return self._raise(refusals[:1], [variable])  # the first says that there is nothing greater
        # One in between is something that none of the others knew of when they were written down, nor did those who
        # asked what is fixed at f_n(p).
        edges = [e for e in self.solution.graph.outputs[processor] if e.projection is None]
        return self._raise([*refusals, *(r for e in edges for r in self._refused_on(e))], [variable])

    def extend_reach(self, processor: str, reach: Frontier) -> tuple[str, ...]:
        """Take in that what a processor logs reaches further.

        Returns, raises: as `add_checkpoint`; `NO_REACH`, it goes to its checkpoints alone, or logs nothing.
        """
        available = self.solution.available[processor]
        if not isinstance(available, Anywhere) or available.reach is None:
            raise InternalError("NO_REACH", f"{processor!r} has no log of its own.", where=processor)
        available.reach = available.reach | reach
        variable = self.solution.variables_of(processor)[0]
        return self._raise(self.solution.refusals[variable][:1], [variable])

    def add_mark(self, processor: str, edge: str, at: Frontier, fixed: Frontier) -> tuple[str, ...]:
        """Take in that a processor that can go anywhere had fixed so much on an edge when it had come so far.

        Marks may come in any order.
        Returns: as `add_checkpoint`. Raises: InternalError: `NO_MARKS`, it says with its checkpoints what is fixed.
        """
        available = self.solution.available[processor]
        if not isinstance(available, Anywhere):
            raise InternalError("NO_MARKS", f"{processor!r} says with its checkpoints what is fixed.", where=processor)
        available.marks.setdefault(edge, []).append((at, fixed))
        self.solution.describe_again(processor)
        freed = self._refused_on(self.solution.graph.edges[edge])
        return self._raise(freed, self.solution.variables_of(processor))

    def _refused_on(self, edge: Edge) -> list[Refusal]:
        """Return what an edge's receiver was refused on it."""
        both = self.solution.variables_of(edge.target)
        return [r for v in both for r in self.solution.refusals[v] if r.edge == edge.name]

    def forget_below(self, processor: str) -> tuple[Metadata, ...]:
        """Drop the checkpoints, and marks, of a processor that no failure can ask for any more; return the former.

        What is fixed at f_n(p) may still be asked for, and f_n(p) may lie below f(p).
        """
        available = self.solution.available[processor]
        bound = self.low_watermark(processor)
        for variable in self.solution.variables_of(processor)[1:]:
            bound = bound & self.solution.frontier(variable)
        if isinstance(available, Anywhere):
            available.forget_below(bound)
            return ()
        kept = next(m for m in reversed(available.chain) if m.frontier <= bound)
        return available.forget_below(kept.frontier)

    def _raise(self, fallen: Iterable[Refusal], variables: Iterable[Variable] = ()) -> tuple[str, ...]:
        """Raise these variables, and those that lose what refused them when these refusals fall; lower them again."""
        solution = self.solution
        free = self._drop(list(fallen))
        free.update(dict.fromkeys(variables))
        before = {v.processor: solution.frontier(v) for v in free if not v.notification}
        for variable in free:
            solution.start(variable)
        settle(solution, free)
        return tuple(name for name, frontier in before.items() if self.low_watermark(name) != frontier)

    def _drop(self, roots: list[Refusal]) -> dict[Variable, None]:
        """Forget refusals and those that rest on them; return the variables that are freed by that.

        One that would be refused all the same, by a neighbour whose own refusals do not rest on what falls, stands
        and keeps all above it standing.
        """
        solution = self.solution
        shaken = self._resting_on(roots)
        fallen = dict.fromkeys(roots)
        waiting = deque(roots)
        while waiting:
            refusal = waiting.popleft()
            follow = list(refusal.therefore)
            if not solution.is_ordered(refusal.variable):
                follow += solution.refusals[refusal.variable]
            for other in follow:
                if other not in fallen and not solution.refuse_again(other, shaken):
                    fallen[other] = None
                    waiting.append(other)
        freed: dict[Variable, None] = {}
        for refusal in fallen:
            if solution.refusals[refusal.variable][-1] in fallen:
                freed[refusal.variable] = None
            for older in refusal.because:
                older.therefore.discard(refusal)
        for variable in {r.variable: None for r in fallen}:
            solution.refusals[variable] = [r for r in solution.refusals[variable] if r not in fallen]
        return freed

    def _resting_on(self, roots: list[Refusal]) -> set[Refusal]:
        """Return refusals and all that rest on them."""
        solution = self.solution
        found, waiting = set(roots), list(roots)
        while waiting:
            refusal = waiting.pop()
            for other in refusal.therefore:
                if other not in found:
                    found.add(other)
                    waiting.append(other)
            if not solution.is_ordered(refusal.variable):  # their order in time says nothing of what they imply
                for other in solution.refusals[refusal.variable]:
                    if other not in found:
                        found.add(other)
                        waiting.append(other)
        return found
