"""Definitions 5 to 10, each as written in the paper, over all observations of an instance.

One verdict is not in the paper: *exact state, repeated delivery*. An engine with exact state that delivers results a
second time (counts 1, 2, 3, 2, 3) fits no A' of Definition 8.
Source: Delivery, consistency, and determinism, §III-D to §III-F.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from functools import cached_property
from itertools import permutations

from formal.elements import INPUT, Element, Operation
from formal.observer import Observation, Observer
from formal.system import Instance


class Guarantee(StrEnum):
    """The guarantees of a system, the strongest first. The words are those of `falkirk verify outputs`."""

    EXACTLY_ONCE = "exactly-once"
    REPEATED_DELIVERY = "repeated delivery with exact state"
    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    BROKEN = "broken"


class Judge:
    """An instance with its observers: of itself, of its reference, and of the reference behind a flawed channel."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    @cached_property
    def observer(self) -> Observer:
        """P, Definition 2."""
        return Observer(self.instance)

    @cached_property
    def reference(self) -> Observer:
        """P_ref, Definition 4. It needs no failures: under reference recovery a failure changes nothing."""
        return Observer(replace(self.instance, reference=True, failures=0))

    @cached_property
    def losing(self) -> Observer:
        """P_ref on every A' ⊆ A."""
        return Observer(replace(self.reference.instance, loses=True))

    @cached_property
    def repeating(self) -> Observer:
        """P_ref on every A' in which elements of A are repeated, each at most once per failure."""
        return Observer(replace(self.reference.instance, repetitions=self.instance.failures))

    def is_consistent(self, observation: Observation) -> bool:
        """Definition 5: P_ref(b_τ | A, B) > 0."""
        return self.reference.probability(observation) > 0

    def inconsistent(self) -> Iterator[Observation]:
        """Yield the observations that are not consistent."""
        return (each for each in self.observer.observations() if not self.is_consistent(each))

    def is_exactly_once(self) -> bool:
        """Definition 6: every observable output is also observable under reference recovery."""
        return not any(True for _ in self.inconsistent())

    def is_at_most_once(self) -> bool:
        """Definition 7: … on some A' ⊆ A."""
        return all(self.losing.probability(each) > 0 for each in self.observer.observations())

    def is_at_least_once(self) -> bool:
        """Definition 8: … on some A' in which elements of A may be repeated."""
        return all(self.repeating.probability(each) > 0 for each in self.observer.observations())

    def repeats_delivery(self) -> bool:
        """Exact state, repeated delivery: … except for outputs that were delivered before."""
        return all(self.is_consistent_or_repeated(each) for each in self.observer.observations())

    def is_consistent_or_repeated(self, observation: Observation) -> bool:
        """Return whether an output was delivered before, or is consistent after the repeated outputs are removed."""
        came, seen, output = observation
        return any(
            output in kept or self.is_consistent(Observation(came, kept, output))
            for kept in first_occurrences(seen, self.reference)
        )

    def is_deterministic(self) -> bool:
        """Definition 10: every output has P ∈ {0, 1}."""
        return all(self.observer.probability(each) == 1 for each in self.observer.observations())

    def guarantee(self) -> Guarantee:
        """Return the first guarantee that holds."""
        holds = {
            Guarantee.EXACTLY_ONCE: self.is_exactly_once,
            Guarantee.REPEATED_DELIVERY: self.repeats_delivery,
            Guarantee.AT_MOST_ONCE: self.is_at_most_once,
            Guarantee.AT_LEAST_ONCE: self.is_at_least_once,
        }
        return next((guarantee for guarantee, check in holds.items() if check()), Guarantee.BROKEN)


def first_occurrences(seen: tuple[Hashable, ...], reference: Observer) -> list[tuple[Hashable, ...]]:
    """Return each way to remove repetitions from the seen outputs, so that the reference can show the rest."""
    found: list[tuple[Hashable, ...]] = [()]
    for output in seen:
        found = [
            *(kept for kept in found if output in kept),
            *((*kept, output) for kept in found if reference.after((*kept, output))),
        ]
    return found


def is_non_commutative(operation: Operation, inputs: Iterable[Hashable]) -> bool:
    """Definition 9: some X1 and X2, applied in the other order, give another result: other states or other outputs."""
    elements = [Element(INPUT, content, ((number, 0),)) for number, content in enumerate(inputs)]
    orders = (order for length in range(2, len(elements) + 1) for order in permutations(elements, length))
    return any(_shown(operation, order) != _shown(operation, (*order[:-2], order[-1], order[-2])) for order in orders)


def _shown(operation: Operation, order: Iterable[Element]) -> set[tuple[tuple[str, str], ...]]:
    """Return the contents of all possible outcomes of inputs in this order."""
    outcomes = operation.outcomes(operation.initial, order)
    return {tuple(sorted((e.kind, repr(e.content)) for e in made)) for made in outcomes}
