"""Files that no job can read, and files that were changed or removed: a writer of a folder delays its readers, and ends
nothing."""

import bz2
import contextlib
import gzip
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors.spark import SPARK_ERRORS
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.spark.epochs.files import FileLog
from falkirk.runtime.spark.epochs.pipes import end_pipe, ended_pipes
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from falkirk.steps.sources import files
from falkirk.steps.sources.files import file_rows
from tests.integration.cutting import run_until_cut_off
from tests.integration.epochs.test_batches import Table
from tests.integration.epochs.test_files import put
from tests.integration.live import Wire, await_one
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "word STRING NOT NULL, n INT"


def put_bytes(path: Path, content: bytes) -> None:
    """Put a file in place as the protocol has it."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_bytes(content)
    unfinished.rename(path)


def parquet(spark: "SparkSession", path: Path, schema: str, rows: list[tuple[Any, ...]]) -> bytes:
    """Return a Parquet file with these rows, in pages without a dictionary."""
    writer = spark.createDataFrame(rows, schema).coalesce(1).write.mode("overwrite")
    writer.option("parquet.enable.dictionary", "false").parquet(str(path))
    return next(path.glob("*.parquet")).read_bytes()


def with_a_huge_page(file: bytes) -> bytes:
    """Return a Parquet file of one page, which now claims to hold 2 GB."""

    def number(at: int) -> tuple[int, int]:
        """Read a number of variable length; return it, and where it ends."""
        length = next(n for n in range(10) if file[at + n] < 128) + 1
        return sum((byte & 127) << 7 * i for i, byte in enumerate(file[at : at + length])), at + length

    def written(value: int) -> bytes:
        rest = value >> 7
        return bytes([value & 127 | 128]) + written(rest) if rest else bytes([value])

    _, kind_ends = number(5)  # behind PAR1 and the type of the field
    _, size_ends = number(kind_ends + 1)
    stored, stored_ends = number(size_ends + 1)
    claimed = written((2**31 - 9) << 1)
    longer = len(claimed) - (size_ends - kind_ends - 1)
    return (
        file[: kind_ends + 1] + claimed + file[size_ends : size_ends + 1] + written(stored - 2 * longer)
        + file[stored_ends:]
    )  # fmt: skip


def rows_without_values(path: Path, rows: int) -> bytes:
    """Return a Parquet file with one column of nulls: a few hundred bytes for any number of rows."""
    pq.write_table(pa.table({"n": pa.nulls(rows, pa.int32())}), path, max_rows_per_page=rows, row_group_size=rows)
    assert path.stat().st_size < 1_000
    return path.read_bytes()


def attack(spark: "SparkSession", folder: Path, scratch: Path) -> set[str]:
    """Put files into the three folders that Spark can't read to their end; return their names."""
    text = b"word,n\n" + b"".join(b"ash,%d\n" % n for n in range(20_000))
    put_bytes(folder / "csv" / "names.csv", b"n,word\n1,ash\x1b[2J\n")
    wrong = b"crc\0" + (512).to_bytes(4) + b"none"  # Hadoop finds it by its name, and compares
    (folder / "csv" / ".sums.csv.crc").write_bytes(wrong)
    put_bytes(folder / "csv" / "sums.csv", b"word,n\nash,1\n")
    put_bytes(folder / "csv" / "torn.csv.gz", gzip.compress(text)[:-5_000])
    put_bytes(folder / "json" / "torn.json.gz", gzip.compress(b'{"word": "ash", "n": 1}\n' * 30_000)[:-300])
    put_bytes(folder / "csv" / "many.csv.bz2", bz2.compress(b"word,n\n" + b"ash,1\n" * 30_000))
    put_bytes(folder / "json" / "many.json.bz2", bz2.compress(b"1\n" * 30_000))
    put_bytes(folder / "parquet" / "types.parquet", parquet(spark, scratch, "word INT, n STRING", [(1, "a")]))
    whole = parquet(spark, scratch, SCHEMA, [(f"ash {n * 7919 % 1009}", n) for n in range(5_000)])
    damaged = whole[:4] + b"\xff" * (len(whole) - 3_000) + whole[len(whole) - 2_996 :]
    put_bytes(folder / "parquet" / "damaged.parquet", damaged)
    words = [(f"ash {n * 7919 % 1009}",) for n in range(5_000)]
    put_bytes(folder / "parquet" / "huge.parquet", with_a_huge_page(parquet(spark, scratch, "word STRING", words)))
    put_bytes(folder / "parquet" / "many.parquet", rows_without_values(scratch.with_name("many"), 200_000))
    parquets = {"types.parquet", "damaged.parquet", "huge.parquet", "many.parquet"}
    return {"names.csv", "sums.csv", "torn.csv.gz", "torn.json.gz", "many.csv.bz2", "many.json.bz2"} | parquets


