"""kill -9 while a live region joins two topics: each pair and each record without a partner is published once.

`falkirk verify outputs` judges. A model in plain Python says how many results to wait for. A barrier that compares the
greatest stamp of a channel, which is right for every other live region, loses results. Each case costs minutes of CPU
time, so they run with FALKIRK_STRIKES alone.
"""

import os
from pathlib import Path

import pytest

from falkirk.spark_setup.broker import Broker
from tests import joined
from tests.chaos.regions import RIGHT, running
from tests.chaos.timed_loads import Side, end_times

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)


@pytest.mark.parametrize("barrier", ["set", "greatest"])
def test_kill_9_of_everything(broker: Broker, home: Path, tag: str, barrier: str) -> None:
    with running(broker, home, tag, "joins.py", sources=["shown", "clicks"], names=["seen"]) as regions:
        shown, clicks = (regions.topics[name] for name in ("shown", "clicks"))
        with (
            Side(broker.bootstrap, shown, rate=50, seed=1) as left,
            Side(broker.bootstrap, clicks, rate=50, seed=2) as right,
        ):
            suppressed = regions.strike(again=2, BARRIER=barrier)
        end_times(broker, {shown: left.sent, clicks: right.sent})
        due = joined.expected(regions.rows("shown"), regions.rows("clicks"))
        regions.settle({"seen": len(due.of("full"))} if barrier == "set" else {})
        regions.application.wait_next_commit()
        verdict = regions.verify("seen")["seen"]
    print(
        f"{left.sent} and {right.sent} records, {len(due.pairs)} pairs, {len(due.lefts)} and {len(due.rights)} alone, "
        f"{len(due.letters)} late, {suppressed} suppressed, {verdict}"
    )
    assert min(len(due.pairs), len(due.lefts), len(due.rights)) > 0
    if barrier == "set":
        assert verdict == RIGHT
    else:
        assert verdict[1]["lost"], "the greatest stamp of a channel loses results"
