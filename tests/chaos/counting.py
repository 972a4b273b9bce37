"""The keyed counts of apps/counts.py under test: run, waited for, and judged."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from falkirk.checker import Guarantee, read_topic
from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import APPS, Application, judge_counts, settle, topics_of

#: The counts of apps/counts.py, some of them fenced.
LANES = APPS / "lanes.py"
#: The log with results that no checkpoint covers, if it is not the sink's topic. Results of snapshots reach the sink
#: with a checkpoint, so a kill right after that would find no later results. A hop has no sink.
LOGS = {"snapshots": "snapshots-held", "hopped-twins-by-word": "hopped-twins-by-word"}
#: Counts in transactions: only committed results outlive a kill.
FENCED = ("fenced",)


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
        return sum(topics_of(self.bootstrap).end_positions(topic or self.counts).values())

    def committed(self, topic: str) -> int:
        """Return the number of results in a topic that a reader of committed records sees, markers included."""
        return sum(topics_of(self.bootstrap).readable_positions(topic).values())

    def prefix(self) -> str:
        """Return the prefix of the names of the application's internal topics."""
        identity = json.loads((self.application.home / "falkirk.json").read_text())["identity"]
        return f"falkirk.counts.{identity}."


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
    topics = topics_of(broker.bootstrap)
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
    """Wait until the plain count has published results after a new checkpoint."""
    run.application.wait_results_behind({"counts": run.released}, {"counts": 100})


def await_results_behind(run: Counting, *hops: str) -> dict[str, int]:
    """Wait until each count has written a checkpoint and published results after it, all at the same moment.

    Args: hops: also these regions.
    Returns: the last checkpoint of each region.
    """
    names = (*run.counted, *hops)
    topics = {name: f"{run.prefix()}{LOGS[name]}" if name in LOGS else run.topic(name) for name in names}
    results = {name: partial(run.committed if name in FENCED else run.released, topics[name]) for name in names}
    return run.application.wait_results_behind(results)
