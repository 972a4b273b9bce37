"""Planning: what can be promised and what not, over the functions that data engineers use."""

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

import falkirk as fk
from falkirk.plan.planner import plan_application
from tests.integration.functions import AGGREGATES, DETERMINISTIC, UNDETERMINED
from tests.integration.planning import Body, line_of, names, refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("expression", UNDETERMINED)
def test_what_differs_on_a_replay_is_refused(plan: Any, expression: str) -> None:
    body = lambda s: s.withColumn("x", F.expr(expression))  # noqa: E731  # undetermined
    line = line_of(__file__, "undetermined")
    for delivery in ("exactly-once", "at-most-once"):
        error = refused(lambda d=delivery: plan(body, delivery=d), "UNDETERMINED_OPERATION", line=line)
        assert isinstance(error, fk.GuaranteeError)
        assert error.parameters["operations"]
    assert names(plan(body, delivery="repeated")) == ["out"]


@pytest.mark.parametrize("place", ["where", "groupBy", "agg", "select"])
def test_it_is_refused_wherever_it_stands(plan: Any, place: str) -> None:
    bodies: dict[str, Body] = {
        "where": lambda s: s.where(F.rand() < 0.5),
        "groupBy": lambda s: s.groupBy(F.expr("uuid()").alias("u")).count(),
        "agg": lambda s: s.groupBy("s").agg(F.max(F.current_timestamp()).alias("t")),
        "select": lambda s: s.select(F.struct(F.array(F.expr("array(rand())")))),
    }
    body = bodies[place]
    refused(lambda: plan(body, key="s"), "UNDETERMINED_OPERATION", line=body.__code__.co_firstlineno)


def test_python_functions_are_refused(plan: Any) -> None:
    double = F.udf(lambda n: n * 2, IntegerType(), useArrow=False)
    body = lambda s: s.select(double("n").alias("m"))  # noqa: E731  # python
    error = refused(lambda: plan(body), "UNDETERMINED_OPERATION", line=line_of(__file__, "python"))
    assert error.parameters["operations"] == ("PythonUDF",)


def test_a_shared_log_holds_for_its_strictest_reader(spark: "SparkSession") -> None:
    for first, second in (("repeated", "exactly-once"), ("exactly-once", "repeated")):
        app = fk.App("strict")
        app.source("events", fk.Kafka("events", schema="s STRING"))
        app.add_processor("random", lambda s: s.withColumn("r", F.rand()), reads=("events",), policy=fk.Lazy())
        app.sink("a", "random", fk.Kafka("a"), delivery=first)
        app.sink("b", "random", fk.Kafka("b"), delivery=second)
        with pytest.raises(fk.GuaranteeError):
            plan_application(app, spark, "deadbeef")


@pytest.mark.parametrize("group", range(0, len(DETERMINISTIC), 25))
def test_deterministic_functions_are_promised(plan: Any, group: int) -> None:
    columns = {f"x{i}": F.expr(text) for i, text in enumerate(DETERMINISTIC[group : group + 25])}
    assert names(plan(lambda s: s.withColumns(columns))) == ["out"]


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_aggregates_of_a_fixed_order_are_promised(plan: Any, aggregate: str) -> None:
    assert names(plan(lambda s: s.groupBy("s").agg(F.expr(aggregate).alias("x"), fk.latest("n")), key="s")) == ["out"]


def test_operators_and_tumbling_windows_are_promised(plan: Any) -> None:
    def body(stream: fk.Stream) -> fk.Stream:
        where = (F.col("n") > 1) & ~F.col("s").isNull() | F.col("s").like("a%") & F.col("n").between(1, 5)
        chosen = F.when(F.col("n") == 1, "one").otherwise(F.col("s").substr(1, 2))
        return stream.where(where).withColumn("c", chosen).groupBy("s", F.window("t", "10 minutes")).count()

    assert names(plan(body, key="s")) == ["out"]


def test_at_most_once_is_not_promised_across_a_hop_that_parts_derivatives(plan: Any) -> None:
    parted: Body = lambda s: s.explode("a", "x").groupBy("x").count()  # noqa: E731
    with pytest.raises(fk.GuaranteeError) as caught:
        plan(parted, delivery="at-most-once")
    assert caught.value.condition == "DERIVATIVES_APART"
    assert names(plan(parted, delivery="exactly-once")) == ["counts-by-x", "out"]
    whole: Body = lambda s: s.explode("a", "x").groupBy("s", "x").count()  # noqa: E731
    assert names(plan(whole, key="s", delivery="at-most-once")) == ["out"]
    single: Body = lambda s: s.where("n > 1").groupBy("n").count()  # noqa: E731
    assert names(plan(single, delivery="at-most-once")) == ["counts-by-n", "out"]
