"""Projections meet their definitions: checked time by time over small universes."""

from itertools import chain, combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falkirk.errors import InternalError
from falkirk.theory.frontier import Frontier, OffsetFrontier, StructuredFrontier
from falkirk.theory.projection import (
    Cuts,
    Durable,
    Enter,
    EpochsToSequence,
    Feedback,
    InTurn,
    Leave,
    Projection,
    SequenceToEpochs,
)  # fmt: skip
from falkirk.theory.times import OMEGA, SequenceTime, StructuredTime, TopicPartition
from formal.projection import Same
from tests.theory.lexicographic import Lexicographic, lexicographic, lexicographic_hull, lexicographic_part

SIZE = 4
#: In a universe of `SIZE`, larger times can't be distinguished from ω. So sets are compared only within it.
EPOCHS = [StructuredTime(t) for t in range(SIZE)]
ROUNDS = [StructuredTime(t, c) for t in range(SIZE) for c in range(SIZE)]
LOG = TopicPartition(topic="log", partition=0)

epochs = st.one_of(st.just(OMEGA), st.integers(0, SIZE)).map(StructuredFrontier.through_epoch) | st.just(
    StructuredFrontier.of(1, [])
)
coordinate = st.one_of(st.just(OMEGA), st.integers(0, SIZE))
rounds = st.lists(st.tuples(coordinate, coordinate), max_size=3).map(lambda b: StructuredFrontier.of(2, b))
total = st.one_of(st.just(StructuredFrontier.of(2, [])), st.tuples(coordinate, coordinate).map(lexicographic))


def message(kind: str, time: StructuredTime) -> StructuredTime:
    """Return the time that a message gets on an edge when an event at `time` sends it."""
    *outer, last = time.coordinates
    return {
        "same": time,
        "enter": StructuredTime(*time.coordinates, 0),
        "leave": StructuredTime(*outer) if outer else time,
        "feedback": StructuredTime(*outer, last + 1),
    }[kind]


KINDS: list[tuple[str, Projection, st.SearchStrategy[StructuredFrontier], st.SearchStrategy[StructuredFrontier]]] = [
    ("same", Same(), epochs, epochs),
    ("same", Same(), rounds, rounds),
    ("enter", Enter(), epochs, rounds),
    ("leave", Leave(), rounds, epochs),
    ("feedback", Feedback(), rounds, rounds),
    ("feedback", Lexicographic(Feedback()), total, total),
    ("enter", Lexicographic(Enter()), epochs, total),
]


def universe(frontier: Frontier) -> list[StructuredTime]:
    # Wide enough for the times just outside.
    assert isinstance(frontier, StructuredFrontier)
    return [StructuredTime(*c) for c in product(range(SIZE + 3), repeat=frontier.arity)]


def is_lexicographic(frontier: Frontier) -> bool:
    assert isinstance(frontier, StructuredFrontier)
    return lexicographic_part(frontier) == frontier


@pytest.mark.parametrize("number", range(len(KINDS)))
@given(data=st.data())
def test_no_event_outside_sends_anything_that_is_fixed(number: int, data: st.DataObject) -> None:
    kind, projection, sources, _ = KINDS[number]
    f = data.draw(sources)
    fixed = projection.fixed(f)
    assert not [t for t in universe(f) if t not in f and message(kind, t) in fixed]


@pytest.mark.parametrize("number", range(len(KINDS)))
@given(data=st.data())
def test_what_is_fixed_is_as_large_as_it_can_be(number: int, data: st.DataObject) -> None:
    kind, projection, sources, targets = KINDS[number]
    f, other = data.draw(sources), data.draw(targets)
    safe = not [t for t in universe(f) if t not in f and message(kind, t) in other]
    # A universe can't show messages of events far outside. So a larger frontier that is safe in it must reach beyond
    # it.
    if safe and not isinstance(projection, Lexicographic):
        assert all(
            time in projection.fixed(f) for time in universe(other) if time in other and max(time.coordinates) <= SIZE
        )


@pytest.mark.parametrize("number", range(len(KINDS)))
@given(data=st.data())
def test_sent_and_causes_fit_each_other(number: int, data: st.DataObject) -> None:
    kind, projection, sources, targets = KINDS[number]
    f, h = data.draw(sources), data.draw(targets)
    sent = projection.sent(f)
    assert all(message(kind, t) in sent for t in universe(f) if t in f)
    assert (sent <= h) == (f <= projection.causes(h))
    assert projection.sent(projection.causes(h)) <= h
    if isinstance(projection, Lexicographic):
        assert is_lexicographic(projection.fixed(f))
        assert is_lexicographic(sent)


