"""Planning: the promises that Falkirk can give or not, over the functions that data engineers use."""

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.plan.planner import plan_application
from falkirk.plan.region import Region
from tests.integration.functions import AGGREGATES, DETERMINISTIC, SCHEMA, UNDETERMINED
from tests.integration.planning import Body, line_of, names, refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def undetermined(expression: str) -> tuple[Body, Body]:
    """Return a processor that computes an expression, and one with several results of a record after it."""
    alone = lambda s: s.withColumn("x", F.expr(expression))  # noqa: E731  # undetermined
    return alone, lambda s: alone(s).explode("a", "part")


@pytest.fixture(scope="module")
def regions(spark: "SparkSession") -> dict[str, Region]:
    """The regions of one application with three sinks for each of `UNDETERMINED`, by the names of the sinks.

    Most of the time of a plan is for its source.
    """
    app = fk.App("planned")
    app.source("events", fk.Kafka("events", schema=SCHEMA))
    for number, expression in enumerate(UNDETERMINED):
        alone, body = undetermined(expression)
        made = {"free": (alone, "at-most-once"), "held": (body, "exactly-once"), "direct": (body, "repeated")}
        for name, (steps, delivery) in made.items():
            app.add_processor(f"{name}-of-{number}", steps, reads=("events",), policy=fk.Lazy("5 seconds"))
            app.sink(f"{name}-{number}", f"{name}-of-{number}", fk.Kafka(f"{name}-{number}"), delivery=delivery)
    found = plan_application(app, spark, "deadbeef").regions
    assert len(found) == 3 * len(UNDETERMINED), "no processor needs a hop"
    return {region.name: region for region in found}


@pytest.mark.parametrize("expression", UNDETERMINED)
def test_what_differs_on_a_replay_is_held_back_or_refused(
    plan: Any, regions: dict[str, Region], expression: str
) -> None:
    number, line = UNDETERMINED.index(expression), line_of(__file__, "undetermined")
    free, held, direct = (regions[f"{name}-{number}"] for name in ("free", "held", "direct"))
    assert (free.deterministic, free.undetermined, free.released_to) == (True, None, None)
    _, body = undetermined(expression)
    assert held.released_to == fk.Kafka(f"held-{number}")
    assert {name for drawn in free.varying for name in drawn.operations} == {*held.undetermined.operations}
    assert held.undetermined.where.line == line
    error = refused(
        lambda: plan(body, delivery="at-most-once"), "UNDETERMINED_OPERATION", line=line, processor="counts"
    )
    assert isinstance(error, fk.GuaranteeError)
    assert error.parameters["operations"] == held.undetermined.operations != ()
    assert (direct.output.topic, direct.released_to, direct.deterministic) == (f"direct-{number}", None, False)


@pytest.mark.parametrize("place", ["where", "groupBy", "agg", "select", "explode", "time of the group"])
def test_it_is_held_back_wherever_it_stands(plan: Any, place: str) -> None:
    bodies: dict[str, Body] = {
        "where": lambda s: s.where(F.rand() < 0.5).groupBy("s").count(),
        "groupBy": lambda s: s.groupBy("s", F.expr("uuid()").alias("u")).count(),
        "agg": lambda s: s.groupBy("s").agg(F.collect_set("n").alias("t")),
        "time of the group": lambda s: s.groupBy("s", F.current_timestamp().alias("t")).agg(F.max("n")),
        "select": lambda s: s.select("a", F.struct(F.array(F.expr("array(rand())"))).alias("x")).explode("a", "part"),
        "explode": lambda s: s.explode(F.array_repeat("s", (F.rand() * 5).cast("int")), "part"),
    }
    body = bodies[place]
    (held,) = plan(body, key="s").regions
    assert (held.deterministic, held.released_to) == (False, fk.Kafka("out"))
    line = body.__code__.co_firstlineno
    refused(lambda: plan(body, key="s", delivery="at-most-once"), "UNDETERMINED_OPERATION", line=line)


@pytest.mark.parametrize("group", range(0, len(DETERMINISTIC), 25))
def test_deterministic_functions_are_promised(plan: Any, group: int) -> None:
    columns = {f"x{i}": F.expr(text) for i, text in enumerate(DETERMINISTIC[group : group + 25])}
    (region,) = plan(lambda s: s.withColumns(columns)).regions
    assert (region.deterministic, region.released_to, region.output.topic) == (True, None, "out")


@pytest.mark.parametrize("group", range(0, len(AGGREGATES), 19))
def test_aggregates_of_a_fixed_order_are_promised(plan: Any, group: int) -> None:
    found = [F.expr(text).alias(f"x{i}") for i, text in enumerate(AGGREGATES[group : group + 19])]
    (region,) = plan(lambda s: s.groupBy("s").agg(*found, fk.latest_value("n")), key="s").regions
    assert (region.deterministic, region.released_to) == (True, None)


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
