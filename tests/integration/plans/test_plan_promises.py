"""Planning: the promises that Falkirk can give or not, over the functions that data engineers use."""

from typing import Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from tests.integration.functions import AGGREGATES, DETERMINISTIC, UNDETERMINED
from tests.integration.planning import Body, line_of, names, refused


@pytest.mark.parametrize("expression", UNDETERMINED)
def test_what_differs_on_a_replay_is_held_back_or_refused(plan: Any, expression: str) -> None:
    alone = lambda s: s.withColumn("x", F.expr(expression))  # noqa: E731  # undetermined
    line = line_of(__file__, "undetermined")
    (free,) = plan(alone, delivery="at-most-once").regions
    assert (free.deterministic, free.undetermined, free.released_to) == (True, None, None)
    body: Body = lambda s: alone(s).explode("a", "part")  # noqa: E731
    (held,) = plan(body).regions
    assert held.released_to == fk.Kafka("out")
    assert {name for drawn in free.varying for name in drawn.operations} == {*held.undetermined.operations}
    assert held.undetermined.where.line == line
    error = refused(
        lambda: plan(body, delivery="at-most-once"), "UNDETERMINED_OPERATION", line=line, processor="counts"
    )
    assert isinstance(error, fk.GuaranteeError)
    assert error.parameters["operations"] == held.undetermined.operations != ()
    (direct,) = plan(body, delivery="repeated").regions
    assert (direct.output.topic, direct.released_to, direct.deterministic) == ("out", None, False)


@pytest.mark.parametrize("place", ["where", "groupBy", "agg", "select", "explode", "time of the group"])
def test_it_is_held_back_wherever_it_stands(plan: Any, place: str) -> None:
    bodies: dict[str, Body] = {
        "where": lambda s: s.where(F.rand() < 0.5).groupBy("s").count(),
        "groupBy": lambda s: s.groupBy("s", F.expr("uuid()").alias("u")).count(),
        "agg": lambda s: s.groupBy("s").agg(F.max(F.now()).alias("t")),
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


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_aggregates_of_a_fixed_order_are_promised(plan: Any, aggregate: str) -> None:
    (region,) = plan(lambda s: s.groupBy("s").agg(F.expr(aggregate).alias("x"), fk.latest_value("n")), key="s").regions
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
