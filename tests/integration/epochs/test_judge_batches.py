"""`falkirk verify outputs` on batches: it passes a real run that is right, and names each fault that is planted.

One run serves all cases. Faults are planted into copies of its places.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sql
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.check import EpochFault, EpochsVerdict, Guarantee
from falkirk.commands.judge_batches import BatchJudge, batch_judge
from falkirk.errors import FalkirkError
from falkirk.host.query import run_here
from falkirk.kafka.connection import Connection
from falkirk.local.broker import Broker
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Plant = Callable[[Path], None]

ROWS, EPOCHS, WORDS = 12, 4, ("ash", "birch", "cedar", "dill")


def application(tag: str, home: Path, database: str) -> fk.App:
    app = fk.App("judged", home=home)
    app.source("events", fk.Kafka(f"events-{tag}", schema="word STRING NOT NULL, n INT"))

    @app.batch(rows=ROWS)
    def weights(events: "DataFrame") -> "DataFrame":
        found = events.groupBy("word").agg(F.sum("n").alias("n"), F.avg("n").cast("decimal(10, 2)").alias("mean"))
        return found.withColumn("at", F.timestamp_micros(F.col("n") * 1_000_001)).withColumn("of", F.array("word"))

    @app.batch(rows=1, state="word STRING, total LONG")
    def totals(weights: "DataFrame", totals: "DataFrame") -> "DataFrame":
        both = totals.unionByName(weights.select("word", F.col("n").alias("total")))
        return both.groupBy("word").agg(F.sum("total").alias("total"))

    @app.batch(rows=ROWS)
    def drawn(events: "DataFrame") -> "DataFrame":
        return events.select("n", F.rand().alias("r"))

    app.sink("topic", weights, fk.Kafka(f"weights-{tag}", key="word"))
    app.sink("table", weights, fk.Sql(database, "weights"))
    for kind in ("parquet", "json", "csv"):
        app.sink(kind, weights, fk.Files(f"{home}-{kind}", kind))
    app.sink("latest", totals, fk.Sql(database, "totals", key="word"))
    app.sink("drawn", drawn, fk.Files(f"{home}-drawn"))
    return app


@dataclass
class Run:
    """A run that has ended, and its judge."""

    app: fk.App
    judge: BatchJudge
    wire: Wire
    database: str
    folder: Path

    def verdict(self, name: str, to: Any = None) -> EpochsVerdict:
        """Judge a sink. Args: to: a copy of its place."""
        sink = self.app.sinks[name]
        batch = self.judge.batch_of(sink)
        assert batch is not None
        return self.judge.judge_sink(batch, sink if to is None else replace(sink, to=to))

    def folder_copy(self, kind: str, name: str) -> Path:
        copy = self.folder / f"{kind}-{name}"
        shutil.copytree(self.app.sinks[kind].to.path, copy)  # type: ignore[union-attr]
        return copy


@pytest.fixture(scope="module")
def run(spark: "SparkSession", broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("judged")
    home, tag, database = folder / "home", folder.name, f"sqlite:///{folder}/out.db"
    wire, connection = Wire(bootstrap=broker.bootstrap, tag=tag), Connection.of(broker.bootstrap)
    events, _ = wire.topic("events"), wire.topic("weights", partitions=2)
    app = application(tag, home, database)
    query = run_here(app, connection)
    try:
        for number in range(EPOCHS):
            rows = [{"word": WORDS[i % 4], "n": 100 * number + i} for i in range(ROWS)]
            wire.send(events, [b"no json", *rows][number > 0 :][:ROWS], partition=number % 2)
            wait_until(lambda n=number: _is_out(app, n), 120, lambda: f"epoch {number}: {query.status}")  # type: ignore[misc]
    finally:
        query.stop()
    with ExitStack() as stack:
        judge = stack.enter_context(batch_judge(app, None, connection, spark))
        yield Run(app=app, judge=judge, wire=wire, database=database, folder=folder)


def _is_out(app: fk.App, number: int) -> bool:
    folders = [Path(app.sinks[name].to.path) for name in ("csv", "drawn")]  # type: ignore[union-attr]
    with sql.create_engine(app.sinks["latest"].to.url).begin() as db:  # type: ignore[union-attr]
        if not sql.inspect(db).has_table("falkirk_marks"):
            return False
        marks = db.execute(sql.text("SELECT min(epoch), count(*) FROM falkirk_marks")).one()
    return tuple(marks) == (number, 2) and all((f / f"epoch={number:010d}").exists() for f in folders)


def test_a_clean_run_is_clean(run: Run) -> None:
    for name in ("topic", "table", "parquet", "json", "csv", "latest"):
        verdict = run.verdict(name)
        assert verdict.compared.faults == [], name
        assert verdict.guarantee is Guarantee.EXACTLY_ONCE, verdict
        assert verdict.compared.due == verdict.compared.found == (4 if name == "latest" else 4 * EPOCHS)
    assert [batch.name for batch in run.judge.logs] == ["weights"]
    assert run.judge.judge_log(run.judge.logs[0]).guarantee is Guarantee.EXACTLY_ONCE
