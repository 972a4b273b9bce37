"""Files that are read, and the terminal, on real Spark: each file's rows once, bad ones in the dead letters."""

import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.kafka_client.connection import Connection
from falkirk.plan.planner import plan_application
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.epochs.files import FileLog
from falkirk.runtime.spark.sinks.table import TableTarget
from falkirk.spark_setup.broker import Broker
from falkirk.steps.dataframes.names import BAD, STAMP
from falkirk.steps.sources.files import file_rows
from falkirk.user_tools.commands.history.application import OfflineApplication
from tests.integration.cutting import Place, run_until_cut_off
from tests.integration.epochs.test_batches import Table
from tests.integration.live import Wire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "word STRING NOT NULL, n INT"
#: A file's name that looks like a pattern, a query and a partition, and is none.
STRANGE = "a+b=c%20 ü,(1)&~"


def put(path: Path, text: str) -> Path:
    """Put a file in place as the protocol has it."""
    path.parent.mkdir(exist_ok=True)
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(text)
    return unfinished.rename(path)


def _json(spark: "SparkSession", path: Path) -> None:
    put(path, '{"word": "ash", "n": 1}\n\nno json\r\n{"n": 2}\n{"word": "birch", "n": null}\n{"word": "x", "n": "y"}')


def _csv(spark: "SparkSession", path: Path) -> None:
    put(path, 'word,n\nash,1\n,2\n"birch",\nx,y\ncedar\n')


def _parquet(spark: "SparkSession", path: Path) -> None:
    rows = spark.createDataFrame([("ash", 1), (None, 2), ("birch", None)], "word STRING, n INT")
    written = path.with_name("_written")
    rows.coalesce(1).write.mode("overwrite").parquet(str(written))
    next(written.glob("*.parquet")).rename(path)


@pytest.mark.parametrize(
    ("form", "write", "bad"),
    [
        ("json", _json, {("does not fit the schema", "no json"), ("column word is null", '{"n": 2}'),
                         ("does not fit the schema", '{"word": "x", "n": "y"}')}),
        ("csv", _csv, {("column word is null", '{"word":null,"n":2}'), ("does not fit the schema", "x,y"),
                       ("does not fit the schema", "cedar")}),
        ("parquet", _parquet, {("column word is null", '{"word":null,"n":2}')}),
    ],
)  # fmt: skip
def test_rows_of_files(
    form: Any, write: Callable[..., None], bad: set[tuple[str, str]], spark: "SparkSession", tmp_path: Path
) -> None:
    paths = {tmp_path / "in" / f"{STRANGE}{i}": 40 + i for i in range(2)}
    (tmp_path / "in").mkdir()
    for path in paths:
        write(spark, path)
    frame = file_rows(spark, fk.Files(str(tmp_path / "in"), form, schema=SCHEMA), paths)
    found = frame.data.select("*", F.input_file_name().alias("_")).collect()
    good = Counter((r.word, r.n, r[STAMP].offset) for r in found if r[BAD] is None)
    assert good == {(w, n, o): 1 for o in (40, 41) for w, n in (("ash", 1), ("birch", None))}
    told = {(r[BAD].reason, r[BAD].value.decode()) for r in found if r[BAD] is not None}
    assert told == bad
    assert {r[BAD].key.decode() for r in found if r[BAD] is not None} == {path.name for path in paths}
    counted = frame.data.agg(F.count_if(F.col(BAD).isNotNull())).collect()[0][0]
    assert counted == 2 * len(bad), "what is counted alone is counted otherwise"
    assert frame.data.where(F.col(BAD).isNull()).select("n").where("n = 1").count() == 2


def test_what_can_not_read_files_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    def planned(declare: Callable[[fk.App], Any]) -> str:
        app = fk.App("refused")
        app.source("orders", fk.Files(str(tmp_path), "json", schema=SCHEMA))
        declare(app)
        with pytest.raises(DefinitionError) as refused:
            plan_application(app, spark, "deadbeef")
        return refused.value.condition

    def live(app: fk.App) -> None:
        app.stream()(orders_live)
        app.sink("out", "orders_live", fk.Kafka("out"))

    def orders_live(orders: fk.Stream) -> fk.Stream:
        return orders

    def rows(orders: "DataFrame") -> "DataFrame":
        return orders

    def view(orders: fk.View, rows: "DataFrame") -> Any:
        return rows

    def sink(app: fk.App, to: Any, **options: Any) -> None:
        app.batch(every="1 s")(rows)
        app.sink("out", rows, to, **options)

    assert planned(live) == "FILES_READ_LIVE"
    assert planned(lambda app: app.sink("out", "orders", fk.Kafka("out"))) == "FILES_READ_LIVE"
    assert planned(lambda app: (app.batch(rows=3)(rows), app.sink("out", rows, fk.Kafka("out")))) == "CUT_INVALID"
    assert planned(lambda app: sink(app, fk.Files(str(tmp_path)))) == "FOLDER_SHARED"
    assert planned(lambda app: sink(app, fk.Console())) == "PRINTED_AGAIN"

    def views(app: fk.App) -> None:
        sink(app, fk.Kafka("out"))
        app.batch(every="1 s")(view)
        app.sink("view", view, fk.Kafka("view"))

    assert planned(views) == "VIEW_HAS_NO_EPOCHS"


