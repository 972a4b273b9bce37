"""Hostile event times: with them, a writer of a topic stops no epoch, and makes no honest record late."""

import itertools
import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.cut import EARLIEST, LATEST, SPAN_S_MAX, ByTime
from falkirk.kafka_client.connection import Connection
from falkirk.plan.batch import STAMP_TYPE
from falkirk.platform.local_data import LocalData
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.sinks.console import ConsoleTarget
from falkirk.runtime.spark.sinks.table import TableTarget
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from falkirk.steps.batch.call import calling
from falkirk.steps.batch.in_epoch import InEpoch
from falkirk.steps.batch.times import sort
from falkirk.steps.dataframes.names import STAMP
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE_US = 60_000_000
#: Times that are valid as a TIMESTAMP, and that no pipeline survives without a bound.
OUTSIDE = ["9999-12-31T23:59:59Z", "+294246-12-31T00:00:00Z", "9000-01-01T00:00:00Z", "0001-01-01T00:00:00Z"]


@pytest.mark.parametrize(("ahead_s", "in_time"), [(60, ["59"]), (600, ["59", "61"])])
def test_a_time_that_does_not_fit_is_a_dead_letter_and_moves_no_watermark(
    spark: "SparkSession", tmp_path: Path, ahead_s: int, in_time: list[str]
) -> None:
    by = ByTime(column="at", every_us=MINUTE_US, late_us=ahead_s * 1_000_000, ahead_us=ahead_s * 1_000_000)
    soon = {str(s): (NOW + timedelta(seconds=s)).isoformat() for s in (59, 61, 100_000)}
    honest = {f"honest {i}": (NOW - timedelta(seconds=i)).isoformat() for i in range(3)}
    hostile = {time: time for time in OUTSIDE} | {"null": None} | soon
    # The hostile rows come first, so each of them may make all honest rows late.
    times = hostile | honest
    stamp = F.struct(F.lit("s"), F.lit(0), F.col("offset"), F.lit(0)).cast(STAMP_TYPE)
    rows = spark.createDataFrame(
        [(n, i, t) for i, (n, t) in enumerate(times.items())], "name STRING, offset LONG, t STRING"
    )
    rows = rows.select("name", F.to_timestamp("t").alias("at"), stamp.alias(STAMP))
    places = (LocalData(tmp_path / str(i)) for i in itertools.count())
    call = InEpoch(fk.EpochContext(decided_at=NOW), spark, {}, lambda: next(places))
    with calling(call):
        found = [r["name"] for r in sort(rows, by, "r", "t").collect()]
    assert found == [*in_time, *honest]
    letters = [json.loads(r["value"]) for each in call.letters for r in each.collect()]
    reasons = {json.loads(letter["value"])["name"]: letter["reason"] for letter in letters}
    outside = "column at is not between the years 1000 and 9000"
    ahead = f"column at is more than {ahead_s} s ahead of the clock"
    late = {n: ahead for n in soon if n not in in_time}
    assert reasons == dict.fromkeys(OUTSIDE, outside) | {"null": "column at is null"} | late


def test_a_far_future_time_ends_no_application_and_makes_nothing_late(
    spark: "SparkSession", broker: Broker, home: Path, tag: str
) -> None:
    """Before, all honest clicks were late; and the epoch of the year 9999, which the second hostile click completes,
    fits no `datetime`: the application ended at each start, with `EPOCH_KEEPS_FAILING`."""
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    clicks, out = wire.topic("clicks", 1), wire.topic("out", 1)
    app = fk.App(f"hostile-{tag}", home=home)
    app.source("clicks", fk.Kafka(clicks, schema="user STRING, at TIMESTAMP"))

    @app.batch(every="1 minute", by="at", late="1 minute")
    def visits(clicks: "DataFrame") -> "DataFrame":
        begins = F.lit(str(fk.current_epoch().begins))
        return clicks.groupBy("user").agg(F.count("*").alias("visits")).withColumn("begins", begins)

    app.sink("out", visits, fk.Kafka(out))

    def click(user: str, at: datetime | str) -> dict[str, Any]:
        return {"user": user, "at": at if isinstance(at, str) else at.isoformat()}

    query = run_here(app, Connection.of(broker.bootstrap))
    letters = f"hostile-{tag}-clicks-by-at.dead-letters"
    try:
        wire.send(clicks, [click("ann", NOW - timedelta(hours=1))])
        wait_until(lambda: query.status[0].last_commit >= 0, 60, lambda: f"an epoch before the attack: {query.status}")
        wire.send(clicks, [click("mallory", at) for at in (*OUTSIDE[:2], datetime.now(UTC) + timedelta(days=1))])
        wire.send(clicks, [click("ann", NOW), click("ann", NOW + timedelta(seconds=1))])
        wire.send(clicks, [click("close", NOW + timedelta(minutes=2))])
        wire.await_count(out, 2, query)
        wait_until(lambda: wire.count(letters) >= 3, 60, lambda: f"three dead letters: {query.status}")
        assert query.isActive, query.exception()
    finally:
        query.stop()
    assert wire.rows(out) == [
        {"user": "ann", "visits": 1, "begins": "2026-03-01 11:00:00+00:00"},
        {"user": "ann", "visits": 2, "begins": "2026-03-01 12:00:00+00:00"},
    ]
    assert {json.loads(r["value"])["user"] for r in wire.rows(letters)} == {"mallory"}


