"""Live regions that call Python on the executors of a cluster on this machine: one is killed, with its processes."""

import contextlib
import json
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.ranges import read_range
from falkirk.kafka_client.topics import Topics
from falkirk.spark_setup.broker import Broker
from tests.chaos import regions
from tests.chaos.harness import LIGHT, Application, Load, strike
from tests.cluster.bed import pythons
from tests.support import is_alive, wait_until
from tests.timers import broken, histories, is_told

APP, TIMERS = (Path(__file__).parent / "apps" / name for name in ("python.py", "timers.py"))
MASTER = "local-cluster[2,8,1024]"
PATIENCE_S = 240.0
#: How many results must follow a checkpoint when an executor is killed: more than a transaction of half a second has.
LEAST = 40
#: Regions of apps/timers.py, each with another mechanism off.
OFF = {"unbarred": "barrier", "unexpired": "expiry", "untimed": "timers"}


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


@dataclass(frozen=True, kw_only=True)
class Python:
    """apps/python.py under test. Args: topics: of the events, and of each region."""

    application: Application
    broker: Broker
    topics: Mapping[str, str]

    def results(self, name: str) -> list[dict[str, Any]]:
        """Return what a reader of committed records sees of the events, or of a region."""
        log, topic = Topics(Connection.of(self.broker.bootstrap)), self.topics[name]
        first, ends = log.first_positions(topic), log.end_positions(topic)
        records = read_range(Connection.of(self.broker.bootstrap), topic, first, ends, committed=True)
        return [json.loads(record.value or b"{}") for record in records]

    def wait_results(self, name: str, count: int) -> None:
        """Wait until a region has this number of results."""
        self.application.wait(lambda: len(self.results(name)) >= count, PATIENCE_S, f"{count} results of {name}")


@contextlib.contextmanager
def running(broker: Broker, home: Path, tmp_path: Path, tag: str, **env: str) -> Iterator[Python]:
    """Run it until the end of the block."""
    topics = {name: f"{name}-{tag}" for name in ("events", "called", "totals", "passed")}
    for topic in topics.values():
        Topics(Connection.of(broker.bootstrap)).create(topic, 2, {})
    env |= {name.upper(): topic for name, topic in topics.items()}
    options = ("--master", MASTER, "--py-files", f"{users_file(tmp_path)},{users_archive(tmp_path)}")
    with Application(APP, broker.bootstrap, home, env, *options) as application:
        yield Python(application=application, broker=broker, topics=topics)


@pytest.mark.soak
def test_an_executor_with_python_is_killed(broker: Broker, home: Path, tmp_path: Path, tag: str) -> None:
    with running(broker, home, tmp_path, tag) as run:
        with Load(broker.bootstrap, run.topics["events"], rate=40) as load:
            run.application.wait_committed(1)
            for name in ("called", "totals"):
                run.wait_results(name, 100)
            killed = run.application.busy_executors(broker)[0]
            workers = pythons(killed)
            assert len(workers) > 1, "a fork server, and its workers: the regions are live"
            folders = {Path(each.cmdline()[-1]) for each in workers}
            killed.kill()
            wait_until(lambda: not any(map(is_alive, workers)), 30, "the end of its Python processes")
            run.wait_results("called", len(run.results("called")) + 100)
        for name in ("called", "totals"):
            run.wait_results(name, load.sent)
        run.application.wait_next_commit()
        events, called, totals = map(run.results, ("events", "called", "totals"))
        left = [each for executor in run.application.executors() for each in pythons(executor)]
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


@pytest.mark.soak
@pytest.mark.parametrize("faults", [{"reminders": ""}, OFF], ids=["right", "off"])
def test_an_executor_with_timers_is_killed(broker: Broker, home: Path, tag: str, faults: dict[str, str]) -> None:
    """A region has states that expire and timers by event time, which a model judges. Another one has timers by the
    clock, which the histories of keys judge. With a mechanism off, they show it."""
    names, is_right = [*faults, "ticks"], faults != OFF
    env = {"REGIONS": " ".join(names), "HELD": "yes" if is_right else "no"}
    options, first = ("--master", "local-cluster[2,10,1024]"), names[0]
    with regions.running(broker, home, tag, TIMERS, *options, sources=["clicks"], names=names, **env) as run:

        def kill_one(_: Mapping[str, int]) -> bool:
            host, killed = run.application.host(), run.application.busy_executors(broker)[0]
            workers = pythons(killed)
            assert len(workers) > 1, "a fork server, and its workers: the regions are live"
            killed.kill()
            wait_until(lambda: not any(map(is_alive, workers)), 30, "the end of its Python processes")
            run.application.wait(lambda: not is_alive(host), PATIENCE_S, "the Spark application to be replaced")
            run.application.forget_status()
            return True

        with regions.Clicks(broker.bootstrap, run.topics["clicks"], rate=LIGHT) as load:
            strike(
                run.application,
                lambda: run.application.wait_results_behind({first: lambda: run.count(first)}, {first: LEAST}),
                kill_one,
                lambda suppressed: suppressed[first] > 0 or not is_right,
                again=2,
            )
        for name, fault in faults.items():
            regions.assert_timed(run, name, fault)
        records = Counter(each["id"] for each in run.results("clicks"))

        def is_over() -> bool:
            return is_told(histories(run.results("ticks")), records, fired=is_right)

        run.application.wait(is_over, PATIENCE_S, "the last timer of each id")
        found = histories(run.results("ticks"))
        assert run.letters("ticks") == []
    fired, lost = sum(mine[-1][1] for mine in found.values()), sum(1 for mine in found.values() if broken(mine))
    print(f"{load.sent} records, {fired} timers by the clock, {lost} of {len(found)} ids with a broken history")
    assert fired > 100
    assert bool(lost) is not is_right


@pytest.mark.soak
def test_regions_stay_down_on_executors_without_python(broker: Broker, home: Path, tmp_path: Path, tag: str) -> None:
    with running(broker, home, tmp_path, tag, PYSPARK_PYTHON="/no/python") as run:
        with Load(broker.bootstrap, run.topics["events"], rate=10):
            run.application.wait(lambda: down(run) == {"called", "totals"}, PATIENCE_S, "both regions to be down")
            known = len(run.results("passed"))
            run.wait_results("passed", known + 50)
        (detail,) = {each["detail"] for each in run.application.status()["regions"] if each["name"] == "called"}
        assert "/no/python" in detail
        assert down(run) == {"called", "totals"}
    assert not run.results("called")


def down(run: Python) -> set[str]:
    """Return the regions that are down because of the Python of executors."""
    regions = run.application.status()["regions"]
    return {each["name"] for each in regions if each.get("condition") == "PYTHON_UNSUITABLE"}
