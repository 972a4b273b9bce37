"""Twins: two queries of a region publish each result once, whichever computes it first and whichever fails."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.ranges import read_range
from falkirk.kafka_client.topics import Topics
from falkirk.runtime.spark import lanes
from falkirk.runtime.spark.live import query as live_query
from falkirk.runtime.spark.live import twin as twins
from falkirk.runtime.spark.live.query import foreach_writer
from falkirk.runtime.spark.live.twin import Twin
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.runtime.supervision.supervised_region import SupervisedRegion
from falkirk.spark_setup.broker import Broker
from falkirk.theory.ids import Offset
from falkirk.theory.stamp import Stamp
from tests.chaos.harness import Load, judge_counts
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL = "5 seconds"
#: Records per second.
RATE = 25
#: The others are a soak: `again` is a chain of two keyed steps behind a hop, and `again-by-word` has no state.
REGIONS = (*(("counts", "letters") if "FALKIRK_STRIKES" in os.environ else ()), "again-by-word", "again")


def application(wire: Wire, home: Path, regions: Sequence[str], *, transactional: bool) -> fk.App:
    """If asked: a keyed count, a region without a state, and two with a hop in between, each with twins."""
    app = fk.App("twins", home=home, transactional=transactional)
    app.source("events", fk.Kafka(wire.topic("events"), schema="word STRING NOT NULL, n INT", key="word"))

    @app.stream(fk.Lazy(INTERVAL, twins=True))
    def counted(events: fk.Stream) -> fk.Stream:
        return events.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))

    if "counts" in regions:
        app.sink("counts", counted, fk.Kafka(wire.topic("counts"), key="word"))
    if len(regions) == 1:
        return app
    if "letters" in regions:

        @app.stream(fk.Lazy(INTERVAL, twins=True))
        def spelt(events: fk.Stream) -> fk.Stream:
            return events.explode(F.split("word", " "), "letter").select("letter", "n")

        app.sink("letters", spelt, fk.Kafka(wire.topic("letters", partitions=3), key="letter"))

    app.source("unordered", fk.Kafka(f"events-{wire.tag}", schema="word STRING NOT NULL, n INT"))

    @app.stream(fk.Lazy(INTERVAL, twins=True))
    def again(unordered: fk.Stream) -> fk.Stream:
        """A chain behind a hop, since the source has no key. Its second step gives the results of the first one."""
        versions = unordered.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))
        return versions.groupBy("word").agg(F.max("version").alias("version"), fk.latest_value("n"))

    app.sink("again", again, fk.Kafka(wire.topic("again"), key="word"))
    return app


class Run:
    """The application at work. Args: regions: all, or that of the keyed count alone."""

    def __init__(
        self, broker: Broker, tag: str, home: Path, regions: Sequence[str] = REGIONS, *, transactional: bool = False
    ) -> None:
        self.wire, self.regions = Wire(bootstrap=broker.bootstrap, tag=tag), regions
        app = application(self.wire, home, regions, transactional=transactional)
        self.query: Query = run_here(app, Connection.of(broker.bootstrap))

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *raised: object) -> None:
        self.query.stop()

    def region(self, name: str) -> SupervisedRegion:
        return cast(SupervisedRegion, self.query._host._units[name])

    def twin(self, name: str) -> Twin:
        found = self.region(name).live.twin
        assert found is not None
        return found

    def dropped(self, name: str) -> int:
        """Return how many results one query did not send since the other one had sent them."""
        dropped, _ = lanes.sent_ends(self.region(name).live._context, name)
        return dropped

    def await_twin(self, name: str, begun: int = 1) -> None:
        """Wait until a twin, begun as often, has made a checkpoint, and both queries have computed the same results."""
        self.wait(lambda: self.twin(name).begun >= begun and self.twin(name)._is_placed, f"a twin of {name}")
        before = self.dropped(name)
        self.wait(lambda: self.dropped(name) > before, f"{name}: a result that was already sent")

    def fail_twin(self, name: str) -> int:
        """End the second query of a region; return how often it was begun so far.

        It may just have been stopped to be begun again, since it had come too close to the first one.
        """

        def has_failed() -> bool:
            query = self.twin(name).query
            if query is not None:
                query.stop()
            return query is not None

        self.wait(has_failed, f"a twin of {name} that runs")
        return self.twin(name).begun

    def wait(self, condition: Any, what: str) -> None:
        def met() -> bool:
            assert self.query.isActive, self.query.exception()
            assert all(self.twin(name)._failed <= 1 for name in self.regions), "a twin fails again and again"
            return bool(condition())

        wait_until(met, 90, lambda: f"{what}: {self.query.status}")

    def judge(self, load: Load) -> tuple[int, int, int]:
        """Stop it; return how many results were repeated and lost, of all, and how many came out of order."""
        due = {"counts": load.sent, "again": load.sent}
        due["letters"] = sum(len(letters_of(n, load)) for n in range(load.sent))
        topics = {name: f"{name}-{self.wire.tag}" for name in due if name in self.regions}
        try:
            for name, topic in topics.items():
                self.wait(lambda name=name, topic=topic: self._has(topic, due[name]), f"{due} results")
            commits = {r.name: r.last_commit for r in self.query.status}
            self.wait(lambda: all(r.last_commit > commits[r.name] for r in self.query.status), "a checkpoint")
        finally:
            self.query.stop()
        figures = [
            self._letters(topic, load) if name == "letters" else self._counts(topic) for name, topic in topics.items()
        ]
        repeated, lost, disordered = map(sum, zip(*figures, strict=True))
        return repeated, lost, disordered

    def _has(self, topic: str, due: int) -> bool:
        """Return whether readers see as many results. Ends are quick to read, but count markers of transactions."""
        return self.wire.count(topic) >= due and len(self.wire.records(topic)) >= due

    def _counts(self, topic: str) -> tuple[int, int, int]:
        found = judge_counts(self.wire.bootstrap, f"events-{self.wire.tag}", topic).counts
        return found.duplicates, found.lost, found.broken_sequences

    def _letters(self, topic: str, load: Load) -> tuple[int, int, int]:
        sent = {(n, letter) for n in range(load.sent) for letter in letters_of(n, load)}
        came = [(row["n"], row["letter"]) for row in self.wire.rows(topic)]
        return len(came) - len(set(came)), len(sent - set(came)), out_of_order(self.wire.bootstrap, topic)


def letters_of(number: int, load: Load) -> str:
    """Return the letters of a record's word."""
    return cast(Words, load).words[number].replace(" ", "")


