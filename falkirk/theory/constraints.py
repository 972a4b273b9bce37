"""Constraints: the conditions under which a choice of frontiers, one per processor, is a consistent state.

The functions are those that the solver asks. It keeps constraint 4 by its variables f_n(p), and checkpoints keep
constraint 1. `tests/theory/consistent.py` has all four, to judge solutions. Source: Falkirk Wheel, §3.5.
"""

from enum import IntEnum

from falkirk.theory.graph import Edge
from falkirk.theory.metadata import Metadata


class Constraint(IntEnum):
    """The constraints that the solver asks for. Constraint 1 (f is complete) is not one: checkpoints keep it."""

    DISCARDED = 2
    DELIVERED = 3
    NOTIFIED = 4


def keeps_discarded(edge: Edge, source: Metadata, target: Metadata) -> bool:
    """Constraint 2: D̄(e, f(p)) ⊆ f(dst(e)). The receiver needs no message again that its sender has discarded."""
    discarded = source.discarded.get(edge.name)
    return discarded is None or discarded.is_empty or discarded <= target.frontier


def has_sent_delivered(edge: Edge, source: Metadata, target: Metadata) -> bool:
    """Constraint 3: M̄(d, f(p)) ⊆ φ(d)(f(src(d))). Every delivered message is fixed at its sender."""
    delivered = target.delivered.get(edge.name)
    return delivered is None or delivered.is_empty or delivered <= source.fixed(edge)
