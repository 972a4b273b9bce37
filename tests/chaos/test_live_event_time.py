"""kill -9 while a live region keeps the first record of each id: each result is published once, also late records.

The model in plain Python reads the topic and judges. Without the barrier, the same kill repeats results.
"""

import json
import os
from collections import Counter, defaultdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from falkirk.check import read_topic
from falkirk.kafka.connection import Connection
from falkirk.kafka.topics import Topics
from falkirk.local.broker import Broker
from tests.chaos.harness import APPS, START_S, Application, Load
from tests.duplicates import BEGAN, DELAY_S, Expected, expected


class Clicks(Load):
    """Clicks with times that go back by up to 13 seconds; all clicks of an id are in one partition."""

    def record(self, number: int) -> tuple[str | None, dict[str, Any]]:
        name = f"i{self._random.randrange(200)}"
        back_s = self._random.choice([0, 0, 0, 2, DELAY_S, DELAY_S + 3])
        at = BEGAN + timedelta(seconds=number / 20 - back_s)
        return name, {"id": name, "at": at.isoformat(), "n": number + 1}


def rows(broker: Broker, topic: str) -> dict[int, list[dict[str, Any]]]:
    """Return the values of a topic by partition."""
    found = defaultdict(list)
    for record in read_topic({"bootstrap.servers": broker.bootstrap}, topic):
        found[record.partition].append((record.offset, json.loads(record.value or b"{}")))
    return {p: [row for _, row in sorted(mine, key=lambda each: each[0])] for p, mine in found.items()}


#: A kill costs minutes of CPU time. The barrier is switched off in the soak alone.
SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")


@pytest.mark.parametrize("barrier", ["on", pytest.param("off", marks=SOAK)])
def test_kill_9_of_everything(broker: Broker, home: Path, tag: str, barrier: str) -> None:
    clicks, first = f"clicks-{tag}", f"first-{tag}"
    topics = Topics(Connection.of(broker.bootstrap))
    for topic in (clicks, first):
        topics.create(topic, 2, {})
    application = Application(APPS / "first.py", broker.bootstrap, home, {"CLICKS": clicks, "FIRST": first})
    application.start()

    def count() -> int:
        return sum(topics.end_positions(first).values())

    try:
        application.wait_committed(-1)
        with Clicks(broker.bootstrap, clicks) as load:
            for _ in range(2 if "FALKIRK_STRIKES" in os.environ else 1):
                application.wait_next_commit()
                before = count()
                application.wait(lambda: count() > before + 30, START_S, "results after a commit")  # noqa: B023
                application.kill_everything(BARRIER=barrier)
                application.wait_committed(-1)
        suppressed = application.suppressed()
        due = expected(rows(broker, clicks))
        application.wait(lambda: count() >= len(due.results), 180, f"{len(due.results)} of {load.sent}")
        application.wait_next_commit()
    finally:
        application.stop()
    assert suppressed > 0
    found = _found(broker, first)
    print(f"{load.sent} records, {len(due.results)} results, {len(due.letters)} late, {suppressed} suppressed")
    if barrier == "on":
        assert found == _wanted(due)
    else:
        assert set(found) == set(_wanted(due)), "the same results, but some again"
        assert found != _wanted(due)


def _found(broker: Broker, first: str) -> Counter[tuple[str, int]]:
    """Return the numbers of results and of late records, each with its repetitions."""
    results = [("result", row["n"]) for mine in rows(broker, first).values() for row in mine]
    letters = [row for mine in rows(broker, f"{first}.dead-letters").values() for row in mine]
    return Counter([*results, *((row["reason"], json.loads(row["value"])["n"]) for row in letters)])


def _wanted(due: Expected) -> Counter[tuple[str, int]]:
    return Counter([*(("result", n) for n in due.results), *((reason, n) for n, reason in due.letters.items())])
