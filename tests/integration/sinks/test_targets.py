"""Targets of batches: an epoch is stored once, with any rest of an earlier try; without the mechanism for that, it is
stored twice."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sql
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors import HomeError, SparkError
from falkirk.kafka_client.ranges import read_range
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.outputs import own_back_to
from falkirk.runtime.spark.sinks.folder import FolderTarget
from falkirk.runtime.spark.sinks.table import TableTarget
from falkirk.runtime.spark.sinks.topic import TopicTarget
from falkirk.spark_setup.broker import Broker
from tests.integration.live import Wire
from tests.integration.sinks.test_producer_errors import set_limit
from tests.integration.targets import EPOCHS, FORMATS, KINDS, ROWS, CutOff, Place, cut_off, epoch, release_in_part
from tests.postgres import Postgres
from tests.unit.hostile.test_random_files import Decisions
from tests.unit.kafka.test_folder_sinks import proofs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_is_there_once_whatever_was_there_of_it(
    kind: str, place_of: Callable[[str], Place], spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    out = place_of(kind)
    for number in range(EPOCHS):
        release_in_part(out, spark, number, monkeypatch)
        again = out.make()  # it knows only the stored epochs
        assert again.visible() == (number + 1 if kind == "topic" else number)
        for older in range(number):
            again.deliver(older, epoch(spark, older))  # nothing has been taken note of
        again.deliver(number, epoch(spark, number))
        out.make().deliver(number, epoch(spark, number))  # it was there, and nobody had taken note
        assert out.make().visible() == number + 1
    assert sorted(out.read()) == list(range(EPOCHS * ROWS))


@pytest.mark.parametrize(
    ("kind", "owner", "mechanism", "nothing"),
    [
        ("topic", TopicTarget, "_found", {}),
        ("sqlite", TableTarget, "_mark", -1),
        ("postgres", TableTarget, "_mark", -1),
    ],
)
def test_without_its_mechanism_an_epoch_is_there_twice(
    kind: str, owner: type, mechanism: str, nothing: Any, place_of: Callable[[str], Place], spark: "SparkSession",
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    out = place_of(kind)
    out.make().deliver(0, epoch(spark, 0))
    monkeypatch.setattr(owner, mechanism, lambda *arguments: nothing)
    out.make().deliver(0, epoch(spark, 0))
    assert sorted(out.read()) == sorted([*range(ROWS), *range(ROWS)])


def test_without_its_folder_of_its_own_half_an_epoch_shows(
    place_of: Callable[[str], Place], spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    out = place_of("json")
    out.make().visible()  # whose folder it is, is written first
    monkeypatch.setattr(FolderTarget, "_being_made", lambda self, number: self._named(number))
    monkeypatch.setattr("os.replace", cut_off)
    with pytest.raises(CutOff):
        out.make().deliver(0, epoch(spark, 0, upto=ROWS // 2))
    assert len(out.read()) == ROWS // 2


@pytest.mark.parametrize("is_off", [False, True])
def test_a_row_that_a_producer_has_given_up_follows(
    is_off: bool, place_of: Callable[[str], Place], spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was left out: by the last record of its partition, it was there."""
    out = place_of("topic")
    out.make().deliver(0, epoch(spark, 0))
    out.make().deliver(1, epoch(spark, 1).where(f"id % 5 <> 0 AND id < {2 * ROWS - 2}"))
    if is_off:

        def up_to_the_last(self: TopicTarget, data: "DataFrame", number: int, partitions: list[int]) -> "DataFrame":
            own = own_back_to(self._place, self._topic, self._ends, lambda p, stamp: stamp.offset < number)
            for p in partitions:
                data = data.where(~((F.col("partition") == p) & (F.col(ROW) <= own[p][-1].sub[0])))
            return data

        monkeypatch.setattr(TopicTarget, "_without_those_there", up_to_the_last)
    for _ in range(2):
        out.make().deliver(1, epoch(spark, 1))
        assert (sorted(out.read()) == list(range(2 * ROWS))) is not is_off


