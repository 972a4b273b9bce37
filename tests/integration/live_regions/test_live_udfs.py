"""UDFs of live regions over real Kafka: the results of micro-batches, once, over kills of workers and a restart."""

import os
import signal
from collections import Counter
from functools import cache, partial
from pathlib import Path

from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.policy import DEFAULT_POLICY
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.supervision.query import Query, run_here
from tests.integration.live import Wire, await_checkpoints, await_one, ended_incarnations, settle
from tests.integration.live_functions import described, half, is_wanted
from tests.integration.live_regions.test_live_python import SCHEMA, record, workers


def chosen(events: fk.Stream) -> fk.Stream:
    kind = "text STRING, tags MAP<STRING, DOUBLE>, days ARRAY<DATE>"
    plain, arrow = F.udf(is_wanted, "boolean", useArrow=False), F.udf(described, kind, useArrow=True)
    halved = F.udf(half, "double", useArrow=True)
    wanted = events.where(plain("n"))
    return wanted.select("id", "n", arrow("n", "at", "tags").alias("told"), (halved(halved("n")) + 1).alias("x"))


def summed(events: fk.Stream) -> fk.Stream:
    halves = F.udf(half, "double", useArrow=False)
    return events.withColumn("half", halves("n")).groupBy("id").agg(F.sum("half").alias("total"))


def timed(events: fk.Stream) -> fk.Stream:
    """Some records fail before a keyed step that knows the time of partitions."""
    late = events.withWatermark("at", "400 days").where(F.udf(is_wanted, "boolean", useArrow=False)("n"))
    return late.groupBy(F.window("at", "1 day"), "id").outputMode("update").agg(F.count("*").alias("count"))


def firsts(events: fk.Stream) -> fk.Stream:
    halved = F.udf(half, "double", useArrow=True)
    timely = events.withWatermark("at", "400 days").withColumn("half", halved("n"))
    wanted = timely.where(F.udf(is_wanted, "boolean", useArrow=False)("n"))
    return wanted.dropDuplicates(["id", "half"]).select("id", "n", "half")


@cache
def application(wire: Wire, home: Path) -> fk.App:
    app = fk.App(f"udfs-{wire.tag}", home=home)
    app.source("events", fk.Kafka(f"events-{wire.tag}", schema=SCHEMA, key="id"))
    for name, body in {"live": chosen, "sums": summed}.items():
        app.add_processor(name, body, reads=("events",), policy=fk.Lazy("10 seconds"), engine="live")
    good = lambda events: chosen(events.where("n % 10 <> 7"))  # noqa: E731  # one of Spark's own workers would fail
    app.add_processor("batch", good, reads=("events",), policy=DEFAULT_POLICY, engine="micro-batch")
    for name in ("live", "sums", "batch"):
        app.sink(f"{name}-out", name, fk.Kafka(f"{name}-out-{wire.tag}"))
    return app


def test_results_are_those_of_micro_batches_over_kills_and_a_restart(wire: Wire, home: Path) -> None:
    events = wire.topic("events")
    outs = {name: wire.topic(f"{name}-out") for name in ("live", "sums", "batch")}
    letters = f"{outs['live']}.dead-letters"

    def has(topic: str, count: int) -> bool:
        return wire.count(topic) >= count

    def send(numbers: range) -> None:
        for partition in (0, 1):
            wire.send(events, [record(n) for n in numbers if n % 5 % 2 == partition], partition=partition)

    def await_all(query: Query, numbers: range) -> None:
        due = sum(n % 3 != 0 and n % 10 != 7 for n in numbers)
        for topic, count in {
            outs["live"]: due, outs["batch"]: due, outs["sums"]: len(numbers), letters: len(numbers) // 10,
        }.items():  # fmt: skip
            await_one(query, partial(has, topic, count), f"{count} records in {topic}")

    query = run_here(application(wire, home), Connection.of(wire.bootstrap), create_topics=True)
    try:
        send(range(100))
        await_one(query, partial(has, outs["live"], 40), "live results")
        send(range(100, 400))
        await_one(query, partial(has, outs["sums"], 150), "more sums")
        assert len(workers()) >= 4, "a process for each task that calls Python"
        for each in workers():
            os.kill(each.pid, signal.SIGKILL)
        await_all(query, range(400))
        assert not ended_incarnations(query), "no region has noticed"
        await_checkpoints(query)
    finally:
        query.stop()
    send(range(400, 500))
    query = run_here(application(wire, home), Connection.of(wire.bootstrap), create_topics=True)
    try:
        await_all(query, range(500))
    finally:
        query.stop()
    live, batch = (Counter(map(str, wire.rows(outs[name]))) for name in ("live", "batch"))
    assert live == batch
    assert max(live.values()) == 1
    told = wire.rows(letters)
    assert Counter(row["reason"] for row in told) == Counter(
        f"the function failed: ValueError: no {n}" for n in range(7, 500, 10)
    )
    assert all("in is_wanted" in row["traceback"] and row["topic"] == events for row in told)
    assert sum(row["total"] * 2 == sum(range(key, 500, 5)) for row in wire.rows(outs["sums"])
               for key in [int(row["id"][1:])]) >= 5  # fmt: skip
    assert len(wire.rows(outs["sums"])) == 500


def test_a_failure_before_a_keyed_step_with_event_time(wire: Wire, home: Path) -> None:
    """A bad record must not count as a row that moves the time of all partitions."""
    events, outs = wire.topic("events"), {name: wire.topic(f"{name}-out") for name in ("timed", "firsts")}
    app = fk.App(f"keyed-{wire.tag}", home=home)
    app.source("events", fk.Kafka(events, schema=SCHEMA, key="id"))
    for name, body in {"timed": timed, "firsts": firsts}.items():
        app.add_processor(name, body, reads=("events",), policy=fk.Lazy("2 seconds"), engine="live")
        app.sink(f"{name}-out", name, fk.Kafka(outs[name]))
    for partition in (0, 1):
        wire.send(events, [record(n) for n in range(200) if n % 5 % 2 == partition], partition=partition)
    wanted = [n for n in range(200) if n % 10 != 7 and n % 3]
    query = run_here(app, Connection.of(wire.bootstrap), create_topics=True)
    try:
        for topic in outs.values():
            wire.await_count(topic, len(wanted), query)
            wire.await_count(f"{topic}.dead-letters", 20, query)
        settle(query)
    finally:
        query.stop()
    for topic in outs.values():
        reasons = Counter(row["reason"] for row in wire.rows(f"{topic}.dead-letters"))
        assert reasons == Counter(f"the function failed: ValueError: no {n}" for n in range(7, 200, 10))
    assert Counter((row["n"], row["half"]) for row in wire.rows(outs["firsts"])) == Counter((n, n / 2) for n in wanted)
    counts = Counter((row["id"], row["window"]["start"][:10], row["count"]) for row in wire.rows(outs["timed"]))
    assert (counts.total(), max(counts.values())) == (len(wanted), 1)
