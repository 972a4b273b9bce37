"""Theorem 1: what must be recoverable before it is released, if recomputing it may come to something else.

If D has a non-commutative operation, x is its result, and b_i and b_j both depend on x, b_i released first, then a
non-deterministic system is exactly-once if and only if x is recoverable before b_i is released. A deterministic one may
take the snapshot later.

"Depends" is meant of contents. That x is in the lineage of b_j is not enough: where nothing of x is seen in what comes
later (`elements.LATEST`), x may be another one the second time, and nobody can tell.
Source: Delivery, consistency, and determinism, §III-F.
"""

from collections.abc import Callable, Iterator

from falkirk.theory.history.elements import Element
from falkirk.theory.history.mechanisms import holds
from falkirk.theory.history.observer import Observer
from falkirk.theory.history.system import Moment

Condition = Callable[[Observer], bool]


def recoverable_before_release(observer: Observer) -> bool:
    """The theorem's condition (1), of every run: when b_i leaves, x is in the snapshot, or something made from x is."""
    return all(holds(now.outputs, b_i) for now, b_i in releases_with_successors(observer))


def releases_with_successors(observer: Observer) -> Iterator[tuple[Moment, Element]]:
    """Yield each release of a b_i, and the moment before it, where a b_j depends on the same x: b_i's state."""
    released = [(now, step.result) for now, step in observer.every_step() if step.result is not None]
    lineages = {b.lineage for _, b in released}
    for now, b_i in released:
        if any(len(b_j) > len(b_i.lineage) and b_j[: len(b_i.lineage)] == b_i.lineage for b_j in lineages):
            yield now, b_i
