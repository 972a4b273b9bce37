"""Digests of an iteration's program: each program has another one, and a program that changes by itself is refused."""

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.asserting import deterministic
from falkirk.errors import DefinitionError
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.steps.differential import Collection
from falkirk.steps.differential.graph import Scope, Source
from falkirk.steps.differential.program import program_digest, program_of
from tests.integration.planning import line_of
from tests.integration.plans.test_plan_clocks import DIFFER, SCHEMA

Program = Callable[[Collection], Collection]


def rows_of(session: SparkSession, schema: str) -> Collection:
    like = session.createDataFrame([], schema)
    return Collection(Source(scope=Scope(), schema=like.schema, name="rows"), like)


def planned(session: SparkSession, body: Program, *, word: bool = False) -> Plan:
    """Plan an iteration between a source and a sink. Args: word: whether the user declares it deterministic."""
    app = fk.App("looping")
    app.source("events", fk.Kafka("events", schema="n LONG NOT NULL, d DOUBLE"))

    def loop(events: Collection) -> Collection:
        return body(events)

    declare = app.iterate(rows=10)
    app.sink("out", declare(deterministic(loop) if word else loop), fk.Kafka("out"))
    return plan_application(app, session, "deadbeef")


ALIKE: dict[str, tuple[Program, Program]] = {
    "order of additions": (
        lambda c: c.select(((F.col("a") + F.col("b")) + F.col("c")).alias("x")),
        lambda c: c.select((F.col("a") + (F.col("b") + F.col("c"))).alias("x")),
    ),
    "sides": (lambda c: c.where("a > b"), lambda c: c.where("b < a")),
    "bytes": (
        lambda c: c.select(F.lit(b"one").alias("x")), lambda c: c.select(F.lit(b"two").alias("x")),
    ),
    "a lambda": (
        lambda c: c.select(F.exists(F.array("a"), lambda x: x > 1).alias("x")),
        lambda c: c.select(F.exists(F.array("a"), lambda x: x > 2).alias("x")),
    ),
    "a table of a function": (
        lambda c: c.select(F.udf(deterministic(looked_up({"a": 1.0})))("a").alias("x")),
        lambda c: c.select(F.udf(deterministic(looked_up({"a": 2.0})))("a").alias("x")),
    ),
}  # fmt: skip


def looked_up(table: dict[str, float]) -> Callable[[Any], str]:
    return lambda x: str(table.get(x))


@pytest.mark.parametrize("case", ALIKE)
def test_what_differs_is_another_program_and_what_does_not_is_the_same(session: SparkSession, case: str) -> None:
    one, again, other = (
        program_digest(program_of(program(rows_of(session, "a DOUBLE, b DOUBLE, c DOUBLE")).graph(), session), session)
        for program in (ALIKE[case][0], *ALIKE[case])
    )
    assert one == again
    assert one != other


def test_a_clock_in_an_iteration_is_refused_in_whatever_way_it_is_written(session: SparkSession) -> None:
    passed = []
    for text in DIFFER:
        try:
            rows_of(session, SCHEMA).where(F.expr(f"({text}) IS NOT NULL"))
            passed.append(text)
        except DefinitionError as error:
            is_subquery = "SELECT" in text  # refused as more than one row at a time
            if error.condition != ("STEP_INVALID" if is_subquery else "NON_DETERMINISTIC"):
                raise
    assert not passed


_COUNT = itertools.count()

CHANGING: dict[str, Program] = {
    "a clock": lambda c: c.where(F.col("n") < F.lit(time.time())),  # the clock
    "a closure": lambda c: c.where(F.udf(deterministic(looked_up({"a": time.time()})))("n") != ""),
    "a counter": lambda c: c.select((F.col("n") + next(_COUNT)).alias("n")),
    "a loop": lambda c: c.select("n").iterate(lambda v: v, rounds=next(_COUNT) + 1),
}


@pytest.mark.parametrize("word", [False, True])
@pytest.mark.parametrize("case", CHANGING)
def test_a_program_that_is_another_at_each_call_is_refused_when_it_is_planned(
    session: SparkSession, case: str, word: bool
) -> None:
    with pytest.raises(DefinitionError) as refused:
        planned(session, CHANGING[case], word=word)
    assert refused.value.condition == "NON_DETERMINISTIC"
    assert refused.value.parameters["operation"] == "iterate"
    if case == "a clock":
        assert getattr(refused.value.where, "line", 0) == line_of(__file__, "the clock")


def test_what_nobody_can_compare_is_refused_with_its_line(session: SparkSession) -> None:
    held = session.sparkContext.broadcast([1])
    with pytest.raises(DefinitionError) as refused:
        planned(session, lambda c: c.where(F.udf(lambda n: n in held.value, "boolean")("n")), word=True)
    assert refused.value.condition == "FUNCTION_UNREADABLE"
    assert refused.value.where is not None
