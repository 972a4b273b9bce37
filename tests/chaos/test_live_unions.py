"""Kills and stalls of live regions that read lists of topics and unions: each result is published once and in order.

The topics have different partitions, one of the list is empty at first, and one is read from its end. Then the commands
look at the results, and the application rolls back. It takes minutes of CPU time, so FALKIRK_STRIKES runs it.
"""

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result

from falkirk.checker import read_topic
from falkirk.cli import main
from falkirk.recovery.decision_store import Store
from falkirk.spark_setup.broker import Broker
from falkirk.theory.ids import LogId
from tests.chaos.harness import APPS, Application, Load, topics_of
from tests.chaos.regions import RIGHT, Regions
from tests.support import is_alive, suspend, wait_until

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)

FILE = APPS / "unions.py"
LIST = {"us": 2, "eu": 1, "ap": 1}
PARTITIONS = {**LIST, "web": 2, "late": 1}
OUTPUTS = ["divided", "counted", "everywhere", "mapped"]
IDS = [f"{name}{p}-{n}" for name, count in LIST.items() for p in range(count) for n in range(4)]
BAD = b"no json"
Row = dict[str, Any]
Place = tuple[str, int, int]


class Orders(Load):
    """Records of all topics. Those of the list have ids of their topic and partition, and the others have all ids."""

    def __init__(self, regions: Regions) -> None:
        super().__init__(regions.bootstrap, "", rate=30.0)
        self._topics, self.names = regions.topics, ["us", "eu", "web", "late"]
        self.sent = 1  # no number is its own negative

    def _produce(self) -> None:
        while not self._stopping.wait(0.1):
            for _ in range(round(self.rate * 0.1)):
                name = self._random.choice(self.names)
                partition = self._random.randrange(PARTITIONS[name])
                own = [id for id in IDS if id.startswith(f"{name}{partition}")]
                parts = list(range(self._random.randrange(4)))
                value = {"id": self._random.choice(own or IDS), "n": self.sent, "parts": parts}
                raw = BAD if self.sent % 97 == 13 else json.dumps(value).encode()
                self._producer.produce(self._topics[name], value=raw, partition=partition)
                self.sent += 1
            self._producer.poll(0)


@contextlib.contextmanager
def running(
    broker: Broker, home: Path, tag: str, names: list[str], patch: pytest.MonkeyPatch, *options: str
) -> Iterator[Regions]:
    """Run processors of the application on fresh topics until the end of the block."""
    patch.setenv("PROCESSORS", " ".join(names))
    topics = {name: f"{name}-{tag}" for name in (*PARTITIONS, *OUTPUTS)}
    for name, topic in topics.items():
        topics_of(broker.bootstrap).create(topic, PARTITIONS.get(name, 2), {})
        patch.setenv(name.upper(), topic)  # for the commands, too
    with Application(FILE, broker.bootstrap, home, {}, *options) as application:
        application.wait_committed(-1)
        yield Regions(bootstrap=broker.bootstrap, application=application, topics=topics, names=names)


class Truth:
    """The inputs, and the results that they must have."""

    def __init__(self, regions: Regions) -> None:
        self.places: dict[int, Place] = {}
        self.good: dict[str, list[Row]] = {name: [] for name in PARTITIONS}
        self.bad: dict[str, Counter[Place]] = {name: Counter() for name in PARTITIONS}
        for name in PARTITIONS:
            for record in read_topic({"bootstrap.servers": regions.bootstrap}, regions.topics[name]):
                place = record.topic, record.partition, record.offset
                if record.value == BAD:
                    self.bad[name][place] += 1
                    continue
                row = json.loads(record.value or b"null")
                self.good[name].append(row)
                self.places[row["n"]] = place

    def rows(self, *names: str) -> list[Row]:
        return [row for name in names for row in self.good[name]]

    @property
    def divided(self) -> Counter[Any]:
        found = Counter((r["id"], r["n"], part) for r in self.rows(*LIST) for part in r["parts"])
        return found + Counter((r["id"], r["n"], -1) for r in self.rows("web"))

    def mapped(self, versions: Mapping[int, int]) -> Counter[Any]:
        """Args: versions: the published version of each record of `everywhere`."""
        each = [(r, versions[r["n"]]) for r in self.rows(*LIST, "web")] + [(r, -1) for r in self.rows("late")]
        return Counter((r["id"], sign * r["n"], v) for r, v in each if r["n"] % 11 != 7 for sign in (1, -1))

    def due(self) -> dict[str, int]:
        versions = dict.fromkeys(self.places, 0)
        listed, web = len(self.rows(*LIST)), len(self.rows("web"))
        found = {"divided": self.divided.total(), "counted": listed, "everywhere": listed + web}
        return {**found, "mapped": self.mapped(versions).total()}