#: The calls at which the run is interrupted, and whether before or after the call.
PLACES: dict[str, Place] = {
    "numbered, not decided": (FileLog, "_number", True),
    "decided, not read": (FileLog, "paths", False),
    "released, not recorded": (TableTarget, "deliver", True),
}


@cache
def application(folder: Path, home: Path, database: str) -> fk.App:
    """Return an application that counts the words of files, in epochs and over all of them."""
    app = fk.App("files", home=home, history=2)
    app.source("orders", fk.Files(str(folder), "json", schema=SCHEMA))

    @app.stream(fk.Eager())
    def words(orders: "DataFrame") -> "DataFrame":
        return orders.groupBy("word").agg(F.count("*").alias("count"))

    @app.batch(every="1 second", state="word STRING, total LONG")
    def totals(orders: "DataFrame", totals: "DataFrame") -> "DataFrame":
        new = orders.select("word", F.lit(1).cast("long").alias("total"))
        return totals.unionByName(new).groupBy("word").agg(F.sum("total").alias("total"))

    app.sink("words", words, fk.Sql(database, "words"))
    app.sink("shown", words, fk.Console(rows=1), delivery="repeated")
    app.sink("totals", totals, fk.Sql(database, "totals", key="word"))
    return app


def test_each_file_counts_once_whatever_is_cut_off(
    spark: "SparkSession", broker: Broker, home: Path, tmp_path: Path, tag: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder, database = tmp_path / "in", f"sqlite:///{home}.db"
    folder.mkdir()
    words, totals = Table(database, "words"), Table(database, "totals")
    wire, sent = Wire(bootstrap=broker.bootstrap, tag=tag), Counter[str]()

    def work(number: int) -> None:
        sent.update({"ash": 2, "birch": 1})
        lines = [json.dumps({"word": w, "n": i}) for i, w in enumerate(("ash", "birch", "ash"))]
        put(folder / f"{number}.json", "\n".join([*lines, '{"n": 1}']))

    def run(number: int, place: str | None) -> None:
        at = None if place is None else PLACES[place]
        run_until_cut_off(application(folder, home, database), broker, at, lambda: work(number), _is_done)

    def _is_done(query: Any) -> bool:
        assert query.isActive, query.exception()
        letters = all(wire.count(f"files-{name}.dead-letters") >= len(PLACES) + 1 for name in ("words", "totals"))
        return _counted() == sent and {r["word"]: r["total"] for r in totals.rows()} == sent and letters

    def _counted() -> Counter[str]:
        counted: Counter[str] = Counter()
        for row in words.rows():
            counted[row["word"]] += row["count"]
        return counted

    for number, place in enumerate(PLACES):
        run(number, place)
    run(len(PLACES), None)
    assert _counted() == sent, "a file counted twice"
    letters = wire.records("files-words.dead-letters")
    assert Counter(r.key for r in letters) == {f"{i}.json".encode(): 1 for i in range(len(PLACES) + 1)}
    assert {json.loads(r.value or b"")["value"] for r in letters} == {'{"n": 1}'}
    shown = capsys.readouterr().out
    assert "shown, epoch 0: 2 row(s)" in shown
    assert "… and 1 more" in shown
    _can_be_looked_at_and_taken_back(folder, home, database, broker)


def _can_be_looked_at_and_taken_back(folder: Path, home: Path, database: str, broker: Broker) -> None:
    app = application(folder, home, database)
    with open_home(home, "files") as opened:
        visit = OfflineApplication(app, opened, Connection.of(broker.bootstrap), runs=False, history=app.history)
        checkpoints = [p.checkpoint.number for p in visit.history() if p.region == "totals"]
        assert len(checkpoints) >= 2
        preview = visit.preview({"totals": checkpoints[0]})
        assert [m.region for m in preview.moves if m.again > 0] == ["totals"]
        assert set(visit.garbage().checkpoints) == {"words", "totals"}
        (folder / f"{len(PLACES)}.json").unlink()  # only the newest point needs it no more
        again = OfflineApplication(app, opened, Connection.of(broker.bootstrap), runs=False, history=app.history)
        assert len([p for p in again.history() if p.region == "totals"]) == 1