def test_feedback_of_a_total_order_moves_one_round_on() -> None:
    at = lexicographic((3, 5))
    assert Lexicographic(Feedback()).fixed(at) == lexicographic((3, 6))


def test_figure_2c() -> None:
    inside = Enter().fixed(StructuredFrontier.through_epoch(1))
    assert inside == StructuredFrontier.below((1, OMEGA))
    assert Leave().fixed(inside) == StructuredFrontier.through_epoch(1)
    assert Leave().fixed(StructuredFrontier.below((1, 8))).is_empty


def cuts(*ends: OffsetFrontier) -> Cuts:
    return Cuts.of(enumerate(ends))


def test_epochs_are_the_records_of_a_log() -> None:
    kind = EpochsToSequence(LOG)
    assert [kind.fixed(StructuredFrontier.of(1, [(t,)] if t >= 0 else [])) for t in (-1, 0, 4)] == [
        OffsetFrontier.of({LOG: n}) for n in (0, 1, 5)
    ]
    assert kind.fixed(StructuredFrontier.through_epoch(OMEGA)).is_top
    assert kind.sent(StructuredFrontier.through_epoch(OMEGA)) == OffsetFrontier.of({LOG: OMEGA})
    assert kind.causes(OffsetFrontier.of({LOG: OMEGA})).is_top


def test_a_sequence_cut_into_epochs() -> None:
    other = TopicPartition(topic="log", partition=1)
    kind = SequenceToEpochs(cuts(OffsetFrontier.of({LOG: 2, other: 1}), OffsetFrontier.of({LOG: 2, other: 4})))
    assert kind.fixed(OffsetFrontier.of({LOG: 2})).is_empty
    assert kind.fixed(OffsetFrontier.of({LOG: 2, other: 3})) == StructuredFrontier.through_epoch(0)
    assert kind.sent(OffsetFrontier.of({LOG: 3})) == StructuredFrontier.through_epoch(OMEGA), "it is not cut yet"
    assert kind.causes(StructuredFrontier.through_epoch(0)) == OffsetFrontier.of({LOG: 2, other: 1})


def test_cancelled_and_deleted_epochs_are_not_among_the_cuts() -> None:
    kind = SequenceToEpochs(Cuts.of((number, OffsetFrontier.of({LOG: 10 * number})) for number in (2, 3, 6)))
    assert [kind.fixed(OffsetFrontier.of({LOG: n})) for n in (19, 20, 59, 60)] == [
        StructuredFrontier.of(1, bounds) for bounds in ([], [(2,)], [(3,)], [(6,)])
    ]
    lengths = [kind.causes(StructuredFrontier.through_epoch(t)) for t in (1, 2, 3, 5, 6, 9)]
    assert lengths == [OffsetFrontier.of({LOG: n}) for n in (0, 20, 30, 30, 60, 60)]


def test_cuts_only_grow() -> None:
    other = TopicPartition(topic="log", partition=1)
    known = Cuts.of([(0, OffsetFrontier.of({LOG: 5})), (1, OffsetFrontier.of({LOG: 4, other: 1}))])
    assert known.end(1) == OffsetFrontier.of({LOG: 5, other: 1})
    with pytest.raises(InternalError) as caught:
        known.add(1, OffsetFrontier.of({LOG: 6}))
    assert caught.value.condition == "CUTS_UNORDERED"


lists = st.lists(st.integers(0, 3), min_size=1, max_size=4)


@given(st.integers(0, 5), st.integers(0, 12))
def test_sent_and_causes_fit_each_other_where_epochs_become_a_sequence(t: int, n: int) -> None:
    kind = EpochsToSequence(LOG)
    f, h = StructuredFrontier.through_epoch(t), OffsetFrontier.of({LOG: n})
    assert (kind.sent(f) <= h) == (f <= kind.causes(h))


@given(lists, st.integers(0, 12), st.integers(0, 5))
def test_sent_and_causes_fit_each_other_where_a_sequence_is_cut(counts: list[int], n: int, t: int) -> None:
    ends = [sum(counts[: i + 1]) for i in range(len(counts))]
    kind = SequenceToEpochs(cuts(*(OffsetFrontier.of({LOG: c}) for c in ends)))
    f, h = OffsetFrontier.of({LOG: n}), StructuredFrontier.through_epoch(t)
    assert (kind.sent(f) <= h) == (f <= kind.causes(h))
    epoch_of = [next((i for i, c in enumerate(ends) if m < c), len(ends)) for m in range(20)]
    fixed = kind.fixed(f)
    assert not [m for m in range(n, 20) if StructuredTime(epoch_of[m]) in fixed]


