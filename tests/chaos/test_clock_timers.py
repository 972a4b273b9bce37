"""kill -9 while a live region has timers by the clock.

A replay fires timers between other records. So the published results of an id tell one history only if each waited for
a checkpoint: each result has one record or one timer more than the one before it. Without that wait, they do not.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import AGAIN, LIGHT
from tests.chaos.regions import Clicks, running
from tests.timers import broken, histories, is_told

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)


@pytest.mark.parametrize("fault", ["", "held"])
def test_kill_9_of_everything(broker: Broker, home: Path, tag: str, fault: str) -> None:
    with running(broker, home, tag, "clock.py", sources=["clicks"], names=["reminders"], FAULT=fault) as regions:

        def grown(least: int) -> None:
            regions.application.wait(lambda: regions.count("reminders") >= least, 120, f"{least} results")

        with Clicks(broker.bootstrap, regions.topics["clicks"], rate=4 * LIGHT) as load:
            for _ in range(2 * AGAIN):
                grown(regions.count("reminders") + 500)
                regions.application.kill_everything()
                regions.application.wait_committed(0)
        records = Counter(each["id"] for each in regions.results("clicks"))

        def is_over() -> bool:
            return is_told(histories(regions.results("reminders")), records, fired=not fault)

        regions.application.wait(is_over, 180, "the last timer of each id")
        found = histories(regions.results("reminders"))
    faults = {name: breaks for name, mine in found.items() if (breaks := broken(mine))}
    fired = sum(mine[-1][1] for mine in found.values())
    print(f"{load.sent} records, {fired} timers, {len(found)} ids, {len(faults)} of them with a broken history")
    assert (faults == {}) is (fault == "")
    if not fault:
        assert fired > 100
        assert not regions.letters("reminders")
