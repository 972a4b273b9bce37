"""Fenced live regions: the broker refuses the records of former writers."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.spark import lanes
from falkirk.runtime.spark.fence import client_id
from falkirk.runtime.spark.live.region_lanes import RegionLanes
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from falkirk.theory.ids import Incarnation
from tests.integration.lane_writers import (
    REFUSED,
    Writer,
    epoch_of,
    fence_lane,
    records,
    replace_writers,
    row_of,
    texts,
    token_of,
)
from tests.integration.live import Wire, await_one, settle
from tests.support import PATIENCE, suspend, wait_until


@cache
def _app(events: str, out: str, home: Path, *, transactional: bool | None) -> fk.App:
    """Count words. If it is fenced, a region before that one writes a hop."""
    app = fk.App("lanes", home=home, transactional=transactional)
    app.source("events", fk.Kafka(events, schema="word STRING NOT NULL, n INT", key=None if transactional else "word"))

    @app.stream(fk.Lazy("1 second"))
    def counted(events: fk.Stream) -> fk.Stream:
        return events.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))

    app.sink("out", counted, fk.Kafka(out, key="word"))
    return app


def _committed(wire: Wire, topic: str) -> list[dict[str, object]]:
    return [json.loads(record.value or b"") for record in records(wire, topic)]


def _has(wire: Wire, topic: str, count: int) -> bool:
    return len(_committed(wire, topic)) >= count


def _counts_dead_letters(query: Query, count: int) -> bool:
    return query.status[0].dead_letters == count


def _start(wire: Wire, events: str, out: str, home: Path, *, transactional: bool | None = True) -> Query:
    return run_here(_app(events, out, home, transactional=transactional), Connection.of(wire.bootstrap))


class _LateTask:
    """A task of the first incarnation of a region, in another JVM as it seems."""

    def __init__(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        self._spark, self._writers = spark, dict[str, Any]()
        real = RegionLanes.writer

        def writer(of: RegionLanes, *arguments: Any) -> Any:
            with monkeypatch.context() as patch:
                patch.setattr(lanes, "lanes_key", lambda identity, region: f"other-{identity}-{region}")
                self._writers.setdefault(of._region.name, real(of, *arguments))
            return real(of, *arguments)

        monkeypatch.setattr(RegionLanes, "writer", writer)

    def open(self, region: str) -> None:
        self._writers[region].open(0, 1_000)

    def bury(self, region: str, topic: str, text: str) -> None:
        """Send a dead letter, and end the task."""
        self._writers[region].process(row_of(self._spark, topic, text))
        self._writers[region].close(None)


def _producers(spark: SparkSession, client: str) -> int:
    assert spark._jvm is not None
    threads = spark._jvm.java.lang.Thread.getAllStackTraces().keySet()
    return sum(f"producer-network-thread | {client}-" in thread.getName() for thread in threads)


@pytest.mark.parametrize("kind", ["plain", "fenced"])
def test_each_result_is_there_once(
    spark: SparkSession, broker: Broker, tag: str, home: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Over two incarnations, with a dead letter. Nothing that is fenced comes of a late task of the first one, a dead
    letter of the region that writes the hop included."""
    wire, late = Wire(bootstrap=broker.bootstrap, tag=tag), _LateTask(spark, monkeypatch)
    events, out = wire.topic("events"), wire.topic("out")
    for turn, first in enumerate((0, 50), 1):
        query = _start(wire, events, out, home, transactional=kind == "fenced")
        dead, region = query._host._plan.regions[0].dead_letter_topic, query._host._plan.regions[0].name
        wire.send(events, [{"word": f"w{n % 5}", "n": n} for n in range(first, first + 50)])
        wire.send(events, [b"{"])
        await_one(query, partial(_has, wire, out, turn * 50), f"{turn * 50} results")
        settle(query)
        await_one(query, partial(_counts_dead_letters, query, turn), f"{turn} dead letters")
        if kind == "fenced":
            lane = f"falkirk.lanes.{query._home.identity}.out.lane-0"
            epoch = epoch_of(spark, wire, lane)
            settle(query)
            assert epoch_of(spark, wire, lane) == epoch, "a lane stays open between batches"
            if turn == 2:
                with pytest.raises(Py4JJavaError, match="FALKIRK_FENCED"):
                    late.bury(region, dead, "late")
                settle(query)
                assert [(record.value or b"")[:4] for record in records(wire, dead)].count(b"late") == 0
                assert _counts_dead_letters(query, turn)
        else:
            assert _producers(spark, client_id(query._home.identity, region, Incarnation(turn))) == 1
        published = query._host.figures()[-1]["sinks"][out]  # of this JVM, over both incarnations
        assert (published["records"], sum(published["counts"])) == (turn * 50, turn * 50)
        query.stop()
        if turn == 1:
            late.open(region)
    rows = _committed(wire, out)
    assert len(rows) == 100
    assert sorted((row["word"], row["version"]) for row in rows) == sorted(
        (f"w{w}", v) for w in range(5) for v in range(1, 21)
    )


