"""Theorem 1: the condition under which a result may be released before its causes are saved.

Let D have a non-commutative operation with the result x. Let b_i and b_j both depend on x, with b_i released first. A
non-deterministic system is exactly-once if and only if x is recoverable before b_i is released. A deterministic system
may take the snapshot later.

"Depends" refers to contents. It is not enough that x is in the lineage of b_j. If later results do not show x
(`elements.LATEST`), x may differ the second time, and nobody can notice.
Source: Delivery, consistency, and determinism, §III-F.
"""

from collections.abc import Callable, Iterator

from formal.elements import Element
from formal.mechanisms import holds
from formal.observer import Observer
from formal.system import Moment

Condition = Callable[[Observer], bool]


def recoverable_before_release(observer: Observer) -> bool:
    """Condition (1) of the theorem, for every run: when b_i leaves, the snapshot has x or something made from x."""
    return all(holds(now.outputs, b_i) for now, b_i in releases_with_successors(observer))


def releases_with_successors(observer: Observer) -> Iterator[tuple[Moment, Element]]:
    """Yield each release of a b_i and the moment before it, if a b_j depends on the same x: the state of b_i."""
    released = [(now, step.result) for now, step in observer.every_step() if step.result is not None]
    lineages = {b.lineage for _, b in released}
    for now, b_i in released:
        if any(len(b_j) > len(b_i.lineage) and b_j[: len(b_i.lineage)] == b_i.lineage for b_j in lineages):
            yield now, b_i
