"""kill -9 while live regions aggregate by windows: each result and each late record is published once.

`falkirk verify outputs` judges. A model in plain Python says how many results to wait for. Without the barrier, the
same kill repeats results. Each case costs minutes of CPU time, so they run with FALKIRK_STRIKES alone.
"""

import os
from pathlib import Path

import pytest

from falkirk.spark_setup.broker import Broker
from tests import windows
from tests.chaos.regions import RIGHT, Clicks, running

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
        verdicts = regions.verify(*regions.names)
    print(f"{load.sent} records, {len(due.final)} windows, {len(due.letters)} late, {suppressed} suppressed")
    print(verdicts)
    if barrier == "on":
        assert verdicts == dict.fromkeys(regions.names, RIGHT)
    else:
        assert all(set(faults) <= {"duplicates", "letter duplicates"} for _, faults in verdicts.values()), (
            "nothing lost"
        )
        assert any(faults["duplicates"] for _, faults in verdicts.values()), "some came again"
