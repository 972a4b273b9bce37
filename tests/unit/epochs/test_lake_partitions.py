"""The values of partition columns: every reader of a table finds the same ones."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import load_catalog
from pyspark.sql.types import LongType, StringType, StructType

import falkirk as fk
from falkirk.runtime.sinks.delta import DeltaLakeTable
from falkirk.runtime.sinks.iceberg import IcebergTable
from falkirk.runtime.sinks.lake import DataFile, LakeTable
from falkirk.theory.ids import EpochNumber

SCHEMA = StructType().add("id", LongType()).add("by", StringType())
TEXTS = ["", None, "x", "  ", "a/b=c%20", "null"]


def commit(table: LakeTable) -> None:
    """Create the table, and commit a row of each text."""
    opened, files = table.create(SCHEMA), list[DataFile]()
    for number, text in enumerate(TEXTS):
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


def test_an_iceberg_table_keeps_an_empty_text(tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": str(tmp_path)}
    commit(IcebergTable(fk.Iceberg("shop.t", "lake", properties, partition_by="by"), "home", "out"))
    assert texts_of(load_catalog("lake", **properties).load_table("shop.t").scan().to_arrow()) == TEXTS
