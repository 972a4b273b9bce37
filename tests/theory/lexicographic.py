"""Processors that adopt the lexicographic order of their times: they choose among fewer frontiers, and nothing else.

No part of the theory needs to know about it. Source: Falkirk Wheel, §3.1 and §3.6.
"""

from dataclasses import dataclass

from falkirk.theory.frontier import Frontier, StructuredFrontier
from falkirk.theory.projection import Enter, Feedback, Leave
from falkirk.theory.times import OMEGA, Natural
from formal.projection import Same

Bound = tuple[Natural, ...]


def lexicographic(bound: Bound) -> StructuredFrontier:
    """Return all times that are ≤ `bound` lexicographically.

    The times lexicographically before (t, c) are every (s, d) with s < t, and every (t, d) with d ≤ c. These again are
    all times below finitely many elements.
    """
    bounds = [bound]
    for i, coordinate in enumerate(bound):
        if coordinate > 0:
            bounds.append((*bound[:i], coordinate - 1, *[OMEGA] * (len(bound) - i - 1)))
    return StructuredFrontier.of(len(bound), bounds)


def lexicographic_part(frontier: Frontier) -> StructuredFrontier:
    """Return the largest lexicographic frontier inside this one."""
    assert isinstance(frontier, StructuredFrontier)
    bound = _bound(frontier.maxima, frontier.arity)
    return frontier.nothing() if bound is None else lexicographic(bound)


def lexicographic_hull(frontier: Frontier) -> StructuredFrontier:
    """Return the smallest lexicographic frontier that includes this one."""
    assert isinstance(frontier, StructuredFrontier)
    return lexicographic(max(frontier.maxima)) if frontier.maxima else frontier


def _bound(maxima: tuple[Bound, ...], arity: int) -> Bound | None:
    """Return the greatest (t, c, …) whose lexicographic predecessors are all below `maxima`."""
    if arity == 1:
        return max(maxima, default=None)
    whole = max((b[0] for b in maxima if min(b[1:]) == OMEGA), default=-1)
    if whole == OMEGA:
        return (OMEGA,) * arity
    rest = _bound(tuple(b[1:] for b in maxima if b[0] > whole), arity - 1)
    if rest is not None:
        return (whole + 1, *rest)
    return None if whole < 0 else (whole, *[OMEGA] * (arity - 1))


@dataclass(frozen=True, slots=True)
class Lexicographic:
    """An edge between processors that adopt the lexicographic order: uses the nearest such frontier on the safe side.

    For example, feedback maps ≤ (t, c) to ≤ (t, c+1): the largest lexicographic frontier within the part that the
    product order fixes.
    """

    inner: Same | Enter | Leave | Feedback

    def fixed(self, frontier: Frontier) -> Frontier:
        return lexicographic_part(self.inner.fixed(frontier))

    def sent(self, frontier: Frontier) -> Frontier:
        return lexicographic_hull(self.inner.sent(frontier))

    def causes(self, frontier: Frontier) -> Frontier:
        return lexicographic_part(self.inner.causes(lexicographic_part(frontier)))
