"""The values of partition columns: every reader of a table finds the same ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import load_catalog
from pyspark.sql.types import DateType, LongType, StringType, StructType, TimestampNTZType, TimestampType

import falkirk as fk
from falkirk.runtime.spark.sinks.delta import DeltaLakeTable
from falkirk.runtime.spark.sinks.iceberg import IcebergTable
from falkirk.runtime.spark.sinks.lake import DataFile, LakeTable
from falkirk.theory.ids import EpochNumber

SCHEMA = StructType().add("id", LongType()).add("by", StringType())
TEXTS = ["", None, "x", "  ", "a/b=c%20", "null"]


def commit(table: LakeTable, texts: Sequence[str | None] = TEXTS) -> None:
    """Commit a row of each text to the table, which is created if it is missing."""
    opened, files = table.open() or table.create(SCHEMA), list[DataFile]()
    for number, text in enumerate(texts):
        path = opened.data / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": pa.array([number], pa.int64()), "by": pa.array([text], pa.string())}), path)
        size = path.stat().st_size
        files.append(DataFile(name=path.name, rows=1, size_bytes=size, modified_ms=0, partition={"by": text}))
    opened.commit(EpochNumber(0), files, EpochNumber(1))


def texts_of(rows: pa.Table) -> list[object]:
    return [row["by"] for row in sorted(rows.to_pylist(), key=lambda row: row["id"])]


def test_an_empty_text_is_null_for_every_reader_of_a_delta_table(tmp_path: Path) -> None:
    """Delta's protocol has no empty text there. Before, one reader found null and another one the empty text."""
    to = fk.Delta(str(tmp_path / "t"), partition_by="by")
    commit(DeltaLakeTable(to, "home", "out"))
    table = DeltaTable(tmp_path / "t")
    queried = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    assert [texts_of(table.to_pyarrow_table()), texts_of(pa.table(queried))] == [[None, *TEXTS[1:]]] * 2


class Icebergs:
    """One table of Iceberg."""

    def __init__(self, folder: Path) -> None:
        self.properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": str(folder)}
        to = fk.Iceberg("shop.t", "lake", self.properties, partition_by="by")
        self.table = IcebergTable(to, "home", "out")

    def read(self, **options: Any) -> pa.Table:
        return load_catalog("lake", **self.properties).load_table("shop.t").scan(**options).to_arrow()


@pytest.fixture
def iceberg(tmp_path: Path) -> Icebergs:
    return Icebergs(tmp_path)


def test_an_iceberg_table_keeps_an_empty_text(iceberg: Icebergs) -> None:
    commit(iceberg.table)
    assert texts_of(iceberg.read()) == TEXTS


@pytest.mark.parametrize("mode", ["none", "counts", "full"])
def test_a_reader_of_one_partition_finds_its_rows_whatever_metrics_the_table_keeps(
    iceberg: Icebergs, mode: str
) -> None:
    """pyiceberg takes the values of partitions from metrics. Without them, all rows were in the partition of null."""
    iceberg.table.create(SCHEMA)
    table = load_catalog("lake", **iceberg.properties).load_table("shop.t")
    with table.transaction() as transaction:
        transaction.set_properties({"write.metadata.metrics.default": mode})
    commit(iceberg.table, ["x", "y" * 300, None])
    assert [texts_of(iceberg.read(row_filter=f"by == '{text}'")) for text in ("x", "y" * 300)] == [["x"], ["y" * 300]]
    kept = load_catalog("lake", **iceberg.properties).load_table("shop.t").properties
    assert {name: value for name, value in kept.items() if "metrics" in name} == {
        "write.metadata.metrics.default": mode
    }


def micros(at: str) -> int:
    """Return a time in microseconds since 1970. Args: at: as numpy reads it, which has all years."""
    return int(np.datetime64(at, "us").astype(int))


@pytest.mark.parametrize("year", ["+10000", "0000", "-0044", "+200000"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_that_python_does_not_have_are_in_a_table_of_iceberg(
    iceberg: Icebergs, zone: str | None, year: str
) -> None:
    """They need no partition of their own. Before, the commit failed in Python, again at each try."""
    clock = TimestampNTZType() if zone is None else TimestampType()
    opened = iceberg.table.create(StructType([*SCHEMA.fields]).add("day", DateType()).add("at", clock))
    last = f"{year}-12-31T23:59:59"
    days, times = [1, int(np.datetime64(last, "D").astype(int))], [1, micros(last)]
    columns = {
        "id": pa.array([0, 1], pa.int64()),
        "by": pa.array(["x", "x"]),
        "day": pa.array(days, pa.int32()).cast(pa.date32()),
        "at": pa.array(times, pa.int64()).cast(pa.timestamp("us", zone)),
    }
    path = opened.data / "a.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table(columns), path)
    size = path.stat().st_size
    opened.commit(
        EpochNumber(0),
        [DataFile(name=path.name, rows=2, size_bytes=size, modified_ms=0, partition={"by": "x"})],
        EpochNumber(1),
    )
    found = iceberg.read()
    assert found["day"].cast(pa.int32()).to_pylist() == days
    assert found["at"].cast(pa.int64()).to_pylist() == times
    assert iceberg.read(row_filter="by == 'x' and day == '1970-01-02'")["id"].to_pylist() == [0]
    assert iceberg.read(row_filter="id == 7")["id"].to_pylist() == []
