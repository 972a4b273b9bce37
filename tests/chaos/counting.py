"""The keyed counts of apps/counts.py under test: run, waited for, and judged."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from falkirk.check import Guarantee, read_topic
from falkirk.kafka.connection import Connection
from falkirk.kafka.topics import Topics
from falkirk.local.broker import Broker
from tests.chaos.harness import APPS, Application, judge_counts, settle
from tests.support import wait_until

#: The counts of apps/counts.py, some of them fenced.
LANES = APPS / "lanes.py"
#: The log with results that no checkpoint covers, if it is not the sink's topic. Results of snapshots reach the sink
#: with a checkpoint, so a kill right after that would find no later results.
LOGS = {"snapshots": "snapshots-held"}
#: How many records must follow a region's checkpoint when everything is killed, under a `LIGHT` load. Those of a fenced
#: region are more than a transaction of half a second has, so that some are committed.
BEHIND, BEHIND_LEAST = {"fenced": 80}, 40


@dataclass(frozen=True, kw_only=True)
class Counting:
    """Keyed counts under test: their names in apps/counts.py, and the topic of the plain count."""

    bootstrap: str
    events: str
    counts: str
    counted: Sequence[str]
    application: Application

    def topic(self, name: str) -> str:
        """Return the topic of a count of apps/counts.py."""
        return self.counts if name == "counts" else f"{self.counts}.{name}"

    def released(self, topic: str | None = None) -> int:
        """Return the number of results in a topic. Args: topic: by default the topic of the plain count."""
        return sum(Topics(Connection.of(self.bootstrap)).end_positions(topic or self.counts).values())

    def prefix(self) -> str:
        """Return the prefix of the names of the application's internal topics."""
        identity = json.loads((self.application.home / "falkirk.json").read_text())["identity"]
        return f"falkirk.counts.{identity}."

    def suppressed(self) -> dict[str, int]:
        """Return how many results the present incarnation of each region found already published."""
        return {region["name"]: region["suppressed"] for region in self.application.status()["regions"]}


@contextlib.contextmanager
def counting(
    broker: Broker,
    home: Path,
    tag: str,
    *options: str,
    counted: Sequence[str] = ("counts",),
    file: Path = APPS / "counts.py",
    **env: str,
) -> Iterator[Counting]:
    """Run keyed counts on fresh topics until the end of the block. Args: counted: names in apps/counts.py."""
    events, counts = f"events-{tag}", f"counts-{tag}"
    env |= {"EVENTS": events, "COUNTS": counts, "COUNTED": " ".join(counted)}
    application = Application(file, broker.bootstrap, home, env, *options)
    run = Counting(bootstrap=broker.bootstrap, events=events, counts=counts, counted=counted, application=application)
    topics = Topics(Connection.of(broker.bootstrap))
    for topic in (events, *map(run.topic, counted)):
        topics.create(topic, 2, {})
    application.start()
    try:
        yield run
    finally:
        application.stop()


def assert_exactly_once(run: Counting, sent: int, *names: str) -> None:
    """Wait for all results of these counts, by default of the plain one, and check them with the checker."""
    names = names or ("counts",)
    settle(run.application, run.bootstrap, sent, *map(run.topic, names))
    for name in names:
        verdict = judge_counts(run.bootstrap, run.events, run.topic(name))
        print(f"{name}: {verdict.counts}")
        assert verdict.guarantee is Guarantee.EXACTLY_ONCE, (name, verdict.anomalies)
        assert verdict.counts.observed_outputs == verdict.counts.inputs >= sent


def visible(run: Counting, name: str = "counts") -> list[str]:
    """Return the results of a count that a reader of committed records sees."""
    rows = (json.loads(r.value or b"") for r in read_topic({"bootstrap.servers": run.bootstrap}, run.topic(name)))
    return [f"{row['word']} {row['version']}" for row in rows]


def repeated(run: Counting, name: str = "counts") -> int:
    """Return how many results such a reader sees again."""
    return sum(count - 1 for count in Counter(visible(run, name)).values())


def some_behind_a_commit(run: Counting) -> None:
    """Wait until there are results after a new checkpoint."""
    run.application.wait_next_commit()
    before = run.released()
    wait_until(lambda: run.released() > before + 100, 120, "results after the commit")


def await_results_behind(run: Counting) -> None:
    """Wait until each count has written a checkpoint and published results after it, all at the same moment."""
    topics = {name: f"{run.prefix()}{LOGS[name]}" if name in LOGS else run.topic(name) for name in run.counted}
    first: dict[str, int] = {}
    seen: dict[str, tuple[int, int]] = {}

    def all_behind() -> bool:
        commits = run.application.last_commits()
        for name in run.counted if commits else ():
            first.setdefault(name, commits[name])
            if seen.get(name, (-1, 0))[0] != commits[name]:
                seen[name] = commits[name], run.released(topics[name])
        return bool(commits) and all(
            commits[name] > first[name] and run.released(topic) > seen[name][1] + BEHIND.get(name, BEHIND_LEAST)
            for name, topic in topics.items()
        )

    wait_until(all_behind, 180, lambda: f"results after a checkpoint of each: {seen}\n{run.application.log()}")
