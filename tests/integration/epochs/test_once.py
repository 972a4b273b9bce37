"""A run with `--once` ends by itself: all that was in the sources is processed, published and saved. An interrupted one
continues to the same ends."""

import json
import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sql
from confluent_kafka import Producer
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.runtime.supervision import host
from falkirk.runtime.supervision.clocks import Clocks
from falkirk.runtime.supervision.query import Query
from falkirk.spark_setup.broker import Broker
from tests.duplicates import BEGAN
from tests.integration.live import Wire
from tests.timers import Result, clocked, clocked_results, results

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS, FIRST, MORE = 10, 25, 8
#: A minute, and each of its parts has unit tests. It runs with FALKIRK_STRIKES alone.
SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")


def application(tag: str, home: Path, database: str) -> fk.App:
    app = fk.App("once", home=home)
    app.source("events", fk.Kafka(f"events-{tag}", schema="n INT"))

    @app.stream(fk.Lazy("2 seconds"))
    def live(events: fk.Stream) -> fk.Stream:
        return events.where("n >= 0")

    @app.batch(rows=1000)
    def behind(live: "DataFrame") -> "DataFrame":
        """Count the records of the hop; an epoch of this many records never comes."""
        return live.agg(F.count("*").alias("rows"))

    @app.batch(rows=ROWS, state="rows LONG", policy=fk.Lazy("1 hour"))
    def totals(events: "DataFrame", totals: "DataFrame") -> "tuple[DataFrame, DataFrame]":
        """Count each epoch; the state is not saved as long as the application runs."""
        new = events.agg(F.count("*").alias("rows"))
        return new, totals.unionByName(new).agg(F.sum("rows").alias("rows"))

    app.sink("live", live, fk.Kafka(f"live-{tag}"))
    app.sink("behind", behind, fk.Sql(database, "behind"))
    app.sink("totals", totals, fk.Sql(database, "totals"))
    return app


def counted(database: str, table: str) -> list[int]:
    """Return the column `rows` of a table, sorted; nothing if there is no such table."""
    engine = sql.create_engine(database)
    if not sql.inspect(engine).has_table(table):
        return []
    with engine.begin() as db:
        return sorted(db.execute(sql.text(f"SELECT rows FROM {table}")).scalars())


def last_is_saved(query: Query) -> bool:
    return query._host._batches.regions["totals"].epochs.epochs()[-1].saved


def await_end(query: Query) -> None:
    """Wait until a query has ended by itself."""
    try:
        assert query.awaitTermination(120), query.status
    finally:
        query.stop()


def test_it_ends_when_the_input_of_its_start_is_processed(
    spark: "SparkSession", broker: Broker, home: Path, tag: str
) -> None:
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
    events, live = wire.topic("events"), wire.topic("live")
    app = application(tag, home, database)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": tag, "log_level": 0})
    producer.init_transactions()
    producer.begin_transaction()
    for n in range(FIRST):
        producer.produce(events, json.dumps({"n": n}), partition=n % 2)
    producer.commit_transaction()  # each partition ends with a marker, which no reader reaches

    query = app.start(kafka=broker.bootstrap, home=home, once=True)
    query.stop()  # interrupted
    wire.send(events, [{"n": FIRST + n} for n in range(MORE)])
    query = app.start(kafka=broker.bootstrap, home=home, once=True)
    await_end(query)
    assert query._host.is_over
    assert wire.count(live) >= FIRST
    assert sum(counted(database, "behind")) >= FIRST
    assert counted(database, "totals") == [FIRST % ROWS, ROWS, ROWS]
    assert last_is_saved(query)

    query = app.start(kafka=broker.bootstrap, home=home, once=True)  # it has new ends
    await_end(query)
    assert len(wire.rows(live)) == sum(counted(database, "behind")) == FIRST + MORE
    assert counted(database, "totals") == [FIRST % ROWS, MORE, ROWS, ROWS]
    assert last_is_saved(query)


