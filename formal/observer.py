"""Observers: the probability of each output, by enumerating every order of steps and every failure.

Nothing is sampled. An observer follows the outputs seen so far. It knows every moment at which the system may now be,
with its probability (a Bayes filter), and computes the possible next outputs. It caches the results.
Source: Delivery, consistency, and determinism, Definitions 2 and 4.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator
from fractions import Fraction
from typing import NamedTuple

from formal.system import End, Instance, Moment, Step

Belief = dict[Moment, Fraction]
"""The moments at which a run may be, each with its probability joint with the outputs seen on the way."""


class Observation(NamedTuple):
    """b_τ with A and B: the number of inputs so far, the contents seen so far, and the content seen now."""

    came: int
    seen: tuple[Hashable, ...]
    output: Hashable


class Observer:
    """The observer of one instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._beliefs: dict[tuple[Hashable, ...], Belief] = {(): {instance.beginning: Fraction(1)}}
        self._steps: dict[Moment, list[Step]] = {}
        self._next: dict[tuple[Hashable, ...], dict[tuple[int, Hashable], Fraction]] = {}

    def probability(self, observation: Observation) -> Fraction:
        """Return P(b_τ | A, B): the probability that b_τ is seen next, given the number of inputs and B.

        It is 0 if B itself can't be seen.
        """
        came, seen, output = observation
        possible = self.after(seen)
        joint = possible.get((came, output), Fraction(0))
        return joint and joint / sum(p for (n, _), p in possible.items() if n == came)

    def observations(self, seen: tuple[Hashable, ...] = ()) -> Iterator[Observation]:
        """Yield every observation that has a probability above 0, early ones first along each run."""
        possible = self.after(seen)
        for came, output in possible:
            yield Observation(came, seen, output)
        for output in dict.fromkeys(output for _, output in possible if output is not End.END):
            yield from self.observations((*seen, output))

    def after(self, seen: tuple[Hashable, ...]) -> dict[tuple[int, Hashable], Fraction]:
        """Return the probability to see `seen`, and then an output after n inputs: {(n, output): P}."""
        if seen not in self._next:
            self._next[seen] = {}
            if seen[:-1] not in self._next:
                self.after(seen[:-1])
            self._look(seen, self._beliefs.get(seen, {}))
        return self._next[seen]

    def every_step(self) -> Iterator[tuple[Moment, Step]]:
        """Yield every step that a run may take, with the moment before it, once."""
        waiting, found = [self.instance.beginning], {self.instance.beginning}
        while waiting:
            now = waiting.pop()
            for step in self._steps_at(now):
                yield now, step
                if step.then not in found:
                    found.add(step.then)
                    waiting.append(step.then)

    def _steps_at(self, now: Moment) -> list[Step]:
        if now not in self._steps:
            self._steps[now] = self.instance.steps(now)
        return self._steps[now]

    def _look(self, seen: tuple[Hashable, ...], belief: Belief) -> None:
        """Follow every run from here until an output is seen."""
        found = self._next[seen]
        while belief:
            following: Belief = defaultdict(Fraction)
            for now, probability in belief.items():
                steps = self._steps_at(now)
                share = probability / len(steps)
                for step in steps:
                    if step.observed is None:
                        following[step.then] += share
                        continue
                    key = (now.came, step.observed)
                    found[key] = found.get(key, Fraction(0)) + share
                    if step.observed is not End.END:
                        then = self._beliefs.setdefault((*seen, step.observed), {})
                        then[step.then] = then.get(step.then, Fraction(0)) + share
            belief = following
