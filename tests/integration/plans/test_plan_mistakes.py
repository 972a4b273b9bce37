"""Planning: each mistake in a step, a schema or a key is named with the user's line."""

import logging
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors.location import SourceLocation
from tests.integration.planning import Body, line_of, names, refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MISTAKES: list[tuple[str, Body]] = [
    ("COLUMN_MISSING", lambda s: s.select("missing")),
    ("COLUMN_MISSING", lambda s: s.where("missing > 1")),
    ("COLUMN_MISSING", lambda s: s.where(F.col("missing") > 1)),
    ("COLUMN_MISSING", lambda s: s.withColumn("x", F.upper("missing"))),
    ("COLUMN_MISSING", lambda s: s.withColumns({"x": F.col("missing")})),
    ("COLUMN_MISSING", lambda s: s.drop("missing")),
    ("COLUMN_MISSING", lambda s: s.drop("s", "missing")),
    ("COLUMN_MISSING", lambda s: s.withColumnRenamed("missing", "x")),
    ("COLUMN_MISSING", lambda s: s.selectExpr("missing + 1 as x")),
    ("COLUMN_MISSING", lambda s: s.explode("missing", "x")),
    ("COLUMN_MISSING", lambda s: s.groupBy("missing").count()),
    ("COLUMN_MISSING", lambda s: s.groupBy("s").agg(F.max("missing"))),
    ("COLUMN_MISSING", lambda s: s.groupBy("s").agg(fk.latest_value("missing"))),
    ("COLUMN_MISSING", lambda s: s.select("s").where("n > 1")),
    ("COLUMN_MISSING", lambda s: s.select("st.missing")),
    ("COLUMN_TWICE", lambda s: s.select("s", "s")),
    ("COLUMN_TWICE", lambda s: s.select("s", F.col("n").alias("S"))),
    ("COLUMN_TWICE", lambda s: s.selectExpr("*", "n + 1 as n")),
    ("COLUMN_TWICE", lambda s: s.withColumnRenamed("s", "n")),
    ("COLUMN_TWICE", lambda s: s.groupBy("s").agg(F.count("*").alias("s"))),
    ("COLUMN_RESERVED", lambda s: s.withColumn("__falkirk_stamp", F.lit(1))),
    ("COLUMN_RESERVED", lambda s: s.withColumn("__FALKIRK_BAD", F.lit(1))),
    ("COLUMN_RESERVED", lambda s: s.drop("__falkirk_stamp")),
    ("COLUMN_RESERVED", lambda s: s.withColumnRenamed("__falkirk_bad", "x")),
    ("COLUMN_RESERVED", lambda s: s.withColumnRenamed("s", "__falkirk_bad")),
    ("COLUMN_RESERVED", lambda s: s.where("__falkirk_stamp.offset > 3")),
    ("COLUMN_RESERVED", lambda s: s.select("s", F.col("__falkirk_bad"))),
    ("COLUMN_RESERVED", lambda s: s.select(F.lit(1).alias("__falkirk_x"))),
    ("COLUMN_RESERVED", lambda s: s.withColumn("x", F.expr("IDENTIFIER('__fal' || 'kirk_stamp')"))),
    ("COLUMN_RESERVED", lambda s: s.selectExpr("identifier  ('__fal' || 'kirk_bad') AS x")),
    ("COLUMN_RESERVED", lambda s: s.select(F.to_json(F.struct("*")).alias("all"))),
    ("COLUMN_RESERVED", lambda s: s.explode("a", "__falkirk_sub")),
    ("STEP_INVALID", lambda s: s.where("n >> >")),
    ("STEP_INVALID", lambda s: s.where("n + ")),
    ("STEP_INVALID", lambda s: s.select(5)),
    ("STEP_INVALID", lambda s: s.select(None)),
    ("STEP_INVALID", lambda s: s.select(F.max("n"))),
    ("STEP_INVALID", lambda s: s.select(fk.latest_value("n"))),
    ("STEP_INVALID", lambda s: s.explode("n", "x")),
    ("STEP_INVALID", lambda s: s.groupBy("s").agg("n")),
    ("KEY_INVALID", lambda s: s.groupBy("m").count()),
    ("STEP_INVALID", lambda s: s.groupBy(F.udf(lambda n: n, "int", useArrow=False)("n").alias("x")).count()),
    ("STEP_INVALID", lambda s: s.groupBy("s").agg(F.max(F.udf(lambda n: n, "int", useArrow=True)("n")).alias("x"))),
    ("STEP_INVALID", lambda s: s.withColumn("x", F.monotonically_increasing_id())),
    ("STEP_INVALID", lambda s: s.groupBy("s").agg(F.count_distinct("n").alias("x"))),
    ("STEP_INVALID", lambda s: s.groupBy("s").agg(F.expr("listagg(DISTINCT s)").alias("x"))),
    ("STEP_INVALID", lambda s: s.groupBy("s").agg(F.max(F.rand()))),
    ("STEP_INVALID", lambda s: s.groupBy("s").agg(F.max(F.current_timestamp()))),
    ("STEP_INVALID", lambda s: s.groupBy(F.current_date().alias("d")).agg(F.max(F.current_date()))),
    ("STEP_INVALID", lambda s: s.groupBy("s").agg(fk.latest_value(F.localtimestamp()).alias("x"))),
    ("STEP_INVALID", lambda s: s.selectExpr("no_such_function(n)")),
    ("GENERATOR_IN_SELECT", lambda s: s.select("s", F.explode("a"))),
    ("GENERATOR_IN_SELECT", lambda s: s.explode("a", "x").select("s", F.explode("b2"))),
    ("GENERATOR_IN_SELECT", lambda s: s.selectExpr("s", "inline(a2)")),
    ("UNION_INVALID", lambda s: s.union(s.select("s"))),
    ("UNSUPPORTED_METHOD", lambda s: s.intersect(s)),
    ("WATERMARK_MISSING", lambda s: s.select("s").dropDuplicates(["s"])),
    ("UNSUPPORTED_METHOD", lambda s: s.groupBy("s").pivot("n")),
    ("KEY_MISSING", lambda s: s.groupBy()),
    ("AGGREGATE_MISSING", lambda s: s.groupBy("s").agg()),
    ("TYPE_UNSUITABLE", lambda s: s.withColumn("x", F.expr("map(n, 1)")).groupBy("s").agg(fk.latest_value("x"))),
]


