"""kill -9 while a live region has timers by the clock.

A replay fires timers between other records. So the published results of an id tell one history only if each waited for
a checkpoint: each result has one record or one timer more than the one before it. Without that wait, they do not.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from falkirk.environment.broker import Broker
from tests.chaos.harness import AGAIN, LIGHT
from tests.chaos.regions import Clicks, running

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)
#: The numbers of records and of timers in a result.
Counts = tuple[int, int]


def histories(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Counts]]:
    found = defaultdict(list)
    for row in rows:
        found[row["id"]].append((row["count_"], row["fired"]))
    return found


def broken(history: list[Counts]) -> list[tuple[Counts, Counts]]:
    """Return the neighbours that no record and no timer alone lies between."""
    steps = zip([(0, 0), *history], history, strict=False)
    return [(one, other) for one, other in steps if (other[0] - one[0], other[1] - one[1]) not in ((1, 0), (0, 1))]


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
        records: defaultdict[str, int] = defaultdict(int)
        for each in regions.results("clicks"):
            records[each["id"]] += 1

        def is_over() -> bool:
            """Return whether all records are counted, and the last timer of each id after them."""
            found = histories(regions.results("reminders"))
            last = {name: max(mine) for name, mine in found.items()}
            fired = all((count, fired - 1) in found[name] for name, (count, fired) in last.items())
            return {name: count for name, (count, _) in last.items()} == records and (fired or bool(fault))

        regions.application.wait(is_over, 180, "the last timer of each id")
        found = histories(regions.results("reminders"))
    faults = {name: breaks for name, mine in found.items() if (breaks := broken(mine))}
    fired = sum(mine[-1][1] for mine in found.values())
    print(f"{load.sent} records, {fired} timers, {len(found)} ids, {len(faults)} of them with a broken history")
    assert (faults == {}) is (fault == "")
    if not fault:
        assert fired > 100
        assert not regions.letters("reminders")
