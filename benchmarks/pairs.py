"""Pairs: defines each job twice, as a careful engineer writes it in plain Spark, and with Falkirk.

Both sides use the same function where they have one.

    live     a running count per key: a Real-time Mode query; a live processor
    stream   a count per key of the records that have arrived: a micro-batch query with `foreachBatch`; an eager stream
    batch    a count per key of a fixed number of records: a job that reads a range and then records its end; a batch
    beside   `live`, and in the same session a batch of another topic every two seconds

Plain Spark repeats results after a failure in all four, and its batch may also be half complete.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.child import Child, serve
from benchmarks.jobs import KEYED_COUNT, application, plain
from falkirk.app import App
from falkirk.declare.cut import ByClock, ByRows, Cut, OnArrival
from falkirk.declare.endpoints import Kafka
from falkirk.declare.policy import Delivery, Eager, LogSends
from falkirk.declare.stream import source_node
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.platform.durable import write_atomically
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.partitions import batch_partitions
from falkirk.spark_setup.spark import BATCH_POOL, LIVE_POOL, spark_session
from falkirk.theory.ids import LogId, Positions
from falkirk.theory.offsets import positions_from_json

PAIRS = ("live", "stream", "batch", "beside")
#: The pause between two looks of a plain batch job for input, as in Falkirk.
LOOK_S = 0.1
#: The interval of the batch beside the live part.
BESIDE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a pair.

    Args: interval_s: between checkpoints of the live part. records: the number in an epoch of the batch. facts,
        tallies: the input and the output of the batch beside the live part.
    """

    pair: str
    falkirk: bool
    bootstrap: str
    source: str
    sink: str
    facts: str
    tallies: str
    home: Path
    interval_s: float
    records: int


class RunningSide(Child):
    """A side that has been started. The account that `stop` returns is only True."""

    def __init__(self, side: Side) -> None:
        super().__init__(_run, side, f"{side.pair}, {'Falkirk' if side.falkirk else 'plain'}")


def counted(records: DataFrame) -> DataFrame:
    """Return the count and the greatest number of each word: the function of batches and micro-batches."""
    return records.groupBy("word").agg(F.count("*").alias("version"), F.max(F.col("n").cast("long")).alias("n"))


def _run(side: Side, pipe: "Pipe[Any, Any]") -> None:
    start = _with_falkirk if side.falkirk else _without

    def finish(stop: Callable[[], None]) -> object:
        stop()
        return True

    serve(pipe, lambda: start(side), finish)


def _with_falkirk(side: Side) -> Callable[[], None]:
    spark_session("falkirk-bench", master="local[24]")
    if side.pair in ("live", "beside"):
        app = application(
            KEYED_COUNT, side.source, side.sink, Delivery.EXACTLY_ONCE, side.interval_s, side.home / "falkirk"
        )
        if side.pair == "beside":
            add_batch(app, "facts", side.facts, side.tallies, ByClock(every_s=BESIDE_S), LogSends())
    else:
        app = App(f"bench-{side.pair}", home=side.home / "falkirk")
        cut = OnArrival() if side.pair == "stream" else ByRows(rows=side.records)
        add_batch(app, "records", side.source, side.sink, cut, Eager())
    return run_here(app, Connection.of(side.bootstrap), create_topics=True).stop


def add_batch(app: App, name: str, source: str, sink: str, cut: Cut, policy: Any) -> None:
    """Add to an application the count of a topic: source, batch and sink."""
    app.sources[name] = source_node(name, Kafka(source, schema=KEYED_COUNT.schema, key="word"))
    app.add_processor(f"{name}-counted", counted, reads=(name,), policy=policy, cut=cut)
    app.sink(f"{name}-counted", f"{name}-counted", Kafka(sink, key="word"))


def _without(side: Side) -> Callable[[], None]:
    # The same kind of session as Falkirk's: any plain application can have its scheduling pools and file system.
    session = spark_session("plain", master="local[24]")
    if side.pair == "stream":
        return _micro_batches(session, side).stop
    if side.pair == "batch":
        job = _Job(session, side, side.source, side.sink, ByRows(rows=side.records))
        job.start()
        return job.stop
    session.sparkContext.setLocalProperty("spark.scheduler.pool", LIVE_POOL)
    topics = (side.source, side.sink)
    query: StreamingQuery = plain(KEYED_COUNT, session, side.bootstrap, *topics, side.interval_s, side.home / "query")
    if side.pair == "live":
        return query.stop
    job = _Job(session, side, side.facts, side.tallies, ByClock(every_s=BESIDE_S))
    job.start()

    def stop() -> None:
        job.stop()
        query.stop()

    return stop


def _micro_batches(session: SparkSession, side: Side) -> StreamingQuery:
    own = session.newSession()
    own.conf.set("spark.sql.shuffle.partitions", str(batch_partitions(session)))

    def write(records: DataFrame, number: int) -> None:
        _write(counted(records), side.bootstrap, side.sink)

    reader = own.readStream.format("kafka").option("kafka.bootstrap.servers", side.bootstrap)
    raw = reader.option("subscribe", side.source).option("startingOffsets", "earliest").load()
    writer = _rows(raw).writeStream.foreachBatch(write)
    return writer.option("checkpointLocation", str(side.home / "query")).start()


def _rows(raw: DataFrame) -> DataFrame:
    return raw.select(F.from_json(F.col("value").cast("string"), KEYED_COUNT.schema).alias("r")).select("r.*")


def _write(result: DataFrame, bootstrap: str, topic: str) -> None:
    out = result.select(F.col("word").cast("binary").alias("key"), F.to_json(F.struct("*")).alias("value"))
    writer = out.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    writer.option("kafka.linger.ms", "0").option("topic", topic).save()


class _Job:
    """A plain batch job. When there is input, it reads a range, writes results, and records the end of the range."""

    def __init__(self, session: SparkSession, side: Side, source: str, sink: str, cut: Cut) -> None:
        self._session = session.newSession()
        self._session.conf.set("spark.sql.adaptive.enabled", "true")
        self._session.conf.set("spark.sql.shuffle.partitions", str(batch_partitions(session)))
        self._bootstrap, self._source, self._sink, self._cut = side.bootstrap, source, sink, cut
        self._note = side.home / f"{source}.json"
        self._topics = Topics(Connection.of(side.bootstrap))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="plain-batch", daemon=True)

    def start(self) -> None:
        """Start to look for input."""
        self._note.parent.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current job."""
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        self._session.sparkContext.setLocalProperty("spark.scheduler.pool", BATCH_POOL)
        first: Positions = {LogId(self._source): self._topics.first_positions(self._source)}
        last_at_s = time.time()
        while not self._stopping.wait(LOOK_S):
            if not self._cut.may_be_due(now_s=time.time(), last_at_s=last_at_s):
                continue
            ends: Positions = {LogId(self._source): self._topics.readable_positions(self._source)}
            last = self._cut.end_of_epoch(first, ends, now_s=time.time(), last_at_s=last_at_s)
            if last is None:
                continue
            last_at_s = time.time()
            _write(counted(_rows(self._range(first, last))), self._bootstrap, self._sink)
            write_atomically(self._note, json.dumps(last))
            first = positions_from_json(json.loads(self._note.read_text()))

    def _range(self, first: Positions, last: Positions) -> DataFrame:
        reader = self._session.read.format("kafka").option("kafka.bootstrap.servers", self._bootstrap)
        return (
            reader.option("subscribe", self._source)
            .option("startingOffsets", json.dumps(first))
            .option("endingOffsets", json.dumps(last))
            .load()
        )
