"""The projection between processors with the same times. Applications of Falkirk have no such edge (plan/shape.py)."""

from dataclasses import dataclass

from falkirk.theory.frontier import Frontier


@dataclass(frozen=True, slots=True)
class Same:
    """An edge whose ends have the same domain, and on which no message goes back in time: φ(e)(f) = f.

    It serves epochs and structured times. It also serves a log that is read without change: its offsets are the times
    at both ends.
    """

    def fixed(self, frontier: Frontier) -> Frontier:
        return frontier

    def sent(self, frontier: Frontier) -> Frontier:
        return frontier

    def causes(self, frontier: Frontier) -> Frontier:
        return frontier
