"""kill -9 while a live region joins three topics: each result and each dead letter is published once.

A model in plain Python judges, and so does `falkirk verify outputs`. A barrier that compares the greatest stamp of a
channel loses results. Each case costs minutes of CPU time, so they run with FALKIRK_STRIKES alone.
"""

import os
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from falkirk.spark_setup.broker import Broker
from tests import thrice_joined as model
from tests.chaos.regions import RIGHT, running
from tests.chaos.timed_loads import Side, end_times

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)


class Slow(Side):
    """Half as many records per second of event time."""

    per_s = 5


@pytest.mark.parametrize("barrier", ["set", "greatest"])
def test_kill_9_of_everything(broker: Broker, home: Path, tag: str, barrier: str) -> None:
    names = [*model.DELAYS_S]
    with running(broker, home, tag, "thrice_joined.py", sources=names, names=["seen"]) as regions:
        with ExitStack() as stack:
            loads = {
                name: stack.enter_context(Slow(broker.bootstrap, regions.topics[name], rate=40, seed=seed))
                for seed, name in enumerate(names)
            }
            suppressed = regions.strike(again=2, BARRIER=barrier)
        end_times(broker, {regions.topics[name]: load.sent for name, load in loads.items()})
        due = model.expected({name: regions.rows(name) for name in names}, *model.KINDS[0])
        regions.settle({"seen": len(due.results)} if barrier == "set" else {})
        regions.application.wait_next_commit()
        found, letters = model.results(regions.results("seen")), regions.letters("seen")
        verdict = regions.verify("seen")["seen"]
    more, missing = Counter(found) - Counter(due.results), Counter(due.results) - Counter(found)
    whole = sum(None not in each for each in due.results)
    print(
        f"{[load.sent for load in loads.values()]} records, {len(due.results)} results, {whole} of three records, "
        f"{len(due.letters)} late, {suppressed} suppressed, {more.total()} more, {missing.total()} missing, {verdict}"
    )
    assert whole > 100
    if barrier == "set":
        assert verdict == RIGHT
        assert not more
        assert not missing
        assert Counter(each["reason"] for each in letters) == Counter(due.letters.values())
    else:
        assert verdict[1]["lost"]
        assert missing, "the greatest stamp of a channel loses results"