def judge(regions: Regions, truth: Truth) -> None:
    """Check that each result and dead letter was published once, in the order of its source partition and id.

    `falkirk verify outputs` judges all but `mapped`, which calls Python.
    """
    judged = [name for name in regions.names if name != "mapped"]
    verdicts = regions.verify(*judged)
    print(verdicts, flush=True)
    assert verdicts == dict.fromkeys(judged, RIGHT)
    if "mapped" not in regions.names:
        return
    found = regions.rows("mapped")
    of = {row["n"]: row["version"] for row in regions.results("everywhere")}
    all_of = [row for mine in found.values() for row in mine]
    same(Counter((r["id"], r["n"], r["version"]) for r in all_of), truth.mapped(of))
    in_order(found, truth, lambda r: r["n"] <= 0)
    letters = regions.letters("mapped")
    places = Counter((r["topic"], r["partition"], r["offset"]) for r in letters if r["value"] == BAD.decode())
    same(places, truth.bad["late"])
    poison = Counter(r["n"] for r in truth.rows(*PARTITIONS) if r["n"] % 11 == 7)
    same(Counter(json.loads(r["value"])["n"] for r in letters if r["value"] != BAD.decode()), poison)


def same(found: Counter[Any], expected: Counter[Any]) -> None:
    assert found == expected, f"too many: {found - expected}, missing: {expected - found}"


def in_order(rows: Mapping[int, list[Row]], truth: Truth, sub: Callable[[Row], int]) -> None:
    """Check that results of a source partition and an id have the order of their records in each output partition."""
    for mine in rows.values():
        last: dict[Any, Any] = {}
        for row in mine:
            topic, partition, offset = truth.places[abs(row["n"])]
            assert (offset, sub(row)) > last.get((topic, partition, row["id"]), (-1, 0)), row
            last[topic, partition, row["id"]] = offset, sub(row)


def kill(kind: str, regions: Regions, broker: Broker) -> bool:
    """Kill a part of the application, or stall its broker. Return whether all its regions have to start again."""
    application = regions.application
    if kind in ("stall", "pause"):
        process = broker.process()
        assert process is not None
        suspend(process)
        try:
            until_s = time.monotonic() + (15 if kind == "stall" else 25)
            if kind == "stall":
                application.kill_everything()
            wait_until(lambda: time.monotonic() > until_s, 60, "the silence of the broker")
        finally:
            process.resume()
        return kind == "stall"
    if kind == "all":
        application.kill_everything()
        return True
    application.forget_status()
    if kind in ("python", "jvm"):
        ends = jvm, host = application.jvm(), application.host()
        (host if kind == "python" else jvm).kill()
        wait_until(lambda: not any(map(is_alive, ends)), 60, "the JVM and its host to end")
        application.forget_status()  # the host of a killed JVM may have written it meanwhile
    else:
        for each in application.processes():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if "row_worker" in " ".join(each.cmdline()):
                    each.kill()
        return False
    return True


CASES = {
    "divided counted": "python stall pause jvm",
    "everywhere mapped": "workers jvm stall workers python",
}  # fmt: skip


