"""Theorem 1, in both directions, over every system of a family: which results wait, and when snapshots are taken."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from functools import cache
from itertools import combinations, product
from typing import NamedTuple

import pytest

from formal.definitions import Judge, is_non_commutative
from formal.elements import (
    COUNT,
    DOUBLING,
    LATEST,
    LOTS,
    SUM,
    UPPER,
    Element,
    Elements,
    Operation,
    Transform,
    concatenation,
    results_of,
    state_of,
)
from formal.mechanisms import holds, in_order, once_per_input, once_per_turn, replay
from formal.observer import Observer
from formal.system import End, Instance, System
from formal.theorem import Condition, recoverable_before_release, releases_with_successors

Schedule = frozenset[int]
Drops = Callable[[Element, Elements], bool]


def subsets(count: int) -> list[Schedule]:
    """Return every set of turns; the first turn is 1."""
    turns = range(1, count + 1)
    return [frozenset(chosen) for size in range(count + 1) for chosen in combinations(turns, size)]


def system(operation: Operation, *, ordered: bool, drops: Drops, waits: Schedule, saves: Schedule) -> System:
    """Return the system in which the results of some turns wait for a snapshot, and some turns take snapshots.

    If a result waits for a snapshot, the system takes it.
    """

    def is_due(working: Elements, outputs: Elements) -> bool:
        waiting = any(len(r.lineage) in waits and not holds(outputs, r) for r in results_of(working))
        state = state_of(working)
        return waiting and len(state.lineage) in saves and not holds(outputs, state)

    def admits(transform: Transform, working: Elements, outputs: Elements) -> bool:
        return not is_due(working, outputs) and (not ordered or in_order(transform, working, outputs))

    return System(
        name=f"{operation.name}, waits {sorted(waits)}, saves {sorted(saves)}",
        operation=operation,
        recover=replay,
        admits=admits,
        releases=lambda result, outputs: len(result.lineage) not in waits or holds(outputs, result),
        drops=drops,
        snapshots=lambda state, outputs: len(state.lineage) in saves,
    )


class Found(NamedTuple):
    """The facts computed for one system."""

    instance: Instance
    is_deterministic: bool
    is_exactly_once: bool
    is_recoverable: bool


@cache
def judged(operation: Operation, inputs: tuple[Hashable, ...], ordered: bool, drops: Drops, failures: int,
           waits: Schedule, saves: Schedule) -> Found:  # fmt: skip
    """Judge one system. It releases each of its results at some time, as the theorem assumes for b_i and b_j."""
    one = system(operation, ordered=ordered, drops=drops, waits=waits, saves=saves)
    judge = Judge(Instance(system=one, waves=(inputs,), failures=failures))
    ends = [each for each in judge.reference.observations() if each.output is End.END]
    assert ends
    assert all(len(each.seen) == len(inputs) for each in ends)
    recoverable = recoverable_before_release(judge.observer)
    return Found(judge.instance, judge.is_deterministic(), judge.is_exactly_once(), recoverable)


#: (operation, inputs, the rule that drops a replay's results, failures)
Case = tuple[Operation, tuple[Hashable, ...], Drops, int]
TWO: list[Case] = [
    *product([concatenation(2), concatenation(9)], [("a", "c")], [once_per_input, once_per_turn], [1, 2]),
    *product([DOUBLING], [(1, 2)], [once_per_input, once_per_turn], [1, 2]),
]
THREE: list[Case] = [
    (concatenation(2), ("a", "b", "c"), once_per_input, 1),
    (DOUBLING, (1, 2, 4), once_per_turn, 1),
]


def family(cases: list[Case], *, ordered: bool = False) -> Iterator[Found]:
    """Yield every system of these cases, except those in which a result would wait for ever."""
    for operation, inputs, drops, failures in cases:
        for waits, saves in product(subsets(len(inputs)), repeat=2):
            if not waits or max(waits) <= max(saves, default=0):
                yield judged(operation, inputs, ordered, drops, failures, waits, saves)


def on_arrival(operation: Operation, inputs: tuple[Hashable, ...], drops: Drops) -> Iterator[Found]:
    """Yield two systems in which no result waits: one takes no snapshot, and one takes them at any moment."""
    for saves in (frozenset[int](), frozenset(range(1, len(inputs) + 1))):
        yield judged(operation, inputs, False, drops, 1, frozenset(), saves)


def test_the_premises() -> None:
    for operation, inputs, drops, failures in TWO + THREE:
        assert is_non_commutative(operation, inputs)
        turns = frozenset({1})
        found = judged(operation, inputs, False, drops, failures, waits=turns, saves=turns)
        results = {b_i.content for _, b_i in releases_with_successors(Observer(found.instance))}
        assert len(results) >= 2  # x may have several values


@pytest.mark.parametrize("cases", [TWO, THREE], ids=["two", "three"])
def test_non_deterministic_systems_are_exactly_once_iff_x_is_recoverable_first(cases: list[Case]) -> None:
    """Necessary and sufficient: there are systems on both sides, and none on the wrong side."""
    found = list(family(cases))
    assert not any(each.is_deterministic for each in found)
    assert [each.instance.system.name for each in found if each.is_recoverable != each.is_exactly_once] == []
    sides = Counter(each.is_exactly_once for each in found)
    assert min(sides[True], sides[False]) >= 30


@pytest.mark.parametrize("cases", [TWO, THREE], ids=["two", "three"])
def test_deterministic_systems_may_take_the_snapshot_later(cases: list[Case]) -> None:
    found = list(family(cases, ordered=True))
    assert all(each.is_deterministic and each.is_exactly_once for each in found)
    assert sum(not each.is_recoverable for each in found) >= 30


def recoverable_sometime(observer: Observer) -> bool:
    """A wrong condition: x is in a snapshot at some time, possibly after the release of b_i."""
    stored = {now.outputs for now, _ in observer.every_step()}
    return all(any(holds(outputs, b_i) for outputs in stored) for _, b_i in releases_with_successors(observer))


def recoverable_in_a_good_run(observer: Observer) -> bool:
    """Another wrong condition: in some run x is recoverable when b_i is released."""
    releases = list(releases_with_successors(observer))
    return all(any(holds(now.outputs, b) for now, b in releases if b == b_i) for _, b_i in releases)


@pytest.mark.parametrize("wrong", [recoverable_sometime, recoverable_in_a_good_run])
def test_a_wrong_condition_is_caught(wrong: Condition) -> None:
    """Each wrong condition accepts results that are released before the snapshot. The right one does not."""
    caught = [each for each in family(TWO) if wrong(Observer(each.instance)) != each.is_exactly_once]
    assert any(each.instance.system.name == "concatenation of 2, waits [], saves [1, 2]" for each in caught)
    assert not any(each.is_exactly_once for each in caught)


@pytest.mark.parametrize(("operation", "drops"), [(COUNT, once_per_turn), (UPPER, once_per_input)])
def test_commutative_operations_need_no_snapshot_first(operation: Operation, drops: Drops) -> None:
    found = list(on_arrival(operation, ("a", "b", "c"), drops))
    assert all(each.is_exactly_once and not each.is_recoverable for each in found)


def test_non_commutative_ones_do() -> None:
    """The same systems."""
    found = [*on_arrival(concatenation(2), ("a", "b", "c"), once_per_input)]
    found += on_arrival(DOUBLING, (1, 2, 4), once_per_turn)
    assert not any(each.is_exactly_once for each in found)


def test_lots_are_as_bad_as_races() -> None:
    """Order alone does not help if the operation itself may have several results."""
    found = list(family([(LOTS, ("a", "b"), once_per_input, 1)], ordered=True))
    assert not is_non_commutative(LOTS, "ab")
    assert not any(each.is_deterministic for each in found)
    assert all(each.is_exactly_once == each.is_recoverable for each in found)
    assert {each.is_exactly_once for each in found} == {True, False}


def test_lots_that_no_two_results_depend_on_are_harmless() -> None:
    """A random value that is new for each result, and that no state keeps, need not be recoverable. Results may be
    published on arrival. Live regions are inferred in this way (plan/live_determinism.py). If a state keeps the value,
    the case is as above."""
    tag = Operation("tag", "", lambda _, text: [("", f"{text}{lot}") for lot in (0, 1)])
    found = list(family([(tag, ("a", "b"), once_per_input, 1)], ordered=True))
    assert not any(each.is_deterministic for each in found)
    assert all(each.is_exactly_once for each in found)
    assert not all(each.is_recoverable for each in found)
    kept = Operation("kept tag", "", lambda state, text: [(f"{state}{lot}", f"{state}{text}{lot}") for lot in (0, 1)])
    again = list(family([(kept, ("a", "b"), once_per_input, 1)], ordered=True))
    assert {each.is_exactly_once for each in again} == {True, False}


def test_dependence_that_cannot_be_seen() -> None:
    """ "Depends" in the theorem refers to contents: b_j shows nothing of LATEST's x, so x may differ."""
    found = list(family([(LATEST, ("a", "b"), once_per_input, 1)]))
    assert is_non_commutative(LATEST, "ab")
    assert all(each.is_exactly_once for each in found)
    assert not all(each.is_recoverable for each in found)


def test_sums_whose_states_commute() -> None:
    """Only the intermediate results do not commute. For two inputs, the rule that counts turns hides them."""
    by_input, by_turn = (list(family([(SUM, (1, 2), drops, 1)])) for drops in (once_per_input, once_per_turn))
    assert all(each.is_exactly_once == each.is_recoverable for each in by_input)
    assert {each.is_exactly_once for each in by_input} == {True, False}
    assert all(each.is_exactly_once for each in by_turn)
