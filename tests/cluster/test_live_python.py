"""Live regions that call Python on the executors of a cluster on this machine: one is killed, with its processes."""

import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from falkirk.kafka.connection import Connection
from falkirk.kafka.ranges import read_range
from falkirk.kafka.topics import Topics
from falkirk.local.broker import Broker
from tests.chaos.harness import Application, Load
from tests.cluster.bed import pythons
from tests.support import is_alive, wait_until

APP = Path(__file__).parent / "apps" / "python.py"
MASTER = "local-cluster[2,8,1024]"
PATIENCE_S = 240.0


def users_file(folder: Path) -> Path:
    """Return a module of the user's, which no executor has."""
    made = folder / "lib" / "shop_rates.py"
    made.parent.mkdir()
    made.write_text("def half(n):\n    return n / 2\n")
    return made


def users_archive(folder: Path) -> Path:
    """Return an archive with another one."""
    made = folder / "shop.zip"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("shop_numbers.py", "def double(n):\n    return 2 * n\n")
    return made


@pytest.mark.soak
def test_an_executor_with_python_is_killed(broker: Broker, home: Path, tmp_path: Path, tag: str) -> None:
    topics = {name: f"{name}-{tag}" for name in ("events", "called", "totals")}
    log = Topics(Connection.of(broker.bootstrap))
    for topic in topics.values():
        log.create(topic, 2, {})

    def results(name: str) -> list[dict[str, Any]]:
        first, ends = log.first_positions(topics[name]), log.end_positions(topics[name])
        records = read_range(Connection.of(broker.bootstrap), topics[name], first, ends, committed=True)
        return [json.loads(record.value or b"{}") for record in records]

    env = {name.upper(): topic for name, topic in topics.items()}
    options = ("--master", MASTER, "--py-files", f"{users_file(tmp_path)},{users_archive(tmp_path)}")
    with Application(APP, broker.bootstrap, home, env, *options) as run:
        with Load(broker.bootstrap, topics["events"], rate=40) as load:
            run.wait_committed(1)
            run.wait(lambda: len(results("called")) > 100 and len(results("totals")) > 100, PATIENCE_S, "results")
            killed = run.busy_executors(broker)[0]
            called = pythons(killed)
            assert len(called) > 1, "a fork server, and its workers: the regions are live"
            folders = {Path(each.cmdline()[-1]) for each in called}
            killed.kill()
            wait_until(lambda: not any(map(is_alive, called)), 30, "the end of its Python processes")
            known = len(results("called"))
            run.wait(lambda: len(results("called")) > known + 100, PATIENCE_S, "further results")
        for name in ("called", "totals"):
            run.wait(lambda name=name: len(results(name)) >= load.sent, PATIENCE_S, f"the results of {name}")
        run.wait_next_commit()
        events, called, totals = map(results, topics)
        left = [each for executor in run.executors() for each in pythons(executor)]
        assert left
        folders.update(Path(each.cmdline()[-1]) for each in left)
    wait_until(lambda: not any(map(is_alive, left)), 30, "the end of all Python processes")
    wait_until(lambda: not any(folder.exists() for folder in folders), 30, "the end of the folders for sockets")
    assert len(folders) > 1
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
