"""The policies of live processors on real Spark: when results are published, and which exist after a failure."""

import zlib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.checker import Guarantee
from falkirk.declare.policy import Policy
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.live.checkpoint import last_committed_batch
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import Load, judge_counts
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL = "2 seconds"
#: A sent record is acknowledged within this time, also on a busy machine.
ACKNOWLEDGED_S = 2.0
#: Records per second. A failure waits for 50 results behind a checkpoint.
RATE = 100.0


class Run:
    """One processor between two topics."""

    def __init__(self, broker: Broker, tag: str, home: Path, body: Any, policy: Policy, **sink: Any) -> None:
        self.wire = Wire(bootstrap=broker.bootstrap, tag=tag)
        self.events, self.out = self.wire.topic("events"), self.wire.topic("out")
        app = fk.App("mechanisms", home=home, history=90)
        app.source("events", fk.Kafka(self.events, schema="word STRING, n INT", key="word"))
        app.add_processor("made", body, reads=("events",), policy=policy)
        app.sink("out", "made", fk.Kafka(self.out, key="word"), **sink)
        self.query: Query = run_here(app, Connection.of(broker.bootstrap))

    def committed(self) -> int:
        """Return the last checkpoint of the region that reads the source."""
        return last_committed_batch(self.query._home.checkpoint(self.query.status[0].name))

    def fail_the_first(self, ahead: str | None = None) -> None:
        """End the first region's query when it has sent something since its checkpoint, to its sink or a log `ahead` of
        it; wait until it is back. If a checkpoint came in between, do it again."""
        covered = True
        while covered:
            before, at, to = self.query.status[0].incarnation, self.committed(), ahead or self.out
            wait_until(lambda at=at: self.committed() > at, 60, "a checkpoint")
            at, reached = self.committed(), self.wire.count(to)
            wait_until(lambda to=to, reached=reached: self.wire.count(to) > reached + 50, 60, "results behind it")
            self.query.queries[0].stop()
            covered = self.committed() > at
            wait_until(lambda before=before: self.query.status[0].incarnation > before, 120, "the next incarnation")


@pytest.mark.parametrize(("policy", "held"), [(fk.Snapshots(INTERVAL), True), (fk.Lazy(INTERVAL), False)])
def test_results_of_snapshots_come_out_behind_a_checkpoint(
    broker: Broker, spark: "SparkSession", home: Path, tag: str, policy: Policy, held: bool
) -> None:
    """Twice each time the checkpoints stand still: `policy` decides whether results are published meanwhile."""
    run = Run(broker, tag, home, lambda s: s.groupBy("word").agg(F.count("*").alias("version")), policy)
    try:
        wait_until(lambda: run.committed() >= 0, 120, "a checkpoint")
        sent = 0
        seen: list[int] = []
        log = run.out if not held else f"falkirk.mechanisms.{run.query._home.identity}.out-held"
        while len(seen) < 2:
            run.wire.await_count(run.out, sent, run.query)
            at = run.committed()
            wait_until(lambda at=at: run.committed() > at, 60, "a checkpoint, so that the next one is far off")
            out, before = run.wire.count(run.out), run.committed()
            run.wire.send(run.events, [{"word": "w", "n": n} for n in range(10)], key="w")
            sent += 10
            run.wire.await_count(log, sent, run.query)
            found = run.wire.count(run.out)
            if run.committed() == before:  # looked at last: no checkpoint can have let them out
                seen.append(found - out)
        run.wire.await_count(run.out, sent, run.query)
        assert [row["version"] for row in run.wire.rows(run.out)] == list(range(1, sent + 1))
        (measured,) = [f["sinks"][run.out] for f in run.query._host.figures()]
        # Result and record have the same place among those of their topic. The latency includes the wait.
        times = zip(run.wire.records(run.out), run.wire.records(run.events), strict=True)
        at_least_s = sum((r.timestamp_ms or 0) - (e.timestamp_ms or 0) for r, e in times) / 1000
        assert sum(measured["counts"]) == sent
        assert at_least_s <= measured["sum"] <= at_least_s + sent * ACKNOWLEDGED_S
    finally:
        run.query.stop()
    assert seen == ([0, 0] if held else [10, 10])


