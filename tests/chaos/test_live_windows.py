"""kill -9 while live regions aggregate by windows: each result and each late record is published once.

The model in plain Python reads the topic and judges. Without the barrier, the same kill repeats results. Each case
costs minutes of CPU time, so they run with FALKIRK_STRIKES alone.
"""

import json
import os
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from falkirk.kafka.connection import Connection
from falkirk.kafka.topics import Topics
from falkirk.local.broker import Broker
from tests import windows
from tests.chaos.harness import APPS, Application, strike
from tests.chaos.test_live_event_time import Clicks, rows

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)


@pytest.mark.parametrize("barrier", ["on", "off"])
def test_kill_9_of_everything(broker: Broker, home: Path, tag: str, barrier: str) -> None:
    clicks, outs = f"clicks-{tag}", {name: f"{name}-{tag}" for name in ("final", "updates")}
    topics = Topics(Connection.of(broker.bootstrap))
    for topic in (clicks, *outs.values()):
        topics.create(topic, 2, {})
    env = {"CLICKS": clicks, **{name.upper(): topic for name, topic in outs.items()}}
    application = Application(APPS / "windows.py", broker.bootstrap, home, env)
    application.start()

    def count(name: str) -> int:
        return sum(topics.end_positions(outs[name]).values())

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
        due = windows.expected(rows(broker, clicks), "sliding")
        wanted = {"final": due.final, "updates": due.updates}
        for name, results in wanted.items():
            application.wait(lambda: count(name) >= len(results), 180, f"results of {load.sent}")  # noqa: B023
        application.wait_next_commit()
    finally:
        application.stop()
    print(f"{load.sent} records, {len(due.final)} windows, {len(due.letters)} late, {suppressed} suppressed")
    found = {name: Counter(windows.results(_all(broker, outs[name]))) for name in outs}
    letters = {name: [json.loads(r["value"])["n"] for r in _all(broker, f"{outs[name]}.dead-letters")] for name in outs}
    if barrier == "on":
        assert found == {name: Counter(results) for name, results in wanted.items()}
        assert all(Counter(numbers) == Counter(list(due.letters)) for numbers in letters.values())
    else:
        assert {name: set(results) for name, results in found.items()} == {n: set(r) for n, r in wanted.items()}
        assert any(found[name] != Counter(results) for name, results in wanted.items()), "some came again"


def _all(broker: Broker, topic: str) -> list[dict[str, object]]:
    return [row for mine in rows(broker, topic).values() for row in mine]
