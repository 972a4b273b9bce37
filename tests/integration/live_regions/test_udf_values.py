"""Values of UDFs in live regions: processes beside the tasks give the values of Spark's own workers, type by type."""

import datetime as dt
import json
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from falkirk.declare.endpoints import Kafka
from falkirk.declare.nodes import SourceNode, Step
from falkirk.errors.location import caller
from falkirk.steps.dataframes.names import BAD, STAMP
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.stamped import Frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "i INT, b BOOLEAN, y TINYINT, h SMALLINT, l BIGINT, f FLOAT, d DOUBLE, s STRING, x BINARY, n DECIMAL(20, 4), "
    "day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, few ARRAY<INT>, many ARRAY<STRUCT<p: INT, q: TIMESTAMP>>, "
    "m MAP<STRING, DECIMAL(9, 2)>, t STRUCT<a: INT, b: STRUCT<c: DATE, e: ARRAY<BINARY>>>"
)
AT = dt.datetime(2026, 3, 29, 3, 30, 15, 123456)
ROWS: list[tuple[Any, ...]] = [
    (
        1, True, 2, 300, 2**40, 0.1, 0.1, "tea ☕\U0001f600", b"\0\xff", Decimal("12.3400"), dt.date(2026, 1, 31), AT,
        AT, [1, None, 3], [(7, AT), None, (None, None)], {"a": Decimal("1.50"), "b": None},
        (5, (dt.date(1582, 10, 4), [b"z"])),
    ),
    (
        -1, False, -128, -(2**15), -(2**63), float("-inf"), float("nan"), "", b"", Decimal("-0.0001"), dt.date(1, 1, 1),
        dt.datetime(1900, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59), [], [], {}, (None, None),
    ),
    (2, *[None] * 16),
]  # fmt: skip


def told(*values: Any, **named: Any) -> str:
    """Return what a function has been given: types and values."""
    return repr([[type(v).__name__, v] for v in values] + sorted(named.items()))


def same(value: Any) -> Any:
    return value


def table_fields() -> list[StructField]:
    table = StructType.fromDDL(SCHEMA)
    assert isinstance(table, StructType)
    return table.fields


def of_kind(*, arrow: bool) -> dict[str, Column]:
    """Return columns with UDFs, by name."""

    def udf(function: Any, kind: Any) -> Any:
        return F.udf(function, kind, useArrow=arrow)

    fields = table_fields()
    return {
        **{f"told_{field.name}": udf(told, "string")(field.name) for field in fields},
        **{f"same_{field.name}": udf(same, field.dataType)(field.name) for field in fields},
        "named": udf(told, "string")("i", z=F.col("s"), a=F.col("t")),
        "none": udf(lambda: 4, "int")(),
        "chained": udf(told, "string")(udf(lambda i: (i, "raw"), "string")("i")),
        "converted": udf(told, "string")(udf(lambda i: i * 1.1, "float")("i"), F.lit(None)),
        "around": udf(lambda i: i + 1, "int")(udf(lambda i: i * 2, "int")("i") + F.col("i")) * 10,
        "branch": F.when(F.col("i") > 0, udf(lambda i: i + 1, "int")("i")).otherwise(udf(same, "int")("i") - 5),
        "struct": udf(lambda i: (i, "x"), "a INT, b STRING")("i"),
        "mapped": udf(lambda i: {"k": [i]}, "map<string, array<bigint>>")("i"),
        "as_text": udf(lambda i: [i, {"a": i}], "string")("i"),
        "as_flag": udf(lambda i: i > 0, "string")("i"),
    }  # fmt: skip


def frame_of(data: DataFrame) -> Frame:
    stamp = F.struct(F.lit(0).alias("source"), F.lit(0).alias("partition"), F.col("i").cast("long").alias("offset"))
    return Frame(data=frames.good(data).data.withColumn(STAMP, stamp))