def test_bounds_hold_wherever_a_slice_lies() -> None:
    """Every epoch of a time that fits begins and ends at a time that Python can hold, for all durations."""
    longest_us = round(SPAN_S_MAX * 1_000_000)
    for every_us, over in ((MINUTE_US, 1), (longest_us, 1), (MINUTE_US, longest_us // MINUTE_US)):
        by = ByTime(column="at", every_us=every_us, over=over)
        for time in (EARLIEST, LATEST):
            first = int(time.timestamp()) * 1_000_000 // every_us
            for number in (first, first + over - 1):
                begins, ends = by.bounds(number)
                assert begins < ends


def test_a_bound_that_python_cannot_hold_is_refused() -> None:
    app = fk.App("far")
    with pytest.raises(fk.DefinitionError) as refused:
        app.batch(every="1 minute", by="at", ahead=1_000_000 * 86_400)
    assert refused.value.condition == "CUT_INVALID"
    assert refused.value.parameters["longest_s"] == 1_000_000 * 86_400
    with pytest.raises(fk.DefinitionError) as refused:
        app.batch(every="1 minute", ahead="1 minute")
    assert refused.value.condition == "CUT_INVALID"


def test_a_time_that_no_database_takes_is_a_dead_letter(spark: "SparkSession", tmp_path: Path) -> None:
    """Before, the row could not be read from Spark: its epoch was never in the table."""
    texts = ["+294246-12-31T00:00:00Z", "-0001-01-01T00:00:00Z", NOW.isoformat()]
    rows = spark.createDataFrame([(i, t) for i, t in enumerate(texts)], f"{ROW} LONG, t STRING")
    rows = rows.select(ROW, F.to_timestamp("t").alias("at"), F.to_timestamp("t").cast("date").alias("day"))
    target = TableTarget(fk.Sql(f"sqlite:///{tmp_path}/out.db", "out"), "deadbeef", "out")
    letters = target.deliver(0, rows, few=True)
    assert letters is not None
    reasons = [json.loads(r["value"])["reason"] for r in letters.collect()]
    assert len(reasons) == 2
    assert all(r.endswith("column at is not between the years 1 and 9999") for r in reasons)
    with sqlite3.connect(tmp_path / "out.db") as db:
        assert db.execute("SELECT day FROM out").fetchall() == [("2026-03-01",)]
    written: list[str] = []
    ConsoleTarget(fk.Console(), "out", written.append).deliver(0, rows, few=True)
    assert "at=+294246-12-31 00:00:00" in written[0]
    assert "at=2026-03-01 12:00:00" in written[0]


#: Timestamps of records that Kafka accepts and Spark's TIMESTAMP can't hold, and one near its bound.
TIMESTAMPS_MS = (-(10**16), -(2**63), 2**63 - 1, 10**16, 9_223_372_036_854_775)


def test_a_timestamp_that_spark_can_not_hold_is_read_as_a_near_one(
    spark: "SparkSession", broker: Broker, home: Path, tag: str
) -> None:
    """By default, Kafka 4 accepts any timestamp in the past. Spark's own source fails on such a record at each start.

    With format("kafka"), the region restarts until `REGION_KEEPS_FAILING`, the batch until `EPOCH_KEEPS_FAILING`.
    """
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    # With the default retention, the broker may delete records with old timestamps at its next look.
    clicks = wire.topic("clicks", 1, message_timestamp_after_max_ms=str(2**63 - 1), retention_ms="-1")
    live, timed, batched = (wire.topic(name, 1) for name in ("live", "timed", "batched"))
    app = fk.App(f"stamps-{tag}", home=home, state_partitions=1)
    app.source("clicks", fk.Kafka(clicks, schema="user STRING, at TIMESTAMP", key="user"))
    seldom = fk.Lazy("60 seconds")  # no result waits for a checkpoint
    app.add_processor("users", lambda s: s.select("user"), reads=("clicks",), policy=seldom)
    app.add_processor(
        "first", lambda s: s.withWatermark("at", "1 hour").dropDuplicates(["user"]).select("user"),
        reads=("clicks",), policy=seldom,
    )  # fmt: skip

    @app.batch(every="1 second")
    def counted(clicks: "DataFrame") -> "DataFrame":
        return clicks.select("user")

    for name, to in (("users", live), ("first", timed), ("counted", batched)):
        app.sink(name, name, fk.Kafka(to))

    def click(user: str, timestamp_ms: int | None = None) -> None:
        value = json.dumps({"user": user, "at": NOW.isoformat()}).encode()
        when = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
        wire.producer.produce(clicks, value=value, key=user, partition=0, **when)
        assert wire.producer.flush(60) == 0

    query = run_here(app, Connection.of(broker.bootstrap))
    users = ["ann", *(f"mallory {i}" for i in range(len(TIMESTAMPS_MS))), "bob"]
    try:
        click("ann")
        for i, timestamp_ms in enumerate(TIMESTAMPS_MS):
            click(f"mallory {i}", timestamp_ms)
        click("bob")
        for topic in (live, batched):
            wire.await_count(topic, len(users), query)
        wire.await_count(timed, len(users) - 2, query)
    finally:
        query.stop()
    assert query.exception() is None
    assert [row["user"] for row in wire.rows(live)] == users
    assert [row["user"] for row in wire.rows(batched)] == users
    # Far before 1970 is far before the time of the record, so this one is ahead of the clock.
    assert [row["user"] for row in wire.rows(timed)] == [u for u in users if u not in ("mallory 0", "mallory 1")]
