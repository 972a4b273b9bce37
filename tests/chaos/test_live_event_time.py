"""kill -9 while live regions keep the first record of each id, and states that expire and have timers.

Each result and each late record is published once. `falkirk verify outputs` judges `dropDuplicates`, and a model in
plain Python the timers. Without the barrier, the same kill repeats results. Without expiry or timers, the results are
others. Each case costs minutes of CPU time, so they run with FALKIRK_STRIKES alone. integration/live_regions/ has
queries that end in one process.
"""

import os
from pathlib import Path

import pytest

from falkirk.environment.broker import Broker
from tests import timers
from tests.chaos.regions import RIGHT, Clicks, running
from tests.duplicates import expected
from tests.timers import Model

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)


@pytest.mark.parametrize("fault", ["", "barrier", "expiry", "timers"])
def test_kill_9_of_everything(broker: Broker, home: Path, tag: str, fault: str) -> None:
    env = {"FAULT": fault} if fault in ("expiry", "timers") else {}
    with running(broker, home, tag, "first.py", sources=["clicks"], names=["first", "reminders"], **env) as regions:
        with Clicks(broker.bootstrap, regions.topics["clicks"]) as load:
            suppressed = regions.strike(
                again=2,
                is_barred=fault != "barrier",
                BARRIER="off" if fault == "barrier" else "on",
            )
        sent = regions.rows("clicks")
        due, right, planted = expected(sent), Model().read(sent), Model(fault=fault).read(sent)
        regions.settle({"first": len(due.results), "reminders": planted.results.total()})
        verdict = regions.verify("first")["first"]
    print(f"{load.sent} records, {len(due.results)} results, {len(due.letters)} late, {dict(suppressed)} suppressed")
    print(f"{right.results.total()} results and {right.letters.total()} dead letters of states with timers")
    print(verdict)
    of_states = timers.results(regions.results("reminders")), timers.letters(regions.letters("reminders"))
    if fault == "barrier":
        assert (*map(set, of_states),) == (set(right.results), set(right.letters))
        assert verdict[0] == "repeated delivery with exact state"
        assert set(verdict[1]) <= {"duplicates", "letter duplicates"}
        assert of_states[0] != right.results
        return
    assert (verdict, *of_states) == (RIGHT, planted.results, planted.letters)
    assert (of_states[0] == right.results) is not bool(fault), "the model without the mechanism has other results"
    fired = [timer for *_, timer in right.results.elements() if timer is not None]
    assert len(fired) > 50