def out_of_order(bootstrap: str, topic: str) -> int:
    """Return how many records come before an earlier record of the same input and output partition."""
    connection, newest, wrong = Connection.of(bootstrap), dict[tuple[int, int], Stamp](), 0
    ends = Topics(connection).end_positions(topic)
    for record in read_range(connection, topic, dict.fromkeys(ends, Offset(0)), ends):
        assert record.header is not None
        stamp = record.header.stamp
        channel = record.partition, stamp.partition
        wrong += channel in newest and stamp <= newest[channel]
        newest[channel] = stamp
    return wrong


class Words(Load):
    """A load whose words are different letters, and remembered."""

    def __init__(self, bootstrap: str, topic: str, rate: float) -> None:
        super().__init__(bootstrap, topic, rate=rate)
        self.words: list[str] = []

    def record(self, number: int) -> tuple[str, dict[str, Any]]:
        word = " ".join(self._random.sample("abcdefgh", self._random.randint(1, 4)))
        self.words.append(word)
        return word, {"word": word, "n": number}


#: Kills of everything with twins are in chaos/test_mechanisms.py, with plain lanes.
SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")


@pytest.mark.parametrize("transactional", [True, pytest.param(False, marks=SOAK)])
def test_each_result_once_while_queries_fail(
    broker: Broker, spark: "SparkSession", home: Path, tag: str, monkeypatch: pytest.MonkeyPatch, *, transactional: bool
) -> None:
    """The twin comes too close, then it fails, then the first query, which returns to its checkpoint with a new twin.

    At first each twin counts as too close. `unit/live/test_twin_moments.py` has the moments that are too close.
    """
    monkeypatch.setattr(lanes, "COMMIT_MS", 250)  # fewer transactions: each one costs both JVMs CPU time
    with Run(broker, tag, home, transactional=transactional) as run:
        with Words(broker.bootstrap, f"events-{tag}", rate=RATE) as load:
            with monkeypatch.context() as patch:
                patch.setattr(twins, "APART", 0.5)
                for name in REGIONS:
                    run.wait(lambda name=name: run.twin(name).begun >= 2, f"another twin of {name}")  # type: ignore[misc]
            for name in REGIONS:
                run.await_twin(name, begun=2)
            begun = {name: run.fail_twin(name) for name in REGIONS}
            for name in REGIONS:
                run.await_twin(name, begun[name] + 1)
            before = {r.name: r.incarnation for r in run.query.status}
            for query in run.query.queries:
                query.stop()
            run.wait(lambda: all(r.incarnation > before[r.name] for r in run.query.status), "new incarnations")
            for name in REGIONS:
                run.await_twin(name)
        assert run.judge(load) == (0, 0, 0)


def test_without_marks_results_come_twice(
    broker: Broker, spark: "SparkSession", home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mechanism switched off: the lanes send what both queries compute."""

    def unmarked(self: live_query.LiveQuery, data: Any) -> Any:
        return foreach_writer(data, self.lanes.writer(self.release.incarnation, self._tasks, self._producer_options()))

    monkeypatch.setattr(live_query.LiveQuery, "_writer", unmarked)
    with Run(broker, tag, home, ["counts"]) as run:
        with Words(broker.bootstrap, f"events-{tag}", rate=RATE) as load:
            run.wait(lambda: run.twin("counts").begun and run.twin("counts")._is_placed, "a twin")
            run.wait(lambda: run.wire.count(f"counts-{tag}") > load.sent, "more results than records")
        repeated, _, _ = run.judge(load)
    assert repeated > 0
