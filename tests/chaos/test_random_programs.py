"""Random programs over all live operators, killed and stalled at random moments: each result is published once.

Models in plain Python judge the results and the dead letters of all processors, and so does the run of the same program
in the test kit. A seed chooses the program, its records and the kills. Each seed costs minutes of CPU time, so they run
with FALKIRK_STRIKES alone. Set `FALKIRK_LOOPS=10:40` for other seeds, and `KINDS="all jvm"` for other kills.
"""

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from falkirk.checker import read_topic
from falkirk.recovery.decision_store import Store
from falkirk.spark_setup.broker import Broker
from falkirk.theory.ids import LogId
from falkirk.user_tools.commands.invalid_results import ValidRecords
from tests.chaos import programs
from tests.chaos.harness import APPS, Application, Load, topics_of
from tests.chaos.program_records import PARTITIONS, end, record
from tests.chaos.programs import Processor
from tests.chaos.programs_judge import faults_of, faults_of_letters, letters_of
from tests.chaos.regions import Regions
from tests.chaos.test_live_unions import kill
from tests.support import wait_until

SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
FIRST, END = map(int, os.environ.get("FALKIRK_LOOPS", "0:9").split(":"))
#: Kinds of kills: of all processes, of the host, of the JVM, and of the Python workers; of all processes while the
#: broker stands still; and the silence of the broker, or of all processes.
KINDS = ("all", "all", "all", "python", "jvm", "workers", "stall", "pause", "freeze")
RATE, KILLS, PAUSE_S = 30.0, 3, 8.0


class Traffic(Load):
    """Records of all topics of a program."""

    def __init__(self, bootstrap: str, topics: Mapping[str, str], seed: int) -> None:
        super().__init__(bootstrap, "", rate=RATE, seed=seed)
        self._topics = topics
        self.sent = 1

    def _produce(self) -> None:
        while not self._stopping.wait(0.1):
            for _ in range(round(self.rate * 0.1)):
                name = self._random.choice([*self._topics])
                partition, value = record(self._random, name, self.sent)
                self._producer.produce(self._topics[name], value=json.dumps(value), partition=partition)
                self.sent += 1
            self._producer.poll(0)

    def end(self, bootstrap: str) -> None:
        """Send the last record of each partition."""
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        for name, topic in self._topics.items():
            for partition in range(PARTITIONS):
                producer.produce(topic, value=json.dumps(end(name, partition, self.sent)), partition=partition)
                self.sent += 1
        assert producer.flush(60) == 0


@contextlib.contextmanager
def running(broker: Broker, home: Path, tag: str, seed: int, **env: str) -> Iterator[Regions]:
    """Run the program of a seed on fresh topics until the end of the block."""
    processors = programs.program(seed)
    names = [*programs.topics_of_sources(processors), *(each.name for each in processors)]
    topics = {name: f"{name}-{tag}" for name in names}
    for topic in topics.values():
        topics_of(broker.bootstrap).create(topic, PARTITIONS, {})
    env = {"SEED": str(seed), "TAG": tag, **env}
    with Application(APPS / "random_program.py", broker.bootstrap, home, env) as application:
        application.wait_committed(-1)
        yield Regions(
            bootstrap=broker.bootstrap, application=application, topics=topics, names=[p.name for p in processors]
        )


def strike(random: Random, regions: Regions, broker: Broker, kinds: Sequence[str]) -> Counter[str]:
    """Kill and stall at random moments; return how many results were found already published."""
    application, dropped = regions.application, Counter[str]()
    for kind in kinds:
        application.wait_committed(0)
        until_s = time.monotonic() + random.uniform(0.5, PAUSE_S)
        wait_until(lambda: time.monotonic() > until_s, 60, "a random moment")  # noqa: B023
        print(kind, {name: regions.count(name) for name in regions.names}, flush=True)
        if kind == "freeze":
            freeze(application, random.uniform(1, 20))
        elif kill(kind, regions, broker):
            application.wait_committed(0)
            dropped.update(application.suppressed())
    return dropped


