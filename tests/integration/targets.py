"""Targets of batches, of each kind, for one test each, and epochs for them."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sql
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Transaction as IcebergTransaction
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.accepted import as_endpoint
from falkirk.errors import SparkError
from falkirk.errors.location import caller
from falkirk.kafka_client.ranges import read_range
from falkirk.kafka_client.topics import Topics
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.sinks import writing
from falkirk.runtime.spark.sinks.epoch_topic import EpochTopicTarget
from falkirk.runtime.spark.sinks.table import TableTarget
from falkirk.runtime.spark.sinks.target import Target
from falkirk.runtime.spark.sinks.targets import target_of
from falkirk.spark_setup.observing import observing
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCHS, ROWS = 2, 20
FORMATS = ("parquet", "json", "csv")
LAKES = ("delta", "iceberg")
KINDS = ("topic", "epochs", "postgres", "sqlite", *FORMATS, *LAKES, "own")
REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"


def documented() -> SimpleNamespace:
    """Return the definitions of the example "Sinks of your own" in the reference."""
    section = REFERENCE.read_text().partition("### Sinks of your own")[2]
    found = re.search(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert found, "the section has an example"
    assert found[1].count("\n") <= 40, "an example is short"
    space: dict[str, Any] = {"__name__": "__docs__"}
    exec(found[1], space)
    return SimpleNamespace(**space)


@dataclass
class Place:
    """Where one kind of sink writes in one test."""

    kind: str
    folder: Path
    make: Callable[[], Target]
    read: Callable[[], list[int]]


def place(
    kind: str, context: Context, wire: Wire, url: str, name: str = "out", sink: Callable[[str], Any] | None = None
) -> Place:
    """Return a place that does not exist yet.

    Args: url: a PostgreSQL database's. sink: makes a user's sink from a folder; by default the documented one.
    """
    folder = context.home.path
    endpoint: Any
    if kind == "topic":
        topic = wire.topic(name, partitions=3)
        endpoint = fk.Kafka(topic, key="id")
        read = lambda: [r["id"] for r in wire.rows(topic)]  # noqa: E731
    elif kind == "epochs":
        topic = f"{name}-{wire.tag}"
        endpoint = fk.EpochTopic(topic, key="id", compacted=True, partitions=3)

        def read() -> list[int]:
            """Return the rows that a reader of committed records finds there."""
            topics = Topics(context.connection)
            if not topics.exists(topic):
                return []
            first, last = topics.first_positions(topic), topics.readable_positions(topic)
            found = read_range(context.connection, topic, first, last, committed=True)
            return [json.loads(record.value or b"")["id"] for record in found]
    elif kind in FORMATS:
        endpoint = fk.Files(str(folder / name), kind)  # type: ignore[arg-type]  # one of them

        def read() -> list[int]:
            """Return the rows that a reader finds there without knowledge of epochs."""
            if not (folder / name).exists():
                return []
            files = context.session.read.format(kind).option("header", "true").schema("id LONG")
            return [r.id for r in files.load(f"{folder}/{name}").collect()]
    elif kind == "delta":
        endpoint = fk.Delta(str(folder / name))

        def read() -> list[int]:
            there = DeltaTable.is_deltatable(str(folder / name))
            return DeltaTable(folder / name).to_pyarrow_table(columns=["id"])["id"].to_pylist() if there else []
    elif kind == "iceberg":
        properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": str(folder)}
        endpoint = fk.Iceberg(f"shop.{name}", "lake", properties)

        def read() -> list[int]:
            catalog = load_catalog("lake", **properties)
            if not catalog.table_exists(endpoint.table):
                return []
            return catalog.load_table(endpoint.table).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
    elif kind == "own":
        sink = sink or documented().JsonLines

        def read() -> list[int]:
            files = sorted((folder / name).glob("*.jsonl"))
            return [json.loads(line)["id"] for file in files for line in file.read_text().splitlines()]
    else:
        url = f"sqlite:///{folder}/{name}.db" if kind == "sqlite" else url
        endpoint = fk.Sql(url, f"{name}_{wire.tag.replace('-', '_')}")
        engine = sql.create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))

        def read() -> list[int]:
            with engine.begin() as db:
                there = sql.inspect(db).has_table(endpoint.table)
                return list(db.execute(sql.text(f"SELECT id FROM {endpoint.table}")).scalars()) if there else []

    settle = partial(writing.settle, context)

    def make() -> Target:
        to = endpoint if sink is None else as_endpoint(sink(str(folder / name)), caller())
        made = target_of(to, name, context, settle)
        if isinstance(made, EpochTopicTarget):
            deliver = made.deliver

            def until_readable(*arguments: Any, **options: Any) -> "DataFrame | None":
                letters = deliver(*arguments, **options)
                await_end_of_transactions(Topics(context.connection), endpoint.topic)
                return letters

            made.deliver = until_readable  # type: ignore[method-assign]
        return made

    return Place(kind, folder / name, make, read)


def await_end_of_transactions(topics: Topics, topic: str) -> None:
    """Wait until readers find all committed records. After its answer to a commit, a broker still writes the marks."""
    wait_until(
        lambda: topics.readable_positions(topic) == topics.end_positions(topic), 30, "the end of the transaction"
    )


def release_in_part(place: Place, spark: "SparkSession", number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Release an epoch in part, as far as this kind allows a part, and then stop without an answer."""
    with monkeypatch.context() as patch:
        if place.kind == "topic":
            place.make().deliver(number, epoch(spark, number, upto=ROWS // 2))
            return
        if place.kind == "epochs":
            patch.setattr(EpochTopicTarget, "_produce", cut_off_at_the_note(EpochTopicTarget._produce))
        elif place.kind in LAKES:
            patch.setattr(DeltaTable, "create_write_transaction", cut_off)
            patch.setattr(IcebergTransaction, "commit_transaction", cut_off)
        elif place.kind in (*FORMATS, "own"):
            patch.setattr("os.replace", cut_off)
        else:
            patch.setattr(TableTarget, "_set_mark", cut_off)
        with pytest.raises(CutOff):
            deliver(place, number, epoch(spark, number))


def cut_off_at_the_note(real: Callable[..., None]) -> Callable[..., None]:
    """Return a call that sends all records of an epoch, and then stops before its note."""

    def produce(self: EpochTopicTarget, producer: Any, topic: str, *record: Any) -> None:
        if topic != self._to.topic:
            producer.flush(10)
            raise CutOff
        real(self, producer, topic, *record)

    return produce


def deliver(place: Place, number: int, rows: "DataFrame") -> None:
    """Deliver an epoch. An interruption of a user's sink counts as its failure; here, the original error is raised."""
    try:
        place.make().deliver(number, rows)
    except SparkError as error:
        if isinstance(error.__cause__, CutOff):
            raise error.__cause__ from error
        raise


def epoch(spark: "SparkSession", number: int, *, upto: int = ROWS) -> "DataFrame":
    """Return the rows of an epoch, or its first ones."""
    rows = _observing(spark).range(number * ROWS, number * ROWS + upto, 1, 2)
    nested = F.array(F.struct(F.lit("a").alias("b"))).alias("nested")
    return rows.select("id", nested, (F.col("id") - number * ROWS).alias(ROW))


#: The session of all epochs. It takes longer to make one than to release a few rows.
_observing = cache(observing)


class CutOff(Exception):
    """The effect of a kill -9 in this process."""


def cut_off(*arguments: Any, **options: Any) -> None:
    raise CutOff
