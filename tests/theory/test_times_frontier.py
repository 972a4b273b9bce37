"""Times of sequence numbers are a partial order, and frontiers are its downward-closed sets: laws and brute force."""

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falkirk.errors import InternalError
from falkirk.theory.frontier import EMPTY, TOP, OffsetFrontier, down
from falkirk.theory.times import OMEGA, SequenceTime, TopicPartition
from tests.strategies import edges, frontiers, sequence_times

UNIVERSE = tuple(SequenceTime(sequence=TopicPartition(topic=t, partition=0), offset=o) for t in "ab" for o in range(3))
BOUNDED = tuple(
    OffsetFrontier.of({TopicPartition(topic="a", partition=0): i, TopicPartition(topic="b", partition=0): j})
    for i in range(4)
    for j in range(4)
)


def holds(frontier: OffsetFrontier) -> frozenset[SequenceTime]:
    return frozenset(t for t in UNIVERSE if t in frontier)


def subsets() -> list[frozenset[SequenceTime]]:
    sizes = range(len(UNIVERSE) + 1)
    return [frozenset(c) for c in chain.from_iterable(combinations(UNIVERSE, n) for n in sizes)]


@given(sequence_times, sequence_times, sequence_times)
def test_times_are_a_partial_order(a: SequenceTime, b: SequenceTime, c: SequenceTime) -> None:
    assert a <= a
    assert not (a <= b <= a) or a == b
    assert not (a <= b <= c) or a <= c
    assert (a < b) == (a <= b and a != b)


def test_times_on_different_edges_are_incomparable() -> None:
    first, second = UNIVERSE[0], UNIVERSE[3]
    assert not first <= second
    assert not second <= first
    assert not first > second


@given(edges, st.integers(max_value=-1))
def test_nothing_lies_below_offset_0(edge: TopicPartition, number: int) -> None:
    with pytest.raises(InternalError) as time:
        SequenceTime(sequence=edge, offset=number)
    assert time.value.condition == "TIME_MALFORMED"
    with pytest.raises(InternalError) as frontier:
        OffsetFrontier.of({edge: number})
    assert frontier.value.condition == "FRONTIER_MALFORMED"


def test_frontiers_are_exactly_the_downward_closed_sets() -> None:
    closed = {x for x in subsets() if all(s in x for t in x for s in UNIVERSE if s <= t)}
    assert {holds(f) for f in BOUNDED} == closed
    assert len(BOUNDED) == len(closed)


def test_operations_are_those_of_the_sets() -> None:
    for f in BOUNDED:
        for g in BOUNDED:
            assert holds(f | g) == holds(f) | holds(g)
            assert holds(f & g) == holds(f) & holds(g)
            assert (f <= g) == (holds(f) <= holds(g))


def test_down_is_the_smallest_frontier_that_contains() -> None:
    for x in subsets():
        containing = [f for f in BOUNDED if x <= holds(f)]
        assert down(x) in containing
        assert all(down(x) <= f for f in containing)


@given(frontiers, frontiers, frontiers)
def test_frontiers_are_a_distributive_lattice(f: OffsetFrontier, g: OffsetFrontier, h: OffsetFrontier) -> None:
    assert f | g == g | f
    assert f & g == g & f
    assert f | (g | h) == (f | g) | h
    assert f & (g & h) == (f & g) & h
    assert f | (f & g) == f == f & (f | g)
    assert f & (g | h) == (f & g) | (f & h)
    assert (f <= g) == (f | g == g) == (f & g == f)
    assert not (f <= g <= f) or (f == g and hash(f) == hash(g))


@given(frontiers, sequence_times)
def test_bounds(f: OffsetFrontier, time: SequenceTime) -> None:
    assert EMPTY <= f <= TOP
    assert time not in EMPTY
    assert time in TOP
    assert (f == TOP) == (f >= TOP) == (f.length(time.sequence) == OMEGA)


@given(frontiers, sequence_times)
def test_advance_adds_no_more_than_it_must(f: OffsetFrontier, time: SequenceTime) -> None:
    after = f | down([time])
    assert time in after
    assert f <= after
    assert (after == f) == (time in f)
    assert all((t in after) == (t in f or t <= time) for t in (*UNIVERSE, time))


def test_an_edge_of_length_0_is_no_edge() -> None:
    assert OffsetFrontier.of({TopicPartition(topic="a", partition=0): 0}) == EMPTY == down([])
