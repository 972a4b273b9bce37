"""Systems: the possible steps at a moment, and the result of each. Races and failures are choices among steps.

A system is D with an architecture. An architecture is a set of rules: small functions of the present moment. They
decide which transformations are admitted, which results may be released, when a snapshot may be taken, and what a
failure restores. All possible steps at a moment have the same probability. They are the steps of Definition 1, and
`end`, which is not in the paper:

    input         the next input enters: A ∪ {a}, W ∪ {a}
    transform     (X, Y) ∈ D with X ⊆ W: (W - X) ∪ Y
    output        B ∪ {b}: a result leaves W for the consumer, a snapshot of W is stored, the producer has an answer
    failure       W := R(A, B)
    end           no other step is possible; observable, since otherwise a lost input would look like a late one

Source: Delivery, consistency, and determinism, §III-B, Definition 1, Table I.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from formal.elements import (
    ACKNOWLEDGEMENT,
    INPUT,
    RESULT,
    SNAPSHOT,
    Element,
    Elements,
    Place,
    Transform,
    Transformations,
    inputs_of,
    results_of,
    state_of,
)


class End(Enum):
    """The observation that a run has ended."""

    END = "end"


class Moment(NamedTuple):
    """An exact time τ: the number of inputs so far, A, W, B, and the number of failures that may still happen.

    B contains only the last snapshot: the store overwrites the former one.
    """

    came: int
    inputs: tuple[Element, ...]
    working: Elements
    outputs: Elements
    failures: int


class Step(NamedTuple):
    """A step, the moment after it, and the consumer's observation: a result's content, the end, or None."""

    kind: str
    then: Moment
    observed: Hashable = None
    result: Element | None = None


def always(*_: object) -> bool:
    """Return True: the rule that forbids nothing."""
    return True


def never(*_: object) -> bool:
    """Return False: the rule that allows nothing."""
    return False


Recovery = Callable[[Element, tuple[Element, ...], Elements], Elements]
"""R: from the initial state, A and B to the working set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A system: D and an architecture.

    Args:
        name: as in the papers.
        operation: D.
        recover: R(A, B).
        admits: whether a transformation is possible in W, B.
        releases: whether a result may be released, given B.
        drops: whether a result is dropped instead of released, given B.
        snapshots: whether a state may be saved, with the waiting results in W, given B. Each state is saved once.
        acknowledges: whether the producer gets acknowledgements of inputs with a released result. It need not send an
            acknowledged input again.
    """

    name: str
    operation: Transformations
    recover: Recovery
    admits: Callable[[Transform, Elements, Elements], bool] = always
    releases: Callable[[Element, Elements], bool] = always
    drops: Callable[[Element, Elements], bool] = never
    snapshots: Callable[[Element, Elements], bool] = always
    acknowledges: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A system and its environment.

    Args:
        system.
        waves: the contents of the inputs. The inputs of one wave race. A wave arrives when the former one is processed.
        failures: the maximum number of failures, each at any moment.
        reference: recovery restores exactly the lost working set. Source: Definition 3.
        loses: inputs may be lost on their way to the system. Source: Definition 7, A' ⊆ A.
        repetitions: the maximum number of repetitions of each input. Source: Definition 8.
    """

    system: System
    waves: tuple[tuple[Hashable, ...], ...]
    failures: int = 1
    reference: bool = False
    loses: bool = False
    repetitions: int = 0

    @property
    def beginning(self) -> Moment:
        """The moment before the first step."""
        return Moment(0, (), frozenset((self.system.operation.initial,)), frozenset(), self.failures)

    def steps(self, now: Moment) -> list[Step]:
        """Return every possible step at a moment. All have the same probability."""
        steps = [*self._input(now), *self._transforms(now), *self._outputs(now)]
        if not steps:
            steps = [Step("end", now, End.END)]
        return [*steps, *self._repetitions(now), *self._failure(now)]

    def _input(self, now: Moment) -> Iterator[Step]:
        content, starts_wave = self._arriving(now.came)
        if content is None or (starts_wave and self._is_busy(now)):
            return
        came = now._replace(came=now.came + 1)
        yield Step("input", _enter(came, Element(INPUT, content, ((now.came, 0),))))
        if self.loses:
            yield Step("loss", came)

    def _is_busy(self, now: Moment) -> bool:
        """Return whether W contains more than the state, or an acknowledgement to the producer is missing."""
        return len(now.working) > 1 or any(self._acknowledgements(now))

    def _arriving(self, came: int) -> tuple[Hashable, bool]:
        """Return the content of the next input, or None, and whether it is the first of a wave."""
        for wave in self.waves:
            if came < len(wave):
                return wave[came], came == 0
            came -= len(wave)
        return None, False

    def _repetitions(self, now: Moment) -> Iterator[Step]:
        """Yield the repetitions of inputs. Only one waits at a time, since the order of two makes no difference."""
        if not self.repetitions or any(element.t[1] for element in inputs_of(now.working)):
            return
        last = {element.t[0]: element for element in now.inputs}
        for (number, repetition), element in ((e.t, e) for e in last.values()):
            if repetition < self.repetitions and element not in now.working:
                yield Step("repetition", _enter(now, element._replace(lineage=((number, repetition + 1),))))

    def _transforms(self, now: Moment) -> Iterator[Step]:
        for transform in self.system.operation.within(now.working):
            if self.system.admits(transform, now.working, now.outputs):
                working = now.working - transform.taken | transform.made
                yield Step("transform", now._replace(working=working))

    def _outputs(self, now: Moment) -> Iterator[Step]:
        """Yield the possible outputs: the oldest result (results leave in order), a snapshot, acknowledgements."""
        system, outputs = self.system, now.outputs
        results = results_of(now.working)
        for result in results[:1]:
            rest = now._replace(working=now.working - {result})
            if system.drops(result, outputs):
                yield Step("drop", rest)
            elif system.releases(result, outputs):
                yield Step("output", rest._replace(outputs=outputs | {result}), result.content, result)
        state = state_of(now.working)
        if state.lineage != saved(outputs) and system.snapshots(state, outputs):
            snapshot = Element(SNAPSHOT, frozenset((state, *results)), state.lineage)
            yield Step("snapshot", now._replace(outputs=outputs - {snapshot_of(outputs)} | {snapshot}))
        yield from self._acknowledgements(now)

    def _acknowledgements(self, now: Moment) -> Iterator[Step]:
        if self.system.acknowledges:
            for number in {e.t[0] for e in now.outputs if e.kind == RESULT} - acknowledged(now.outputs):
                told = Element(ACKNOWLEDGEMENT, None, ((number, 0),))
                yield Step("acknowledgement", now._replace(outputs=now.outputs | {told}))

    def _failure(self, now: Moment) -> Iterator[Step]:
        if now.failures:
            initial = self.system.operation.initial
            working = now.working if self.reference else self.system.recover(initial, now.inputs, now.outputs)
            yield Step("failure", now._replace(working=working, failures=now.failures - 1))


def _enter(now: Moment, element: Element) -> Moment:
    return now._replace(inputs=(*now.inputs, element), working=now.working | {element})


def snapshot_of(outputs: Elements) -> Element | None:
    """Return the last snapshot in B."""
    return next((e for e in outputs if e.kind == SNAPSHOT), None)


def saved(outputs: Elements) -> tuple[Place, ...]:
    """Return the lineage of the last snapshot in B; () without a snapshot."""
    snapshot = snapshot_of(outputs)
    return snapshot.lineage if snapshot else ()


def acknowledged(outputs: Elements) -> set[int]:
    """Return the numbers of the acknowledged inputs in B."""
    return {e.t[0] for e in outputs if e.kind == ACKNOWLEDGEMENT}
