"""Monitor: updates the solution of Figure 6 for "everything fails now" as metadata arrives.

At every moment it gives the low watermark f_low(p). No failure can ever roll p back below it, and it only grows.

An update is cheap for the following reason. If a variable is below its greatest value, it was refused something because
of older refusals elsewhere. The solver records these refusals. They form a forest. At the root of each tree is a
refusal with the reason that nothing greater is available.

When something becomes available, only the refusals above that root fall. Every other refusal stands, and so does the
value of its variable. So the monitor raises and lowers only the variables whose refusal fell. While most of an
application's checkpoints of an epoch are still missing, the trees are small. If all processors wait for one last
checkpoint, all of them move when it arrives.

This requires that frontiers grow with the available checkpoints, which holds if checkpoints are chains (§3.6).
Source: Falkirk Wheel, §4.2.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from falkirk.errors.conditions.theory import NO_CHECKPOINTS, NO_MARKS
from falkirk.theory.frontier import Frontier
from falkirk.theory.graph import Edge, Graph
from falkirk.theory.metadata import Anywhere, Available, Metadata
from falkirk.theory.rollback import Refusal, Variable, lower_until_stable, solve


class Monitor:
    """Low watermarks of the processors of one graph.

    Args: graph. available: F*(p) at the beginning, without ⊤. The monitor keeps it and extends it.
    Attributes: solution: the present solution, with its reasons.
    """

    def __init__(self, graph: Graph, available: Mapping[str, Available]) -> None:
        self.solution = solve(graph, available)

    def low_watermark(self, processor: str) -> Frontier:
        """Return f_low(p)."""
        return self.solution.chosen[processor].frontier

    def add_checkpoint(self, processor: str, metadata: Metadata) -> tuple[str, ...]:
        """Add Ξ(p,f) of a checkpoint whose state, log and metadata are all durable.

        Returns: the processors whose low watermark grew.
        Raises: InternalError: `FRONTIERS_UNORDERED`; `NO_CHECKPOINTS` if the processor can go to every frontier.
        """
        variable = self.solution.variables_of(processor)[0]
        available = self.solution.available[processor]
        if isinstance(available, Anywhere):
            raise NO_CHECKPOINTS.error(where=processor, processor=processor)
        is_greatest = available.add(metadata) == len(available.chain) - 1
        refusals = self.solution.refusals[variable]
        if is_greatest and available.regular:
            return self._raise(refusals[:1], [variable])  # the first refusal says: nothing greater is available
        # A checkpoint between two others was unknown when the refusals were recorded. It was also unknown when others
        # asked for the frontier that is fixed at f_n(p).
        edges = [e for e in self.solution.graph.outputs[processor] if e.projection is None]
        return self._raise([*refusals, *(r for e in edges for r in self._refused_on(e))], [variable])

    def add_mark(self, processor: str, edge: str, at: Frontier, fixed: Frontier) -> tuple[str, ...]:
        """Record which frontier of an edge was fixed when a processor that can go anywhere had reached `at`.

        Marks may come in any order.
        Returns, raises: as `add_checkpoint`; `NO_MARKS` if its checkpoints contain this information.
        """
        available = self.solution.available[processor]
        if not isinstance(available, Anywhere):
            raise NO_MARKS.error(where=processor, processor=processor)
        available.marks.setdefault(edge, []).append((at, fixed))
        self.solution.describe_again(processor)
        freed = self._refused_on(self.solution.graph.edges[edge])
        return self._raise(freed, self.solution.variables_of(processor))

    def extend_projection(self, edge: str) -> tuple[str, ...]:
        """Take into account that the projection of an edge now fixes more than before, because more cuts are recorded.

        Its source can go anywhere. The projection's causes of a time have not changed.
        Returns: as `add_checkpoint`.
        """
        source = self.solution.graph.edges[edge].source
        self.solution.describe_again(source)
        return self._raise(self._refused_on(self.solution.graph.edges[edge]), self.solution.variables_of(source))

    def _refused_on(self, edge: Edge) -> list[Refusal]:
        """Return the refusals of an edge's receiver that name this edge."""
        both = self.solution.variables_of(edge.target)
        return [r for v in both for r in self.solution.refusals[v] if r.edge == edge.name]

    def forget_below(self, processor: str) -> tuple[Metadata, ...]:
        """Remove the checkpoints and marks of a processor that no failure can need any more; return these checkpoints.

        φ at f_n(p) may still be needed, and f_n(p) may be below f(p).
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
        """Raise these variables and the variables whose refusals fall, and lower them again."""
        solution = self.solution
        free = self._drop(list(fallen))
        free.update(dict.fromkeys(variables))
        before = {v.processor: solution.frontier(v) for v in free if not v.notification}
        for variable in free:
            solution.start(variable)
        lower_until_stable(solution, free)
        return tuple(name for name, frontier in before.items() if self.low_watermark(name) != frontier)

    def _drop(self, roots: list[Refusal]) -> dict[Variable, None]:
        """Remove refusals and all refusals that depend on them; return the variables that this frees.

        A refusal stands if another neighbour gives a reason for it that does not depend on the removed refusals. The
        refusals above it then stand too.
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
        """Return refusals and all refusals that depend on them."""
        solution = self.solution
        found, waiting = set(roots), list(roots)
        while waiting:
            refusal = waiting.pop()
            for other in refusal.therefore:
                if other not in found:
                    found.add(other)
                    waiting.append(other)
            if not solution.is_ordered(refusal.variable):  # their order in time does not show which implies which
                for other in solution.refusals[refusal.variable]:
                    if other not in found:
                        found.add(other)
                        waiting.append(other)
        return found
