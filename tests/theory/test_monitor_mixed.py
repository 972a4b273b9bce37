"""The monitor agrees with a solver that forgets nothing, even with marks, late arrivals and forgetting mixed in."""

import copy
import random
from collections import defaultdict
from collections.abc import Iterator

import pytest

from falkirk.theory.frontier import Frontier, OffsetFrontier, StructuredFrontier
from falkirk.theory.graph import Edge
from falkirk.theory.metadata import Anywhere, Available, Checkpoints
from falkirk.theory.monitor import Monitor
from falkirk.theory.rollback import solve
from tests.strategies import examples
from tests.theory.graphs import Application, random_application, some_frontier
from tests.theory.lexicographic import lexicographic_hull

MARKS = 12


def marks(rng: random.Random, application: Application) -> Iterator[tuple[str, str, Frontier, Frontier]]:
    """Yield marks for processors that can go anywhere: fixed frontiers with those that fix them, in any order."""
    graph, available, _ = application
    edges = [
        (name, edge)
        for name, mine in available.items()
        if isinstance(mine, Anywhere)
        for edge in graph.outputs[name]
        if edge.projection is None
    ]
    level: dict[str, int] = defaultdict(int)
    found = []
    for _ in range(MARKS if edges else 0):
        name, edge = rng.choice(edges)
        level[edge.name] += 1
        now = _at(rng, graph.processors[name].domain, graph.inputs[name], level[edge.name])
        at = lexicographic_hull(now) if isinstance(now, StructuredFrontier) else now
        found.append((name, edge.name, at, some_frontier(rng, edge.domain, edge, level[edge.name])))
    if rng.random() < 0.7:  # else they grow
        rng.shuffle(found)
    yield from found


def _at(rng: random.Random, domain: Frontier, inputs: tuple[Edge, ...], level: int) -> Frontier:
    if isinstance(domain, OffsetFrontier):
        return OffsetFrontier.of({s: max(0, level + rng.randint(-1, 1)) for d in inputs for s in d.sequences})
    return some_frontier(rng, domain, None, level)


def play(seed: int) -> int:
    """Play one sequence of updates; return how often a low watermark grew."""
    rng = random.Random(seed)
    application = random_application(seed, size=2 + seed % 6, checkpoints=4, ragged=seed % 4 == 0)
    graph, available, arrivals = application
    rng.shuffle(arrivals)
    monitor, whole = Monitor(graph, copy.deepcopy(available)), copy.deepcopy(available)
    coming, grown = marks(rng, application), 0
    before = {n: monitor.low_watermark(n) for n in graph.processors}
    while True:
        mark = next(coming, None) if rng.random() < 0.4 or not arrivals else None
        if mark is not None:
            reported = monitor.add_mark(*mark)
            _anywhere(whole[mark[0]]).marks.setdefault(mark[1], []).append(mark[2:])
        elif arrivals:
            name, metadata = arrivals.pop(0)
            if metadata.frontier <= monitor.low_watermark(name):
                continue  # nobody adds a checkpoint below the collected ones
            reported = monitor.add_checkpoint(name, metadata)
            mine = whole[name]
            assert isinstance(mine, Checkpoints)
            mine.add(metadata)
        else:
            return grown
        if rng.random() < 0.3:
            monitor.forget_below(rng.choice(list(graph.processors)))
        solution = solve(graph, whole)
        now = {n: monitor.low_watermark(n) for n in graph.processors}
        assert now == {n: solution.chosen[n].frontier for n in graph.processors}, seed
        assert monitor.solution.notified == solution.notified, seed
        assert set(reported) == {n for n in now if now[n] != before[n]}, seed
        assert all(before[n] <= now[n] for n in now), seed
        before, grown = now, grown + len(reported)


def _anywhere(available: Available) -> Anywhere:
    assert isinstance(available, Anywhere)
    return available


@pytest.mark.parametrize("block", range(examples(5)))
def test_equal_to_a_solver_that_forgets_nothing(block: int) -> None:
    assert sum(play(seed) for seed in range(block * 60, block * 60 + 60)) > 30
