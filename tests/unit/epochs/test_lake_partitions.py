"""The values of partition columns: every reader of a table finds the same ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo
from pyspark.sql.types import DateType, LongType, StringType, StructType

import falkirk as fk
from falkirk.runtime.sinks.delta import DeltaLakeTable
from falkirk.runtime.sinks.iceberg import IcebergTable
from falkirk.runtime.sinks.lake import DataFile, LakeTable, TableUnfit, refuse_dates
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
    assert [texts_of(iceberg.read(row_filter=EqualTo("by", value=text))) for text in ("x", "y" * 300)] == [
        ["x"],
        ["y" * 300],
    ]
    kept = load_catalog("lake", **iceberg.properties).load_table("shop.t").properties
    assert {name: value for name, value in kept.items() if "metrics" in name} == {
        "write.metadata.metrics.default": mode
    }


def test_a_text_that_is_too_long_for_metrics_is_refused_in_a_partition_of_iceberg(iceberg: Icebergs) -> None:
    """A Parquet file has no minimum and maximum of such texts, so pyiceberg would take the value for null."""
    with pytest.raises(TableUnfit, match="by has a text of 5000 bytes"):
        commit(iceberg.table, ["x", "z" * 5_000])


@pytest.mark.parametrize(
    ("text", "fits"),
    [("1970-01-01", True), ("9999-12-31", True), (None, True), ("+10000-01-01", False), ("0000-01-01", False)],
)
def test_a_date_that_would_make_a_table_unreadable_is_refused_in_a_partition(text: str | None, fits: bool) -> None:
    """With one such date, no row of a Delta table could be read by deltalake, and Iceberg's commits failed."""
    schema = StructType().add("id", LongType()).add("day", DateType()).add("word", StringType())
    files = [DataFile(name="a", rows=1, size_bytes=1, modified_ms=0, partition={"day": text, "word": "+10000-01-01"})]
    if fits:
        refuse_dates(schema, files)
        return
    with pytest.raises(TableUnfit, match="partitions take the years 1 to 9999"):
        refuse_dates(schema, files)
