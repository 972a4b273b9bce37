"""kill -9 while live regions call UDFs: each result and each dead letter is published once.

Without the barrier, the same kill repeats results. Each case costs minutes of CPU time, so they run with
FALKIRK_STRIKES alone.
"""

import json
import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from falkirk.kafka.connection import Connection
from falkirk.kafka.topics import Topics
from falkirk.local.broker import Broker
from tests.chaos.harness import APPS, Application, strike
from tests.chaos.test_live_event_time import Clicks, rows

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)


@pytest.mark.parametrize("barrier", ["on", "off"])
def test_kill_9_of_everything(broker: Broker, home: Path, tag: str, barrier: str) -> None:
    clicks, outs = f"clicks-{tag}", {name: f"{name}-{tag}" for name in ("chosen", "summed")}
    topics = Topics(Connection.of(broker.bootstrap))
    for topic in (clicks, *outs.values()):
        topics.create(topic, 2, {})
    env = {"CLICKS": clicks, **{name.upper(): topic for name, topic in outs.items()}}
    application = Application(APPS / "udfs.py", broker.bootstrap, home, env)
    application.start()

    def count(name: str) -> int:
        return sum(topics.end_positions(outs[name]).values())

    def found(topic: str) -> list[dict[str, Any]]:
        return [row for mine in rows(broker, topic).values() for row in mine]

    try:
        application.wait_committed(-1)
        with Clicks(broker.bootstrap, clicks) as load:
            suppressed = strike(
                application,
                lambda: application.wait_results_behind({name: partial(count, name) for name in outs}),
                lambda: application.kill_everything(BARRIER=barrier),
                lambda suppressed: barrier == "off" or all(suppressed[name] for name in outs),
                again=2,
            )
        sent = found(clicks)
        wanted = Counter(row["n"] for row in sent if row["n"] % 10 != 7 and row["n"] % 3)
        sums: Counter[tuple[str, int]] = Counter()
        for name, total in Counter(row["id"] for row in sent).items():
            sums.update((name, n) for n in range(1, total + 1))
        application.wait(lambda: count("chosen") >= wanted.total(), 180, f"results of {load.sent}")
        application.wait(lambda: count("summed") >= sums.total(), 180, f"sums of {load.sent}")
        application.wait_next_commit()
    finally:
        application.stop()
    chosen, letters = found(outs["chosen"]), found(f"{outs['chosen']}.dead-letters")
    print(f"{load.sent} records, {len(chosen)} results, {len(letters)} dead letters, {suppressed} suppressed")
    assert all(row["told"]["twice"] == [row["n"]] * 2 for row in chosen)
    numbers, failed = Counter(row["n"] for row in chosen), Counter(json.loads(row["value"])["n"] for row in letters)
    counted = Counter((row["id"], row["n"]) for row in found(outs["summed"]))
    if barrier == "on":
        assert (numbers, counted) == (wanted, sums)
        assert failed == Counter(row["n"] for row in sent if row["n"] % 10 == 7)
    else:
        assert (set(numbers), set(counted)) == (set(wanted), set(sums))
        assert numbers != wanted or counted != sums, "some came again"