def freeze(application: Application, for_s: float) -> None:
    """Suspend all processes for a while."""
    processes = application.processes()
    try:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        until_s = time.monotonic() + for_s
        wait_until(lambda: time.monotonic() > until_s, 60, "the end of a silence")
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def letters(broker: Broker, regions: Regions, sources: Sequence[str]) -> tuple[Counter[Any], Counter[str]]:
    """Return all dead letters on the broker that still count, and by topic the number of those that do not.

    A kill takes a region of `fk.Snapshots` back to its checkpoint. Its dead letters since then stay in their topic, but
    count no longer, and it publishes them again.

    Args: sources: the names of the topics that a program reads.
    """
    config, found, cancelled = {"bootstrap.servers": broker.bootstrap}, Counter[Any](), Counter[str]()
    names = {topic: name for name, topic in regions.topics.items() if name in sources}
    with contextlib.closing(Store(regions.application.home / "decisions.db")) as store:
        for topic in Producer(config).list_topics(timeout=30).topics:
            if "dead-letters" in topic:
                valid = ValidRecords(store.voided_ranges(LogId(topic)))
                found += letters_of(valid.of(read_topic(config, topic)), names)
                cancelled[topic] = valid.found.count if valid.found is not None else 0
    return found, +cancelled


def judge(processors: Sequence[Processor], regions: Regions, broker: Broker) -> list[str]:
    """Wait for all results, and return what is wrong with the results and the dead letters."""
    records = {name: regions.rows(name) for name in programs.topics_of_sources(processors)}
    due = programs.outcomes(processors, records)
    expected = Counter((p.name, each) for p in processors for each in due[p.name].letters.elements())

    def is_complete() -> bool:
        return all(len(regions.results(name)) >= len(due[name].rows) for name in regions.names)

    with contextlib.suppress(AssertionError):  # the judge says more
        wait_until(is_complete, 120, "all results")
        regions.application.wait_next_commit()
    faults = []
    for each in processors:
        found = faults_of(each, due[each.name], regions.results(each.name))
        wanted = due[each.name]
        print(f"{each.name}: {len(wanted.rows)} results and {wanted.letters.total()} dead letters are due", found)
        faults += [f"{each}: {fault}" for fault in found]
    known, cancelled = letters(broker, regions, [*records])
    print(f"{known.total()} dead letters count; cancelled: {dict(cancelled)}", flush=True)
    return faults + faults_of_letters(expected, known)


def played(broker: Broker, home: Path, tag: str, seed: int, kinds: Sequence[str], **env: str) -> list[str]:
    """Run the program of a seed under kills and stalls; return what is wrong with its results and dead letters."""
    processors, random = programs.program(seed), Random(f"kills {seed}")
    print(f"seed {seed}", *processors, sep="\n", flush=True)
    with running(broker, home, tag, seed, **env) as regions:
        sources = {name: regions.topics[name] for name in programs.topics_of_sources(processors)}
        load = Traffic(broker.bootstrap, sources, seed)
        with load:
            dropped = strike(random, regions, broker, kinds)
            regions.application.wait_committed(0)
        load.end(broker.bootstrap)
        faults = judge(processors, regions, broker)
    print(f"{load.sent} records, {kinds}, {dict(dropped)} dropped", flush=True)
    return faults


@SOAK
@pytest.mark.parametrize("seed", range(FIRST, END))
def test_kills_and_stalls(own_broker: Broker, home: Path, tag: str, seed: int) -> None:
    kinds = os.environ.get("KINDS") or " ".join(Random(f"kinds {seed}").choices(KINDS, k=KILLS))
    faults = played(own_broker, home, tag, seed, kinds.split())
    assert not faults, "\n".join([f"seed {seed}", *faults])


@SOAK
@pytest.mark.parametrize(("mechanism", "seed", "kinds"), [("BARRIER", 0, ["all"]), ("TIME_ROWS", 2, [])])
def test_a_mechanism_that_is_off_shows(
    own_broker: Broker, home: Path, tag: str, mechanism: str, seed: int, kinds: list[str]
) -> None:
    """Without the barrier, results come twice. Without time rows, a state partition misses the time from others."""
    faults = played(own_broker, home, tag, seed, kinds, **{mechanism: "off"})
    print(*faults, sep="\n")
    sign = "too many" if mechanism == "BARRIER" else "missing"
    assert any(sign in fault for fault in faults), faults
