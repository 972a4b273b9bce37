"""The number of calls from Python to the JVM with which Falkirk plans an application does not grow unnoticed."""

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import falkirk as fk
from falkirk.plan.planner import plan_application
from falkirk.steps.dataframes.empty import no_rows
from falkirk.steps.differential import Collection
from falkirk.steps.live import stamped
from tests.calls import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The calls for the plans of two live processors, of a batch with a state, and of an iteration with a loop.
CALLS_MAX = {"live": 430, "batch": 250, "iteration": 300}


def live(app: fk.App) -> None:
    @app.stream(fk.Ephemeral())
    def words(lines: fk.Stream) -> fk.Stream:
        return lines.where("n > 0").explode(F.split("text", " "), "word").select("word", "n")

    @app.stream(fk.Lazy("10 seconds"))
    def counts(words: fk.Stream) -> fk.Stream:
        return words.groupBy("word").agg(F.count("*").alias("count"), fk.latest_value("n"))

    app.sink("counts", counts, fk.Kafka("counts", key="word"))


def batch(app: fk.App) -> None:
    @app.batch(every="10 seconds", state="text STRING, total LONG")
    def totals(lines: "DataFrame", totals: "DataFrame") -> "DataFrame":
        new = lines.groupBy("text").agg(F.sum("n").alias("total"))
        return totals.unionByName(new).groupBy("text").agg(F.sum("total").alias("total"))

    app.sink("totals", totals, fk.Files("totals", format="json"))


def iteration(app: fk.App) -> None:
    @app.iterate(every="10 seconds", rounds=10)
    def reached(lines: Collection) -> Collection:
        edges = lines.select(F.col("n").alias("node"), F.length("text").alias("next"))

        def spread(nodes: Collection) -> Collection:
            return nodes.join(edges, "node").select(F.col("next").alias("node")).concat(nodes).distinct()

        return edges.select("node").distinct().iterate(spread).where("node > 0")

    app.sink("reached", reached, fk.Files("reached", format="json"))


def test_a_plan_makes_few_calls(spark: "SparkSession") -> None:
    for part in (live, batch, iteration):
        app = fk.App("calls")
        app.source("lines", fk.Kafka("lines", schema="text STRING NOT NULL, n INT"))
        part(app)
        with counted() as calls:
            plan_application(app, spark, "deadbeef")
        assert calls.total() <= CALLS_MAX[part.__name__], f"{part.__name__}: {calls.most_common(30)}"


def test_a_keyed_step_without_a_hop_is_applied_once(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    apply, applied = stamped.apply, list[str]()
    monkeypatch.setattr(stamped, "apply", lambda frame, step: applied.append(step.operation) or apply(frame, step))  # type: ignore[func-returns-value]
    assert len(plan(lambda s: s.groupBy("s").count(), key="s").regions) == 1
    assert applied == ["count"]
    applied.clear()
    assert len(plan(lambda s: s.groupBy("s").count()).regions) == 2
    assert applied == ["count", "count"], "at the source, for the user's mistakes, and behind the hop"


def test_a_step_is_analysed_once(spark: "SparkSession", plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would analyse the whole plan for a select of the step's expressions, of the key, and of the columns."""
    kind = type(spark.range(1))
    select, selected = kind.select, list[Any]()
    plan(lambda s: s)  # it plans the source
    monkeypatch.setattr(kind, "select", lambda rows, *columns: selected.append(columns) or select(rows, *columns))  # type: ignore[func-returns-value]
    plan(lambda s: s.withColumn("x", F.upper("s")).explode("a", "part").drop("b"))
    assert len(selected) == 1, "the one of the explode"


def test_rows_for_planning_know_their_schema_as_spark_does(spark: "SparkSession") -> None:
    schema = StructType.fromDDL("`a b` STRING NOT NULL, n INT, s STRUCT<x: ARRAY<DECIMAL(3, 1)>>, i INTERVAL DAY")
    assert isinstance(schema, StructType)
    rows = no_rows(spark, schema)
    assert rows.schema == StructType.fromJson(json.loads(str(rows._jdf.schema().json())))
    rows.schema.add("more", "integer")  # as a user's function may
    assert "more" not in schema.names
