"""The release of an epoch is interrupted before and after each of its steps, in each kind of sink: nobody ever sees a
false state, and the next try completes the epoch."""

import json
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sql
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.table import Transaction
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from sqlalchemy import event

from falkirk.errors import SparkError
from falkirk.kafka_client.topics import Topics
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark import fence, lanes
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.sinks import epoch_topic, folder, lake, table, topic
from falkirk.runtime.spark.sinks.epoch_notes import EpochNotes
from falkirk.runtime.spark.sinks.epoch_topic import EpochTopicTarget
from falkirk.runtime.spark.sinks.table import TableTarget
from falkirk.runtime.spark.sinks.topic import TopicTarget
from tests.integration.targets import FORMATS, LAKES, ROWS, CutOff, Place, await_end_of_transactions, deliver, epoch

if TYPE_CHECKING:
    from falkirk.kafka_client.topics import TopicFacts

#: The least and the greatest number of calls in a release.
POINTS_MIN, POINTS_MAX = 4, 60
IS_SOAK = "FALKIRK_STRIKES" in os.environ
#: How many random parts of an epoch are tried as the content of the topic when the job is cut off.
DRAWS = 4 if IS_SOAK else 3


class Points:
    """Counts the calls of a release, and interrupts it at one point.

    Args: at: the number of that point; None: only count.
    """

    def __init__(self, at: int | None = None) -> None:
        self.at, self.passed, self.names = at, 0, list[str]()

    def pass_by(self, name: str) -> None:
        """Come to a point."""
        self.names.append(name)
        self.passed += 1
        if self.passed - 1 == self.at:
            raise CutOff

    def around(self, real: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return a call with a point before it and one after it."""

        def call(*arguments: Any, **options: Any) -> Any:
            self.pass_by(f"before {name}")
            result = real(*arguments, **options)
            self.pass_by(f"behind {name}")
            return result

        return call


@contextmanager
def in_a_table(points: Points, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Before each statement of this thread, and before the commit; three statements for an epoch's rows.

    Nothing happens to a database between two statements, so a point behind one would be the next one.
    """
    mine = threading.get_ident()  # threads of former tests may still use a database

    def listens(name: str, point: str) -> Callable[..., None]:
        def listen(*arguments: Any) -> None:
            if threading.get_ident() == mine:
                points.pass_by(point)

        event.listen(sql.Engine, name, listen)
        return listen

    patch.setattr(table, "_ROWS_AT_ONCE", ROWS // 3)
    names = {"before_cursor_execute": "before", "commit": "before the commit"}
    listening = {name: listens(name, point) for name, point in names.items()}
    try:
        yield
    finally:
        for name, listen in listening.items():
            event.remove(sql.Engine, name, listen)


@contextmanager
def in_a_folder(points: Points, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each thing that is done to a file or a folder, and a folder with half of the rows."""
    write_in_halves(points, patch, "json")
    for owner, name in [(folder.os, "replace"), (folder.shutil, "rmtree"), (folder, "write_atomically")]:
        patch.setattr(owner, name, points.around(getattr(owner, name), name))
    yield


@contextmanager
def in_a_lake(points: Points, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each change of the table, the steps of a commit, and a folder with half of the rows."""
    write_in_halves(points, patch, "parquet")
    for owner, name in [(DeltaTable, "create"), (MetastoreCatalog, "_write_metadata")]:
        patch.setattr(owner, name, staticmethod(points.around(getattr(owner, name), name)))
    for owner, name in [
        (DeltaTable, "create_write_transaction"), (Transaction, "add_files"), (Transaction, "commit_transaction"),
        (lake.shutil, "rmtree"),
    ]:  # fmt: skip
        patch.setattr(owner, name, points.around(getattr(owner, name), name))
    yield


def write_in_halves(points: Points, patch: pytest.MonkeyPatch, form: str) -> None:
    """Interrupt a job of Spark that writes files, also when half of the rows are there."""
    writer = type(SparkSession.active().range(1).write)
    save = writer.save

    def write(self: Any, path: str) -> None:
        halves = [self._df.limit(ROWS // 2).write.format(form).mode("overwrite"), self]
        points.pass_by("before anything is written")
        save(halves[0], path)
        points.pass_by("half of it is written")
        save(halves[1].mode("overwrite"), path)
        points.pass_by("all of it is written")

    patch.setattr(writer, "save", write)


@contextmanager
def in_a_topic(points: Points, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """So many first records of each partition, which each have their order, and no other way between them."""
    real, rng = TopicTarget._send, random.Random(points.at)
    counts = {partition: rng.randint(0, ROWS // 2) for partition in range(3)}

    def send(self: TopicTarget, number: int, data: DataFrame, facts: "TopicFacts") -> None:
        points.pass_by("before anything is sent")
        placed = data.withColumn("place", F.row_number().over(Window.partitionBy("partition").orderBy(ROW)))
        first = [(F.col("partition") == partition) & (F.col("place") <= count) for partition, count in counts.items()]
        for _ in range(DRAWS):
            if points.passed == points.at:
                real(self, number, placed.where(reduce(or_, first)).drop("place"), facts)
            points.pass_by(f"the first {counts} are there")
        real(self, number, data, facts)
        points.pass_by("all of it is there")

    patch.setattr(TopicTarget, "_send", send)
    yield


@contextmanager
def in_epochs(points: Points, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Some records, the note, and the end of the transaction."""
    real, sending = EpochTopicTarget._produce, list[tuple[Topics, str]]()

    def produce(self: EpochTopicTarget, producer: Producer, topic: str, *record: Any) -> None:
        row = json.loads(record[2])
        sending.append((self._topics, self._to.topic))
        if topic != self._to.topic or row["id"] % (ROWS // 3) == 0:
            producer.flush(10)  # the records before it are in the topic
            points.pass_by(f"before {row}")
        real(self, producer, topic, *record)

    class Cut(Producer):
        def commit_transaction(self, *arguments: Any) -> None:
            points.pass_by("before the commit")
            super().commit_transaction(*arguments)
            await_end_of_transactions(*sending[-1])
            points.pass_by("behind the commit")

        def abort_transaction(self, *_: Any) -> None:
            """A process that was killed does not abort."""

    patch.setattr(EpochTopicTarget, "_produce", produce)
    patch.setattr(epoch_topic, "Producer", Cut)
    yield


@contextmanager
def in_topics_of_epochs(points: Points, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """The topics, and the records of the home about them. Only the first epoch makes them."""
    made = list[Any]()

    def before(real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if len(made) > 1:  # the second one is that of the results
                await_end_of_transactions(*made[1])
            points.pass_by(f"before {name}")
            if name == "create":
                made.append(arguments[:2])
            return real(*arguments)

        return call

    for owner, name in [(Topics, "create"), (Store, "record_decision"), (EpochNotes, "refuse_others")]:
        patch.setattr(owner, name, before(getattr(owner, name), name))
    yield


@contextmanager
def in_a_sink_of_a_user(points: Points, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each thing that the documented sink does to a file or a folder, and some of the rows."""
    dumps = json.dumps

    def dump(row: Any, **options: Any) -> str:
        if "id" in row and row["id"] % (ROWS // 3) == 0:  # PySpark logs in JSON, too, once another test has said so
            points.pass_by(f"before row {row['id']}")
        return dumps(row, **options)

    patch.setattr(json, "dumps", dump)
    for name in ("replace", "fsync"):
        patch.setattr(os, name, points.around(getattr(os, name), name))
    yield


CUTTING = {
    "topic": in_a_topic, "epochs": in_epochs, "postgres": in_a_table, "sqlite": in_a_table, "own": in_a_sink_of_a_user,
    **dict.fromkeys(FORMATS, in_a_folder), **dict.fromkeys(LAKES, in_a_lake),
}  # fmt: skip
#: The release of a folder is the same for all formats. `FALKIRK_STRIKES` cuts off the other formats, too.
KINDS = [kind for kind in CUTTING if kind not in FORMATS[1:] or IS_SOAK]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_epoch_at_each_point(
    kind: str, place_of: Callable[..., Place], spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new place for each point, since the first epoch makes the table, folder or topics that the others find."""
    for at in range(POINTS_MAX):
        out = place_of(kind, name=f"out{at}")
        if not is_cut_off(out, Points(at), spark, 0, monkeypatch):
            assert at > POINTS_MIN
            return
        make_whole(out, spark, 0, at)
    pytest.fail(f"more points than {POINTS_MAX}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_later_epoch_at_each_point(
    kind: str, place_of: Callable[..., Place], spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    out = place_of(kind)
    out.make().deliver(0, epoch(spark, 0))
    for at in range(POINTS_MAX):
        if not is_cut_off(out, Points(at), spark, at + 1, monkeypatch):
            assert at > POINTS_MIN
            return
        make_whole(out, spark, at + 1, at)
    pytest.fail(f"more points than {POINTS_MAX}")


def is_cut_off(out: Place, points: Points, spark: "SparkSession", number: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Release an epoch after the ones before it, until a point; check the visible rows then. Return whether the
    point exists."""
    cutting = in_topics_of_epochs if out.kind == "epochs" and number == 0 else CUTTING[out.kind]
    with monkeypatch.context() as patch, cutting(points, patch):
        try:
            deliver(out, number, epoch(spark, number))
        except CutOff:
            pass
        else:
            return False
    there = sorted(out.read())
    assert len(there) == len(set(there)), points.names
    assert set(range(number * ROWS)) <= set(there) <= set(range((number + 1) * ROWS)), points.names
    if out.kind != "topic":
        assert len(there) in (number * ROWS, (number + 1) * ROWS), points.names
    return True


def make_whole(out: Place, spark: "SparkSession", number: int, at: int) -> None:
    """Try again, and a third time as if nobody had recorded it, and check the stored rows.

    The third try finds a complete release, whatever the point was. Only every second point has it, except in the soak.
    """
    for _ in range(2 if at % 2 == 0 or IS_SOAK else 1):
        out.make().deliver(number, epoch(spark, number))
    assert sorted(out.read()) == list(range((number + 1) * ROWS))
    assert out.make().visible() == number + 1


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_without_one_transaction_half_an_epoch_shows_and_is_there_twice(
    kind: str, place_of: Callable[[str], Place], spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    real = TableTarget.__init__

    def each_by_itself(self: TableTarget, *arguments: Any) -> None:
        real(self, *arguments)
        self._engine = self._engine.execution_options(isolation_level="AUTOCOMMIT")

    monkeypatch.setattr(TableTarget, "__init__", each_by_itself)
    out = place_of(kind)
    with monkeypatch.context() as patch:
        patch.setattr(TableTarget, "_set_mark", Points(0).around(lambda *arguments: None, "the mark"))
        with pytest.raises(CutOff):
            out.make().deliver(0, epoch(spark, 0))
    assert len(out.read()) == ROWS
    out.make().deliver(0, epoch(spark, 0))
    assert len(out.read()) == 2 * ROWS


def test_without_notes_an_epoch_is_there_twice(
    place_of: Callable[[str], Place], spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    out = place_of("epochs")
    monkeypatch.setattr(EpochNotes, "newest", lambda self: None)
    for _ in range(2):
        out.make().deliver(0, epoch(spark, 0))
    assert len(out.read()) == 2 * ROWS


def test_a_process_that_was_taken_for_dead_can_not_send_the_epoch_again(
    place_of: Callable[[str], Place], spark: "SparkSession"
) -> None:
    """It stood still before its commit, and the next owner has sent the epoch meanwhile."""
    out = place_of("epochs")
    former, next_owner = out.make(), out.make()
    assert isinstance(former, EpochTopicTarget)
    former._confirm = lambda: next_owner.deliver(0, epoch(spark, 0)) and None  # type: ignore[method-assign]
    with pytest.raises(SparkError, match="fenced by a newer instance") as refused:
        former.deliver(0, epoch(spark, 0))
    assert refused.value.condition == "RELEASE_FAILED"
    former._confirm = lambda: None  # type: ignore[method-assign]
    former.deliver(0, epoch(spark, 0))
    assert sorted(out.read()) == list(range(ROWS))


@pytest.mark.parametrize("settled", [True, False])
def test_what_a_task_that_was_cancelled_has_not_sent_yet(
    settled: bool, place_of: Callable[[str], Place], spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows wait in its lane. They are sent before the next try reads the sink; otherwise there are duplicates."""
    monkeypatch.setitem(fence._PRODUCER, "kafka.linger.ms", "600000")  # longer than anything here takes
    out = place_of("topic")
    out.make().deliver(0, epoch(spark, 0))
    out.make().deliver(1, epoch(spark, 1, upto=4))
    hand_over(spark, out, monkeypatch)
    if not settled:
        monkeypatch.setattr(lanes, "close_lanes", lambda *arguments: None)
    out.make().deliver(1, epoch(spark, 1))
    there = sorted(out.read())
    assert (there == list(range(2 * ROWS))) is settled
    assert set(there) == set(range(2 * ROWS))


def hand_over(spark: "SparkSession", out: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hand the rest of epoch 1 to the lane, without waiting until it has sent it."""
    handed: list[Any] = []
    target = out.make()
    assert isinstance(target, TopicTarget)
    with monkeypatch.context() as patch:
        patch.setattr(topic, "write", lambda context, to, rows, limit_bytes: handed.extend(rows.collect()))
        target.deliver(1, epoch(spark, 1))
    context, to, jvm = target._context, target._topic, spark._jvm
    writers = context.writers[to]
    assert handed
    assert writers is not None
    assert jvm is not None
    producer = fence.producer_options(context, "cancelled", writers.incarnation, 1_000_000, 1_000_000)
    task = lanes.writer(context, lanes.of_jobs(to), writers.incarnation, 1, producer, None)
    task.open(0, 1)
    for row in handed:
        values = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 5)
        for place, value in enumerate(row):
            values[place] = bytes(value) if isinstance(value, bytearray) else value
        task.process(jvm.org.apache.spark.sql.RowFactory.create(values))
    task.close(jvm.java.lang.RuntimeException("cancelled"))