@pytest.fixture
def lane_wire(spark: SparkSession, broker: Broker, tag: str) -> Iterator[Wire]:
    yield Wire(bootstrap=broker.bootstrap, tag=tag)
    assert spark._jvm is not None
    for jvm in ("old", "new", "next"):
        spark._jvm.org.falkirk.Lanes.close(f"{jvm}-{tag}")


@pytest.mark.parametrize("sent", [1, 0])
def test_a_fenced_lane_sends_nothing_that_a_reader_sees(spark: SparkSession, lane_wire: Wire, *, sent: int) -> None:
    """Readers see no record of its open transaction, and no later one. Args: sent: an open lane may be empty."""
    out = lane_wire.topic("out", 1)
    old = Writer(spark, lane_wire, out, incarnation=1, token=fence_lane(spark, lane_wire), jvm="old")
    old.batch("committed")
    old.open(1)
    if sent:
        old.send("open")
    token = fence_lane(spark, lane_wire)
    assert texts(lane_wire, out) == ["committed"]
    assert lane_wire.topics.readable_positions(out) == lane_wire.topics.end_positions(out), "nothing blocks readers"
    new = Writer(spark, lane_wire, out, incarnation=2, token=token, jvm="new")
    new.open()
    if sent:
        with pytest.raises(Py4JJavaError, match=REFUSED):
            old.close()
    with pytest.raises(Py4JJavaError, match=REFUSED):
        old.batch("late", number=2)
    new.send("new")
    new.close()
    assert texts(lane_wire, out) == ["committed", "new"]


@pytest.mark.parametrize("checks", [True, False])
def test_an_old_task_that_opens_a_lane_after_the_fence(spark: SparkSession, lane_wire: Wire, *, checks: bool) -> None:
    """It sends nothing, and leaves its successor's lane alone. Without the check its records are visible."""
    out, gate = lane_wire.topic("out", 1), "gate" if checks else "other"
    replace_writers(lane_wire, "gate", "other")
    old = Writer(spark, lane_wire, out, incarnation=1, token=token_of(spark, lane_wire, gate), jvm="old", gate=gate)
    new = Writer(spark, lane_wire, out, incarnation=2, token=fence_lane(spark, lane_wire), jvm="new")
    new.batch("new")
    if checks:
        with pytest.raises(Py4JJavaError, match="FALKIRK_FENCED"):
            old.open()
        new.batch("new too", number=1)
        assert texts(lane_wire, out) == ["new", "new too"]
        return
    old.batch("late")
    assert texts(lane_wire, out) == ["new", "late"]


def test_an_old_task_that_takes_its_successors_lane(spark: SparkSession, lane_wire: Wire) -> None:
    """It stood still after its first look at the gate. It sends nothing, and the successor has to start again."""
    out = lane_wire.topic("out", 1)
    new = Writer(spark, lane_wire, out, incarnation=2, token=fence_lane(spark, lane_wire), jvm="new")
    new.open()
    new.send("open")
    replace_writers(lane_wire, "lane-0")  # as the old task does before its second look
    with pytest.raises(Py4JJavaError, match=REFUSED):
        new.close()
    following = Writer(spark, lane_wire, out, incarnation=3, token=fence_lane(spark, lane_wire), jvm="next")
    following.batch("following")
    assert texts(lane_wire, out) == ["following"]


@pytest.mark.parametrize("knows", [True, False])
def test_a_lane_moves_to_another_executor_and_back(spark: SparkSession, lane_wire: Wire, *, knows: bool) -> None:
    """The first executor has to take the id again. The number of the batch tells it that it was away."""
    out, token = lane_wire.topic("out", 1), fence_lane(spark, lane_wire)
    old = Writer(spark, lane_wire, out, incarnation=1, token=token, jvm="old")
    new = Writer(spark, lane_wire, out, incarnation=1, token=token, jvm="new")
    old.batch("a")
    new.batch("b", number=1)
    if knows:
        old.batch("c", number=2)
        old.batch("d", number=3)
        assert texts(lane_wire, out) == ["a", "b", "c", "d"]
        return
    with pytest.raises(Py4JJavaError, match=REFUSED):
        old.batch("c", number=1)


def test_a_lane_for_dead_letters_stays_open_while_there_are_none(spark: SparkSession, lane_wire: Wire) -> None:
    """The lane of results is plain, and the one of dead letters is opened at the first one."""
    out, dead, token = lane_wire.topic("out", 1), lane_wire.topic("dead", 1), fence_lane(spark, lane_wire)
    letters_to = Writer(spark, lane_wire, dead, incarnation=1, token=token, jvm="old")
    writer = Writer(spark, lane_wire, out, incarnation=1, token="", jvm="new", transactional=False, letters=letters_to)
    epochs = []
    for number, letters in enumerate((0, 1, 0, 0, 2)):
        writer.open(number)
        writer.send(f"result {number}")
        for letter in range(letters):
            writer.send(f"letter {number} {letter}", dead)
        writer.close()
        epochs.append(token_of(spark, lane_wire, "lane-0"))
    taken, opened, *later = epochs
    assert opened != taken
    assert {*later} == {opened}
    assert texts(lane_wire, out) == [f"result {number}" for number in range(5)]
    assert texts(lane_wire, dead) == ["letter 1 0", "letter 4 0", "letter 4 1"]
    assert lane_wire.topics.end_positions(out) == {0: 5}, "there is no transaction"


