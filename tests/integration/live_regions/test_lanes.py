"""Fenced live regions: the broker refuses the records of former writers."""

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.check import read_topic
from falkirk.host.query import Query, run_here
from falkirk.kafka.connection import Connection
from falkirk.kafka.fencing import take
from falkirk.local.broker import Broker
from tests.integration.live import Wire, await_one, settle
from tests.support import wait_until


def _app(events: str, out: str, home: Path, *, fenced: bool | None) -> fk.App:
    app = fk.App("lanes", home=home, fenced=fenced)
    app.source("events", fk.Kafka(events, schema="word STRING NOT NULL, n INT", key="word"))

    @app.stream(fk.Lazy("1 second"))
    def counted(events: fk.Stream) -> fk.Stream:
        return events.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))

    app.sink("out", counted, fk.Kafka(out, key="word"))
    return app


def _committed(wire: Wire, topic: str) -> list[dict[str, object]]:
    """Return the values that a reader of committed records sees."""
    return [json.loads(record.value or b"") for record in read_topic({"bootstrap.servers": wire.bootstrap}, topic)]


def _has(wire: Wire, topic: str, count: int) -> bool:
    return len(_committed(wire, topic)) >= count


def _counts_dead_letters(query: Query, count: int) -> bool:
    return query.status[0].dead_letters == count


def _start(wire: Wire, events: str, out: str, home: Path, *, fenced: bool | None = True) -> Query:
    return run_here(_app(events, out, home, fenced=fenced), Connection.of(wire.bootstrap))


@pytest.mark.parametrize("kind", ["plain", "fenced"])
def test_each_result_is_there_once(spark: SparkSession, broker: Broker, tag: str, home: Path, kind: str) -> None:
    """Over two incarnations, with a dead letter."""
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    events, out = wire.topic("events"), wire.topic("out")
    for turn, first in enumerate((0, 50), 1):
        query = _start(wire, events, out, home, fenced=kind == "fenced")
        wire.send(events, [{"word": f"w{n % 5}", "n": n} for n in range(first, first + 50)])
        wire.send(events, [b"{"])
        await_one(query, partial(_has, wire, out, turn * 50), f"{turn * 50} results")
        settle(query)
        await_one(query, partial(_counts_dead_letters, query, turn), f"{turn} dead letters")
        if kind == "fenced":
            lane = f"falkirk.lanes.{query._home.identity}.out.lane-0"
            epoch = _epoch_of(spark, wire, lane)
            settle(query)
            assert _epoch_of(spark, wire, lane) == epoch, "a lane stays open between batches"
        published = query._host.figures()[0]["outputs"][out]  # of this JVM, over both incarnations
        assert (published["records"], sum(published["counts"])) == (turn * 50, turn * 50)
        query.stop()
    rows = _committed(wire, out)
    assert len(rows) == 100
    assert sorted((row["word"], row["version"]) for row in rows) == sorted(
        (f"w{w}", v) for w in range(5) for v in range(1, 21)
    )


#: The errors by which the broker refuses a producer whose id another one has taken.
_REFUSED = r"ProducerFenced|InvalidProducerEpoch"


class _Writer:
    """One task's writer of a region, as Spark calls it. Args: name: of a JVM's own lanes: another one, another JVM."""

    def __init__(
        self, spark: SparkSession, wire: Wire, topic: str, *, incarnation: int, token: str, jvm: str,
        gate: str = "gate", timeout_ms: int = 60_000,
    ) -> None:  # fmt: skip
        assert spark._jvm is not None
        self._gateway, self._topic = spark.sparkContext._gateway, topic
        options = spark._jvm.java.util.HashMap()
        settings = {"transaction.timeout.ms": str(timeout_ms), "linger.ms": "0", "retry.backoff.ms": "1"}
        for name, value in {"bootstrap.servers": wire.bootstrap, "acks": "all", **settings}.items():
            options.put(name, value)
        made = spark._jvm.org.falkirk.KafkaWriter(f"{jvm}-{wire.tag}", incarnation, 1, "falkirk", options)
        self._jvm = spark._jvm
        self._writer = made.fenced(f"{wire.tag}.lane-", f"{wire.tag}.{gate}", token, 60_000)

    def batch(self, text: str, *, number: int = 0) -> None:
        self._writer.open(0, number)
        self.send(text)
        self.close()

    def open(self, number: int = 0) -> None:
        self._writer.open(0, number)

    def send(self, text: str) -> None:
        values = self._gateway.new_array(self._jvm.java.lang.Object, 5)
        for place, value in enumerate((self._topic, 0, None, text.encode(), b"header")):
            values[place] = value
        self._writer.process(self._jvm.org.apache.spark.sql.RowFactory.create(values))

    def close(self) -> None:
        self._writer.close(None)


@pytest.fixture
def lane_wire(spark: SparkSession, broker: Broker, tag: str) -> Iterator[Wire]:
    yield Wire(bootstrap=broker.bootstrap, tag=tag)
    assert spark._jvm is not None
    for jvm in ("old", "new", "next"):
        spark._jvm.org.falkirk.Lanes.close(f"{jvm}-{tag}")


def _take(wire: Wire, *names: str) -> None:
    take(Connection.of(wire.bootstrap), [f"{wire.tag}.{name}" for name in names])


def _token(spark: SparkSession, wire: Wire, gate: str = "gate") -> str:
    return _epoch_of(spark, wire, f"{wire.tag}.{gate}")


