"""A record that a fenced incarnation sent and that comes late: every reader of a log of ours skips it."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.ranges import Message, read_messages
from falkirk.kafka_client.void import Void
from falkirk.plan.batch import BatchInput
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.epochs.inputs import FitColumns, Inputs
from falkirk.runtime.spark.epochs.log import Epoch
from falkirk.runtime.spark.sinks import copying
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from falkirk.steps.sources import reads
from falkirk.steps.sources.topics import parsing
from falkirk.theory.ids import Incarnation, LogId, Offset
from tests.integration.live import Wire, await_one

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@cache
def _app(wire: Wire, home: Path) -> fk.App:
    """Count words that come from several partitions: so they pass through a hop by word."""
    app = fk.App("late", home=home)
    app.source("events", fk.Kafka(f"events-{wire.tag}", schema="word STRING NOT NULL, n INT"))

    @app.stream(fk.Lazy("2 seconds"))
    def counted(events: fk.Stream) -> fk.Stream:
        return events.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))

    app.sink("counts", counted, fk.Kafka(f"counts-{wire.tag}", key="word"))
    return app


def _append_late(wire: Wire, topic: str, late: Message) -> None:
    """Append the request of a killed writer: an unchanged copy of a record."""
    producer = Producer({"bootstrap.servers": wire.bootstrap, "log_level": 0})
    producer.produce(topic, key=late.key(), value=late.value(), partition=late.partition(), headers=late.headers())
    assert producer.flush(30) == 0


def _counts_with_a_late_record(wire: Wire, home: Path) -> Counter[tuple[str, int]]:
    """Run, run again, let a record of the first run arrive late in the hop, and return the released results."""
    events, counts = wire.topic("events"), wire.topic("counts")
    connection = Connection.of(wire.bootstrap)

    def released(query: Query, expected: int) -> Callable[[], object]:
        return lambda: wire.count(counts) >= expected

    first = run_here(_app(wire, home), connection)
    (hop,) = first.hops
    wire.send(events, [{"word": "a", "n": n} for n in range(3)], partition=0)
    await_one(first, released(first, 3), "the first results")
    first.stop()
    *_, late = read_messages(connection, hop, wire.topics.first_positions(hop), wire.topics.end_positions(hop))
    second = run_here(_app(wire, home), connection)
    _append_late(wire, hop, late)
    wire.send(events, [{"word": "a", "n": n} for n in range(3, 6)], partition=1)
    await_one(second, released(second, 6), "the results of the second run")
    await_one(second, lambda: any(row["n"] == 5 for row in wire.rows(counts)), "the last result")
    second.stop()
    return Counter((row["word"], row["version"]) for row in wire.rows(counts))


@pytest.fixture
def wire(spark: "SparkSession", broker: Broker, tag: str) -> Wire:
    """Topics of the test's own on the broker; there is a session."""
    return Wire(bootstrap=broker.bootstrap, tag=tag)


def test_a_late_record_in_a_hop_counts_once(wire: Wire, home: Path) -> None:
    assert _counts_with_a_late_record(wire, home) == Counter(("a", version) for version in range(1, 7))


def test_without_the_fence_of_its_writer_it_counts_twice(
    wire: Wire, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Storage, "void", lambda *_: Void())
    assert _counts_with_a_late_record(wire, home) == Counter(("a", version) for version in range(1, 8))


# -- the other readers of logs -----------------------------------------------------------------------------------------

LOG = LogId("log")
#: The second incarnation began at this offset. The record after it is a late one of the first incarnation.
FENCE = 6
WRITERS = {5: 1, 6: 2, 7: 1, 8: 2}


class _Context:
    """The part of a context that a reader of a log needs. The log has a record of each of these writers."""

    home, signing_key = SimpleNamespace(identity="deadbeef"), SimpleNamespace(of=lambda topic, incarnation: b"key")
    topics = SimpleNamespace(facts=lambda topic: SimpleNamespace(max_message_bytes=1_000_000))

    def __init__(self, session: "SparkSession") -> None:
        self.session = session

    def void(self, topic: LogId) -> Void:
        return Void(fences=[(0, Offset(FENCE), Incarnation(2))])

    def kafka_options(self) -> dict[str, str]:
        return {}

    def records(self, *log: object, headers: bool, **options: object) -> "DataFrame":
        rows = [
            (b"a", b'{"n": %d}' % n, LOG, 0, n, 0, [("falkirk", b"deadbeef/%d/0.0.%d/0/tag" % (writer, n))])
            for n, writer in WRITERS.items()
        ]
        kinds = "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestampType INT"
        found = self.session.createDataFrame(rows, f"{kinds}, headers ARRAY<STRUCT<key: STRING, value: BINARY>>")
        found = found.withColumn("timestamp", F.lit(0).cast("timestamp"))
        return found if headers else found.drop("headers")


def _by_a_copy(context: _Context, monkeypatch: pytest.MonkeyPatch) -> "DataFrame":
    written: list[DataFrame] = []
    monkeypatch.setattr(reads, "spark_records", context.records)
    monkeypatch.setattr(copying, "write", lambda context, sink, rows, limit: written.append(rows))
    copying.copy(cast(Any, context), LOG, "out", {0: Offset(5)}, {0: Offset(9)})
    return written[0].select(F.get_json_object(F.col("value").cast("string"), "$.n").cast("int").alias("n"))


def _by_an_epoch(context: _Context, monkeypatch: pytest.MonkeyPatch) -> "DataFrame":
    topic = fk.Kafka(LOG, schema="n INT")
    schema = context.session.createDataFrame([], "n INT").schema
    given = BatchInput(name="a", log=LOG, topic=topic, reads_hop=True, schema=schema)
    batch = cast(Any, SimpleNamespace(cut=None, name="b", inputs=(given,)))
    last = {LOG: {0: Offset(9)}}
    epoch = cast(Any, Epoch)(number=0, first={LOG: {0: 5}}, last=last, then=last, views={}, cut_at_s=0.0)
    read = Inputs(
        context.session, cast(Any, context), batch, epoch, {}, {}, {LOG: parsing(topic, context.session)}, FitColumns()
    )
    return read.frames["a"]


@pytest.mark.parametrize("reader", [_by_a_copy, _by_an_epoch])
def test_a_copy_and_an_epoch_skip_a_late_record(
    spark: "SparkSession", reader: Callable[[_Context, pytest.MonkeyPatch], "DataFrame"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The later incarnation has sent the same result again, so it would be in the sink, or in the state, twice."""
    assert [row["n"] for row in reader(_Context(spark), monkeypatch).orderBy("n").collect()] == [5, 6, 8]
