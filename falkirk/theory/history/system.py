"""Systems: which steps are possible at a moment, and what each leads to; races and failures are choices among them.

A system is D with an architecture: rules, each a small function of what is known at the moment, that say which
transformations are admitted, which results may leave, when a snapshot may be taken, and what a failure brings back.
Every step that is possible at a moment is as probable as the others. They are those of Definition 1, and one of ours:

    input         the next input enters: A ∪ {a}, W ∪ {a}
    transform     (X, Y) ∈ D with X ⊆ W: (W - X) ∪ Y
    output        B ∪ {b}: a result leaves W for the consumer, a snapshot of W is stored, the producer has an answer
    failure       W := R(A, B)
    end           nothing else is possible; observed, because a lost input could not be told from a late one otherwise

Source: Delivery, consistency, and determinism, §III-B, Definition 1, Table I.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from falkirk.theory.history.elements import (
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
    """What is observed when a run has ended."""

    END = "end"


class Moment(NamedTuple):
    """An exact time τ: how many inputs have come by, A, W, B, and how many failures may still come.

    Of snapshots, B keeps the last: the store overwrites the one before.
    """

    came: int
    inputs: tuple[Element, ...]
    working: Elements
    outputs: Elements
    failures: int


class Step(NamedTuple):
    """A step, the moment that it leads to, and what a consumer sees of it: a result's content, the end, or None."""

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
        admits: whether a transformation may be drawn in W, B.
        releases: whether a result may leave, given B.
        drops: whether a result is dropped where it would be released, given B.
        snapshots: whether a state may be saved, with the results that wait in W, given B. One is saved once.
        acknowledges: whether the producer is told which inputs it need not send again: those with a released result.
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
    """A system and what happens to it.

    Args:
        system.
        waves: the contents of the inputs. Those of a wave race; a wave comes when the one before is dealt with.
        failures: how many there are at most, each at any moment.
        reference: recovery restores exactly the working set that was lost. Source: Definition 3.
        loses: inputs may be lost on their way to the system. Source: Definition 7, A' ⊆ A.
        repetitions: how often each input may come again. Source: Definition 8.
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
        """Return every step that is possible at a moment; each is as probable as the others."""
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
        """Tell whether something but the state is in W, or the producer has not been told of something that is out."""
        return len(now.working) > 1 or any(self._acknowledgements(now))

    def _arriving(self, came: int) -> tuple[Hashable, bool]:
        """Return the content of the next input, or None, and whether it is the first of a wave."""
        for wave in self.waves:
            if came < len(wave):
                return wave[came], came == 0
            came -= len(wave)
        return None, False

    def _repetitions(self, now: Moment) -> Iterator[Step]:
        """Yield the repetitions of inputs. One waits at a time: which of two were to come first makes no difference."""
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
        """Yield what may leave: the oldest result (results leave in order), a snapshot, acknowledgements."""
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
    """Return the lineage of the last snapshot in B: nothing, if there is none."""
    snapshot = snapshot_of(outputs)
    return snapshot.lineage if snapshot else ()


def acknowledged(outputs: Elements) -> set[int]:
    """Return the numbers of the inputs that have been acknowledged in B."""
    return {e.t[0] for e in outputs if e.kind == ACKNOWLEDGEMENT}
