"""The formal model: its definitions, and its probabilities on instances small enough to compute manually."""

from dataclasses import replace
from fractions import Fraction

import pytest

from falkirk.checker.verdict import REACHABLE
from formal.definitions import Guarantee, Judge, is_non_commutative
from formal.elements import COUNT, DOUBLING, LATEST, LOTS, SUM, UPPER, Operation
from formal.mechanisms import (
    MECHANISMS,
    Mechanism,
    distributed_snapshots,
    naive_replay,
    once_per_turn,
    ordered_replay,
    over_determinism,
    replay,
    skipping,
)
from formal.observer import Observation, Observer
from formal.system import End, Instance, System, never
from tests.theory.formal import CONCATENATION, RACE, judged

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


def racing(operation: Operation, **more: int) -> Instance:
    """Return a system without snapshots and with two inputs that race."""
    system = System(name="racing", operation=operation, recover=replay, snapshots=never)
    return Instance(system=system, waves=(("a", "c"),), **more)


def test_probabilities_of_a_race() -> None:
    """a enters. Then either c enters (1/2) and they race, or a is processed (1/2) and c enters before or after a's
    result.

    So after one input, the result a is seen with 1/4. After two, a is seen with 1/4 + 1/4 and c with 1/4.
    """
    observer = Observer(racing(CONCATENATION, failures=0))
    assert observer.after(()) == {(1, "a"): Fraction(1, 4), (2, "a"): HALF, (2, "c"): Fraction(1, 4)}
    assert observer.probability(Observation(1, (), "a")) == 1
    assert observer.probability(Observation(2, (), "a")) == 2 * THIRD
    assert observer.probability(Observation(2, (), "c")) == THIRD
    assert observer.probability(Observation(2, ("c",), "ca")) == 1
    assert observer.probability(Observation(2, ("c", "ca"), End.END)) == 1
    assert observer.probability(Observation(2, ("ac",), "a")) == 0


@pytest.mark.parametrize("mechanism", [over_determinism, distributed_snapshots, skipping])
def test_every_run_ends_once(mechanism: Mechanism) -> None:
    """No probability is lost or added: over all possible observations until then, the end has probability 1."""
    observer = judged(mechanism, failures=2).observer
    ends = [each for each in observer.observations() if each.output is End.END]
    assert sum(observer.after(each.seen)[each.came, End.END] for each in ends) == 1


@pytest.mark.parametrize("mechanism", [over_determinism, distributed_snapshots, naive_replay])
def test_with_reference_recovery_failures_change_no_probability(mechanism: Mechanism) -> None:
    """Definitions 3 and 4: P_ref shows the outputs of a run without failures."""
    judge = judged(mechanism)
    failing = Observer(replace(judge.instance, reference=True, failures=2))
    observed = list(failing.observations())
    assert observed == list(judge.reference.observations())
    assert len(observed) > 5
    assert all(failing.probability(each) == judge.reference.probability(each) for each in observed)


def test_a_failure_may_come_at_every_moment() -> None:
    steps = list(judged(distributed_snapshots).observer.every_step())
    healthy = {now for now, _ in steps if now.failures}
    assert len(healthy) > 50
    assert {now for now, step in steps if step.kind == "failure"} == healthy


def test_a_lost_input_is_seen_at_the_end() -> None:
    """Definition 6 as written could not distinguish it from a late one: the published outputs are consistent."""
    judge = judged(skipping, waves=RACE)
    assert {each.output for each in judge.inconsistent() if judge.reference.after(each.seen)} == {End.END}


@pytest.mark.parametrize("operation", [CONCATENATION, DOUBLING, SUM, LATEST], ids=lambda o: o.name)
def test_non_commutative(operation: Operation) -> None:
    """Definition 9. For a sum, the intermediate results differ."""
    assert is_non_commutative(operation, (1, 2, 4) if operation in (DOUBLING, SUM) else "abc")


@pytest.mark.parametrize("operation", [COUNT, UPPER, LOTS], ids=lambda o: o.name)
def test_commutative(operation: Operation) -> None:
    assert not is_non_commutative(operation, "abc")


def test_deterministic() -> None:
    """Definition 10 is about outputs: a count is deterministic in any order, and a random operation in none."""
    assert judged(over_determinism).is_deterministic()
    assert not judged(distributed_snapshots).is_deterministic()
    assert not judged(over_determinism, LOTS, RACE, failures=0).is_deterministic()
    assert judged(distributed_snapshots, COUNT, RACE).is_deterministic()


def test_counts_that_come_again_fit_no_repeated_input() -> None:
    """1, 2, 3, 2, 3: exact state, repeated delivery (a verdict of THEORY.md)."""
    judge = judged(naive_replay, COUNT, RACE)
    again = Observation(3, (1, 2, 3), 2)
    assert judge.observer.probability(again) > 0
    assert judge.repeating.probability(again) == 0
    assert judge.repeats_delivery()


@pytest.mark.parametrize(
    ("seen", "output", "is_fine"),
    [
        ((1, 2, 3, 2, 3), End.END, True),
        ((1, 2), 2, True),
        ((1, 2), End.END, False),  # the third is lost
        ((1, 2, 2), End.END, False),
        ((1, 2, 3), 4, False),
        ((1, 3, 1), 2, False),
    ],
)
def test_consistent_or_repeated(seen: tuple[int, ...], output: object, is_fine: bool) -> None:
    assert judged(naive_replay, COUNT, RACE).is_consistent_or_repeated(Observation(3, seen, output)) is is_fine


def test_an_input_that_comes_again_is_no_repeated_delivery() -> None:
    """1, 2, 3, 4 from three inputs."""
    system = replace(
        naive_replay(COUNT),
        recover=lambda initial, inputs, outputs: replay(initial, inputs, outputs) | set(inputs[:1]),
        drops=once_per_turn,
    )
    judge = Judge(Instance(system=system, waves=RACE))
    assert judge.observer.probability(Observation(3, (1, 2, 3), 4)) > 0
    assert judge.guarantee() is Guarantee.AT_LEAST_ONCE


def test_the_words_are_those_of_the_checker() -> None:
    assert list(REACHABLE) == [g for g in Guarantee if g is not Guarantee.BROKEN]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: m.__name__)
def test_without_failures_everything_is_exactly_once(mechanism: Mechanism) -> None:
    assert judged(mechanism, failures=0).guarantee() is Guarantee.EXACTLY_ONCE


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: m.__name__)
def test_the_waves_are_those_of_table_two(mechanism: Mechanism) -> None:
    """Exactly every wave in either order; for an ordered mechanism, in the order of the inputs."""
    ends = {each.seen for each in judged(mechanism).reference.observations() if each.output is End.END}
    orders = ["acbde"]
    if mechanism not in (over_determinism, ordered_replay):
        orders += ["cabde", "acdbe", "cadbe"]
    assert ends == {tuple(order[max(0, i - 1) : i + 1] for i in range(5)) for order in orders}