def mixed(tag: str, home: Path, database: str, folder: Path) -> fk.App:
    """An application with event time, a folder, a view that has no input at first, and results that wait."""
    app = fk.App("mixed", home=home)
    app.source("events", fk.Kafka(f"events-{tag}", schema="n INT, at TIMESTAMP"))
    app.source("nothing", fk.Kafka(f"nothing-{tag}", schema="rows INT"))
    app.source("queries", fk.Kafka(f"queries-{tag}", schema="rows INT"))
    app.source("files", fk.Files(str(folder), "json", schema="rows INT"))

    @app.batch(every="10 seconds", by="at")
    def timed(events: "DataFrame") -> "DataFrame":
        return events.agg(F.count("*").alias("rows"))

    @app.batch(every="1 hour")
    def read(files: "DataFrame") -> "DataFrame":
        return files

    @app.batch(every="1 hour")
    def facts(nothing: "DataFrame") -> "DataFrame":
        return nothing

    @app.stream(fk.Eager())
    def answers(queries: "DataFrame", facts: fk.View) -> "DataFrame":
        return queries.join(facts, "rows", "left")

    @app.stream(fk.Lazy("2 seconds"))
    def drawn(events: fk.Stream) -> fk.Stream:
        return events.withColumn("ids", F.expr("array(uuid(), uuid())")).explode("ids", "id").select("n", "id")

    for processor in (timed, read, answers):
        app.sink(processor.__name__, processor, fk.Sql(database, processor.__name__))
    app.sink("drawn", drawn, fk.Kafka(f"drawn-{tag}"))
    return app


@SOAK
def test_event_time_files_views_and_results_that_wait(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, tmp_path: Path
) -> None:
    wire, database, folder = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db", tmp_path / "in"
    events, nothing, queries, drawn = (wire.topic(name) for name in ("events", "nothing", "queries", "drawn"))
    folder.mkdir()
    (folder / "a.json").write_text('{"rows": 1}\n{"rows": 2}\n')
    wire.send(events, [{"n": n, "at": f"2026-01-01T00:00:{n:02d}Z"} for n in range(35)])
    wire.send(events, [{"n": 35, "at": "2026-01-01T00:00:34Z"}], partition=1)
    wire.send(queries, [{"rows": 1}])

    query = mixed(tag, home, database, folder).start(kafka=broker.bootstrap, home=home, once=True)
    await_end(query)
    assert query._host.once is not None
    assert (query._host.once.stuck, query._host.once.left) == ({"answers": "facts"}, 1)
    assert wire.count(drawn) == 72
    assert counted(database, "timed") == [10, 10, 10], "the last slice waits for its end"
    assert (counted(database, "read"), counted(database, "answers")) == ([1, 2], [])

    wire.send(nothing, [{"rows": 1}])
    (folder / "b.json").write_text('{"rows": 3}\n')
    query = mixed(tag, home, database, folder).start(kafka=broker.bootstrap, home=home, once=True)
    await_end(query)
    assert query._host.once is not None
    assert (query._host.once.stuck, query._host.once.left) == ({}, 0)
    assert (counted(database, "read"), counted(database, "answers")) == ([1, 2, 3], [1])


@SOAK
def test_a_timer_that_is_due_when_a_run_begins_fires_in_it(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third run has no new record: only the time of its begin makes the timers fire."""
    wire, now_s = Wire(bootstrap=broker.bootstrap, tag=tag), [BEGAN.timestamp()]
    monkeypatch.setattr(host, "Clocks", partial(Clocks, now_s=lambda: now_s[0]))
    clicks, out = wire.topic("clicks"), wire.topic("out")
    wire.send(clicks, [{"id": f"k{n}", "n": n} for n in range(10, 20)])

    def run() -> Counter[Result]:
        app = fk.App("clocked", home=home)
        app.source("clicks", fk.Kafka(clicks, schema="id STRING NOT NULL, n INT", key="id"))
        app.source("clock", fk.Clock("1 hour"))
        app.add_processor("timed", clocked, reads=("clicks", "clock"), policy=fk.Lazy("2 seconds"))
        app.sink("out", "timed", fk.Kafka(out, key="id"))
        await_end(app.start(kafka=broker.bootstrap, home=home, once=True))
        return results(wire.rows(out))

    due = clocked_results([[{"id": f"k{n}", "n": n} for n in range(10, 20)]])
    of_records = Counter({result: count for result, count in due.items() if result[1] is not None})
    assert run() == of_records
    assert run() == of_records, "no timer is due"
    now_s[0] += 60
    assert run() == due
