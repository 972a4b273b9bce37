"""The text that identifies a batch's program while an epoch is published in part: another program never has the same.

It decides whether a restart may finish that epoch; see `falkirk/runtime/spark/epochs/direct.py`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F

from falkirk.steps.static_analysis.structure import KnownLeaves, digest, structure_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    How = Callable[[DataFrame, DataFrame], DataFrame]

SCHEMA = "s STRING, n INT, tax_2024 INT, tax_2025 INT"


def program(spark: "SparkSession", how: "How") -> str:
    """Return the text for a program of two inputs, `a` and `b`."""
    given = {name: spark.createDataFrame([], SCHEMA) for name in ("a", "b")}
    return digest(structure_of(how(given["a"], given["b"]), KnownLeaves.of(given)))


def in_sql(text: str) -> "How":
    return lambda a, b: a.sparkSession.sql(text, a=a, b=b)


def wide(last: int) -> "How":
    """Return more columns than Spark tells in a plan's text."""
    return lambda a, b: a.select(*[F.lit(i).alias(f"c{i}") for i in range(40)], F.lit(last).alias("last"))


def joined(first: str, then: str) -> "How":
    """Return columns of one name that come from two sides."""

    def how(a: "DataFrame", b: "DataFrame") -> "DataFrame":
        sides = {"a": a.alias("x"), "b": b.alias("y")}
        both = sides["a"].join(sides["b"], F.col("x.s") == F.col("y.s"))
        return both.select((F.col(f"{first}.n") - F.col(f"{then}.n")).alias("n"))

    return how


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda a, b: a.select("tax_2024"), lambda a, b: a.select(F.col("tax_2025").alias("tax_2024"))),
        (
            lambda a, b: a.select(F.col("tax_2024").alias("tax")),
            lambda a, b: a.select(F.col("tax_2025").alias("tax")),
        ),
        (lambda a, b: a.where("s = 'Relation A'"), lambda a, b: a.where("s = 'Relation B'")),
        (lambda a, b: a.select(F.lit("x#1").alias("t")), lambda a, b: a.select(F.lit("x#2").alias("t"))),
        (lambda a, b: a.select(F.lit("1").alias("t")), lambda a, b: a.select(F.lit(1).alias("t"))),
        (lambda a, b: a.select(F.lit(b"1").alias("t")), lambda a, b: a.select(F.lit(b"2").alias("t"))),
        (lambda a, b: a.select(F.expr("(n + 1) + 2")), lambda a, b: a.select(F.expr("n + (1 + 2)"))),
        (lambda a, b: a.select(F.try_add("n", F.lit(1)).alias("t")), lambda a, b: a.select((a.n + 1).alias("t"))),
        (
            lambda a, b: a.select(F.to_json(F.struct("s"), {"ignoreNullFields": "true"}).alias("t")),
            lambda a, b: a.select(F.to_json(F.struct("s"), {"ignoreNullFields": "false"}).alias("t")),
        ),
        (joined("x", "y"), joined("y", "x")),
        (lambda a, b: a, lambda a, b: b),
        (lambda a, b: a.unionAll(b), lambda a, b: b.unionAll(a)),
        (lambda a, b: a.unionAll(b), lambda a, b: a.unionAll(a)),
        (in_sql("SELECT n FROM {a}, VALUES (1) AS v(m)"), in_sql("SELECT n FROM {a}, VALUES (2) AS v(m)")),
        (lambda a, b: a.select(b.agg(F.max("n")).scalar()), lambda a, b: a.select(a.agg(F.max("n")).scalar())),
        (lambda a, b: a.join(b, "s", "left"), lambda a, b: a.join(b, "s", "right")),
        (lambda a, b: a.orderBy(F.desc("n")), lambda a, b: a.orderBy(F.asc("n"))),
        (wide(1), wide(2)),
        (lambda a, b: a.crossJoin(a.sparkSession.range(3)), lambda a, b: a.crossJoin(a.sparkSession.range(4))),
    ],
)  # fmt: skip
def test_another_program_is_told_apart(spark: "SparkSession", one: "How", other: "How") -> None:
    assert program(spark, one) != program(spark, other)


def observed(a: "DataFrame", b: "DataFrame") -> "DataFrame":
    """Return a plan with lambdas, observations, views and common parts: Spark and PySpark number them each time."""
    text = "WITH q AS (SELECT s, n FROM {a}) SELECT x.s, y.n FROM q x JOIN q y USING (s) JOIN {b} USING (s)"
    rows: DataFrame = a.sparkSession.sql(text, a=a, b=b).observe(Observation(), F.count("*").alias("rows"))
    kept = F.filter(F.array("s"), lambda x: x != F.lit("x_1"))
    return rows.select(kept.alias("kept"), F.lit(b"abc").alias("b"), F.expr("uuid()")).crossJoin(
        a.sparkSession.range(3)
    )


@pytest.mark.parametrize(
    "how", [observed, joined("x", "y"), wide(1), lambda a, b: a.join(a.select("s"), "s").unionByName(b)]
)
def test_the_same_program_is_the_same(spark: "SparkSession", how: "How") -> None:
    assert program(spark, how) == program(spark, how)


def test_an_input_is_what_it_is_whatever_it_reads_this_time(spark: "SparkSession", tmp_path: Any) -> None:
    """Another epoch is in other files, and another range of a topic."""

    def read(number: int) -> str:
        spark.range(number).select(F.col("id").alias("n")).write.mode("overwrite").parquet(str(tmp_path / str(number)))
        a = spark.read.schema("n LONG").parquet(str(tmp_path / str(number)))
        return digest(structure_of(a.groupBy("n").count().join(a, "n"), KnownLeaves.of({"a": a})))

    assert read(1) == read(2)
