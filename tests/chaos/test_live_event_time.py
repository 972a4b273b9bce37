"""kill -9 while live regions keep the first record of each id, and states that expire and have timers.

Each result and each late record is published once. Models in plain Python read the topic and judge. Without the
barrier, the same kill repeats results. Without expiry or timers, the results are others.
"""

import json
import os
from collections import Counter, defaultdict
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from falkirk.check import read_topic
from falkirk.kafka.connection import Connection
from falkirk.kafka.topics import Topics
from falkirk.local.broker import Broker
from tests import timers
from tests.chaos.harness import APPS, Application, Load, strike
from tests.duplicates import BEGAN, DELAY_S, Expected, expected
from tests.timers import Model


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


#: A kill costs minutes of CPU time. Mechanisms are switched off in the soak alone.
SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")


@pytest.mark.parametrize("fault", ["", *(pytest.param(f, marks=SOAK) for f in ("barrier", "expiry", "timers"))])
def test_kill_9_of_everything(broker: Broker, home: Path, tag: str, fault: str) -> None:
    clicks, outs = f"clicks-{tag}", {name: f"{name}-{tag}" for name in ("first", "reminders")}
    topics = Topics(Connection.of(broker.bootstrap))
    for topic in (clicks, *outs.values()):
        topics.create(topic, 2, {})
    env = {"CLICKS": clicks, **{name.upper(): topic for name, topic in outs.items()}}
    env |= {"FAULT": fault} if fault in ("expiry", "timers") else {}
    application = Application(APPS / "first.py", broker.bootstrap, home, env)
    application.start()

    def count(name: str) -> int:
        return sum(topics.end_positions(outs[name]).values())

    try:
        application.wait_committed(-1)
        with Clicks(broker.bootstrap, clicks) as load:
            suppressed = strike(
                application,
                lambda: application.wait_results_behind({name: partial(count, name) for name in outs}),
                lambda: application.kill_everything(BARRIER="off" if fault == "barrier" else "on"),
                lambda suppressed: fault == "barrier" or all(suppressed[name] for name in outs),
                again=2 if "FALKIRK_STRIKES" in os.environ else 1,
            )
        sent = rows(broker, clicks)
        due, right, planted = expected(sent), Model().read(sent), Model(fault=fault).read(sent)
        for name, results in {"first": len(due.results), "reminders": planted.results.total()}.items():
            application.wait(lambda: count(name) >= results, 180, f"{results} of {load.sent} in {name}")  # noqa: B023
        application.wait_next_commit()
    finally:
        application.stop()
    print(f"{load.sent} records, {len(due.results)} results, {len(due.letters)} late, {dict(suppressed)} suppressed")
    print(f"{right.results.total()} results and {right.letters.total()} dead letters of states with timers")
    found, wanted = _found(broker, outs["first"]), _wanted(due)
    published = _all(broker, outs["reminders"]), _all(broker, f"{outs['reminders']}.dead-letters")
    of_states = timers.results(published[0]), timers.letters(published[1])
    if fault == "barrier":
        assert (set(found), *map(set, of_states)) == (set(wanted), set(right.results), set(right.letters))
        assert found != wanted
        assert of_states[0] != right.results
        return
    assert (found, *of_states) == (wanted, planted.results, planted.letters)
    assert (of_states[0] == right.results) is not bool(fault), "the model without the mechanism has other results"
    fired = [timer for *_, timer in right.results.elements() if timer is not None]
    assert len(fired) > 50


def _all(broker: Broker, topic: str) -> list[dict[str, Any]]:
    return [row for mine in rows(broker, topic).values() for row in mine]


def _found(broker: Broker, first: str) -> Counter[tuple[str, int]]:
    """Return the numbers of results and of late records, each with its repetitions."""
    results = [("result", row["n"]) for row in _all(broker, first)]
    letters = _all(broker, f"{first}.dead-letters")
    return Counter([*results, *((row["reason"], json.loads(row["value"])["n"]) for row in letters)])


def _wanted(due: Expected) -> Counter[tuple[str, int]]:
    return Counter([*(("result", n) for n in due.results), *((reason, n) for n, reason in due.letters.items())])
