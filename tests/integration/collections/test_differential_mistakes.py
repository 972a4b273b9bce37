"""Mistakes in a program over collections: the error names the line of the mistake, before anything runs."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from falkirk.declare.asserting import deterministic
from falkirk.errors import DefinitionError
from falkirk.steps.differential import Collection, fixpoint
from falkirk.steps.differential.collection import LoopLimits, limits
from falkirk.steps.differential.graph import LoopGraph, Reduced, Scope, Source
from falkirk.steps.differential.operators import Group
from falkirk.steps.differential.program import program_digest, program_of

COLUMNS = "k STRING, v INT, d DOUBLE, many ARRAY<INT>, long INTERVAL DAY TO SECOND, nothing VOID"
Program = Callable[[Collection], Any]


@pytest.fixture
def rows(session: SparkSession) -> Collection:
    """A collection with columns of several types."""
    like = session.createDataFrame([], COLUMNS)
    return Collection(Source(scope=Scope(), schema=like.schema, name="rows"), like)


def looped(body: Callable[[Collection], Collection], **more: Any) -> Program:
    return lambda c: c.select("k", "v").iterate(body, **more)


def leave(rows: Collection) -> LoopGraph:
    """Return the graph of a collection that was made in a loop."""
    made: list[Collection] = []
    plain = rows.select("k", "v")
    plain.iterate(lambda v: made.append(v.distinct()) or v)  # type: ignore[func-returns-value]
    return plain.concat(made[0]).iterate(lambda v: v).graph()


def enter_another(rows: Collection) -> Collection:
    """Read in a loop a collection that was made in another loop."""
    made: list[Collection] = []
    plain = rows.select("k", "v")
    plain.iterate(lambda v: made.append(v) or v)  # type: ignore[func-returns-value]
    return plain.iterate(lambda v: v.concat(made[0]))


MISTAKES: dict[str, tuple[Program, str, dict[str, Any]]] = {
    "concat": (lambda c: c.concat(c.select("v")), "COLUMNS_DIFFER", {"columns": ("v",)}),
    "concat's types": (
        lambda c: c.select("v").concat(c.select(F.col("d").alias("v"))), "COLUMNS_DIFFER", {"columns": ("v",)},
    ),
    "body": (looped(lambda v: v.select("v", "k")), "COLUMNS_DIFFER", {"columns": ("v", "k")}),
    "fixpoint's body": (
        lambda c: fixpoint(c.select("k"), lambda v: v.select(F.lit(1).alias("k"))), "COLUMNS_DIFFER",
        {"columns": ("k",)},
    ),
    "keys": (lambda c: c.join(c.select(F.col("d").alias("v")), "v"), "KEYS_DIFFER", {"column": "v"}),
    "semijoin's keys": (
        lambda c: c.select("v").semijoin(c.select(F.col("d").alias("v")), "v"), "KEYS_DIFFER", {"column": "v"},
    ),
    "join": (lambda c: c.join(c, "K"), "COLUMN_MISSING", {"column": "K"}),
    "join's other": (lambda c: c.join(c.select("v"), "k"), "COLUMN_MISSING", {"column": "k", "columns": ("v",)}),
    "antijoin": (lambda c: c.antijoin(c.select("v"), ["v", "k"]), "COLUMN_MISSING", {"column": "k"}),
    "groupBy": (lambda c: c.groupBy("k", "x"), "COLUMN_MISSING", {"column": "x"}),
    "sum": (lambda c: c.groupBy("k").sum("x"), "COLUMN_MISSING", {"column": "x"}),
    "top": (lambda c: c.select("k", "v").groupBy("k").top(1, "+x"), "COLUMN_MISSING", {"column": "x"}),
    "top of none": (lambda c: c.select("k", "v").groupBy("k").top(0, "v"), "ROWS_INVALID", {"rows": 0}),
    "renamed": (lambda c: c.withColumnRenamed("x", "y"), "COLUMN_MISSING", {"column": "x"}),
    "join's columns": (lambda c: c.select("k", "v").join(c.select("k", "v"), "k"), "COLUMN_TWICE", {"column": "v"}),
    "select's columns": (lambda c: c.select("v", F.col("d").alias("V")), "COLUMN_TWICE", {"column": "V"}),
    "agg's columns": (lambda c: c.groupBy("k").count("K"), "COLUMN_TWICE", {"column": "K"}),
    "ours": (lambda c: c.select(F.col("v").alias("__falkirk_hash")), "COLUMN_RESERVED", {"column": "__falkirk_hash"}),
    "array": (lambda c: c.distinct(), "TYPE_UNSUITABLE", {"column": "many"}),
    "array in a join": (lambda c: c.join(c.select("k"), "k"), "TYPE_UNSUITABLE", {"column": "many"}),
    "array as a key": (lambda c: c.groupBy("many").count(), "TYPE_UNSUITABLE", {"column": "many"}),
    "array's least": (lambda c: c.groupBy("k").min("many"), "TYPE_UNSUITABLE", {"column": "many"}),
    "array in a loop": (lambda c: c.select("many").iterate(lambda v: v), "TYPE_UNSUITABLE", {"column": "many"}),
    "nothing": (lambda c: c.select("nothing").distinct(), "TYPE_UNSUITABLE", {"column": "nothing"}),
    "no such column": (lambda c: c.select("x"), "STEP_INVALID", {"operation": "select"}),
    "no condition": (lambda c: c.where("v +"), "STEP_INVALID", {"operation": "where"}),
    "no column": (lambda c: c.withColumns({"w": 1}), "STEP_INVALID", {"operation": "withColumns"}),
    "aggregate": (lambda c: c.select(F.sum("v")), "STEP_INVALID", {"operation": "select"}),
    "window": (
        lambda c: c.withColumns({"w": F.row_number().over(Window.orderBy("v"))}), "STEP_INVALID",
        {"operation": "withColumns"},
    ),
    "random": (lambda c: c.select(F.rand()), "NON_DETERMINISTIC", {"operation": "select"}),
    "clock": (lambda c: c.where("current_timestamp() > '2020-01-01'"), "NON_DETERMINISTIC", {"operation": "where"}),
    "Python": (lambda c: c.select(F.udf(str.upper)("k")), "NON_DETERMINISTIC", {"operations": ("PythonUDF",)}),
    "word for a clock": (
        lambda c: c.where("CAST('now' AS DATE) > '2020-01-01'"), "NON_DETERMINISTIC", {"operations": ("Present",)},
    ),
    "star in a function": (lambda c: c.select(F.to_json(F.struct("*"))), "STEP_INVALID", {"operation": "select"}),
    "star in a condition": (
        lambda c: c.select("k", "v").where("xxhash64(*) > 0"), "STEP_INVALID", {"operation": "where"},
    ),
    "star in a column": (
        lambda c: c.select("k").withColumns({"h": F.xxhash64("*")}), "STEP_INVALID", {"operation": "withColumns"},
    ),
    "collation": (
        lambda c: c.select(F.expr("CAST(k AS STRING COLLATE UTF8_LCASE) k")).distinct(), "TYPE_UNSUITABLE",
        {"column": "k"},
    ),
    "left": (leave, "LOOP_LEFT", {}),
    "left for another": (enter_another, "LOOP_LEFT", {}),
    "rounds": (looped(lambda v: v, rounds=0), "ROUNDS_INVALID", {"rounds": 0}),
    "average": (lambda c: c.groupBy("k").agg({"a": ("avg", "v")}), "AGGREGATE_INVALID", {"kind": "avg", "column": "v"}),
    "sum of text": (lambda c: c.groupBy("v").sum("k"), "AGGREGATE_INVALID", {"kind": "sum", "column": "k"}),
    "least of times": (lambda c: c.groupBy("k").min("long"), "AGGREGATE_INVALID", {"kind": "min", "column": "long"}),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_where_it_is_made(rows: Collection, mistake: str) -> None:
    program, condition, carries = MISTAKES[mistake]
    with pytest.raises(DefinitionError) as told:
        program(rows)
    assert told.value.condition == condition
    assert {name: told.value.parameters[name] for name in carries} == carries
    assert getattr(told.value.where, "file", "").endswith("test_differential_mistakes.py")


def test_a_star_is_the_users_columns(rows: Collection) -> None:
    assert rows.select(F.col("*"), F.lit(1).alias("one")).columns == [*rows.columns, "one"]
    assert rows.select("*").columns == rows.columns


def test_a_function_may_be_vouched_for(rows: Collection) -> None:
    vouched = F.udf(deterministic(lambda text: text.upper()))
    assert rows.select(vouched("k").alias("u")).columns == ["u"]


def test_another_python_function_is_another_program(rows: Collection, session: SparkSession) -> None:
    def program(less: int) -> str:
        step = F.udf(deterministic(lambda text: text[less:]))
        return program_digest(program_of(rows.select(step("k").alias("u")).graph(), session), session)

    assert program(1) == program(1)
    assert program(1) != program(2)


def test_what_an_iteration_does_may_be_vouched_for(rows: Collection) -> None:
    token = limits.set(LoopLimits(is_vouched=True))
    try:
        assert rows.select(F.udf(str.upper)("k").alias("u")).columns == ["u"]
    finally:
        limits.reset(token)


@pytest.fixture
def until() -> Iterator[float]:
    """An iteration with the tolerance `until`."""
    token = limits.set(LoopLimits(until=0.5))
    yield 0.5
    limits.reset(token)


def test_until_is_refused_where_nothing_would_go_by_it(rows: Collection, until: float) -> None:
    """A regression: `iterate` ignored `until`, and then ran for ever, or up to its limit."""
    numbers = rows.select("k", "d")
    with pytest.raises(DefinitionError) as told:
        numbers.iterate(lambda c: c.groupBy("k").sum("d"))
    assert told.value.condition == "UNTIL_IN_ITERATE"
    assert told.value.parameters["column"] == "d"
    assert getattr(told.value.where, "file", "").endswith("test_differential_mistakes.py")


def test_who_says_what_is_no_change_is_not_asked_again(rows: Collection, until: float) -> None:
    numbers = rows.select("k", "d")
    whole = rows.select("k", "v").iterate(lambda c: c.groupBy("k").max("v")).select("k", F.lit(0.0).alias("d"))
    made = numbers.concat(whole).groupBy("k").sum("d")
    looped = made.iterate(lambda c: c.groupBy("k").sum("d", tolerance=0.25))
    graph = fixpoint(looped, lambda c: c.concat(looped).groupBy("k").sum("d")).graph()
    hows = [node.operator.how for node in graph.nodes if isinstance(node, Reduced)]
    assert [how.tolerance for how in hows if isinstance(how, Group)] == [0.0, 0.0, 0.25, until]