@pytest.mark.parametrize(("condition", "body"), MISTAKES, ids=[f"{c}-{b.__code__.co_firstlineno}" for c, b in MISTAKES])
def test_a_mistake_is_named_with_its_line(plan: Any, condition: str, body: Body) -> None:
    error = refused(lambda: plan(body), condition, line=body.__code__.co_firstlineno)
    if condition == "COLUMN_MISSING":
        assert error.parameters["column"] in ("missing", "st.missing", "n")
        assert "Columns here" in error.hint
    assert len(error.message) > len(str(error.parameters.get("operation", ""))) + 5


def test_of_several_steps_the_wrong_one_is_named(plan: Any) -> None:
    def body(stream: fk.Stream) -> fk.Stream:
        good = stream.select("s", "n")
        return (
            good.where("n > 1")
            .withColumn("x", F.col("no_such"))  # the wrong step
            .groupBy("s")
            .count()
        )

    refused(lambda: plan(body), "COLUMN_MISSING", line=line_of(__file__, "the wrong step"), column="no_such")


def test_falkirk_leaves_pysparks_own_errors_as_they_are(plan: Any, spark: "SparkSession") -> None:
    with pytest.raises(fk.DefinitionError):
        plan(lambda s: s.select("missing"))
    assert logging.getLogger("SQLQueryContextLogger").filters == []
    with pytest.raises(AnalysisException):
        spark.range(1).select(F.col("missing") + 1)
    with pytest.raises(AnalysisException):
        spark.range(1).select(F.expr("missing"))


def test_a_star_is_the_users_columns(plan: Any) -> None:
    for body in (
        lambda s: s.select("*", F.lit(1).alias("one")),
        lambda s: s.select(F.col("*"), F.lit(1).alias("one")),
        lambda s: s.selectExpr("*", "1 as one"),
        lambda s: s.select(["*", F.lit(1).alias("one")]),
    ):
        grouped = plan(lambda s, b=body: b(s).select("s", "one"))
        assert grouped.regions[0].fingerprint["stamp"].count("__falkirk_stamp") == 1


@pytest.mark.parametrize(
    "schema", ["s", "s STRNG", "s STRING,", "s STRING n INT", "s STRING, S INT", "__falkirk_x INT"]
)
def test_a_schema_that_spark_does_not_take_is_named(plan: Any, schema: str) -> None:
    with pytest.raises(fk.DefinitionError) as caught:
        plan(lambda s: s, schema=schema)
    assert caught.value.condition in ("SCHEMA_INVALID", "COLUMN_TWICE", "COLUMN_RESERVED")
    assert isinstance(caught.value.where, SourceLocation)
    assert caught.value.where.text.startswith('app.source("events"')


def test_a_schema_knows_what_may_not_be_null(plan: Any) -> None:
    assert names(plan(lambda s: s.groupBy("s").count(), schema="s STRING NOT NULL COMMENT 'a', n INT", key="s")) == [
        "out"
    ]
    assert len(plan(lambda s: s.groupBy("s").count(), schema="s STRING NOT NULL, n INT NOT NULL").regions) == 2


def test_keys_must_be_there(plan: Any) -> None:
    with pytest.raises(fk.DefinitionError) as caught:
        plan(lambda s: s, key="missing")
    assert (caught.value.condition, caught.value.parameters["column"]) == ("COLUMN_MISSING", "missing")
    with pytest.raises(fk.DefinitionError) as caught:
        plan(lambda s: s.select("s"), sink_key=["s", "n"])
    assert (caught.value.condition, caught.value.parameters["column"]) == ("COLUMN_MISSING", "n")
    with pytest.raises(fk.DefinitionError) as caught:
        plan(lambda s: s, sink_key="m")
    assert caught.value.condition == "KEY_INVALID"


def test_nothing_left_to_write_is_a_mistake(plan: Any) -> None:
    with pytest.raises(fk.DefinitionError) as caught:
        plan(lambda s: s.select())
    assert caught.value.condition == "COLUMN_MISSING"


@pytest.mark.parametrize("result", [None, 5, "s", "grouped", "another", "function"])
def test_a_processor_returns_what_it_made_of_what_it_reads(plan: Any, result: Any) -> None:
    made = {
        "grouped": lambda s: s.groupBy("s"),
        "another": lambda s: fk.read(fk.Kafka("x", format="text")),
        "function": lambda s: s.select,
    }.get(result, lambda s: result)
    with pytest.raises(fk.DefinitionError) as caught:
        plan(made)
    assert caught.value.condition == "NOT_A_STREAM"