def test_twins_share_a_fenced_lane(spark: SparkSession, lane_wire: Wire) -> None:
    """They number their batches differently. The end of a task commits what either has sent."""
    out, token = lane_wire.topic("out", 1), fence_lane(spark, lane_wire)
    first, second = (Writer(spark, lane_wire, out, incarnation=1, token=token, jvm="new", twins=True) for _ in range(2))
    first.open(5)
    first.send_results(0, 1)
    second.open(9)
    second.send_results(0, 1, 2)
    first.close()
    assert texts(lane_wire, out) == ["0", "1", "2"]
    first.open(6)
    first.send_results(2, 3)
    second.send_results(3)
    second.close()
    first.close()
    assert texts(lane_wire, out) == ["0", "1", "2", "3"]


def test_twins_share_the_lane_of_dead_letters(spark: SparkSession, lane_wire: Wire) -> None:
    out, dead, token = lane_wire.topic("out", 1), lane_wire.topic("dead", 1), fence_lane(spark, lane_wire)
    letters = [Writer(spark, lane_wire, dead, incarnation=1, token=token, jvm="old") for _ in range(2)]
    writers = [
        Writer(spark, lane_wire, out, incarnation=1, token="", jvm="new", transactional=False, letters=each, twins=True)
        for each in letters
    ]
    for number, writer in enumerate(writers):
        writer.open(7 * number)
        writer.send_results(0, 2)
        writer.send_results(1, topic=dead)
        writer.close()
    assert (texts(lane_wire, out), texts(lane_wire, dead)) == (["0", "2"], ["1"])
    assert lane_wire.topics.end_positions(out) == {0: 2}, "there is no transaction"


def test_a_twin_that_is_stopped_while_it_waits_leaves_the_lane_to_the_other(
    spark: SparkSession, own_broker: Broker, tag: str
) -> None:
    """The broker stands still, so the transaction can't end. A task that ended it itself would fail the lane."""
    wire = Wire(bootstrap=own_broker.bootstrap, tag=tag)
    out, token, process = wire.topic("out", 1), fence_lane(spark, wire), own_broker.process()
    first, second = (Writer(spark, wire, out, incarnation=1, token=token, jvm="new", twins=True) for _ in range(2))
    assert process is not None
    first.open(5)
    second.open(9)
    first.send_results(0)
    suspend(process)
    try:
        with ThreadPoolExecutor(1) as pool:
            closing = pool.submit(first.close)
            wait_until(lambda: _interrupt(spark, "org.falkirk.Lane", "finish"), 30, "the end of the task")
            with pytest.raises(Py4JJavaError, match="its task was stopped"):
                closing.result(30)
    finally:
        process.resume()
    second.send_results(0, 1)
    second.close()
    assert texts(wire, out) == ["0", "1"]
    assert spark._jvm is not None
    spark._jvm.org.falkirk.Lanes.close(f"new-{tag}")


def _interrupt(spark: SparkSession, of: str, method: str) -> bool:
    """Interrupt the thread that waits in this method, if one does."""
    assert spark._jvm is not None
    for thread, frames in spark._jvm.java.lang.Thread.getAllStackTraces().items():
        calls = {(frame.getClassName(), frame.getMethodName()) for frame in frames}
        if (of, method) in calls and str(thread.getState()) in ("WAITING", "TIMED_WAITING"):
            thread.interrupt()
            return True
    return False


def test_readers_wait_for_a_dead_writer_only_until_its_transaction_times_out(
    spark: SparkSession, lane_wire: Wire
) -> None:
    out = lane_wire.topic("out", 1)
    token = fence_lane(spark, lane_wire)
    old = Writer(spark, lane_wire, out, incarnation=1, token=token, jvm="old", timeout_ms=1_000)
    old.batch("committed")
    old.open(1)
    old.send("open")
    began_s = time.monotonic()
    wait_until(lambda: lane_wire.count(out) == 3, 30, "the open record")
    assert lane_wire.topics.readable_positions(out) == {0: 2}

    def is_readable() -> bool:
        return lane_wire.topics.readable_positions(out) == lane_wire.topics.end_positions(out)

    wait_until(is_readable, 30, "the end of the transaction")
    assert time.monotonic() - began_s < (1 + 10) * PATIENCE, "the broker looks every ten seconds"
    with pytest.raises(Py4JJavaError, match=REFUSED):
        old.close()
    assert texts(lane_wire, out) == ["committed"]