@pytest.mark.parametrize("kind", FORMATS)
def test_no_reader_of_a_folder_sees_an_epoch_that_is_not_finished(
    kind: str, place_of: Callable[[str], Place], spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark did: of names that begin with an underscore it reads those with a `=`. It took the rows of the first epoch
    for finished, and beside a finished epoch it read nothing at all: the columns of the two folders did not fit."""
    out = place_of(kind)
    out.make().visible()  # whose folder it is, is written first
    release_in_part(out, spark, 0, monkeypatch)
    assert out.read() == []
    out.make().deliver(0, epoch(spark, 0))
    stray = out.folder / "_epoch=0000000001-0a1b2c3d"  # an earlier version's: the next epoch sweeps it away
    shutil.copytree(out.folder / "epoch=0000000000", stray)
    release_in_part(out, spark, 1, monkeypatch)
    assert len(list(out.folder.glob(".epoch-0000000001-*"))) == 1
    assert not stray.exists()
    assert sorted(out.read()) == list(range(ROWS))


def test_many_rows_go_to_a_topic_that_takes_small_batches(
    place_of: Callable[[str], Place], spark: "SparkSession", broker: Broker, tag: str
) -> None:
    """They wait for each other in the producer, in batches of 16 KB. It divided those into the same ones, forever."""
    Wire(bootstrap=broker.bootstrap, tag=tag).topic("out", partitions=3, max_message_bytes="2000")
    out = place_of("topic")
    rows = spark.range(0, 500, 1, 2).select("id", F.expr("repeat('x', 500)").alias("text"), F.col("id").alias(ROW))
    out.make().deliver(0, rows)
    assert sorted(out.read()) == list(range(500))


def test_what_is_too_large_becomes_a_dead_letter_and_the_rest_is_there(
    place_of: Callable[[str], Place], spark: "SparkSession", broker: Broker, tag: str
) -> None:
    Wire(bootstrap=broker.bootstrap, tag=tag).topic("out", partitions=3, max_message_bytes="2000")
    out = place_of("topic")
    rows = epoch(spark, 0).withColumn("text", F.expr("repeat('x', IF(id = 7, 5000, 10))"))
    for _ in range(2):
        dead = out.make().deliver(0, rows)
        assert dead is not None
        assert [("too large: " in d.value, '"epoch":0' in d.value) for d in dead.collect()] == [(True, True)]
        assert sorted(out.read()) == [n for n in range(ROWS) if n != 7]


def test_a_row_that_was_too_large_is_there_if_the_topic_takes_it_at_the_next_try(
    place_of: Callable[[str], Place], spark: "SparkSession", broker: Broker, tag: str
) -> None:
    """The first try has sent the other rows, and was interrupted before anybody stored the dead letter."""
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    topic = wire.topic("out", partitions=3, max_message_bytes="2000")
    out = place_of("topic")
    target, rows = out.make(), epoch(spark, 0).withColumn("text", F.expr("repeat('x', IF(id = 7, 5000, 10))"))
    assert target.deliver(0, rows) is not None
    set_limit(wire, topic, 100_000)
    assert target.deliver(0, rows) is None
    assert sorted(out.read()) == list(range(ROWS))


def test_rows_with_a_key_replace_each_other(spark: "SparkSession", home: Path) -> None:
    to = fk.Sql(f"sqlite:///{home}.db", "words", key="word")
    target = TableTarget(to, "deadbeef", "words")
    for number, total in enumerate((1, 5)):
        rows = spark.createDataFrame([("ash", total, 0), ("birch", 7, 1)], f"word STRING, total INT, {ROW} LONG")
        target.deliver(number, rows)
    with sql.create_engine(to.url).begin() as db:
        assert list(db.execute(sql.text("SELECT word, total FROM words ORDER BY word"))) == [("ash", 5), ("birch", 7)]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_a_table_does_not_take_becomes_a_dead_letter_and_the_rest_is_there(
    kind: str, spark: "SparkSession", home: Path, tag: str, postgres: Postgres
) -> None:
    """The table would refuse this row for ever, or, in SQLite, give it a random key."""
    url = f"sqlite:///{home}.db" if kind == "sqlite" else postgres.patient_url()
    to = fk.Sql(url, f"refused_{tag.replace('-', '_')}", key="id")
    rows = [(1, "one", 0), (None, "none", 1), (2, "t\0o", 2), (None, "none", 3), (3, "three", 4)]
    refused = {1, 3} if kind == "sqlite" else {1, 2, 3}
    for _ in range(2):  # the second time all rows are stored, and dead letters may be missing
        dead = TableTarget(to, "deadbeef", "refused").deliver(
            0, spark.createDataFrame(rows, f"id INT, text STRING, {ROW} LONG")
        )
        assert dead is not None
        assert {d[ROW]: json.loads(d.value)["epoch"] for d in dead.collect()} == dict.fromkeys(refused, 0)
        with sql.create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1)).begin() as db:
            there = set(db.execute(sql.text(f"SELECT id, text FROM {to.table}")).tuples())
        assert there == {(i, text) for i, text, place in rows if place not in refused}


def test_what_is_nested_or_binary_is_text_in_csv(place_of: Callable[[str], Place], spark: "SparkSession") -> None:
    out = place_of("csv")
    out.make().deliver(0, epoch(spark, 0).withColumn("raw", F.lit(b"\x00\xff")))
    rows = spark.read.option("header", "true").csv(f"{out.folder}/epoch=*").collect()
    assert {(r.nested, r.raw) for r in rows} == {('[{"b":"a"}]', "AP8=")}
    assert len(rows) == ROWS


@pytest.mark.parametrize("apart", [True, False])
def test_a_job_that_was_given_up_still_writes_its_folder(
    apart: bool, place_of: Callable[[str], Place], spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are not in the folder of the next try; in a folder of the same name, the rows would be there twice."""
    out = place_of("json")
    if not apart:
        monkeypatch.setattr(FolderTarget, "_being_made", lambda self, number: self._path / f".epoch-{number:010d}")
    writer, late = type(spark.range(1).write), list[Callable[[], None]]()
    save = writer.save

    def given_up(self: Any, path: str) -> None:
        late.append(lambda: save(self.mode("append"), path))
        raise CutOff

    def overtaken(self: Any, path: str) -> None:
        save(self, path)
        late.pop()()

    with monkeypatch.context() as patch:
        patch.setattr(writer, "save", given_up)
        with pytest.raises(CutOff):
            out.make().deliver(0, epoch(spark, 0))
    with monkeypatch.context() as patch:
        patch.setattr(writer, "save", overtaken)
        out.make().deliver(0, epoch(spark, 0))
    assert (sorted(out.read()) == list(range(ROWS))) is apart


def test_a_folder_of_another_home_is_refused(home: Path) -> None:
    (home / "out").mkdir(parents=True)
    (home / "out" / "_falkirk.json").write_text('{"application": "cafecafe"}')
    with pytest.raises(HomeError) as refused:
        FolderTarget(fk.Files(str(home / "out")), "deadbeef", proofs(Decisions())).visible()
    assert refused.value.condition == "FOLDER_OF_ANOTHER"


def test_forged_records_behind_those_of_a_topic_change_nothing(
    place_of: Callable[[str], Place], spark: "SparkSession", broker: Broker, tag: str
) -> None:
    out, wire, topic = place_of("topic"), Wire(bootstrap=broker.bootstrap, tag=tag), f"out-{tag}"
    out.make().deliver(0, epoch(spark, 0))
    first, last = wire.topics.first_positions(topic), wire.topics.end_positions(topic)
    copied = next(r.raw_header for r in read_range(wire.bootstrap, topic, first, last) if r.raw_header)
    far = copied[:8] + b"/1/0.0.999999999.5/0"
    for partition in range(3):
        for header in [copied, far, far + b"/" + b"0" * 24, b"", b"9" * 5_000, *[None] * 15]:
            headers: list[tuple[str, str | bytes | None]] = [] if header is None else [("falkirk", header)]
            wire.producer.produce(topic, b'{"id": -1}', partition=partition, headers=headers)
    assert wire.producer.flush(30) == 0
    assert out.make().visible() == 1
    for number in (0, 1):
        out.make().deliver(number, epoch(spark, number))
    assert sorted(i for i in out.read() if i >= 0) == list(range(2 * ROWS))
    assert out.make().visible() == 2


def test_a_database_that_is_away_is_said_to_be(spark: "SparkSession", home: Path) -> None:
    target = TableTarget(fk.Sql("postgresql://nobody@127.0.0.1:1/none", "t"), "deadbeef", "t")
    with pytest.raises(SparkError) as away:
        target.deliver(0, epoch(spark, 0))
    assert away.value.condition == "RELEASE_FAILED"
