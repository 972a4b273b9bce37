"""kill -9 while records of a live region wait for their turn: each result is published once, and is that of the order.

A model in plain Python judges. Each result has a chain of all records of its key before it, so one wrong place changes
all later ones. It costs minutes of CPU time, so it runs with FALKIRK_STRIKES alone.
"""

import os
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from falkirk.spark_setup.broker import Broker
from tests import ordered
from tests.chaos.harness import Load
from tests.chaos.regions import running
from tests.chaos.timed_loads import end_times
from tests.duplicates import BEGAN

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)


class Orders(Load):
    """Orders with times that go back by up to nine seconds. A key is in both partitions."""

    def record(self, number: int) -> tuple[str | None, dict[str, Any]]:
        back_s = self._random.choice([0, 0, 0, 1, 2, 3, 9])
        at = BEGAN + timedelta(seconds=number / 10 - back_s)
        return None, {"id": f"i{self._random.randrange(12)}", "at": at.isoformat(), "n": number + 1}


def test_kill_9_of_everything(broker: Broker, home: Path, tag: str) -> None:
    with running(broker, home, tag, "order.py", sources=["orders"], names=["chained"]) as regions:
        topic = regions.topics["orders"]
        with Orders(broker.bootstrap, topic, rate=50, seed=1) as load:
            suppressed = regions.strike(again=3)
        end_times(broker, {topic: load.sent})
        due = ordered.expected(regions.rows("orders"))
        regions.settle({"chained": len(due.results)})
        regions.application.wait_next_commit()
        found, letters = ordered.results(regions.results("chained")), ordered.letters(regions.letters("chained"))
    more, missing = (Counter(a) - Counter(b) for a, b in ((found, due.results), (due.results, found)))
    print(
        f"{load.sent} records, {len(due.results)} results, {due.letters.total()} dead letters, {suppressed} dropped, "
        f"{more.total()} more, {missing.total()} missing"
    )
    assert (found, letters) == (due.results, due.letters)