@pytest.mark.parametrize("names", CASES)
def test_kills_and_stalls_and_a_rollback(
    own_broker: Broker, home: Path, tag: str, names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = os.environ.get("KINDS", CASES[names]).split()
    with running(own_broker, home, tag, names.split(), monkeypatch) as regions:
        application, suppressed = regions.application, Counter[str]()
        load = Orders(regions)
        with load:
            application.wait_committed(0)
            for number, kind in enumerate(kinds):
                await_results_behind(regions)
                print(kind, load.sent, {name: regions.count(name) for name in regions.names}, flush=True)
                if kill(kind, regions, own_broker):
                    application.wait_committed(0)
                    suppressed.update(application.suppressed())
                    print("suppressed", dict(application.suppressed()), flush=True)
                if number == 0:
                    load.names.append("ap")  # it was empty so far
            await_results_behind(regions)
        judge_all(regions)
        print("judged", load.sent, dict(suppressed), flush=True)
        look(regions, Truth(regions), own_broker)
        go_back(regions, own_broker)


def await_results_behind(regions: Regions) -> None:
    """Wait until results follow a checkpoint of each region. A region that copies has longer intervals."""
    names = [name for name in regions.names if name != "everywhere"]
    regions.application.wait_results_behind({name: partial(regions.count, name) for name in names})


def judge_all(regions: Regions) -> None:
    """Wait for all results, and judge them."""
    truth = Truth(regions)
    regions.settle({name: number for name, number in truth.due().items() if name in regions.names})
    judge(regions, truth)


def command(regions: Regions, broker: Broker, name: str, *options: str) -> Any:
    """Return the answer of a command, as JSON."""
    given = [name, str(FILE), "--kafka", broker.bootstrap, "--home", str(regions.application.home), *options, "--json"]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def look(regions: Regions, truth: Truth, broker: Broker) -> None:
    """Ask for the origins of results of each topic, and for the last records."""
    for name in regions.names:
        seen = set()
        for record in read_topic({"bootstrap.servers": regions.bootstrap}, regions.topics[name]):
            row = json.loads(record.value or b"null")
            place = truth.places[abs(row["n"])]
            if place[:2] in seen:
                continue
            seen.add(place[:2])
            told = command(regions, broker, "why", f"{record.topic}/{record.partition}@{record.offset}")
            assert place in set(roots(told)), (name, row, place, told)
        last = command(regions, broker, "peek", name, "-n", "3")
        print("peek", name, json.dumps(last)[:400], flush=True)


def roots(told: Row) -> Iterator[Place]:
    """Yield the places of the users' records from which a result comes."""
    if told["origin"] is None:
        yield told["record"]["topic"], told["record"]["partition"], told["record"]["offset"]
        return
    for each in told["origin"]["inputs"]:
        yield from roots(each)


def go_back(regions: Regions, broker: Broker) -> None:
    """Roll each region back while it runs. A rollback that takes back published results needs --force."""
    names = [each["name"] for each in regions.application.status()["regions"] if each["name"] != "everywhere"]
    with Orders(regions) as load:
        load.sent = 1_000_000
        await_results_behind(regions)
        for name in names:
            refused = rollback(regions, broker, name, min(points(regions, broker, name)))
            assert (refused.exit_code, "CONTRADICTS_RELEASED" in refused.output) == (1, True), refused.output
    judge_all(regions)
    for name in names:
        wait_until(partial(goes_to_the_newest, regions, broker, name), 60, f"a point of {name} after all results")
        print("rollback", name, dict(regions.application.suppressed()), flush=True)
    with Orders(regions) as load:
        load.sent = 2_000_000
        await_results_behind(regions)
    judge_all(regions)
    for name in names:
        if name in ("divided", "counted"):
            go_back_by_force(regions, broker, name)


def go_back_by_force(regions: Regions, broker: Broker, name: str) -> None:
    """Roll a region back behind published results. Exactly the results that became invalid are published again."""
    to = sorted(points(regions, broker, name))[-5]
    regions.application.forget_status()
    forced = rollback(regions, broker, name, to, "--force")
    assert forced.exit_code == 0, forced.output
    regions.application.wait_committed(0)
    store = Store(regions.application.home / "decisions.db")
    topics = {"duplicates": regions.topics[name], "letter duplicates": f"{regions.topics[name]}.dead-letters"}
    again = Counter(
        {kind: sum(r.last_exclusive - r.first for r in store.voided_ranges(LogId(t))) for kind, t in topics.items()}
    )
    store.close()
    print("forced", name, to, dict(again), flush=True)
    assert again["duplicates"] > 0
    regions.settle({name: Truth(regions).due()[name] + again["duplicates"]})
    assert regions.verify(name)[name] == ("repeated delivery with exact state", +again)


def points(regions: Regions, broker: Broker, name: str) -> list[int]:
    """Return the numbers of the points of a region, without its start."""
    return [p["checkpoint"] for p in command(regions, broker, "history", "--unit", name) if p["checkpoint"] >= 0]


def rollback(regions: Regions, broker: Broker, name: str, to: int, *options: str) -> Result:
    """Ask for a rollback of a region to a point."""
    given = ["--kafka", broker.bootstrap, "--home", str(regions.application.home), "--to", f"{name}@{to}", "--yes"]
    return CliRunner().invoke(main, ["rollback", str(FILE), *given, *options])


def goes_to_the_newest(regions: Regions, broker: Broker, name: str) -> bool:
    """Return whether a region went back to its newest point. It is refused while results follow that point."""
    regions.application.forget_status()
    back = rollback(regions, broker, name, max(points(regions, broker, name)))
    if back.exit_code:
        assert any(each in back.output for each in ("CONTRADICTS_RELEASED", "REQUEST_REFUSED", "PREVIEW_OUTDATED")), (
            back.output
        )
        return False
    regions.application.wait_committed(0)
    return True
