"""A region that fails on a value stops itself alone, on a cluster too, where each failure takes the Spark application.

The executors are on this machine: the failures need no network.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from falkirk.checker import read_topic
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import Application

APP = Path(__file__).parent / "apps" / "failing.py"
#: One executor has the tasks of all regions, so a failure there meets them all.
TOGETHER = "local-cluster[1,16,1024]"
APART = "local-cluster[2,8,1024]"
PATIENCE_S = 400.0


class Failing:
    """An application with some regions of apps/failing.py, and its topics."""

    def __init__(self, broker: Broker, home: Path, tag: str, *regions: str, master: str) -> None:
        self._bootstrap, self._topics = broker.bootstrap, {name: f"{name}-{tag}" for name in ("events", *regions)}
        for topic in self._topics.values():
            Topics(Connection.of(broker.bootstrap)).create(topic, 1, {})
        env = {name.upper(): topic for name, topic in self._topics.items()}
        env |= {"REGIONS": " ".join(regions), "INTERVAL": "4 seconds"}
        self.application = Application(APP, broker.bootstrap, home, env, "--master", master)

    def send(self, *numbers: int) -> None:
        """Send one event for each number."""
        producer = Producer({"bootstrap.servers": self._bootstrap})
        for n in numbers:
            producer.produce(self._topics["events"], json.dumps({"word": "a", "n": n}).encode())
        assert producer.flush(60) == 0

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the results of a region."""
        records = read_topic({"bootstrap.servers": self._bootstrap}, self._topics[name])
        return [json.loads(record.value or b"{}") for record in records]

    def named(self, name: str) -> dict[str, Any]:
        """Return the status of a region, empty without one."""
        return next((r for r in self.application.status()["regions"] if r["name"] == name), {})

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Wait for `what` while the application runs."""
        self.application.wait(condition, PATIENCE_S, what)


@contextlib.contextmanager
def running(*about: Any, master: str) -> Iterator[Failing]:
    """Run an application until the end of the block."""
    run = Failing(*about, master=master)
    with run.application:
        yield run


def test_regions_that_fail_on_a_value_stay_down_and_another_runs_on(broker: Broker, home: Path, tag: str) -> None:
    """Before, each failure restarted the Spark application, without end: four times in 100 s. One that takes memory is
    down in the next Spark application, and one that fails otherwise in the same one."""
    with running(broker, home, tag, "passed", "refused", "swollen", master=TOGETHER) as run:
        run.application.wait_committed(0)
        run.send(1, -1, -2, 2)
        run.wait(
            lambda: {run.named(n).get("condition") for n in ("refused", "swollen")} == {"REGION_KEEPS_FAILING"},
            "both regions to be down",
        )
        run.wait(lambda: run.named("passed").get("state") == "running", "the other region")
        run.send(3)
        run.wait(lambda: len(run.rows("passed")) >= 5, "the results of the other region")
        run.application.wait(lambda: run.named("passed").get("last_commit", -1) > 1, PATIENCE_S, "its checkpoints")
        assert "no such n" in run.named("refused")["detail"]
        assert "OutOfMemoryError" in run.named("swollen")["detail"]
        pid = run.application.host().pid
        run.send(4)
        run.wait(lambda: len(run.rows("passed")) >= 6, "one result more")
        assert run.application.host().pid == pid
    assert [row["n"] for row in run.rows("passed")] == [1, -1, -2, 2, 3, 4]
    assert len(run.rows("refused")) <= 1
    assert len(run.rows("swollen")) <= 2


@pytest.mark.soak
def test_a_region_that_kills_its_executors_stays_down_and_another_runs_on(broker: Broker, home: Path, tag: str) -> None:
    """Before, there was no end: five Spark applications in 150 s, and a sixth began. Two losses are enough here."""
    with running(broker, home, tag, "passed", "killed", master=APART) as run:
        run.application.wait_committed(0)
        run.send(-3, 1, 2)
        run.wait(lambda: run.named("killed").get("condition") == "REGION_KEEPS_FAILING", "the region to be down")
        run.wait(lambda: run.named("passed").get("state") == "running", "the other region")
        assert "lost" in run.named("killed")["detail"]
        pid = run.application.host().pid
        run.send(3)
        run.wait(lambda: len(run.rows("passed")) >= 4, "the results of the other region")
        run.application.wait(lambda: run.named("passed").get("last_commit", -1) > 1, PATIENCE_S, "its checkpoints")
        assert run.application.host().pid == pid
    assert [row["n"] for row in run.rows("passed")] == [-3, 1, 2, 3]
    assert len(run.rows("killed")) <= 1
