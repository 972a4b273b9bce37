"""Floating-point numbers: one task and Spark's jobs give the same results as plain Spark on all rows."""

import math
import os
import random
from collections import Counter
from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from falkirk.steps.differential import Collection
from falkirk.steps.differential.single_task import ALONE_MAX
from tests.integration.changing import Changing, Row, Rows, added, row_of, taken, there

NUMBERS = [None, 0.0, -0.0, math.nan, 1.0, -1.5, math.inf, -math.inf]


def said(operation: str, first: str, second: str) -> list[Column]:
    return [
        F.lit(operation).alias("operation"),
        *(F.col(c).cast("double").alias(n) for c, n in ((first, "a"), (second, "b"))),
    ]


def program(left: Collection, right: Collection) -> Collection:
    by = left.groupBy("k")
    first, *others = (
        left.distinct().select(*said("distinct", "k", "v")),
        by.min("v").select(*said("min", "k", "v")),
        by.max("v").select(*said("max", "k", "v")),
        by.sum("v").select(*said("sum", "k", "v")),
        by.top(2, "v").select(*said("top", "k", "v")),
        left.join(right, "k").select(*said("join", "v", "w")),
        left.antijoin(right, "k").select(*said("antijoin", "k", "v")),
    )
    return first.concat(*others)


def plainly(left: DataFrame, right: DataFrame) -> Rows:
    """Return the results of plain Spark on all rows. One job computes them, since each costs tens of milliseconds."""
    by, falling = left.groupBy("k"), Window.partitionBy("k").orderBy(F.desc_nulls_last("v"))
    made = (
        left.distinct().select(*said("distinct", "k", "v")),
        by.agg(F.min("v").alias("v")).select(*said("min", "k", "v")),
        by.agg(F.max("v").alias("v")).select(*said("max", "k", "v")),
        by.agg(F.sum("v").alias("v")).select(*said("sum", "k", "v")),
        left.withColumn("n", F.row_number().over(falling)).where("n <= 2").select(*said("top", "k", "v")),
        left.join(right, "k").select(*said("join", "v", "w")),
        left.join(right, "k", "left_anti").select(*said("antijoin", "k", "v")),
    )
    return Counter(row_of(row) for row in reduce(DataFrame.unionByName, made).collect())


#: The types of keys and of values, and the limit of rows for one task. Distinct rows have both types in their key.
WAYS = {"one task": ("DOUBLE", "DOUBLE", ALONE_MAX), "jobs": ("FLOAT", "DOUBLE", 0)}
if "FALKIRK_STRIKES" in os.environ:
    WAYS |= {"jobs, double": ("DOUBLE", "DOUBLE", 0), "jobs, float": ("FLOAT", "FLOAT", 0)}


@pytest.mark.parametrize(("key", "number", "alone"), WAYS.values(), ids=WAYS)
def test_numbers_come_to_what_spark_makes_of_them(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, number: str, alone: int
) -> None:
    draw = random.Random(8)
    monkeypatch.setattr(Changing, "alone", alone)
    columns = {"left": f"k {key}, v {number}", "right": f"k {key}, w {number}"}
    changing = Changing(session, tmp_path, program, **columns)
    for epoch in range(3):
        changes: dict[str, list[Row]] = {}
        for name in columns:
            held = there(changing.put[name])
            more = [(draw.choice(NUMBERS), draw.choice(NUMBERS)) for _ in range(12)]
            changes[name] = added(more) + taken(draw.sample(held, len(held) // 2))
        done = changing.epoch(**changes)
        assert not (epoch and alone) or done.jobs == 1, "one task has done all of it"
        # In one partition: otherwise each row would be a task of each part of the plan.
        frames = [session.createDataFrame(there(changing.put[name]), ddl).coalesce(1) for name, ddl in columns.items()]
        assert changing.result == plainly(*frames)
