"""kill -9 while live regions call UDFs: each result and each dead letter is published once.

Without the barrier, the same kill repeats results. Each case costs minutes of CPU time, so they run with
FALKIRK_STRIKES alone.
"""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from falkirk.spark_setup.broker import Broker
from tests.chaos.regions import Clicks, running

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)


@pytest.mark.parametrize("barrier", ["on", "off"])
def test_kill_9_of_everything(broker: Broker, home: Path, tag: str, barrier: str) -> None:
    with running(broker, home, tag, "udfs.py", sources=["clicks"], names=["chosen", "summed"]) as regions:
        with Clicks(broker.bootstrap, regions.topics["clicks"]) as load:
            suppressed = regions.strike(again=2, is_barred=barrier == "on", BARRIER=barrier)
        sent = regions.results("clicks")
        wanted = Counter(row["n"] for row in sent if row["n"] % 10 != 7 and row["n"] % 3)
        sums: Counter[tuple[str, int]] = Counter()
        for name, total in Counter(row["id"] for row in sent).items():
            sums.update((name, n) for n in range(1, total + 1))
        regions.settle({"chosen": wanted.total(), "summed": sums.total()})
    chosen, letters = regions.results("chosen"), regions.letters("chosen")
    print(f"{load.sent} records, {len(chosen)} results, {len(letters)} dead letters, {suppressed} suppressed")
    assert all(row["told"]["twice"] == [row["n"]] * 2 for row in chosen)
    numbers, failed = Counter(row["n"] for row in chosen), Counter(json.loads(row["value"])["n"] for row in letters)
    counted = Counter((row["id"], row["n"]) for row in regions.results("summed"))
    if barrier == "on":
        assert (numbers, counted) == (wanted, sums)
        assert failed == Counter(row["n"] for row in sent if row["n"] % 10 == 7)
    else:
        assert (set(numbers), set(counted)) == (set(wanted), set(sums))
        assert numbers != wanted or counted != sums, "some came again"