@pytest.mark.parametrize("taken_back", [True, False])
def test_snapshots_stand_on_what_is_taken_back(
    broker: Broker, spark: "SparkSession", home: Path, tag: str, monkeypatch: pytest.MonkeyPatch, taken_back: bool
) -> None:
    """Results that no checkpoint covers stay in the log when their region goes back. Without the note that they are
    void, they would be published before results whose random values do not follow from them."""
    if not taken_back:
        monkeypatch.setattr(Store, "voided_ranges", lambda *_: ())
    run = Run(broker, tag, home, chained, fk.Snapshots(INTERVAL))
    held = f"falkirk.mechanisms.{run.query._home.identity}.out-held"
    try:
        with Load(broker.bootstrap, run.events, rate=RATE) as load:
            for _ in range(2 if taken_back else 1):
                run.fail_the_first(ahead=held)
        run.wire.await_count(run.out, load.sent, run.query)
        at = run.committed()
        wait_until(lambda: run.committed() > at + 1, 60, "two checkpoints behind the last record")
        made, rows = run.wire.count(held), run.wire.rows(run.out)
    finally:
        run.query.stop()
    found = {(row["word"], row["version"]): row for row in rows}
    assert len(rows) == len(found) == load.sent, "each version is there once"
    assert (made > load.sent) is taken_back, "what is void is drawn again, what is not counts as sent"
    contradicted = [
        row
        for (word, version), row in found.items()
        if row["chain"] != (found[word, version - 1]["chain"] if version > 1 else 0) + zlib.crc32(row["lot"].encode())
    ]
    assert (not contradicted) is taken_back


def chained(stream: fk.Stream) -> fk.Stream:
    """Fold random values into a state, so that each result depends on all values before it."""
    return (
        stream.withColumn("lot", F.expr("uuid()"))
        .groupBy("word")
        .agg(
            F.count("*").alias("version"),
            fk.latest_value("lot"),
            F.sum(F.crc32(F.col("lot").cast("binary"))).alias("chain"),
        )
    )


@pytest.mark.parametrize(("policy", "once"), [(fk.LogSends(INTERVAL), True), (fk.Acknowledged(INTERVAL), False)])
def test_what_is_drawn_has_one_outcome_when_it_is_logged_first(
    broker: Broker, spark: "SparkSession", home: Path, tag: str, policy: Policy, once: bool
) -> None:
    """The barrier in front of the log has the first outcome; without one there are several."""
    delivery = "exactly-once" if once else "at-least-once"
    run = Run(broker, tag, home, lambda s: s.withColumn("lot", F.expr("uuid()")), policy, delivery=delivery)
    try:
        with Load(broker.bootstrap, run.events, rate=RATE) as load:
            for _ in range(2 if once else 1):
                run.fail_the_first()
        at = run.committed()
        wait_until(lambda: run.committed() > at + 1, 60, "two checkpoints behind the last record")
        run.wire.await_count(run.out, load.sent, run.query)
        drawn = lots(run.wire.rows(run.out))
        if once:
            (hop,) = run.query.hops
            assert lots(run.wire.rows(hop)) == drawn
    finally:
        run.query.stop()
    assert drawn.keys() == set(range(load.sent)), "none is lost"
    assert (max(map(len, drawn.values())) == 1) is once


def test_without_the_barrier_results_are_repeated_and_none_is_lost(
    broker: Broker, spark: "SparkSession", home: Path, tag: str
) -> None:
    """What `delivery="repeated"` promises. It is also the barrier switched off: the same failure repeats results."""
    run = Run(broker, tag, home, counted, fk.Lazy(INTERVAL), delivery="repeated")
    try:
        with Load(broker.bootstrap, run.events, rate=RATE) as load:
            run.fail_the_first()
        newest = dict[str, int]()

        def has_all() -> bool:
            for row in run.wire.rows(run.out):
                newest[row["word"]] = max(newest.get(row["word"], 0), row["version"])
            return sum(newest.values()) >= load.sent

        wait_until(has_all, 60, "all events to be counted")
    finally:
        run.query.stop()
    verdict = judge_counts(broker.bootstrap, run.events, run.out)
    assert verdict.guarantee is Guarantee.REPEATED_DELIVERY, verdict.anomalies


def counted(stream: fk.Stream) -> fk.Stream:
    """Count the events of each word."""
    return stream.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))


def lots(rows: list[dict[str, Any]]) -> dict[int, list[str]]:
    """Return the random values of each record, in the order of their partitions."""
    found: dict[int, list[str]] = defaultdict(list)
    for row in rows:
        found[row["n"]].append(row["lot"])
    return found
