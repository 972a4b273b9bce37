"""Cuts: each is consistent, the greatest one as of its time, and exactly the state that a rollback to it restores."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from falkirk.recovery.protocol import consistent_cuts as module
from falkirk.recovery.protocol.consistent_cuts import ConsistentCut, as_of, consistent_cuts, cut_numbered
from falkirk.recovery.protocol.layout import Layout, cutter_name
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.recovery.protocol.rollback import UnitCheckpoints, cuts_of, decide_rollback, saved
from falkirk.theory.frontier import EMPTY
from falkirk.theory.metadata import Anywhere, Checkpoints, Metadata
from tests.simulation.elements import Element, partition_of
from tests.simulation.memory import MemoryStore
from tests.simulation.run import random_layout
from tests.simulation.world import World
from tests.strategies import examples
from tests.theory.consistent import violations
from tests.unit.protocol.test_rollback_example import example as modelled
from tests.unit.protocol.test_rollback_example import upto

seeds = st.integers(0, 10**6)


def drawn(seed: int, steps: int, *, most: int = 99) -> tuple[Layout, UnitCheckpoints]:
    """Return a random application after a number of steps, and some of its points, as a history keeps them.

    Args: most: so many points of a region stay at most.
    """
    rng = random.Random(seed)
    world = World(random_layout(rng, random.Random(seed + 1)), rng, decided=0, store=MemoryStore())
    numbers: dict[str, int] = {}
    for region in world.regions.values():
        region.fence()
        region.start(-1)
    for _ in range(steps):
        world.now_s += rng.choice([0.0, 1.0, 1.0, 5.0])
        topic = rng.choice(world.layout.sources)
        key = f"{topic}.{rng.randint(0, 3)}"
        numbers[key] = numbers.get(key, -1) + 1
        partition = partition_of(key, world.layout.partitions[topic])
        log = world.logs[next(e for e in world.layout.sequences(topic) if e.partition == partition)]
        log.elements.append(Element(key=key, path=f"{key}:{numbers[key]}", digest=""))
        for _ in range(3):
            region = rng.choice(list(world.regions.values()))
            assert region.running is not None
            for _ in range(rng.randint(0, 4)):
                region.step(region.running)
            region.deliver(region.running, rng.randint(0, 3))
            if rng.random() < 0.4:
                region.checkpoint(region.running)
    return world.layout, {name: _kept(rng, region.checkpoints(), most) for name, region in world.regions.items()}


def _kept(rng: random.Random, checkpoints: tuple[Checkpoint, ...], most: int) -> tuple[Checkpoint, ...]:
    share = rng.choice([0.3, 0.7, 1.0])
    kept = [p for p in checkpoints[:-1] if rng.random() < share]
    return (*kept[len(kept) - min(len(kept), most - 1) :], checkpoints[-1])


def consistent(layout: Layout, every: UnitCheckpoints, checkpoints: Mapping[str, Checkpoint]) -> bool:
    """Return whether a choice of points, one of every one that there is, breaks no constraint of the theory."""
    graph, available = layout.graph(cuts_of(layout, every)), layout.restorable()
    chosen = {n: Metadata(frontier=p.domain.everything()) for n, p in graph.processors.items()}
    chosen |= {n: Metadata(frontier=p.domain) for n, p in graph.processors.items() if n.startswith("sink")}
    chosen |= {name: layout.metadata(name, point) for name, point in checkpoints.items()}
    for batch in layout.batches:  # whose cutter has read the input of these epochs
        cutter, mine = cutter_name(batch), available[cutter_name(batch)]
        assert isinstance(mine, Anywhere)
        at = graph.processors[cutter], graph.inputs[cutter], graph.outputs[cutter]
        chosen[cutter] = mine.describe(checkpoints[batch].read, *at)
    promised = {name: processor.domain for name, processor in graph.processors.items()}
    return not list(violations(graph, available, chosen, promised))


def times(checkpoints: UnitCheckpoints) -> Iterator[float]:
    """Yield each time at which a point was made, and a time before all of them."""
    yield from sorted({-1.0, *(made(p) for mine in checkpoints.values() for p in mine)})


def made(point: Checkpoint) -> float:
    return -1.0 if point.made_at_s is None else point.made_at_s


def by_when(checkpoints: Sequence[Checkpoint], point: Checkpoint) -> float:
    """Return when a point and all before it were made: a clock may be set back."""
    return max(made(p) for p in checkpoints if p.number <= point.number)


def content(point: Checkpoint) -> object:
    return "start" if point.number < 0 else (point.read, point.sent, point.needs)


@settings(max_examples=examples(30), deadline=None)
@given(seeds, st.integers(0, 25))
def test_a_cut_is_consistent_and_a_rollback_restores_exactly_it(seed: int, steps: int) -> None:
    layout, checkpoints = drawn(seed, steps)
    for each in consistent_cuts(layout, checkpoints):
        assert consistent(layout, checkpoints, each.checkpoints)
        for failed in (frozenset[str](), frozenset(layout.stages)):
            decision = decide_rollback(layout, checkpoints, failed=failed, outside={}, asked=each.asked)
            assert decision.goes == each.asked
            assert set(decision.takes_back) == set(layout.stages), "everything later is computed anew"


@settings(max_examples=examples(30), deadline=None)
@given(seeds, st.integers(0, 25))
@example(seed=96661, steps=23)  # a clock is set back before a chosen point
def test_cuts_are_ordered_and_differ(seed: int, steps: int) -> None:
    layout, checkpoints = drawn(seed, steps)
    found = consistent_cuts(layout, checkpoints)
    for newer, older in pairwise(found):
        assert older.number < newer.first_number <= newer.number
        assert older.at_s < newer.first_at_s <= newer.at_s
        assert all(older.checkpoints[n].number <= newer.checkpoints[n].number for n in layout.stages)
        assert any(content(older.checkpoints[n]) != content(newer.checkpoints[n]) for n in layout.stages)
    for each in found:
        assert (
            each.at_s == max(by_when(checkpoints[n], p) for n, p in each.checkpoints.items()) or each.made_at_s is None
        )
        assert (
            as_of(found, each.at_s)
            is cut_numbered(found, each.number)
            is cut_numbered(found, each.first_number)
            is each
        )


@settings(max_examples=examples(30), deadline=None)
@given(seeds, st.integers(0, 8))
def test_a_cut_is_the_greatest_choice_of_points_that_were_made_by_then(seed: int, steps: int) -> None:
    """Compared with all choices: none that is consistent has a newer point of any region."""
    layout, checkpoints = drawn(seed, steps, most=4)
    found = consistent_cuts(layout, checkpoints)
    for at_s in times(checkpoints):
        by_then = [[p for p in checkpoints[name] if by_when(checkpoints[name], p) <= at_s] for name in layout.stages]
        choices = (dict(zip(layout.stages, choice, strict=True)) for choice in product(*by_then))
        possible = [choice for choice in choices if consistent(layout, checkpoints, choice)]
        each = as_of(found, at_s)
        if each is None:
            assert not possible
            continue
        for name in layout.stages:
            newest = max((choice[name] for choice in possible), key=lambda p: p.number)
            assert content(each.checkpoints[name]) == content(newest)


@settings(max_examples=examples(30), deadline=None)
@given(seeds, st.integers(0, 25))
@example(3, 25)
def test_the_newest_cut_is_where_a_failure_of_everything_that_draws_resumes(seed: int, steps: int) -> None:
    """Deterministic regions may resume later: a failure keeps the results that they send again."""
    layout, checkpoints = drawn(seed, steps)
    found = consistent_cuts(layout, checkpoints)
    everything = frozenset(layout.stages)
    if not found:
        return
    resumes = decide_rollback(layout, checkpoints, failed=everything, outside={}).goes
    newest = {name: mine[-1].number for name, mine in checkpoints.items()}
    assert found[0].asked == decide_rollback(layout, checkpoints, failed=everything, outside={}, asked=newest).goes
    assert all(found[0].asked[name] <= resumes[name] for name in layout.stages)
    if not any(s.deterministic for s in layout.stages.values()):
        assert found[0].asked == resumes


def three() -> tuple[Layout, dict[str, tuple[Checkpoint, ...]]]:
    """The example of docs/model.md, with times; prices has read results of offers beyond each of its points."""
    layout, checkpoints = modelled(deterministic=False)
    made_at_s = {"offers": (10.0, 30.0), "prices": (12.0, 32.0), "audit": (11.0, 40.0)}
    timed = {
        name: (mine[0], *(Checkpoint(number=p.number, read=p.read, sent=p.sent, made_at_s=t)
                          for p, t in zip(mine[1:], made_at_s[name], strict=True)))
        for name, mine in checkpoints.items()
    }  # fmt: skip
    return layout, timed


def test_the_cuts_of_an_example() -> None:
    layout, checkpoints = three()
    found = consistent_cuts(layout, checkpoints)
    assert [(c.number, c.made_at_s, c.asked) for c in found] == [
        (5, 40.0, {"offers": 1, "prices": 0, "audit": 1}),
        (4, 30.0, {"offers": 1, "prices": 0, "audit": 0}),
        (2, 11.0, {"offers": 0, "prices": -1, "audit": 0}),
        (1, 10.0, {"offers": 0, "prices": -1, "audit": -1}),
        (0, None, {"offers": -1, "prices": -1, "audit": -1}),
    ]
    assert [c.read_again(checkpoints) for c in found] == [25, 35, 125, 135, 175]
    outside = {"prices": upto("prices", 61), "audit": upto("audit", 15)}
    assert [c.contradicts(layout, outside) for c in found] == [
        {"public prices": 1}, {"audit": 5, "public prices": 1}, {"audit": 5, "public prices": 61},
        {"audit": 15, "public prices": 61}, {"audit": 15, "public prices": 61},
    ]  # fmt: skip


def test_by_times_alone_a_cut_would_not_be_consistent() -> None:
    """The mechanism is off: points demand nothing of each other, so each region takes its newest one."""
    layout, checkpoints = three()

    def saved_without_demands(*of: Any) -> Checkpoints:
        return Checkpoints(replace(m, delivered={}) for m in saved(*of).chain)

    with patch.object(module, "saved", saved_without_demands):
        found = consistent_cuts(layout, checkpoints)
    assert found[0].asked == {"offers": 1, "prices": 1, "audit": 1}
    assert not consistent(layout, checkpoints, found[0].checkpoints)


def test_cuts_with_nothing_in_between_are_one() -> None:
    layout, checkpoints = three()
    for number, made_at_s in ((2, 50.0), (3, 60.0)):
        same = checkpoints["audit"][-1]
        again = Checkpoint(number=number, read=same.read, sent=same.sent, made_at_s=made_at_s)
        checkpoints["audit"] = (*checkpoints["audit"], again)
    newest = consistent_cuts(layout, checkpoints)[0]
    assert (newest.number, newest.first_number, newest.made_at_s, newest.since_s) == (7, 5, 60.0, 40.0)
    found = consistent_cuts(layout, checkpoints)
    assert cut_numbered(found, 6) == as_of(found, 40.0) == as_of(found, 55.0) == newest
    assert as_of(found, 39.0) == found[1]
    assert cut_numbered(found, 3) is None


def test_they_end_where_a_region_has_no_older_point() -> None:
    layout, checkpoints = three()
    checkpoints["prices"] = checkpoints["prices"][1:]
    found = consistent_cuts(layout, checkpoints)
    assert [c.number for c in found] == [5, 4]
    assert as_of(found, 29.9) is None
    checkpoints["offers"] = checkpoints["offers"][:2]
    assert consistent_cuts(layout, checkpoints) == ()
    assert consistent_cuts(layout, checkpoints | {"audit": ()}) == ()


def test_a_clock_that_was_set_back_makes_no_older_point_newer() -> None:
    layout, checkpoints = three()
    first, late, early = checkpoints["audit"]
    checkpoints["audit"] = (first, Checkpoint(number=0, read=late.read, sent=late.sent, made_at_s=70.0), early)
    assert [(c.number, c.at_s) for c in consistent_cuts(layout, checkpoints)][:2] == [(5, 70.0), (3, 30.0)]


def test_nothing_published_is_contradicted_by_no_cut() -> None:
    layout, checkpoints = three()
    found: tuple[ConsistentCut, ...] = consistent_cuts(layout, checkpoints)
    assert not any(c.contradicts(layout, {"prices": EMPTY}) for c in found)
