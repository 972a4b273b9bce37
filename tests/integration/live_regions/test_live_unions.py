"""Several topics in one live region: the results are those of micro-batches, over a restart without a checkpoint.

Usually the first run makes no checkpoint. So the second one reads all records of all topics again, and the barrier must
drop exactly the published results. Records of both topics have the same partitions and offsets: only the number of
their source distinguishes them.
"""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.checker import Guarantee
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.spark import rows
from falkirk.runtime.spark.rows import Barrier
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.theory.channel import ReleasedTail
from falkirk.user_tools.commands.judge import LiveJudge
from tests.integration.judged import see_judged
from tests.integration.live import Wire, await_one, failed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id STRING NOT NULL, parts ARRAY<STRING>"
#: Longer than a run on a machine with time: a checkpoint covers no result.
NEVER = "20 seconds"
SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")


def divided(orders: fk.Stream, web: fk.Stream) -> fk.Stream:
    """Return the steps of a processor: a list, united with a source whose columns have other names."""
    more = web.where("who <> 'none'").withColumnRenamed("what", "part")
    return orders.explode("parts", "part").drop("parts").union(more).withColumn("loud", F.upper("part"))


def application(wire: Wire, home: Path, *, engine: Any = "live", interval: str = NEVER) -> fk.App:
    app = fk.App(f"unions-{wire.tag}", home=home)
    topics = [f"us-{wire.tag}", f"eu-{wire.tag}"]
    app.source("orders", fk.Kafka(topics, schema=SCHEMA, key="id"))
    app.source("web", fk.Kafka(f"web-{wire.tag}", schema="who STRING NOT NULL, what STRING"))
    app.stream(fk.Lazy(interval) if engine == "live" else None, engine=engine)(divided)
    app.sink("out", "divided", fk.Kafka(f"out-{wire.tag}", key="id"))
    if engine == "live":

        @app.stream(fk.Lazy(interval))
        def counted(orders: fk.Stream) -> fk.Stream:
            return orders.groupBy("id").count()

        app.sink("counts", counted, fk.Kafka(f"counts-{wire.tag}", key="id"))
    return app


def send(wire: Wire, half: int) -> None:
    """Send half of the records. Each `id` of the list is in one partition of one of its topics."""
    for topic in ("eu", "us"):
        for partition in (0, 1):
            rows_ = [{"id": f"{topic}{partition}", "parts": [f"a{half}{n}", "b"]} for n in range(10)]
            wire.send(f"{topic}-{wire.tag}", [*rows_, b"no json"], partition=partition)
    for partition in (0, 1):
        who = [{"who": "none" if n % 3 else f"w{partition}", "what": f"c{half}{n}"} for n in range(9)]
        wire.send(f"web-{wire.tag}", who, partition=partition)


def expected(halves: int) -> Counter[tuple[str, str]]:
    """Return the results (id, part) of the steps, from the records that were sent."""
    found = Counter[tuple[str, str]]()
    for half in range(halves):
        for id in ("eu0", "eu1", "us0", "us1"):
            found.update((id, part) for n in range(10) for part in (f"a{half}{n}", "b"))
        found.update((f"w{p}", f"c{half}{n}") for p in (0, 1) for n in range(0, 9, 3))
    return found


def results(wire: Wire) -> Counter[tuple[str, str]]:
    found = wire.rows(f"out-{wire.tag}")
    assert all(row["loud"] == row["part"].upper() for row in found)
    return Counter((row["id"], row["part"]) for row in found)


def letters(wire: Wire, topic: str) -> Counter[tuple[str, int, int]]:
    """Return the places of the dead letters in a topic."""
    return Counter((row["topic"], row["partition"], row["offset"]) for row in wire.rows(topic))


def run(wire: Wire, home: Path, half: int, *, engine: str = "live", transactional: bool | None = None) -> None:
    """Run the application until all results of the records up to a half are there. Send the half while it runs."""
    app = application(wire, home, engine=engine, interval="2 seconds" if half else NEVER)
    app.transactional = transactional
    query = run_here(app, Connection.of(wire.bootstrap))
    send(wire, half)
    await_one(query, lambda: wire.count(f"out-{wire.tag}") >= expected(half + 1).total(), "the results")
    if engine == "live":
        await_one(query, lambda: wire.count(f"counts-{wire.tag}") >= 40 * (half + 1), "the counts")
    query.stop()


