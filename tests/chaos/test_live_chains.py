"""kill -9 while a live region runs a chain of keyed steps: each result and each late record is published once.

A model in plain Python judges. Each total contains those before it, so a lost or repeated state changes all later ones.
Without the barrier, the same kill repeats results. Each case costs minutes of CPU time, so they run with
FALKIRK_STRIKES alone.
"""

import os
from pathlib import Path

import pytest

from falkirk.spark_setup.broker import Broker
from tests.chaos.regions import Clicks, running
from tests.counted import modelled, results, without_repetitions

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)


@pytest.mark.parametrize("barrier", ["on", "off"])
def test_kill_9_of_everything(broker: Broker, home: Path, tag: str, barrier: str) -> None:
    with running(broker, home, tag, "counted.py", sources=["clicks"], names=["totals"]) as regions:
        with Clicks(broker.bootstrap, regions.topics["clicks"]) as load:
            suppressed = regions.strike(again=2, is_barred=barrier == "on", BARRIER=barrier)
        due, late = modelled(regions.rows("clicks"))
        regions.settle({"totals": sum(map(len, due.values()))})
        found, letters = results(regions.results("totals")), regions.letters("totals")
    print(f"{load.sent} records, {sum(map(len, due.values()))} results, {late} late, {dict(suppressed)} suppressed")
    print(f"{sum(map(len, found.values()))} results and {len(letters)} dead letters are published")
    assert late > 50
    assert without_repetitions(found) == due
    assert (found == due) is (barrier == "on")
    if barrier == "on":
        assert len(letters) == late