@cache
def application(folder: Path, home: Path, database: str, events: str) -> fk.App:
    """Return an application with a batch that reads three folders and a topic, and another one that reads the topic."""
    app = fk.App("unreadable", home=home)
    for form in ("json", "csv", "parquet"):
        app.source(form, fk.Files(str(folder / form), form, schema=SCHEMA))  # type: ignore[arg-type]
    app.source("events", fk.Kafka(events, schema=SCHEMA))

    @app.stream(fk.Eager())
    def words(json: "DataFrame", csv: "DataFrame", parquet: "DataFrame", events: "DataFrame") -> "DataFrame":
        return json.unionByName(csv).unionByName(parquet).unionByName(events)

    @app.stream(fk.Eager())
    def others(events: "DataFrame") -> "DataFrame":
        return events.select("word")

    app.sink("words", words, fk.Sql(database, "words"))
    app.sink("others", others, fk.Sql(database, "others"))
    return app


def test_files_that_can_not_be_read_are_left_out_and_named(
    spark: "SparkSession", broker: Broker, home: Path, tmp_path: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, each of them ended the application: EPOCH_KEEPS_FAILING, and again at each start. The huge one ended the
    JVM. The one of many rows gave a dead letter for each row: a file of 369 bytes gave 20 million."""
    monkeypatch.setattr(files, "ROWS_MAX", 10_000)
    monkeypatch.setattr(files, "ROWS_PER_BYTE_MAX", 100)
    monkeypatch.setattr("falkirk.runtime.spark.epochs.files.NAMED_MAX", 11)
    wire, database, folder = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db", tmp_path / "in"
    events, words, sent = wire.topic("events"), Table(database, "words"), Counter[str]()
    for form in ("json", "csv", "parquet"):
        (folder / form).mkdir(parents=True)
    left_out = attack(spark, folder, tmp_path / "scratch")

    def work(number: int) -> None:
        sent.update([f"j{number}", f"c{number}", f"p{number}", f"e{number}"])
        put(folder / "json" / f"{number}.json", json.dumps({"word": f"j{number}", "n": 1}))
        put(folder / "csv" / f"{number}.csv", f"word,n\nc{number},1\n")
        put_bytes(folder / "parquet" / f"{number}", parquet(spark, tmp_path / "scratch", SCHEMA, [(f"p{number}", 1)]))
        wire.send(events, [{"word": f"e{number}", "n": 1}])

    def is_done(query: Any) -> bool:
        assert query.isActive, query.exception()
        return wire.count(letters) >= len(left_out) and sum(Counter(r["word"] for r in words.rows()).values()) >= len(
            sent
        )

    letters, app = "unreadable-words.dead-letters", application(folder, home, database, events)
    work(0)
    run_until_cut_off(app, broker, (FileLog, "refuse", True), lambda: None, is_done)
    assert words.rows() == []
    query = run_here(application(folder, home, database, events), Connection.of(broker.bootstrap))
    try:
        await_one(query, lambda: is_done(query), "the first files")
        work(1)
        await_one(query, lambda: is_done(query), "the files that came later")
        told = {region.name: region.detail for region in query.status}
    finally:
        query.stop()
    assert Counter(r["word"] for r in words.rows()) == sent, "each honest row once, and nothing of the others"
    found = {r.key.decode(): json.loads(r.value or b"") for r in wire.records(letters) if r.key is not None}
    assert (set(found), wire.count(letters)) == (left_out, len(left_out)), "each is told once"
    assert {letter["topic"] for letter in found.values()} == {"files:csv", "files:json", "files:parquet"}
    assert all("the file is left out: " in letter["reason"] for letter in found.values())
    assert "\x1b" not in "".join(letter["reason"] for letter in found.values())
    assert all(repr(name) in told["words"] for name in left_out), told
    assert "refused" not in told["others"]


def test_a_file_that_was_changed_or_removed_is_waited_for(
    spark: "SparkSession", broker: Broker, home: Path, tmp_path: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state that no file holds is computed again from files. One of them was replaced by another of the same size and
    time, which can't be read. Another one is removed before its epoch is complete. Before, either ended all."""
    wire, database, folder = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db", tmp_path / "in"
    folder.mkdir()
    events, totals, others = wire.topic("events"), Table(database, "totals"), Table(database, "others")
    orders_in = fk.Files(str(folder), "csv", schema=SCHEMA)

    def run() -> Any:
        app = fk.App("lost", home=home)
        app.source("orders", orders_in)
        app.source("events", fk.Kafka(events, schema=SCHEMA))

        @app.batch(every="1 second", state="word STRING, total LONG", policy=fk.Lazy(when=lambda epoch: False))
        def totals(orders: "DataFrame", totals: "DataFrame") -> "tuple[DataFrame, DataFrame]":
            new = orders.select("word", F.col("n").cast("long").alias("total"))
            after = totals.unionByName(new).groupBy("word").agg(F.sum("total").alias("total"))
            return after.select("word", "total"), after  # two of them: the results are not the state

        @app.stream(fk.Eager())
        def others(events: "DataFrame") -> "DataFrame":
            return events.select("word")

        app.sink("totals", totals, fk.Sql(database, "totals", key="word"))
        app.sink("others", others, fk.Sql(database, "others"))
        return run_here(app, Connection.of(broker.bootstrap))

    def total() -> int:
        return sum(row["total"] for row in totals.rows())

    def detail(query: Any) -> str:
        return next(str(region.detail) for region in query.status if region.name == "totals")

    put(folder / "a.csv", "word,n\nash,1\n")
    query = run()
    try:
        await_one(query, lambda: total() == 1, "the first file")
    finally:
        query.stop()

    honest, known = (folder / "a.csv").read_text(), (folder / "a.csv").stat()

    def replace(text: str) -> None:
        (folder / "a.csv").write_text(text)
        os.utime(folder / "a.csv", ns=(known.st_atime_ns, known.st_mtime_ns))
        assert (folder / "a.csv").stat().st_size == known.st_size

    replace("drow,n\nash,1\n")
    query = run()
    try:
        await_one(query, lambda: "waiting: file 'a.csv' of 'orders'" in detail(query), "the status")
        wire.send(events, [{"word": "elm", "n": 1}])
        await_one(query, lambda: len(others.rows()) == 1, "what the other batch reads")
        replace(honest)
        put(folder / "b.csv", "word,n\nash,10\n")
        await_one(query, lambda: total() == 11, "all of it, once the file is back")

        real = FileLog.paths

        def removing(files: FileLog, *arguments: Any, **options: Any) -> Any:
            (folder / "c.csv").unlink(missing_ok=True)
            return real(files, *arguments, **options)

        monkeypatch.setattr(FileLog, "paths", removing)
        put(folder / "c.csv", "word,n\nash,100\n")
        await_one(query, lambda: "waiting: file 'c.csv' of 'orders'" in detail(query), "the status")
        monkeypatch.undo()
        put(folder / "d.csv", "word,n\nash,1000\n")
        FileLog("orders", orders_in, query._home.store).disown("c.csv")
        await_one(query, lambda: total() == 1011, "what came later")
    finally:
        query.stop()
    letters = wire.records("lost-totals.dead-letters")
    assert [r.key for r in letters] == [b"c.csv"]


def test_a_file_of_many_rows_is_read_if_its_size_explains_them(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file counts alone, also if one task reads several."""
    monkeypatch.setattr(files, "ROWS_MAX", 1_000)
    paths = {}
    for number in range(3):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"word": ["ash"] * 900, "n": pa.array([number] * 900, pa.int32())}), path)
        paths[path] = number
    path = tmp_path / "large.parquet"
    pq.write_table(pa.table({"word": [f"w{n}" for n in range(5_000)]}), path)
    assert path.stat().st_size > 5_000
    found = file_rows(spark, fk.Files(str(tmp_path), schema=SCHEMA.replace(" NOT NULL", "")), {**paths, path: 3}).data
    assert found.count() == 3 * 900 + 5_000


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "checksums"])
def test_a_pipe_that_replaces_a_file_holds_no_task(spark: "SparkSession", tmp_path: Path, form: str) -> None:
    """It is swapped after Spark has listed the file and before a task opens it. A neighbour keeps the pipe open.

    A pipe in the place of the file's checksums can be there from the start. Before, the task waited for good. An epoch
    that has read a pipe does not count: `FileLog.paths` refuses a file that is not regular.
    """
    if is_beside := form == "checksums":
        form = "csv"
    path, whole = tmp_path / "in" / f"a.{form}", b"word,n\n" + b"ash,1\n" * 40_000
    path.parent.mkdir()
    if form == "json":
        whole = b'{"word": "ash", "n": 1}\n' * 10_000
    if form == "parquet":
        whole = parquet(spark, tmp_path / "scratch", SCHEMA, [("ash", 1)])
    path.write_bytes(whole)
    listed = file_rows(spark, fk.Files(str(path.parent), form, schema=SCHEMA), {path: 0})  # type: ignore[arg-type]
    pipe = path.with_name(f".{path.name}.crc") if is_beside else path
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    held, ended = os.open(pipe, os.O_RDWR), threading.Event()
    failed: list[Exception] = []

    def read() -> None:
        try:
            listed.data.write.format("noop").mode("overwrite").save()
        except SPARK_ERRORS as error:
            failed.append(error)
        ended.set()

    try:
        with ended_pipes([path], look_s=0.2):
            thread = threading.Thread(target=read, daemon=True)
            thread.start()
            assert ended.wait(60)
        assert not (is_beside and failed), "Hadoop reads a file without its checksums, too"
    finally:
        os.close(held)
        while not ended.wait(0.2):  # without the mechanism: end the task, which would hold a core
            end_pipe(pipe)


def test_a_pipe_that_is_moved_away_holds_its_task(spark: "SparkSession", tmp_path: Path) -> None:
    """SECURITY.md says so: the task reads it until somebody ends it there, or until the Spark application ends."""
    path, moved = tmp_path / "in" / "a.csv", tmp_path / "moved"
    path.parent.mkdir()
    path.write_bytes(b"word,n\n" + b"ash,1\n" * 40_000)
    listed = file_rows(spark, fk.Files(str(path.parent), "csv", schema=SCHEMA), {path: 0})
    path.unlink()
    os.mkfifo(path)
    jvm = spark.sparkContext._gateway.proc.pid
    held, ended, looks = os.open(path, os.O_RDWR), threading.Event(), list[Path]()

    def is_open() -> bool:
        found = []
        for file in Path(f"/proc/{jvm}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(os.readlink(file))
        return str(path) in found

    def read() -> None:
        with contextlib.suppress(*SPARK_ERRORS):
            listed.data.write.format("noop").mode("overwrite").save()
        ended.set()

    class Looks(list[Path]):
        """The places of an epoch, which count how often somebody looks at them."""

        def __iter__(self) -> "Iterator[Path]":
            looks.append(path)
            return super().__iter__()

    threading.Thread(target=read, daemon=True).start()
    try:
        wait_until(is_open, 60, "the task to open the pipe")
        path.rename(moved)
        with ended_pipes(Looks([path]), look_s=0.01):
            wait_until(lambda: len(looks) > 20, 60, "looks at the folder")
        assert not ended.is_set()
    finally:
        os.close(held)
        while not ended.wait(0.2):
            end_pipe(moved)