def computed(spark: "SparkSession", step: Step, folder: Path) -> tuple[list[Row], list[Row], list[Row]]:
    """Return the rows of a step in a batch and in a stream, and the bad rows of the stream."""
    table = spark.createDataFrame(ROWS, SCHEMA).coalesce(1)  # each task starts a Python process for each step
    spark.createDataFrame(ROWS, SCHEMA).coalesce(1).write.parquet(str(folder / "in"))
    stream = spark.readStream.schema(SCHEMA).parquet(str(folder / "in"))
    batch = frames.apply(frame_of(table), step)
    found = frames.apply(frame_of(stream), step).data
    assert not [name for name in found.columns if "udf" in name], "columns of ours stay inside"
    name = f"udfs_{folder.name.replace('-', '_')}"
    query = found.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.table(name).orderBy(f"{STAMP}.offset")
    own = [F.col(f"`{each}`") for each in batch.columns]
    good = rows.where(F.col(BAD).isNull()).select(*own).collect()
    return (
        batch.data.orderBy(f"{STAMP}.offset").select(*own).collect(),
        good,
        rows.where(F.col(BAD).isNotNull()).collect(),
    )


def step(operation: str, *arguments: Any) -> Step:
    return Step(parent=SourceNode(name="s", topic=Kafka("s")), operation=operation, arguments=arguments, where=caller())


@pytest.mark.parametrize("arrow", [False, True], ids=["plain", "arrow"])
def test_values_are_those_of_sparks_workers(spark: "SparkSession", tmp_path: Path, arrow: bool) -> None:
    columns = {"i": F.col("i"), **of_kind(arrow=arrow)}
    expected, found, bad = computed(
        spark, step("select", *[column.alias(name) for name, column in columns.items()]), tmp_path
    )
    assert not bad
    assert len(expected) == len(found) == len(ROWS)
    for one, other in zip(expected, found, strict=True):
        for name in columns:
            assert repr(one[name]) == repr(other[name]), f"{name} of {one.i}"


def refused(number: int) -> int:
    if number < 0:
        raise ValueError(f"no {number}")
    return number


def arguments_of(operation: str) -> tuple[Any, ...]:
    """Return the arguments of a step that fails on negative numbers."""
    plain, arrow = (F.udf(refused, "int", useArrow=kind) for kind in (False, True))
    if operation == "select":
        return "i", (arrow("i") + plain("i")).alias("more")
    if operation == "selectExpr":
        return "i", "refused_in_test(i) + 1 AS j"
    if operation == "where":
        return (F.udf(lambda i: refused(i) > 1, "boolean", useArrow=False)("i"),)
    if operation == "withColumns":
        return ({"i": plain("i"), "j": plain(arrow("i") + F.coalesce("h", F.lit(1)))},)
    return F.udf(lambda i: [refused(i)] * 2, "array<int>", useArrow=True)("i"), "copy"


def arguments_that_spark_refuses(*, arrow: bool) -> tuple[Any, ...]:
    """Return the arguments of a select, of whose results none fits the declared type."""
    return (F.udf(lambda: (1, 2, 3), "struct<a:int,b:int>", useArrow=arrow)().alias("x"),)


#: Steps that fail on negative numbers, and steps that fail on each row.
OPERATIONS = ("select", "selectExpr", "where", "withColumns", "explode")
REFUSED = {"plain": False, "arrow": True}


@dataclass(kw_only=True)
class Outcome:
    """The rows of a step, as texts in JSON. Attributes: expected: of a batch. found, bad: of a stream."""

    expected: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    bad: list[Row] = field(default_factory=list)


