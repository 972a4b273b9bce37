"""kill -9 while live regions keep the first record of each id, and states that expire and have timers.

Each result and each late record is published once. `falkirk verify outputs` judges `dropDuplicates`, and a model in
plain Python the timers. Without the barrier, the same kill repeats results. Without expiry or timers, the results are
others. Each case costs minutes of CPU time, so they run with FALKIRK_STRIKES alone. integration/live_regions/ has
queries that end in one process.
"""

import os
from pathlib import Path

import pytest

from falkirk.spark_setup.broker import Broker
from tests.chaos.regions import RIGHT, Clicks, assert_timed, running
from tests.duplicates import expected

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
        due = expected(sent)
        regions.settle({"first": len(due.results)})
        assert_timed(regions, fault=fault)
        verdict = regions.verify("first")["first"]
    print(f"{load.sent} records, {len(due.results)} results, {len(due.letters)} late, {dict(suppressed)} suppressed")
    print(verdict)
    if fault == "barrier":
        assert verdict[0] == "repeated delivery with exact state"
        assert set(verdict[1]) <= {"duplicates", "letter duplicates"}
    else:
        assert verdict == RIGHT
