"""kill -9 while live regions aggregate by windows: each result and each late record is published once.

The model in plain Python reads the topic and judges. Without the barrier, the same kill repeats results. Each case
costs minutes of CPU time, so they run with FALKIRK_STRIKES alone.
"""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from falkirk.local.broker import Broker
from tests import windows
from tests.chaos.regions import Clicks, running

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)


@pytest.mark.parametrize("barrier", ["on", "off"])
def test_kill_9_of_everything(broker: Broker, home: Path, tag: str, barrier: str) -> None:
    with running(broker, home, tag, "windows.py", sources=["clicks"], names=["final", "updates"]) as regions:
        with Clicks(broker.bootstrap, regions.topics["clicks"]) as load:
            suppressed = regions.strike(again=2, is_barred=barrier == "on", BARRIER=barrier)
        due = windows.expected(regions.rows("clicks"), "sliding")
        wanted = {"final": due.final, "updates": due.updates}
        regions.settle({name: len(results) for name, results in wanted.items()})
    print(f"{load.sent} records, {len(due.final)} windows, {len(due.letters)} late, {suppressed} suppressed")
    found = {name: Counter(windows.results(regions.results(name))) for name in regions.names}
    letters = {name: [json.loads(row["value"])["n"] for row in regions.letters(name)] for name in regions.names}
    if barrier == "on":
        assert found == {name: Counter(results) for name, results in wanted.items()}
        assert all(Counter(numbers) == Counter(list(due.letters)) for numbers in letters.values())
    else:
        assert {name: set(results) for name, results in found.items()} == {n: set(r) for n, r in wanted.items()}
        assert any(found[name] != Counter(results) for name, results in wanted.items()), "some came again"