@pytest.fixture
def topics(wire: Wire) -> Wire:
    for name in ("eu", "us", "web", "out", "counts"):
        wire.topic(name)
    return wire


def test_each_result_is_there_once_after_a_restart_without_a_checkpoint(
    topics: Wire, home: Path, spark: "SparkSession"
) -> None:
    run(topics, home, 0)
    run(topics, home, 1)
    assert results(topics) == expected(2)
    counts = Counter((row["id"], row["count"]) for row in topics.rows(f"counts-{topics.tag}"))
    assert counts == Counter((id, n) for id in ("eu0", "eu1", "us0", "us1") for n in range(1, 21))
    bad = {(f"{topic}-{topics.tag}", p, offset) for topic in ("eu", "us") for p in (0, 1) for offset in (10, 21)}
    for of in ("out", "counts"):
        assert letters(topics, f"{of}-{topics.tag}.dead-letters") == Counter(bad), of
    app = application(topics, home)
    if "FALKIRK_STRIKES" in os.environ:
        verdict = LiveJudge(app, Connection.of(topics.bootstrap), spark).judge_sink(app.sinks["counts"])
        assert verdict.satisfies(Guarantee.EXACTLY_ONCE), verdict.results.anomalies
    last = [{"id": "us0", "parts": ["new"]}, b"no json"]
    see_judged(spark, app, "out", topics, lambda: topics.send(f"us-{topics.tag}", last), late=1)


def _open(*args: Any) -> Barrier:
    return Barrier(main=ReleasedTail(), dead=ReleasedTail())


@SOAK
@pytest.mark.parametrize("broken", ["no barrier", "no sources"])
def test_a_wrong_barrier_loses_or_repeats_results(
    topics: Wire, home: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(topics, home, 0)
    if broken == "no barrier":
        monkeypatch.setattr("falkirk.runtime.spark.outputs.Outputs.barrier", _open)
    else:  # compares all sources with the stamps of the first one
        table: Callable[..., Any] = rows._table

        def of_first(greatest: Any, shape: Any, depth: int) -> list[Any]:
            cells = table(greatest, shape, depth)
            return cells[: len(cells) // shape[0]] * shape[0]

        monkeypatch.setattr(rows, "_table", of_first)
    query = run_here(application(topics, home), Connection.of(topics.bootstrap))
    send(topics, 1)
    await_one(query, lambda: results(topics)[("eu0", "a19")], "a new result")
    await_one(query, lambda: wrong(topics, query), "a wrong result")
    query.stop()


def wrong(wire: Wire, query: Query) -> bool:
    """Whether a result is there twice, or the newest of its partition is there without an earlier one."""
    found = results(wire)
    twice = any(found[each] > due for each, due in expected(2).items())
    lost = found[("w0", "c16")] == 1 and found[("w0", "c10")] == 0
    return twice or lost


@SOAK
def test_micro_batches_give_the_same_results(topics: Wire, home: Path) -> None:
    run(topics, home, 0, engine="micro-batch")
    run(topics, home, 1, engine="micro-batch")
    assert results(topics) == expected(2)


@SOAK
def test_fenced_lanes_give_the_same_results(topics: Wire, home: Path) -> None:
    run(topics, home, 0, transactional=True)
    run(topics, home, 1, transactional=True)
    found = Counter((row["id"], row["part"]) for row in topics.rows(f"out-{topics.tag}"))
    assert found == expected(2)


@SOAK
def test_a_key_in_the_same_partition_of_two_topics_ends_the_application(topics: Wire, home: Path) -> None:
    app = application(topics, home, interval="2 seconds")
    del app.sinks["out"], app.processors["divided"]  # a second region would stay up
    query = run_here(app, Connection.of(topics.bootstrap))
    for topic in ("eu", "us"):
        topics.send(f"{topic}-{topics.tag}", [{"id": "both", "parts": []}])
    error = failed(query)
    assert error.condition == "NOT_CO_PARTITIONED"
    assert f"partition 0 of eu-{topics.tag} and partition 0 of us-{topics.tag}" in str(error)
