"""Results that go straight to their topic: there once, after an interruption at any place, and for any order of rows.

They are never mixed with the results of another program.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.policy import Policy
from falkirk.errors import HomeError, InternalError
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.decision_store import Store
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.epochs import region
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.epochs.run import Run
from falkirk.runtime.spark.sinks import writing
from falkirk.runtime.spark.sinks.topic import TopicTarget
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from falkirk.spark_setup.observing import observing
from falkirk.steps.dataframes import plans
from tests.integration.cutting import Place, run_until_cut_off
from tests.integration.live import Wire, failed
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Body = Callable[[DataFrame], DataFrame]

ROWS = 60
PLACES: dict[str, Place] = {
    "decided, nothing sent": (TopicTarget, "deliver_computed", False),
    "sent, not recorded": (EpochLog, "record", False),
    "recorded, not released": (EpochLog, "record", True),
    "released, not recorded": (Store, "record_release", False),
}


def halved(events: "DataFrame") -> "DataFrame":
    """Return each number with its half, in an order that Spark decides."""
    return events.groupBy("n").agg((F.max("n") / 2).alias("half"))


def doubled(events: "DataFrame") -> "DataFrame":
    """Return something else."""
    return events.groupBy("n").agg((F.max("n") * 2.0).alias("half"))


@cache
def application(tag: str, home: Path, body: "Body" = halved, policy: Policy | None = None) -> fk.App:
    app = fk.App("direct", home=home)
    app.source("events", fk.Kafka(f"events-{tag}", schema="n LONG NOT NULL"))

    def halves(events: "DataFrame") -> "DataFrame":
        return body(events)

    declare = app.stream(fk.Eager()) if policy is None else app.batch(rows=ROWS, policy=policy)
    declare(halves)
    app.sink("halves", halves, fk.Kafka(f"halves-{tag}"))
    return app


class Numbers:
    """Numbers that are sent, and their results."""

    def __init__(self, broker: Broker, tag: str) -> None:
        self.wire = Wire(bootstrap=broker.bootstrap, tag=tag)
        self.events, self.halves = self.wire.topic("events"), self.wire.topic("halves", partitions=3)
        self.sent = 0

    def send(self) -> None:
        """Send numbers that have not been sent yet."""
        numbers = [{"n": n} for n in range(self.sent, self.sent + ROWS)]
        self.wire.send(self.events, numbers[: ROWS // 2], partition=0)
        self.wire.send(self.events, numbers[ROWS // 2 :], partition=1)
        self.sent += ROWS

    def arrived(self) -> Counter[int]:
        return Counter(int(row["n"]) for row in self.wire.rows(self.halves))

    def is_done(self, query: Any) -> bool:
        assert query.isActive, query.exception()
        return len(self.arrived()) >= self.sent

    def assert_once(self) -> None:
        assert self.arrived() == Counter(range(self.sent))


def half_sent(patch: pytest.MonkeyPatch) -> None:
    """Publish a part of the next epoch that has no results yet. Let nothing after it arrive."""
    real = TopicTarget._send

    def send(self: TopicTarget, epoch: int, data: "DataFrame", facts: Any) -> None:
        if self.visible() > epoch:
            real(self, epoch, data, facts)
            return
        real(self, epoch, data.where(F.col(ROW) <= 3), facts)
        raise InternalError("CUT_OFF", "half sent")

    patch.setattr(TopicTarget, "_send", send)


def cut_in_half(app: fk.App, broker: Broker, numbers: Numbers) -> None:
    """Run an application until a part of an epoch is published."""
    before = numbers.arrived().total()
    with pytest.MonkeyPatch.context() as patch:
        half_sent(patch)
        query = run_here(app, Connection.of(broker.bootstrap))
        numbers.send()
        try:
            assert failed(query).condition == "CUT_OFF"
        finally:
            query.stop()
    assert before < numbers.arrived().total() < numbers.sent, "a part of it is out"


def test_there_once_wherever_it_was_cut_off(spark: "SparkSession", broker: Broker, home: Path, tag: str) -> None:
    numbers = Numbers(broker, tag)
    for place in PLACES.values():
        run_until_cut_off(application(tag, home), broker, place, numbers.send, numbers.is_done)
        cut_in_half(application(tag, home), broker, numbers)
    run_until_cut_off(application(tag, home), broker, None, numbers.send, numbers.is_done)
    numbers.assert_once()
    with open_home(home, "direct") as opened:
        epochs = EpochLog("epochs:halves", "halves", opened.data_of("halves"), opened.store).epochs()
    assert all(e.direct for e in epochs)
    assert sum(e.rows for e in epochs) == numbers.sent, "what was there already is counted with its epoch"


@pytest.mark.parametrize("mechanism", ["what is there is asked", "places by content"])
def test_without_the_mechanism_it_is_not(
    mechanism: str, spark: "SparkSession", broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = Numbers(broker, tag)
    cut_in_half(application(tag, home), broker, numbers)
    if mechanism == "places by content":
        by_chance = F.row_number().over(Window.partitionBy("partition").orderBy(F.rand())).cast("long")
        monkeypatch.setattr(TopicTarget, "_by_content", property(lambda self: by_chance))
    else:
        monkeypatch.setattr(TopicTarget, "_found", lambda self: {})
    query = run_here(application(tag, home), Connection.of(broker.bootstrap))
    try:
        numbers.wire.await_count(numbers.halves, numbers.sent, query)
    finally:
        query.stop()
    assert numbers.arrived() != Counter(range(numbers.sent))


def test_another_program_does_not_go_on_with_an_epoch(
    spark: "SparkSession", broker: Broker, home: Path, tag: str
) -> None:
    numbers = Numbers(broker, tag)
    cut_in_half(application(tag, home), broker, numbers)
    for other in (application(tag, home, doubled), application(tag, home, halved, fk.LogSends())):
        query = run_here(other, Connection.of(broker.bootstrap))
        try:
            error = failed(query)
        finally:
            query.stop()
        assert isinstance(error, HomeError)
        assert (error.condition, error.parameters["epoch"]) == ("EPOCH_OUT_IN_PART", 0)
    run_until_cut_off(application(tag, home), broker, None, lambda: None, numbers.is_done)
    run_until_cut_off(application(tag, home, doubled), broker, None, numbers.send, numbers.is_done)
    numbers.assert_once()


def test_another_program_takes_over_what_nothing_is_out_of(
    spark: "SparkSession", broker: Broker, home: Path, tag: str
) -> None:
    numbers, nothing_sent = Numbers(broker, tag), PLACES["decided, nothing sent"]
    run_until_cut_off(application(tag, home), broker, nothing_sent, numbers.send, numbers.is_done)
    run_until_cut_off(application(tag, home, doubled), broker, None, numbers.send, numbers.is_done)
    numbers.assert_once()
    assert all(row["half"] == 2 * row["n"] for row in numbers.wire.rows(numbers.halves))


def test_what_waits_in_the_log_goes_first(spark: "SparkSession", broker: Broker, home: Path, tag: str) -> None:
    """Epochs that were recorded under another policy, and are not out yet, are there before any that goes straight."""
    numbers, log_sends = Numbers(broker, tag), fk.LogSends()
    unreleased = PLACES["recorded, not released"]
    app = application(tag, home, policy=log_sends)
    run_until_cut_off(app, broker, unreleased, numbers.send, numbers.is_done)
    eager = application(tag, home, policy=fk.Eager())
    run_until_cut_off(eager, broker, None, numbers.send, numbers.is_done)
    run_until_cut_off(eager, broker, None, numbers.send, numbers.is_done)
    run_until_cut_off(application(tag, home, policy=log_sends), broker, None, numbers.send, numbers.is_done)
    numbers.assert_once()
    for partition in range(3):
        records = [r for r in numbers.wire.records(numbers.halves) if r.partition == partition]
        epochs = [json.loads(r.value or b"")["n"] // ROWS for r in records]
        assert epochs == sorted(epochs), "epochs are out in order"


@pytest.mark.parametrize("knows", [True, False])
def test_what_is_in_an_order_keeps_it(
    knows: bool, spark: "SparkSession", broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unchanged records keep their order; positions by their values would put 10 before 9."""
    if not knows:
        monkeypatch.setattr(plans, "has_no_order", lambda data: True)
    numbers = Numbers(broker, tag)
    app = application(
        tag, home, lambda events: events.select("n", (F.col("n") / 2).alias("half"), F.lit(1).alias("one"))
    )
    app.sinks["halves"] = replace(app.sinks["halves"], to=fk.Kafka(numbers.halves, key="one"))
    cut_in_half(app, broker, numbers) if not knows else numbers.send()
    run_until_cut_off(app, broker, None, numbers.send, numbers.is_done)
    numbers.assert_once()
    order = [json.loads(r.value or b"")["n"] for r in numbers.wire.records(numbers.halves)]
    by_partition = [[n for n in order if n // (ROWS // 2) % 2 == p] for p in range(2)]
    assert all(part == sorted(part) for part in by_partition) is knows


def test_what_does_not_fit_is_a_dead_letter_once(spark: "SparkSession", broker: Broker, home: Path, tag: str) -> None:
    """Of records that are no numbers, and of results that are too large for their topic.

    The count has neither the letters of an earlier home of the application nor the markers of transactions.
    """
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    texts, out = wire.topic("texts"), wire.topic("out", max_message_bytes="20000")
    dead = f"large-{tag}-repeated.dead-letters"
    wire.topics.create(dead, 1)
    wire.send(dead, [{"earlier": "home"}] * 2)
    app = fk.App(f"large-{tag}", home=home, transactional=True)
    app.source("texts", fk.Kafka(texts, schema="n LONG NOT NULL, times INT"))

    @app.stream(fk.Eager())
    def repeated(texts: "DataFrame") -> "DataFrame":
        return texts.groupBy("n").agg(F.max("times").alias("times")).select("n", F.expr("repeat('x', times) AS text"))

    app.sink("repeated", repeated, fk.Kafka(out, key="n"))
    query = run_here(app, Connection.of(broker.bootstrap), create_topics=True)
    try:
        wire.send(texts, [{"n": n, "times": 40_000 if n % 5 == 0 else 1} for n in range(20)])
        wire.send(texts, [b"no number"])
        wire.await_count(out, 16, query)
        wait_until(lambda: len(wire.rows(dead)) >= 7, 60, "5 letters of this home")
        wait_until(lambda: (query.status[0].dead_letters or 0) >= 5, 60, "they are counted")
        assert query.status[0].dead_letters == 5
        assert len(wire.rows(dead)) == 7 < wire.count(dead), "transactions leave markers"
    finally:
        query.stop()
    assert sorted(r["n"] for r in wire.rows(out)) == [n for n in range(20) if n % 5]


def test_rows_that_are_alike_are_there_as_often(spark: "SparkSession", broker: Broker, home: Path, tag: str) -> None:
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    out = wire.topic("out", partitions=2)
    with open_home(home, "alike") as opened:
        context = Context(session=spark, connection=Connection.of(broker.bootstrap), home=opened, state_partitions=2)
        settle = partial(writing.settle, context)
        rows = observing(spark).range(60).select((F.col("id") % 3).alias("n"))
        real = TopicTarget._send
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TopicTarget, "_send", lambda s, e, data, f: real(s, e, data.where(F.col(ROW) <= 7), f))
            TopicTarget(context, fk.Kafka(out), settle).deliver_computed(0, rows)
        assert 0 < wire.count(out) < 60
        for parts, few in ((7, False), (1, True)):
            again = rows.repartition(parts)
            assert TopicTarget(context, fk.Kafka(out), settle).deliver_computed(0, again, few=few) is None
    assert Counter(r["n"] for r in wire.rows(out)) == {0: 20, 1: 20, 2: 20}


def test_a_clean_stop_leaves_no_epoch_half_out(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a program can be changed whenever it was stopped."""
    numbers, sending, stopping = Numbers(broker, tag), threading.Event(), threading.Event()
    real = TopicTarget._send

    def send(self: TopicTarget, epoch: int, data: "DataFrame", facts: Any) -> None:
        real(self, epoch, data.where(F.col(ROW) <= 3), facts)
        sending.set()
        assert stopping.wait(60)
        self._last = None  # it is asked again
        real(self, epoch, data, facts)

    monkeypatch.setattr(TopicTarget, "_send", send)
    monkeypatch.setattr(region, "DRAIN_S", 60.0)  # a busy machine sends an epoch in more than five seconds
    query = run_here(application(tag, home), Connection.of(broker.bootstrap))
    numbers.send()
    assert sending.wait(120)
    drain = Run.drain
    monkeypatch.setattr(Run, "drain", lambda self, timeout_s: (stopping.set(), drain(self, timeout_s)))
    query.stop()
    with open_home(home, "direct") as opened:
        *_, last = EpochLog("epochs:halves", "halves", opened.data_of("halves"), opened.store).epochs()
    assert last.is_complete
    assert numbers.arrived().total() == last.rows
