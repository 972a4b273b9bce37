"""Rows of all types in lake tables: Delta's and Iceberg's own readers find the values that Spark wrote."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Transaction

import falkirk as fk
from falkirk.errors import SparkError
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.sinks.delta import DeltaLakeTable
from falkirk.runtime.spark.sinks.iceberg import IcebergTable
from falkirk.runtime.spark.sinks.lake import LakeTarget
from falkirk.theory.ids import EpochNumber
from tests.integration.targets import LAKES, Place, cut_off, epoch
from tests.integration.targets import ROWS as ROWS_OF_EPOCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = f"""SELECT id, timestamp'2024-05-06 07:08:09.123456Z' at, timestamp_ntz'2024-05-06 07:08:09.123456' local,
    date'1969-12-31' day, CAST(12.34 AS DECIMAL(10, 2)) price, array(struct('a' AS b)) nested, map('k', 1) m,
    CAST(7 AS SMALLINT) small, X'0001' bytes, if(id = 0, NULL, 'ä/=' || id) by, id AS `{ROW}` FROM range(3)"""


def properties_of(folder: Path) -> dict[str, str]:
    """Return the properties of Iceberg's catalog."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": str(folder)}


def made(kind: str, folder: Path, by: Sequence[str] = ("by",)) -> LakeTarget:
    """Return a sink to a table that is partitioned by columns: by default a text."""
    if kind == "delta":
        to = fk.Delta(str(folder / "t"), partition_by=by)
        return LakeTarget(to, lambda: DeltaLakeTable(to, "home", "out"), "out", "home/out", lambda: None)
    other = fk.Iceberg("shop.t", "lake", properties_of(folder), partition_by=by)
    return LakeTarget(other, lambda: IcebergTable(other, "home", "out"), "out", "home/out", lambda: None)


def rows_of(kind: str, folder: Path) -> list[dict[str, Any]]:
    """Return the rows that the format's own reader finds, in order of their ids."""
    if kind == "delta":
        table = DeltaTable(folder / "t").to_pyarrow_table()
    else:
        table = load_catalog("lake", **properties_of(folder)).load_table("shop.t").scan().to_arrow()
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_values_and_partitions(kind: str, spark: "SparkSession", tmp_path: Path) -> None:
    target = made(kind, tmp_path)
    for few in (True, False):
        target.deliver(int(not few), spark.sql(ROWS), few=few)  # type: ignore[arg-type]  # an epoch's number
    rows = rows_of(kind, tmp_path)
    assert [row["id"] for row in rows] == [0, 0, 1, 1, 2, 2]
    assert [row["by"] for row in rows[::2]] == [None, "ä/=1", "ä/=2"]
    row = rows[0]
    assert row["at"].isoformat() == "2024-05-06T07:08:09.123456+00:00"
    assert row["local"].isoformat() == "2024-05-06T07:08:09.123456"
    assert (str(row["day"]), str(row["price"]), row["nested"]) == ("1969-12-31", "12.34", [{"b": "a"}])
    assert (dict(row["m"]), row["small"], row["bytes"]) == ({"k": 1}, 7, b"\x00\x01")


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_long_text_in_a_partition_column_does_not_stop_the_sink(
    kind: str, spark: "SparkSession", tmp_path: Path
) -> None:
    """A text of more than 116 bytes made the name of a folder too long, so the epoch was tried for ever."""
    texts = ["a" * 90, "ä" * 400, "ä" * 399 + "b", "", None]
    target = made(kind, tmp_path)
    rows = spark.createDataFrame([(n, text, n) for n, text in enumerate(texts)], f"id INT, by STRING, `{ROW}` LONG")
    target.deliver(EpochNumber(0), rows, few=True)
    found = [row["by"] for row in rows_of(kind, tmp_path)]
    assert found == [text or None if kind == "delta" else text for text in texts]


#: The days of an epoch's rows, in SQL, and the lengths of their texts.
DAYS = [
    "make_date(2024, 5, 6)",
    "NULL",
    *(f"make_date({year}, 12, 31)" for year in (9999, 10000, 0)),
    "make_date(1, 1, 1)",
]
LENGTHS = ["3", "NULL", "2000", "3", "3", "2001"]


def unfit_rows(spark: "SparkSession") -> "DataFrame":
    """Return rows of which some can't be in a partition: 3 and 4, and 5 with Iceberg."""
    rows = [f"({n}, {day}, repeat('x', {size}), {n}L)" for n, (day, size) in enumerate(zip(DAYS, LENGTHS, strict=True))]
    return spark.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS t(id, day, by, `{ROW}`)")


def refused_of(dead: "DataFrame | None") -> dict[int, tuple[str, str, int]]:
    """Return the dead letters by their rows: (reason, table, epoch)."""
    assert dead is not None
    letters = {row[ROW]: json.loads(row.value) for row in dead.collect()}
    assert all(json.loads(letter["value"])["id"] == row for row, letter in letters.items())
    return {row: (letter["reason"], letter["topic"], letter["epoch"]) for row, letter in letters.items()}


@pytest.mark.parametrize("kind", LAKES)
def test_a_row_that_no_partition_can_have_becomes_a_dead_letter_and_the_others_are_there(
    kind: str, spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, its sink waited for ever. A repetition has the same dead letters, also after the commit of the epoch."""
    rows = unfit_rows(spark)
    year, size = "column day is not between the years 1 and 9999", "column by has more than 2000 bytes"
    why = {3: year, 4: year} | ({5: size} if kind == "iceberg" else {})
    address = f"Delta table {tmp_path}/t" if kind == "delta" else "Iceberg table lake.shop.t"
    refused = {
        row: (f"not written: {reason}, and the table is partitioned by it", address, 0) for row, reason in why.items()
    }
    target = made(kind, tmp_path, ("day", "by"))
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", cut_off)
        patch.setattr(Transaction, "commit_transaction", cut_off)
        with pytest.raises(SparkError):
            target.deliver(EpochNumber(0), rows, few=True)
    assert refused_of(target.deliver(EpochNumber(0), rows, few=True)) == refused, "the files of the former attempt"
    assert refused_of(made(kind, tmp_path, ("day", "by")).deliver(EpochNumber(0), rows)) == refused, "after the commit"
    assert [row["id"] for row in rows_of(kind, tmp_path)] == [n for n in range(len(DAYS)) if n not in refused]
    assert made(kind, tmp_path, ("day", "by")).deliver(EpochNumber(1), rows.where("id < 3")) is None


@pytest.mark.parametrize("kind", LAKES)
def test_files_that_a_clean_up_deleted_before_their_commit_are_written_again(
    kind: str, place_of: Callable[[str], Place], spark: "SparkSession", home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No commit names them yet. A commit that named missing files would end each reader of the table."""
    out = place_of(kind)
    target = out.make()
    target.deliver(0, epoch(spark, 0))
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", cut_off)
        patch.setattr(Transaction, "commit_transaction", cut_off)
        with pytest.raises(SparkError):
            target.deliver(1, epoch(spark, 1))
    (attempt,) = home.rglob("0000000001-*")
    shutil.rmtree(attempt)
    target.deliver(1, epoch(spark, 1))
    assert sorted(out.read()) == list(range(2 * ROWS_OF_EPOCH))