@pytest.fixture(scope="module")
def outcomes(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """The outcomes of all failing steps. One batch and one stream compute them, since each one starts processes."""
    spark.udf.register("refused_in_test", refused, "int")
    given = str(tmp_path_factory.mktemp("udfs") / "in")
    spark.createDataFrame(ROWS, SCHEMA).coalesce(1).write.parquet(given)
    good = spark.createDataFrame([ROWS[0], ROWS[2]], SCHEMA).coalesce(1)
    steps = {name: (step(name, *arguments_of(name)), good) for name in OPERATIONS}
    for name, arrow in REFUSED.items():
        steps[name] = step("select", *arguments_that_spark_refuses(arrow=arrow)), good.where("false")
    expected, found = list[DataFrame](), list[DataFrame]()
    for name, (used, rows) in steps.items():
        batch = frames.apply(frame_of(rows), used)
        stream = frames.apply(frame_of(spark.readStream.schema(SCHEMA).parquet(given)), used).data
        assert not [column for column in stream.columns if "udf" in column], "columns of ours stay inside"
        of = F.lit(name).alias("of"), F.col(f"{STAMP}.offset").alias("offset")
        row = F.to_json(F.struct(*[F.col(f"`{each}`") for each in batch.columns]), {"ignoreNullFields": "false"})
        expected.append(batch.data.select(*of, row.alias("row")))
        found.append(stream.select(*of, row.alias("row"), BAD))
    query = reduce(DataFrame.union, found).writeStream.format("memory").queryName("failures")
    query.trigger(availableNow=True).start().awaitTermination()
    outcomes = {name: Outcome() for name in steps}
    for each in reduce(DataFrame.union, expected).orderBy("offset").collect():
        outcomes[each["of"]].expected.append(each["row"])
    for each in spark.table("failures").orderBy("offset").collect():
        mine = outcomes[each["of"]]
        if each[BAD] is None:
            mine.found.append(each["row"])
        else:
            mine.bad.append(each[BAD])
    return outcomes


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_failure_makes_a_bad_row(outcomes: dict[str, Outcome], operation: str) -> None:
    found = outcomes[operation]
    assert found.found == found.expected
    assert len(found.found) == {"where": 1, "explode": 4}.get(operation, 2), found.found
    (bad,) = found.bad
    assert bad.reason == "the function failed: ValueError: no -1"
    assert "in refused" in bad.traceback
    value = json.loads(bad.value)
    assert (value["i"], value["few"], list(value)) == (-1, [], [field.name for field in table_fields()])


@pytest.mark.parametrize("kind", REFUSED)
def test_a_result_that_spark_refuses_makes_a_bad_row(outcomes: dict[str, Outcome], kind: str) -> None:
    found = outcomes[kind]
    assert not found.found
    assert all(bad.reason.startswith("the function failed: ") for bad in found.bad), found.bad
    assert len(found.bad) == len(ROWS)


def test_results_of_another_type_are_converted_as_spark_does(spark: "SparkSession", tmp_path: Path) -> None:
    def given(kind: str, value: Any, *, arrow: bool) -> Column:
        return F.udf(lambda: value, kind, useArrow=arrow)().alias(f"{kind} {type(value).__name__} {arrow}")

    lax = [given("int", "7", arrow=False), given("string", {"a": [1]}, arrow=False), given("double", 3, arrow=False)]
    lax += [given("decimal(5,2)", Decimal("1.005"), arrow=False), given("array<int>", (1, 2), arrow=False)]
    lax += [given("int", "7", arrow=True), given("string", 1e20, arrow=True), given("double", 3, arrow=True)]
    lax += [given("decimal(5,2)", Decimal("1.005"), arrow=True), given("boolean", 1, arrow=True)]
    lax += [given("float", 0.1, arrow=True), given("struct<a:int,b:string>", {"b": 3}, arrow=True)]
    expected, found, bad = computed(spark, step("select", *lax), tmp_path)
    assert not bad
    assert [repr(row) for row in found] == [repr(row) for row in expected]


def test_a_udf_is_called_once_for_each_good_row(spark: "SparkSession", tmp_path: Path) -> None:
    calls = str(tmp_path / "calls")

    def noted(number):  # type: ignore[no-untyped-def]  # PySpark would guess a kind of UDF from hints
        with open(calls, "a") as file:
            file.write(f"{number}\n")
        return refused(number)

    (tmp_path / "in").mkdir()
    spark.createDataFrame(ROWS, SCHEMA).coalesce(1).write.parquet(str(tmp_path / "in" / "rows"))
    frame = frame_of(spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in" / "rows")))
    number = F.udf(noted, "int", useArrow=True)("i")
    frame = frames.apply(frame, step("withColumns", {"x": number, "y": number + 1}))
    frame = frames.apply(frame, step("where", "x > 1 AND y > 2 OR x + y > 3"))
    frame = frames.apply(frame, step("select", "x", (F.col("x") + F.col("y")).alias("z"), F.col("y")))
    query = frame.data.writeStream.format("memory").queryName("noted").trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(Path(calls).read_text().split()) == ["-1", "1", "2"]
    rows = spark.table("noted")
    assert [row.z for row in rows.where(F.col(BAD).isNull()).collect()] == [5]
    assert [row[BAD].reason for row in rows.where(F.col(BAD).isNotNull()).collect()] == [
        "the function failed: ValueError: no -1"
    ]
