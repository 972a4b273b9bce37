"""Targets of batches, of each kind, in a test of its own, and epochs for them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sql
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.local.spark import observing
from falkirk.runtime.context import Context
from falkirk.runtime.epochs.inputs import ROW
from falkirk.runtime.sinks import copying
from falkirk.runtime.sinks.target import Target
from falkirk.runtime.sinks.targets import target_of
from tests.integration.live import Wire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCHS, ROWS = 3, 20
FORMATS = ("parquet", "json", "csv")
KINDS = ("topic", "postgres", "sqlite", *FORMATS)


@dataclass
class Place:
    """Where one kind of sink writes in one test."""

    kind: str
    folder: Path
    make: Callable[[], Target]
    read: Callable[[], list[int]]


def place(kind: str, context: Context, wire: Wire, url: str, name: str = "out") -> Place:
    """Return a place that does not exist yet.

    Args: url: of a PostgreSQL database.
    """
    folder = context.home.path
    endpoint: Any
    if kind == "topic":
        topic = wire.topic(name, partitions=3)
        endpoint = fk.Kafka(topic, key="id")
        read = lambda: [r["id"] for r in wire.rows(topic)]  # noqa: E731
    elif kind in FORMATS:
        endpoint = fk.Files(str(folder / name), kind)  # type: ignore[arg-type]  # one of them

        def read() -> list[int]:
            """Return what anybody finds there who knows nothing of epochs."""
            if not (folder / name).exists():
                return []
            files = context.session.read.format(kind).option("header", "true").schema("id LONG")
            return [r.id for r in files.load(f"{folder}/{name}").collect()]
    else:
        url = f"sqlite:///{folder}/{name}.db" if kind == "sqlite" else url
        endpoint = fk.Sql(url, f"{name}_{wire.tag.replace('-', '_')}")
        engine = sql.create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))

        def read() -> list[int]:
            with engine.begin() as db:
                there = sql.inspect(db).has_table(endpoint.table)
                return list(db.execute(sql.text(f"SELECT id FROM {endpoint.table}")).scalars()) if there else []

    settle = partial(copying.settle, context)
    return Place(kind, folder / name, lambda: target_of(endpoint, name, context, settle), read)


def epoch(spark: "SparkSession", number: int, *, upto: int = ROWS) -> "DataFrame":
    """Return the rows of an epoch, or its first ones."""
    rows = observing(spark).range(number * ROWS, number * ROWS + upto, 1, 2)
    nested = F.array(F.struct(F.lit("a").alias("b"))).alias("nested")
    return rows.select("id", nested, (F.col("id") - number * ROWS).alias(ROW))


class CutOff(Exception):
    """What a kill -9 looks like from here."""


def cut_off(*arguments: Any, **options: Any) -> None:
    raise CutOff
