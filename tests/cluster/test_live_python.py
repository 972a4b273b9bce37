"""Live regions that call Python on the executors of a cluster on this machine: one is killed, with its processes."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from falkirk.kafka.connection import Connection
from falkirk.kafka.ranges import read_range
from falkirk.kafka.topics import Topics
from falkirk.local.broker import Broker
from tests.chaos.harness import Application, Load
from tests.support import is_alive, wait_until

APP = Path(__file__).parent / "apps" / "python.py"
MASTER = "local-cluster[2,8,1024]"
PATIENCE_S = 240.0


def workers_of(executor: psutil.Process) -> list[psutil.Process]:
    """Return the Python processes of an executor that answer live regions: a fork server, and its workers."""
    return [each for each in executor.children(recursive=True) if any(".zip" in word for word in each.cmdline())]


@pytest.mark.soak
def test_an_executor_with_python_is_killed(broker: Broker, home: Path, tag: str) -> None:
    topics = {name: f"{name}-{tag}" for name in ("events", "called", "totals")}
    log = Topics(Connection.of(broker.bootstrap))
    for topic in topics.values():
        log.create(topic, 2, {})

    def results(name: str) -> list[dict[str, Any]]:
        first, ends = log.first_positions(topics[name]), log.end_positions(topics[name])
        records = read_range(Connection.of(broker.bootstrap), topics[name], first, ends, committed=True)
        return [json.loads(record.value or b"{}") for record in records]

    env = {name.upper(): topic for name, topic in topics.items()}
    with Application(APP, broker.bootstrap, home, env, "--master", MASTER) as run:
        with Load(broker.bootstrap, topics["events"], rate=40) as load:
            run.wait_committed(1)
            run.wait(lambda: len(results("called")) > 100 and len(results("totals")) > 100, PATIENCE_S, "results")
            killed = run.busy_executors(broker)[0]
            pythons = workers_of(killed)
            assert len(pythons) > 1, "a fork server, and its workers: the regions are live"
            killed.kill()
            wait_until(lambda: not any(map(is_alive, pythons)), 30, "the end of its Python processes")
            known = len(results("called"))
            run.wait(lambda: len(results("called")) > known + 100, PATIENCE_S, "further results")
        for name in ("called", "totals"):
            run.wait(lambda name=name: len(results(name)) >= load.sent, PATIENCE_S, f"the results of {name}")
        run.wait_next_commit()
        events, called, totals = map(results, topics)
        left = [each for executor in run.executors() for each in workers_of(executor)]
        assert left
    wait_until(lambda: not any(map(is_alive, left)), 30, "the end of all Python processes")
    assert len(events) == load.sent
    assert Counter((row["word"], row["n"]) for row in called) == Counter((row["word"], row["n"]) for row in events)
    assert all(row["double"] == 2 * row["n"] and row["half"] == row["n"] for row in called)
    assert all(row["place"].endswith(".zip") for row in called + totals), "all were called live"
    expected: Counter[tuple[str, int, int]] = Counter()
    sums = Counter[str]()
    for row in events:
        sums[row["word"]] += row["n"]
        expected[row["word"], row["n"], sums[row["word"]]] += 1
    assert Counter((row["word"], row["n"], row["total"]) for row in totals) == expected
