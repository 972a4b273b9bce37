"""Forged records in the topics of a live region: a restart gives all results, each once, and the status names the
forgery."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.header import header_value
from falkirk.kafka_client.ranges import read_messages
from falkirk.kafka_client.signing import KEY_MARK, SigningKey, VerifiedHeader, Verifier
from falkirk.runtime.spark import foreign
from falkirk.runtime.spark.signed import signed_header
from falkirk.runtime.supervision.query import Query
from falkirk.spark_setup.broker import Broker
from falkirk.theory.ids import Incarnation
from tests.integration.live import Wire, await_one, settle
from tests.integration.live_regions.test_live import counted, events_of, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATES = range(8)


@pytest.fixture
def wire(spark: "SparkSession", broker: Broker, tag: str) -> Wire:
    """Topics of the test's own on the broker; there is a session."""
    return Wire(bootstrap=broker.bootstrap, tag=tag)


def forge(wire: Wire, topic: str, headers: Sequence[bytes]) -> None:
    """Put one record for each header into each partition of a topic."""
    for partition in wire.topics.end_positions(topic):
        for header in headers:
            wire.producer.produce(topic, b'{"word": "forged"}', partition=partition, headers=[("falkirk", header)])
    assert wire.producer.flush(30) == 0


def headers_in(wire: Wire, topic: str) -> list[bytes]:
    first, last = wire.topics.first_positions(topic), wire.topics.end_positions(topic)
    found = [header_value(m.headers()) for m in read_messages(wire.bootstrap, topic, first, last)]
    return [header for header in found if header is not None]


@pytest.mark.parametrize("numbers", [3, 5])
def test_sparks_tags_are_those_that_are_verified(numbers: int, spark: "SparkSession") -> None:
    signing = SigningKey(secret=bytes(range(32)), since_birth=True)
    records = [
        (partition, offset, key, value)
        for offset, (key, value) in enumerate(product((None, b"", b"k", b"\xff/@"), (None, b"", b"v", bytes(200))))
        for partition in (0, 11)
    ]
    frame = spark.createDataFrame(records, "partition INT, offset LONG, key BINARY, value BINARY").coalesce(1)
    key = F.when(F.col("partition") == 0, F.lit(signing.of("out", 2))).otherwise(F.lit(signing.of("dead", 2)))
    stamp = [F.lit(0), F.col("partition"), F.col("offset"), F.lit(7), (F.col("offset") + 1) * 2**40]
    header = signed_header(
        "deadbeef", Incarnation(2), stamp[:numbers], F.lit(3), signing_key=key, partition=F.col("partition"),
        record_key=F.col("key"), value=F.col("value"),
    )  # fmt: skip
    rows = frame.select("*", header.alias("header")).collect()
    verifiers = {0: Verifier("out", "deadbeef", signing), 11: Verifier("dead", "deadbeef", signing)}
    found = [verifiers[r.partition].verify(r.partition, r.offset, r.header, r.key, r.value) for r in rows]
    stamps = [(0, r.partition, r.offset, 7, (r.offset + 1) * 2**40)[:numbers] for r in rows]
    assert found == [VerifiedHeader(2, each, "3", True) for each in stamps]
    printed = frame.select(header.alias("header"))._jdf.queryExecution().toString()
    assert KEY_MARK.hex().upper() not in printed, "a plan shows a key"


def test_a_restart_after_forged_records_gives_all_results(
    wire: Wire, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "_POLL_S", 0.5)
    events, out = wire.topic("events"), wire.topic("out")
    dead = f"{out}.dead-letters"

    def run() -> Query:
        sink = fk.Kafka(out, key="word")
        return counted(events).write(sink, kafka=wire.bootstrap, home=str(home), interval="2 seconds")

    for partition in (0, 1):
        wire.send(events, [*events_of("aab" if partition else "xxy"), b"{"], partition=partition)
    query = run()
    wire.await_count(out, 6, query)
    wire.await_count(dead, 2, query)
    settle(query)
    assert query.foreign == []
    query.stop()

    copied = headers_in(wire, out)[-1]
    identity = copied.split(b"/")[0]
    far = [b"%b/1/0.%d.999999999/%d" % (identity, p, s) for p in (0, 1) for s in STATES]
    hostile = [b"\xff", identity, b"%b/1/0.0.%b/0" % (identity, b"9" * 5_000), b"%b/99/0.0.7.7.7/0" % identity]
    forged = [copied, *far, *[h + b"/" + b"0" * 24 for h in far], *hostile]
    for topic in (out, dead):
        forge(wire, topic, forged)
    for partition in (0, 1):
        wire.send(events, [*events_of("aab" if partition else "xxy"), b"{"], partition=partition)
    query = run()
    number = 2 * len(forged)
    wire.await_count(out, 12 + number, query)
    assert {str(f["topic"]): f["count"] for f in query.foreign}[out] == number
    wire.await_count(dead, 4 + len(forged) * len(wire.topics.end_positions(dead)), query)
    settle(query)
    known = {str(f["topic"]): f["count"] for f in query.foreign}[dead]
    forge(wire, dead, [b"\xff"])  # this is named without another restart
    more = len(wire.topics.end_positions(dead))
    await_one(query, lambda: {f["topic"]: f["count"] for f in query.foreign}[dead] == known + more, "its name")
    query.stop()
    found = versions([row for row in wire.rows(out) if row["word"] != "forged"])
    assert found == {"a": [1, 2, 3, 4], "x": [1, 2, 3, 4], "b": [1, 2], "y": [1, 2]}
    assert wire.count(out) == 12 + number