def _epoch_of(spark: SparkSession, wire: Wire, name: str) -> str:
    assert spark._jvm is not None
    options = spark._jvm.java.util.Properties()
    options.put("bootstrap.servers", wire.bootstrap)
    found = spark._jvm.org.falkirk.Gate(options, name)
    try:
        return str(found.token())
    finally:
        found.close()


def _texts(wire: Wire, topic: str) -> list[str]:
    found = read_topic({"bootstrap.servers": wire.bootstrap}, topic)
    return [(record.value or b"").decode() for record in found]


def _fence(spark: SparkSession, wire: Wire) -> str:
    """Fence former writers, and return the token of the next incarnation."""
    _take(wire, "gate")
    token = _token(spark, wire)
    _take(wire, "lane-0")
    return token


def test_a_fenced_lane_sends_nothing_that_a_reader_sees(spark: SparkSession, lane_wire: Wire) -> None:
    """Neither what it had sent in an open transaction, nor what it sends later."""
    out = lane_wire.topic("out", 1)
    old = _Writer(spark, lane_wire, out, incarnation=1, token=_fence(spark, lane_wire), jvm="old")
    old.batch("committed")
    old.open(1)
    old.send("open")
    token = _fence(spark, lane_wire)
    assert _texts(lane_wire, out) == ["committed"]
    assert lane_wire.topics.readable_positions(out) == lane_wire.topics.end_positions(out), "nothing blocks readers"
    new = _Writer(spark, lane_wire, out, incarnation=2, token=token, jvm="new")
    new.open()
    with pytest.raises(Py4JJavaError, match=_REFUSED):
        old.close()
    with pytest.raises(Py4JJavaError, match=_REFUSED):
        old.batch("late", number=2)
    new.send("new")
    new.close()
    assert _texts(lane_wire, out) == ["committed", "new"]


@pytest.mark.parametrize("checks", [True, False])
def test_an_old_task_that_opens_a_lane_after_the_fence(spark: SparkSession, lane_wire: Wire, *, checks: bool) -> None:
    """It sends nothing, and leaves its successor's lane alone. Without the check its records are visible."""
    out, gate = lane_wire.topic("out", 1), "gate" if checks else "other"
    _take(lane_wire, "gate", "other")
    old = _Writer(spark, lane_wire, out, incarnation=1, token=_token(spark, lane_wire, gate), jvm="old", gate=gate)
    new = _Writer(spark, lane_wire, out, incarnation=2, token=_fence(spark, lane_wire), jvm="new")
    new.batch("new")
    if checks:
        with pytest.raises(Py4JJavaError, match="FALKIRK_FENCED"):
            old.open()
        new.batch("new too", number=1)
        assert _texts(lane_wire, out) == ["new", "new too"]
        return
    old.batch("late")
    assert _texts(lane_wire, out) == ["new", "late"]


def test_an_old_task_that_takes_its_successors_lane(spark: SparkSession, lane_wire: Wire) -> None:
    """It stood still after its first look at the gate. It sends nothing, and the successor has to start again."""
    out = lane_wire.topic("out", 1)
    new = _Writer(spark, lane_wire, out, incarnation=2, token=_fence(spark, lane_wire), jvm="new")
    new.open()
    new.send("open")
    _take(lane_wire, "lane-0")  # as the old task does before its second look
    with pytest.raises(Py4JJavaError, match=_REFUSED):
        new.close()
    following = _Writer(spark, lane_wire, out, incarnation=3, token=_fence(spark, lane_wire), jvm="next")
    following.batch("following")
    assert _texts(lane_wire, out) == ["following"]


@pytest.mark.parametrize("knows", [True, False])
def test_a_lane_moves_to_another_executor_and_back(spark: SparkSession, lane_wire: Wire, *, knows: bool) -> None:
    """The first executor has to take the id again. The number of the batch tells it that it was away."""
    out, token = lane_wire.topic("out", 1), _fence(spark, lane_wire)
    old = _Writer(spark, lane_wire, out, incarnation=1, token=token, jvm="old")
    new = _Writer(spark, lane_wire, out, incarnation=1, token=token, jvm="new")
    old.batch("a")
    new.batch("b", number=1)
    if knows:
        old.batch("c", number=2)
        old.batch("d", number=3)
        assert _texts(lane_wire, out) == ["a", "b", "c", "d"]
        return
    with pytest.raises(Py4JJavaError, match=_REFUSED):
        old.batch("c", number=1)


def test_readers_wait_for_a_dead_writer_only_until_its_transaction_times_out(
    spark: SparkSession, lane_wire: Wire
) -> None:
    out = lane_wire.topic("out", 1)
    token = _fence(spark, lane_wire)
    old = _Writer(spark, lane_wire, out, incarnation=1, token=token, jvm="old", timeout_ms=1_000)
    old.batch("committed")
    old.open(1)
    old.send("open")
    began_s = time.monotonic()
    wait_until(lambda: lane_wire.count(out) == 3, 30, "the open record")
    assert lane_wire.topics.readable_positions(out) == {0: 2}

    def is_readable() -> bool:
        return lane_wire.topics.readable_positions(out) == lane_wire.topics.end_positions(out)

    wait_until(is_readable, 30, "the end of the transaction")
    assert time.monotonic() - began_s < 1 + 10 + 5, "the broker looks every ten seconds"
    with pytest.raises(Py4JJavaError, match=_REFUSED):
        old.close()
    assert _texts(lane_wire, out) == ["committed"]