@given(lists, st.integers(0, 12), rounds)
def test_a_sequence_that_is_cut_into_epochs_for_a_loop(counts: list[int], n: int, h: StructuredFrontier) -> None:
    ends = [sum(counts[: i + 1]) for i in range(len(counts))]
    kind = InTurn(SequenceToEpochs(cuts(*(OffsetFrontier.of({LOG: c}) for c in ends))), Enter())
    f = OffsetFrontier.of({LOG: n})
    assert (kind.sent(f) <= h) == (f <= kind.causes(h))
    assert kind.fixed(f) == Enter().fixed(SequenceToEpochs(kind.first.cuts).fixed(f))  # type: ignore[attr-defined]


@given(rounds, st.integers(0, 12))
def test_the_epochs_of_a_loop_are_the_records_of_a_log(f: StructuredFrontier, n: int) -> None:
    kind, h = InTurn(Leave(), EpochsToSequence(LOG)), OffsetFrontier.of({LOG: n})
    assert (kind.sent(f) <= h) == (f <= kind.causes(h))
    whole = [t for t in range(20) if StructuredTime(t) in Leave().fixed(f)]
    assert kind.fixed(f).is_top or kind.fixed(f) == OffsetFrontier.of({LOG: len(whole)})


def closed_sets(times: list[StructuredTime]) -> set[frozenset[StructuredTime]]:
    subsets = chain.from_iterable(combinations(times, n) for n in range(len(times) + 1))
    return {frozenset(x) for x in subsets if all(s in x for t in x for s in times if s <= t)}


def test_structured_frontiers_are_exactly_the_downward_closed_sets() -> None:
    times = [StructuredTime(t, c) for t in range(3) for c in range(3)]
    bounds = list(product([0, 1, 2], repeat=2))
    made = {
        frozenset(t for t in times if t in StructuredFrontier.of(2, pick))
        for n in range(4)
        for pick in combinations(bounds, n)
    }
    assert made == closed_sets(times)


@given(rounds, rounds, rounds)
def test_structured_frontiers_are_a_distributive_lattice(
    f: StructuredFrontier, g: StructuredFrontier, h: StructuredFrontier
) -> None:
    assert f & (g | h) == (f & g) | (f & h)
    assert f | (f & g) == f == f & (f | g)
    assert (f <= g) == (f | g == g) == (f & g == f)
    assert f.nothing() <= f <= f.everything()
    inside = [t for t in ROUNDS if t in f and t in g]
    assert all(t in (f & g) for t in inside)
    assert all((t in (f | g)) == (t in f or t in g) for t in ROUNDS)


@given(rounds, total)
def test_the_lexicographic_frontiers_nearest(f: StructuredFrontier, g: StructuredFrontier) -> None:
    part, hull = lexicographic_part(f), lexicographic_hull(f)
    assert part <= f <= hull
    assert not g <= f or g <= part
    assert not f <= g or hull <= g


@given(st.tuples(coordinate, coordinate))
def test_a_lexicographic_frontier_holds_what_comes_before(bound: tuple[float, float]) -> None:
    frontier = lexicographic(bound)
    assert all((t in frontier) == (t.coordinates <= bound) for t in ROUNDS)


@pytest.mark.parametrize(
    "mix",
    [
        lambda: StructuredFrontier.through_epoch(1) <= OffsetFrontier(()),
        lambda: OffsetFrontier(()) | StructuredFrontier.through_epoch(1),
        lambda: StructuredFrontier.through_epoch(1) & StructuredFrontier.of(2, []),
        lambda: SequenceTime(sequence=LOG, offset=0) in StructuredFrontier.of(1, []),
        lambda: Leave().fixed(StructuredFrontier.through_epoch(1)),
        lambda: Enter().fixed(OffsetFrontier(())),
        lambda: SequenceToEpochs(Cuts()).fixed(StructuredFrontier.through_epoch(1)),
    ],
)
def test_domains_do_not_mix(mix: object) -> None:
    assert callable(mix)
    with pytest.raises(InternalError) as caught:
        mix()
    assert caught.value.condition == "FRONTIER_DOMAINS"


def test_times_below_zero_and_without_an_epoch_are_refused() -> None:
    bad: list[tuple[int, ...]] = [(), (-1,), (0, -1)]
    for coordinates in bad:
        with pytest.raises(InternalError) as caught:
            StructuredTime(*coordinates)
        assert caught.value.condition == "TIME_MALFORMED"
    with pytest.raises(InternalError) as malformed:
        StructuredFrontier.of(2, [(1,)])
    assert malformed.value.condition == "FRONTIER_MALFORMED"


@given(epochs, epochs)
def test_a_durable_source_fixes_all_and_discards_what_it_has_sent(f: StructuredFrontier, h: StructuredFrontier) -> None:
    kind = Durable()
    assert kind.fixed(f).is_top
    assert (kind.sent(f) <= h) == (f <= kind.causes(h))
