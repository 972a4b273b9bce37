"""The papers' mechanisms on the formal model: Table II, every failure, and each mechanism with its own part removed."""

from dataclasses import replace

import pytest

from formal.definitions import Guarantee, Judge
from formal.elements import RESULT, state_of
from formal.mechanisms import (
    MECHANISMS,
    Mechanism,
    distributed_snapshots,
    micro_batches,
    naive_replay,
    naive_replay_once,
    over_determinism,
    record_acknowledgements,
    replay,
    strong_productions,
)
from formal.observer import Observation, Observer
from formal.system import End, Instance, always, never
from formal.theorem import recoverable_before_release
from tests.theory.formal import CONCATENATION, EXAMPLES, RACE, TABLE_II, judged

EXACT = [micro_batches, strong_productions, distributed_snapshots, over_determinism]
PAGE = "docs/formal.md"


def test_table_two_under_naive_replay() -> None:
    """The consumer has a, ac, cd, db. After a failure, b and d are applied in the other order, and e gives de.

    Source: §III-D.
    """
    judge = judged(naive_replay_once)
    seen = ("a", "ac", "cd", "db")
    assert judge.observer.probability(Observation(5, seen, "de")) > 0
    assert judge.reference.probability(Observation(5, seen, "de")) == 0
    assert judge.reference.probability(Observation(5, seen, "be")) == 1


def test_every_input_was_applied_exactly_once_and_yet() -> None:
    """The old definition, which Table II is about, finds no fault. The snapshot is taken at step 7 of the table."""
    system = replace(naive_replay_once(CONCATENATION), snapshots=lambda state, _: state.content == "ac")
    found = [
        state_of(now.working)
        for now, step in Observer(Instance(system=system, waves=TABLE_II)).every_step()
        if step.kind == "end" and {e.content for e in now.outputs if e.kind == RESULT} == {"a", "ac", "cd", "db", "de"}
    ]
    assert found
    assert all(sorted(t for t, _ in state.lineage) == [0, 1, 2, 3, 4] for state in found)


def test_table_two_where_nothing_is_dropped() -> None:
    """The replay repeats results, also in the other order: cb after db."""
    judge = judged(naive_replay)
    inconsistent = Observation(4, ("a", "ac", "cd", "db"), "cb")
    assert judge.observer.probability(inconsistent) > 0
    assert judge.reference.probability(inconsistent) == 0
    assert judge.guarantee() is Guarantee.BROKEN


@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize("mechanism", EXACT, ids=lambda m: m.__name__)
def test_table_two_stays_consistent(mechanism: Mechanism, failures: int) -> None:
    """Definition 5 for every output, with failures at every moment."""
    judge = judged(mechanism, failures=failures)
    assert not list(judge.inconsistent())
    ends = {each.seen for each in judge.observer.observations() if each.output is End.END}
    assert ends == {each.seen for each in judge.reference.observations() if each.output is End.END}
    assert all(len(seen) == 5 for seen in ends)


@pytest.mark.parametrize("mechanism", EXACT, ids=lambda m: m.__name__)
def test_three_that_race_stay_consistent(mechanism: Mechanism) -> None:
    judge = judged(mechanism, waves=RACE, failures=2)
    assert judge.guarantee() is Guarantee.EXACTLY_ONCE


@pytest.mark.parametrize("waves", [TABLE_II[:1], (*TABLE_II[:1], ("b",))], ids=str)
def test_acknowledgements_repeat(waves: tuple[tuple[str, ...], ...]) -> None:
    """c is acknowledged after ac is published. After a failure between the two, c is repeated. Two failures."""
    judge = judged(record_acknowledgements, waves=waves, failures=2)
    again = Observation(2, ("a", "ac"), "cc")
    assert judge.observer.probability(again) > 0
    assert not judge.is_consistent(again)
    assert judge.repeating.probability(again) > 0
    assert judge.guarantee() is Guarantee.AT_LEAST_ONCE


def test_what_a_mechanism_has_before_release() -> None:
    """In mechanisms that race, x is recoverable before b_i is released. In the ordered one it need not be."""
    racing = [micro_batches, strong_productions, distributed_snapshots]
    assert all(recoverable_before_release(judged(m).observer) for m in racing)
    assert not any(judged(m).is_deterministic() for m in racing)
    assert not recoverable_before_release(judged(over_determinism).observer)
    assert judged(over_determinism).is_deterministic()


#: A mechanism, the part that is removed, and the remaining guarantee.
SWITCHED_OFF = [
    (micro_batches, {"releases": always}, Guarantee.BROKEN),
    (strong_productions, {"releases": always}, Guarantee.BROKEN),
    (distributed_snapshots, {"releases": always}, Guarantee.BROKEN),
    (over_determinism, {"admits": always}, Guarantee.BROKEN),
    (over_determinism, {"drops": never}, Guarantee.REPEATED_DELIVERY),
    (record_acknowledgements, {"releases": always}, Guarantee.BROKEN),
    # It is at-least-once because it replays inputs that its state already contains.
    (record_acknowledgements, {"recover": replay}, Guarantee.EXACTLY_ONCE),
]


@pytest.mark.parametrize(("mechanism", "without", "left"), SWITCHED_OFF)
def test_without_its_part(mechanism: Mechanism, without: dict[str, object], left: Guarantee) -> None:
    system = replace(mechanism(CONCATENATION), **without)
    assert Judge(Instance(system=system, waves=TABLE_II[:1])).guarantee() is left


def computed_rows() -> list[str]:
    """Return the table of docs/formal.md, computed."""
    rows = []
    for mechanism in MECHANISMS:
        cells = [judged(mechanism, *example).guarantee().value for example in EXAMPLES.values()]
        rows.append(f"| {' | '.join([f'`{mechanism.__name__}`', *cells])} |")
    return rows


def test_the_table_in_the_docs_is_what_is_computed(request: pytest.FixtureRequest) -> None:
    page = (request.config.rootpath / PAGE).read_text().splitlines()
    header = f"| mechanism | {' | '.join(EXAMPLES)} |"
    start = page.index(header) + 2
    assert page[start : start + len(MECHANISMS) + 1] == [*computed_rows(), ""]
