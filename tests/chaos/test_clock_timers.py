"""kill -9, a standby and a rollback while a live region has timers by the clock.

A replay fires timers between other records. So the published results of an id tell one history only if each waited for
a checkpoint: each result has one record or one timer more than the one before it. Without that wait, they do not.
"""

import json
import os
from collections import Counter
from pathlib import Path

import psutil
import pytest

from falkirk.recovery.ownership.folder import STANDBY
from falkirk.recovery.ownership.process_records import ProcessRecord
from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import AGAIN, APPS, LIGHT
from tests.chaos.regions import Clicks, Regions, running
from tests.integration.rolling_back import Told, goes_back_to_the_newest
from tests.support import is_alive, wait_until
from tests.timers import Counts, broken, histories, is_told

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)


@pytest.mark.parametrize("fault", ["", "held"])
def test_kill_9_of_everything(broker: Broker, home: Path, tag: str, fault: str) -> None:
    with running(broker, home, tag, "clock.py", sources=["clicks"], names=["reminders"], FAULT=fault) as regions:

        def grown(least: int) -> None:
            regions.application.wait(lambda: regions.count("reminders") >= least, 120, f"{least} results")

        with Clicks(broker.bootstrap, regions.topics["clicks"], rate=4 * LIGHT):
            for _ in range(2 * AGAIN):
                grown(regions.count("reminders") + 500)
                regions.application.kill_everything()
                regions.application.wait_committed(0)
        faults = broken_histories(regions, fault)
    assert (faults == {}) is (fault == "")


def test_a_standby_takes_over_and_the_region_goes_back(
    broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standby has warmed up the region with its Python processes. The rollback is to the newest point."""
    options = {"sources": ["clicks"], "names": ["reminders"]}
    with running(broker, home, tag, "clock.py", "--standby", **options) as regions:  # type: ignore[arg-type]
        application, told = regions.application, Told(broker.bootstrap, home, APPS / "clock.py")
        for name, topic in regions.topics.items():
            monkeypatch.setenv(name.upper(), topic)
        with Clicks(broker.bootstrap, regions.topics["clicks"], rate=4 * LIGHT):
            application.wait(lambda: regions.count("reminders") > 500, 120, "results")
            standby, old, jvm = warm_standby(regions), application.host(), application.jvm()
            old.kill()
            wait_until(lambda: not is_alive(jvm), 60, "the JVM of the killed host to end")
            application.forget_status()
            application.wait_committed(1)
            assert application.host() == standby
            before = regions.count("reminders")
            application.wait(lambda: regions.count("reminders") > before, 120, "results of the standby")
            application.forget_status()
            wait_until(lambda: goes_back_to_the_newest(told), 120, "a point on which no published results depend")
            application.wait_committed(0)
            before = regions.count("reminders")
            application.wait(lambda: regions.count("reminders") > before + 500, 120, "results after the rollback")
        assert broken_histories(regions) == {}


def warm_standby(regions: Regions) -> psutil.Process:
    """Wait for a standby that has warmed up, and return its process."""
    file = regions.application.home / STANDBY
    regions.application.wait(file.exists, 180, "a standby")
    folder = Path(json.loads(file.read_text())["folder"])
    regions.application.wait(lambda: [*folder.glob("*/commits/0")], 240, "a batch that warms up")
    found = ProcessRecord(**json.loads(file.read_text())["process"]).find()
    assert found is not None
    return found


def broken_histories(regions: Regions, fault: str = "") -> dict[str, list[tuple[Counts, Counts]]]:
    """Wait for all results, and return the ids whose results do not tell one history."""
    records = Counter(each["id"] for each in regions.results("clicks"))

    def is_over() -> bool:
        return is_told(histories(regions.results("reminders")), records, fired=not fault)

    regions.application.wait(is_over, 180, "the last timer of each id")
    found = histories(regions.results("reminders"))
    faults = {name: breaks for name, mine in found.items() if (breaks := broken(mine))}
    fired = sum(mine[-1][1] for mine in found.values())
    total = records.total()
    print(f"{total} records, {fired} timers, {len(found)} ids, {len(faults)} of them with a broken history")
    if not fault:
        assert fired > 100
        assert not regions.letters("reminders")
    return faults
