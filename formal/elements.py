"""Elements and operations: Γ, all elements of a stream processing system, and D, the user's transformations.

States are ordinary elements, and so are snapshots. A transformation takes a state and an input out of the working set,
and replaces them by another state and a result. An element knows its *lineage*: the inputs from which it was made, in
the order in which they were applied (the inverse of the transitive closure of D). A consumer sees only its content.
Source: Delivery, consistency, and determinism, §III-B, Definition 1.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any, NamedTuple, Protocol

#: The kinds of elements. The last three leave the system: to the consumer, to the store, to the producer.
INPUT, STATE, RESULT, SNAPSHOT, ACKNOWLEDGEMENT = "input", "state", "result", "snapshot", "acknowledgement"

Place = tuple[int, int]
"""t, an input's place in the total order: its number, and which repetition of it this is (0: the original)."""


class Element(NamedTuple):
    """An element of Γ. A result and the state made with it have the same lineage."""

    kind: str
    content: Hashable
    lineage: tuple[Place, ...] = ()

    @property
    def t(self) -> Place:
        """The place of the last input in its lineage."""
        return self.lineage[-1]


Elements = frozenset[Element]
Outcomes = Iterable[tuple[Hashable, Hashable]]
"""The possible outcomes of applying an operation: (content of the next state, content of the result)."""


class Transform(NamedTuple):
    """One pair of D: X ⊆ Γ, the taken elements, and Y ⊆ Γ, the elements that replace them."""

    taken: Elements
    made: Elements


class Transformations(Protocol):
    """D, the binary relation on sets of elements."""

    @property
    def initial(self) -> Element:
        """The state at the beginning."""
        ...

    def within(self, working: Elements) -> Iterator[Transform]:
        """Yield each (X, Y) of D with X ⊆ W."""
        ...


@dataclass(frozen=True, slots=True)
class Operation:
    """D of one operation with a state that takes its inputs one at a time.

    Args: name. start: the state's content at the beginning. apply: from the contents of a state and an input to each
        possible outcome; there is a single one unless the operation is random.
    """

    name: str
    start: Hashable
    apply: Callable[[Any, Any], Outcomes]

    @property
    def initial(self) -> Element:
        return Element(STATE, self.start)

    def within(self, working: Elements) -> Iterator[Transform]:
        state = state_of(working)
        for element in inputs_of(working):
            for made in self.outcomes(state, (element,)):
                yield Transform(frozenset((state, element)), made)

    def outcomes(self, state: Element, order: Iterable[Element]) -> set[Elements]:
        """Return each possible Y, one state and the results, for inputs applied in this order."""
        found = {frozenset((state,))}
        for element in order:
            found = {made for working in found for made in self._after(working, element)}
        return found

    def _after(self, working: Elements, element: Element) -> Iterator[Elements]:
        state = state_of(working)
        lineage = state.lineage + element.lineage
        for content, result in self.apply(state.content, element.content):
            yield working - {state} | {Element(STATE, content, lineage), Element(RESULT, result, lineage)}


@dataclass(frozen=True, slots=True)
class Batched:
    """D of the same operation with X = all waiting inputs: a small collection, processed atomically in any order."""

    operation: Operation

    @property
    def initial(self) -> Element:
        return self.operation.initial

    def within(self, working: Elements) -> Iterator[Transform]:
        state, waiting = state_of(working), inputs_of(working)
        taken = frozenset((state, *waiting))
        for order in permutations(waiting) if waiting else ():
            for made in self.operation.outcomes(state, order):
                yield Transform(taken, made)


def state_of(working: Elements) -> Element:
    """Return the state in a working set."""
    return next(e for e in working if e.kind == STATE)


def inputs_of(working: Elements) -> list[Element]:
    """Return the waiting inputs of a working set, in their order."""
    return sorted((e for e in working if e.kind == INPUT), key=lambda e: e.t)


def results_of(elements: Elements) -> list[Element]:
    """Return the results among some elements, in the order in which they were made."""
    return sorted((e for e in elements if e.kind == RESULT), key=lambda e: len(e.lineage))


def parts(snapshot: Element) -> Elements:
    """Return the elements in a snapshot: a state, and the results that were made but not yet released."""
    assert isinstance(snapshot.content, frozenset)
    return snapshot.content


def concatenation(window: int = 2) -> Operation:
    """Return the paper's example: the concatenation of the last inputs. Source: Figure 1, Table II."""

    def apply(state: str, text: str) -> Outcomes:
        joined = (state + text)[-window:]
        return [(joined, joined)]

    return Operation(f"concatenation of {window}", "", apply)


#: Twice the former state plus the input: another order of the same inputs gives another state.
DOUBLING = Operation("doubling", 0, lambda total, number: [(2 * total + number, 2 * total + number)])
#: The number of inputs so far.
COUNT = Operation("count", 0, lambda count, _: [(count + 1, count + 1)])
#: The sum so far. The last sum is the same in every order. The earlier sums are not.
SUM = Operation("sum", 0, lambda total, number: [(total + number, total + number)])
#: No state; each input gives its own result.
UPPER = Operation("upper", "", lambda _, text: [("", text.upper())])
#: The state is the last input, but no later result depends on it.
LATEST = Operation("latest", "", lambda _, text: [(text, text)])
#: The number of counted inputs, where a random choice decides whether an input counts.
LOTS = Operation("lots", 0, lambda count, _: [(count + lot, count + lot) for lot in (0, 1)])
