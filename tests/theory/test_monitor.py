"""The monitor agrees with the solver after every update, and its low watermarks only grow."""

import copy

import pytest

from falkirk.theory.metadata import Available, Checkpoints
from falkirk.theory.monitor import Monitor
from falkirk.theory.rollback import solve
from tests.strategies import examples
from tests.theory.graphs import random_application


def copied(available: dict[str, Available]) -> dict[str, Available]:
    return copy.deepcopy(available)


@pytest.mark.parametrize("block", range(examples(10)))
def test_equal_to_the_solver_after_every_update(block: int) -> None:
    grown = 0
    for seed in range(block * 100, block * 100 + 100):
        graph, available, arrivals = random_application(seed, size=4 + seed % 5, checkpoints=4, ragged=seed % 4 == 0)
        monitor = Monitor(graph, copied(available))
        before = {n: monitor.low_watermark(n) for n in graph.processors}
        for name, metadata in arrivals:
            reported = monitor.add_checkpoint(name, metadata)
            mine = available[name]
            assert isinstance(mine, Checkpoints)
            mine.add(metadata)
            solution = solve(graph, available)
            now = {n: monitor.low_watermark(n) for n in graph.processors}
            assert now == {n: solution.chosen[n].frontier for n in graph.processors}, seed
            assert monitor.solution.notified == solution.notified, seed
            assert all(before[n] <= now[n] for n in now), seed
            assert set(reported) == {n for n in now if now[n] != before[n]}, seed
            grown += len(reported)
            before = now
    assert grown > 100, "hardly anything ever moved, so hardly anything was tested"
