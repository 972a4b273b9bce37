"""kill -9 while a live region joins two topics: each pair and each record without a partner is published once.

The model in plain Python reads the topics and judges. A barrier that compares the greatest stamp of a channel, which is
right for every other live region, loses results. Each case costs minutes of CPU time, so they run with
FALKIRK_STRIKES alone.
"""

import json
import os
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from falkirk.kafka.connection import Connection
from falkirk.kafka.topics import Topics
from falkirk.local.broker import Broker
from tests import joined
from tests.chaos.harness import APPS, Application, Load, strike
from tests.chaos.test_live_event_time import rows
from tests.duplicates import BEGAN

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)


class Side(Load):
    """Records with times that go back by up to nine seconds. An id is in several partitions."""

    def record(self, number: int) -> tuple[str | None, dict[str, Any]]:
        back_s = self._random.choice([0, 0, 0, 1, 3, 9])
        at = BEGAN + timedelta(seconds=number / 10 - back_s)
        return None, {"id": f"i{self._random.randrange(12)}", "at": at.isoformat(), "n": number + 1}


@pytest.mark.parametrize("barrier", ["set", "greatest"])
def test_kill_9_of_everything(broker: Broker, home: Path, tag: str, barrier: str) -> None:
    shown, clicks, seen = (f"{name}-{tag}" for name in ("shown", "clicks", "seen"))
    topics = Topics(Connection.of(broker.bootstrap))
    for topic in (shown, clicks, seen):
        topics.create(topic, 2, {})
    env = {"SHOWN": shown, "CLICKS": clicks, "SEEN": seen}
    application = Application(APPS / "joins.py", broker.bootstrap, home, env)
    application.start()

    def count() -> int:
        return sum(topics.end_positions(seen).values())

    try:
        application.wait_committed(-1)
        with (
            Side(broker.bootstrap, shown, rate=50, seed=1) as left,
            Side(broker.bootstrap, clicks, rate=50, seed=2) as right,
        ):
            suppressed = strike(
                application,
                lambda: application.wait_results_behind({"seen": count}),
                lambda: application.kill_everything(BARRIER=barrier),
                lambda suppressed: bool(suppressed["seen"]),
                again=2,
            )
        _end(broker, {shown: left.sent, clicks: right.sent})
        due = joined.expected(rows(broker, shown), rows(broker, clicks))
        if barrier == "set":
            application.wait(lambda: count() >= len(due.of("full")), 180, f"results of {left.sent}")
        application.wait_next_commit()
        application.wait_next_commit()
    finally:
        application.stop()
    found = Counter(joined.results(_all(broker, seen)))
    wanted = Counter(due.of("full"))
    letters = Counter(row["reason"] for row in _all(broker, f"{seen}.dead-letters"))
    print(
        f"{left.sent} and {right.sent} records, {len(due.pairs)} pairs, {len(due.lefts)} and {len(due.rights)} alone, "
        f"{len(due.letters)} late, {suppressed} suppressed, {sum((wanted - found).values())} lost, "
        f"{sum((found - wanted).values())} twice"
    )
    assert min(len(due.pairs), len(due.lefts), len(due.rights)) > 0
    if barrier == "set":
        assert found == wanted
        assert letters == Counter(due.letters.values())
    else:
        assert wanted - found, "the greatest stamp of a channel loses results"


def _end(broker: Broker, sent: dict[str, int]) -> None:
    """Move the times of all partitions far ahead."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for topic, last in sent.items():
        for partition, records in joined.ends(last).items():
            for record in records:
                producer.produce(topic, value=json.dumps(record), partition=partition)
    assert producer.flush(60) == 0


def _all(broker: Broker, topic: str) -> list[dict[str, Any]]:
    return [row for mine in rows(broker, topic).values() for row in mine]
