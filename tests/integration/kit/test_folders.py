"""Folders as sources in the test kit: each call of `feed` is a file, in each format; bad rows, bad files, crashes."""

import os
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.testing import ABORT, KafkaRecord, crash_between_writes, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Before how many writes a run crashes, evenly spread.
CRASHES = 6 if "FALKIRK_STRIKES" in os.environ else 3
SCHEMA = "id LONG NOT NULL, item STRING, price DOUBLE, paid BOOLEAN, at TIMESTAMP"
#: A writer must escape these texts.
ROWS: list[Any] = [
    {"id": 1, "item": 'a "b", c\\', "price": 0.1, "paid": True, "at": "2026-03-01T01:02:03.456789Z"},
    (2, "", None, False, None),
    {"id": 3, "item": "ü"},
    {"item": "no id"},
]
FIT = [
    {"id": 1, "item": 'a "b", c\\', "price": 0.1, "paid": True, "at": "2026-03-01T01:02:03.456789Z"},
    {"id": 2, "item": "", "price": None, "paid": False, "at": None},
    {"id": 3, "item": "ü", "price": None, "paid": None, "at": None},
]


@cache  # the kit plans an application once
def imports(kind: Any) -> fk.App:
    """An application that reads a folder, which does not exist, and counts its rows by file."""
    app = fk.App("imports")
    app.source("orders", fk.Files("/nowhere/in", format=kind, schema=SCHEMA))

    @app.stream(fk.Eager())
    def rows(orders: "DataFrame") -> "DataFrame":
        return orders

    @app.batch(every="1 hour", state="count LONG")
    def totals(orders: "DataFrame", totals: "DataFrame") -> "DataFrame":
        return totals.unionByName(orders.agg(F.count("*").alias("count"))).agg(F.sum("count").alias("count"))

    app.sink("rows", rows, fk.Kafka("rows"))
    app.sink("totals", totals, fk.Kafka("totals"))
    return app


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_a_file_gives_its_rows_once_over_crashes(kind: str) -> None:
    with run(imports(kind)) as t:
        t.feed("orders", ROWS)
        fit = [{**row, "item": row["item"] or None} for row in FIT] if kind == "csv" else FIT  # as Spark reads CSV
        assert sorted(t.read("rows"), key=lambda row: row["id"]) == fit
        t.crash()
        t.feed("orders", [{"id": 4}, ABORT, {"id": 5}])
        assert sorted(row["id"] for row in t.read("rows")) == [1, 2, 3, 4, 5]
        assert t.read("totals") == []
        t.advance("1 hour")
        assert t.read("totals") == [{"count": 5}]
        letters = [(e["reason"], e["offset"]) for e in t.dead_letters() if e["region"] == "rows"]
        assert letters == [("column id is null", 0)]


def test_a_crash_before_any_write_changes_no_result() -> None:
    for t in crash_between_writes(imports("json"), at_most=CRASHES):
        t.feed("orders", ROWS)
        t.feed("orders", [{"id": 4}])
        t.advance("1 hour")
        assert sorted(row["id"] for row in t.read("rows")) == [1, 2, 3, 4], t
        assert t.read("totals") == [{"count": 4}], t


def test_a_line_that_does_not_fit_and_a_file_that_can_not_be_read() -> None:
    with run(imports("csv")) as t:
        t.feed("orders", [{"id": 1}, b"2,x,not a price,true,"])
        t.feed("orders", [{"id": 3}])
        assert [row["id"] for row in t.read("rows")] == [1, 3]
        (letter,) = [each for each in t.dead_letters() if each["region"] == "rows"]
        assert (letter["reason"], letter["value"]) == ("does not fit the schema", "2,x,not a price,true,")
        folder = t._folders["orders"].path
        (folder / "strange.csv").write_text("id,name\n4,x\n")
        t.feed("orders", [{"id": 5}])
        assert [row["id"] for row in t.read("rows")] == [1, 3, 5]
        reasons = [each["reason"] for each in t.dead_letters() if each["region"] == "rows"]
        assert reasons[1:] == [r for r in reasons if r.startswith("the file is left out: ")]
        assert len(reasons) == 2


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("json", [(1, "too few")]),
        ("csv", [KafkaRecord({"id": 1}), 5, {"id": 1, "item": "two\nlines"}]),
        ("parquet", [b"1,x", {"id": "no number"}]),
    ],
)
def test_a_row_that_a_file_can_not_have_is_refused(kind: str, rows: list[Any]) -> None:
    with run(imports(kind)) as t:
        for row in rows:
            with pytest.raises(fk.DefinitionError) as refused:
                t.feed("orders", [row])
            assert refused.value.condition == "ROW_INVALID"
        t.feed("orders", [{"id": 1}])
        assert [row["id"] for row in t.read("rows")] == [1]
