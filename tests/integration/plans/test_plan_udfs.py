"""Plans of live regions with UDFs: their engine, the results that wait, refusals, and a changed function."""

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.plan.reasons import ANYWHERE
from tests.integration.planning import line_of, refused
from tests.integration.plans.test_plan_python import planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def doubled(n: Any) -> Any:
    return 2 * n


@fk.deterministic(because="arithmetic alone")
def vouched(n: Any) -> Any:
    return 2 * n


def unhinted(function: Any) -> Any:
    """Return a function without hints, from which PySpark would guess a kind of UDF."""
    function.__annotations__.clear()
    return function


def with_column(function: Any, kind: str = "int", *arguments: Any, **options: Any) -> Any:
    def body(events: fk.Stream) -> fk.Stream:
        call = F.udf(unhinted(function), kind, **options)(*arguments or ("n",))
        return events.select("s", call.alias("x"))  # with it

    return body


@pytest.mark.parametrize("arrow", [False, True], ids=["plain", "arrow"])
def test_a_declared_udf_runs_live_and_nothing_waits(spark: "SparkSession", arrow: bool) -> None:
    def body(events: fk.Stream) -> fk.Stream:
        call: Any = F.udf(unhinted(vouched), "int", useArrow=arrow)
        chosen = events.where(call(call("n")) > 3).withColumn("x", call(n=F.col("n") + 1))
        return chosen.explode(F.array("n", call("x")), "y").selectExpr("s", "y")

    (region,) = planned(spark, body).regions
    assert (region.deterministic, region.undetermined, region.stateful) == (True, None, False)
    assert [word.name for word in region.assertions] == ["vouched"]
    reasons = [reason for reason in region.reasons(waits=False) if reason.kind == "python"]
    assert len(reasons) == 3
    assert all("calls vouched() for one record after the other" in reason.text for reason in reasons)
    assert "arithmetic alone" in " ".join(r.text for r in region.reasons(waits=False) if r.kind == "declared")
    found = planned(spark, body)
    assert found.regions[0].fingerprint == region.fingerprint
    assert (found.properties["found"].differs, [w.name for w in found.properties["found"].assertions]) == (
        (),
        ["vouched"],
    )


def test_results_of_an_undeclared_udf_wait(spark: "SparkSession") -> None:
    (batch,) = planned(spark, with_column(doubled)).batches
    assert "select() calls Python, and doubled() is not declared" in batch.reason
    (region,) = planned(spark, with_column(doubled), engine="live").regions
    assert region.undetermined is not None
    assert (region.undetermined.operations, region.undetermined.why) == (("PythonUDF",), ANYWHERE)
    assert region.released_to is not None, "there is a held log"


def test_a_mark_outweighs_a_declaration(spark: "SparkSession") -> None:
    def body(events: fk.Stream) -> fk.Stream:
        return events.select("s", F.udf(unhinted(vouched), "int").asNondeterministic()("n").alias("x"))

    (batch,) = planned(spark, body).batches
    assert "vouched() is marked with asNondeterministic()" in batch.reason
    assert batch.properties.differs
    assert not batch.properties.assertions
    (region,) = planned(spark, body, engine="live").regions
    assert region.undetermined is not None
    assert not region.assertions


def test_a_function_that_sql_knows_by_name(spark: "SparkSession") -> None:
    spark.udf.register("vouched_in_sql", unhinted(vouched), "int")
    spark.udf.register("doubled_in_sql", unhinted(doubled), "int")
    (region,) = planned(spark, lambda events: events.selectExpr("s", "vouched_in_sql(n) AS x")).regions
    assert (region.undetermined, [word.name for word in region.assertions]) == (None, ["vouched"])
    (region,) = planned(spark, lambda events: events.selectExpr("s", "doubled_in_sql(n) AS x")).regions
    assert region.undetermined is not None, "its results wait"
    refused(
        lambda: planned(spark, lambda events: events.groupBy("s").agg("max(vouched_in_sql(n)) AS x")), "STEP_INVALID",
    )  # fmt: skip


def test_a_udf_of_many_rows_runs_in_micro_batches(spark: "SparkSession") -> None:
    import pandas as pd

    @F.pandas_udf("int")  # type: ignore[call-overload,untyped-decorator]
    def many(n: pd.Series) -> pd.Series:
        return n * 2

    (batch,) = planned(spark, lambda events: events.select("s", many("n").alias("x"))).batches
    assert "many() takes more than one row at a time" in batch.reason
    refused(
        lambda: planned(spark, lambda events: events.withColumn("x", many("n")).groupBy("s").agg(F.max("x"))),
        "ENGINE_UNSUITABLE",
    )  # fmt: skip
    spark.udf.register("many_in_sql", many)
    refused(lambda: planned(spark, lambda events: events.selectExpr("s", "many_in_sql(n) AS x")), "STEP_INVALID")


def test_values_that_can_not_be_passed_are_refused(spark: "SparkSession") -> None:
    line = line_of(__file__, "with it")

    @fk.deterministic
    def text(value: Any) -> str:
        return str(value)

    error = refused(lambda: planned(spark, with_column(text, "string", "v", useArrow=True)), "STEP_INVALID", line=line)
    assert "text() can't run live: variant is not a type of the codec" in str(error)
    assert planned(spark, with_column(text, "string", "v", useArrow=False)).regions
    shared = spark.sparkContext.broadcast([1])

    @fk.deterministic
    def shifted(n: int) -> int:
        return n + int(shared.value[0])

    (batch,) = planned(spark, with_column(shifted)).batches
    assert "shifted() uses a broadcast variable" in batch.reason
    error = refused(lambda: planned(spark, with_column(shifted), engine="live"), "STEP_INVALID", line=line)
    assert "shifted() uses a broadcast variable" in str(error)


def test_before_a_step_with_a_state(spark: "SparkSession") -> None:
    def counted(events: fk.Stream) -> fk.Stream:
        return with_column(vouched)(events).groupBy("s").agg(F.max("x").alias("x"))

    (region,) = planned(spark, counted).regions
    assert (region.stateful, region.undetermined) == (True, None)
    assert region.fingerprint["keyed step"].endswith("after UDFs"), "bad records in its state have a traceback"
    (region,) = planned(
        spark, lambda events: with_column(vouched)(events.groupBy("s").agg(F.max("n").alias("n")))
    ).regions
    assert not region.fingerprint["keyed step"].endswith("after UDFs")


def test_a_change_of_the_function_is_noticed(spark: "SparkSession") -> None:
    def made(number: int, key: bool = False, spread: bool = False) -> dict[str, str]:
        @fk.deterministic
        def text(n: int) -> str:
            return f"{n + number}"

        def body(events: fk.Stream) -> fk.Stream:
            named = events.select(
                F.udf(unhinted(text), "string")("n").alias("s" if key else "x"), *([] if key else ["s"])
            )
            return named.explode(F.array("s", "s"), "y") if spread else named

        return planned(spark, body).regions[0].fingerprint

    def changed(**options: bool) -> set[str]:
        first, same, other = (made(n, **options) for n in (1, 1, 2))
        assert first == same
        return {name for name in first if first[name] != other[name]}

    assert changed() == {"steps"}, "each record by itself"
    assert changed(spread=True) == {"steps", "decided by"}
    assert changed(key=True) == {"steps", "partitioned by"}
