"""Observers: the probability of each output, by enumerating every order of steps and every failure.

Nothing is sampled. An observer follows the outputs seen so far. It knows every moment at which the system may now be,
with its probability (a Bayes filter), and computes the possible next outputs. It caches the results.
Source: Delivery, consistency, and determinism, Definitions 2 and 4.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator
from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

from formal.system import End, Instance, Moment, Step

Belief = dict[int, Fraction]
"""The numbers of the moments at which a run may be, each with its probability joint with the outputs seen so far."""


class Observation(NamedTuple):
    """b_τ with A and B: the number of inputs so far, the contents seen so far, and the content seen now."""

    came: int
    seen: tuple[Hashable, ...]
    output: Hashable


class Observer:
    """The observer of one instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._beliefs: dict[tuple[Hashable, ...], Belief] = {(): {0: Fraction(1)}}
        #: The moments that were found, and the number of each: its place there. To hash a moment takes long.
        self._moments = [instance.beginning]
        self._numbers = {instance.beginning: 0}
        #: By the number of a moment: its steps, and the numbers of the moments after them.
        self._steps: dict[int, tuple[list[Step], list[int]]] = {}
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
        waiting, found = [0], {0}
        while waiting:
            now = waiting.pop()
            for step, then in zip(*self._steps_at(now), strict=True):
                yield self._moments[now], step
                if then not in found:
                    found.add(then)
                    waiting.append(then)

    def _steps_at(self, now: int) -> tuple[list[Step], list[int]]:
        if now not in self._steps:
            steps = self.instance.steps(self._moments[now])
            self._steps[now] = steps, [self._number(step.then) for step in steps]
        return self._steps[now]

    def _number(self, moment: Moment) -> int:
        if moment not in self._numbers:
            self._numbers[moment] = len(self._moments)
            self._moments.append(moment)
        return self._numbers[moment]

    def _look(self, seen: tuple[Hashable, ...], belief: Belief) -> None:
        """Follow every run from here until an output is seen. All probabilities of a round have one denominator."""
        denominator = lcm(*(p.denominator for p in belief.values()))
        shares = {now: p.numerator * (denominator // p.denominator) for now, p in belief.items()}
        while shares:
            following, outputs = defaultdict[int, int](int), defaultdict[tuple[int, Hashable, int], int](int)
            choices = lcm(*(len(self._steps_at(now)[0]) for now in shares))
            denominator *= choices
            for now, numerator in shares.items():
                steps, after = self._steps_at(now)
                share = numerator * (choices // len(steps))
                for step, then in zip(steps, after, strict=True):
                    if step.observed is None:
                        following[then] += share
                    else:
                        outputs[self._moments[now].came, step.observed, then] += share
            for (came, output, then), numerator in outputs.items():
                self._see(seen, came, output, then, Fraction(numerator, denominator))
            common = gcd(denominator, *following.values())
            denominator //= common
            shares = {then: numerator // common for then, numerator in following.items()}

    def _see(self, seen: tuple[Hashable, ...], came: int, output: Hashable, then: int, share: Fraction) -> None:
        found, key = self._next[seen], (came, output)
        found[key] = found.get(key, Fraction(0)) + share
        if output is not End.END:
            belief = self._beliefs.setdefault((*seen, output), {})
            belief[then] = belief.get(then, Fraction(0)) + share
