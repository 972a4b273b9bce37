"""The models with which `falkirk verify outputs` recomputes the aggregates of a `groupBy`."""

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from falkirk.user_tools.commands.judge_models import aggregate_model
from tests.support import outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_argument_may_be_computed_and_other_calls_are_not_judged(spark: "SparkSession") -> None:
    """Spark's text of a column, such as `*(n, price)`, is no SQL, and that of a call says little about it."""
    data = spark.createDataFrame([("a", 1, 2.0), ("a", None, 3.0)], "k STRING, n INT, price DOUBLE")
    sink: Any = SimpleNamespace(name="out", where=None)
    judged = [
        F.sum(F.col("n") * F.col("price")).alias("total"), "max(n + 1) AS more", F.count("n").alias("known"),
        F.count("*").alias("all"), F.max(F.when(F.col("n") > 0, "yes")).alias("is_positive"),
    ]  # fmt: skip
    columns, model = aggregate_model(data, ("k",), judged, sink)
    assert [tuple(row) for row in data.select(*columns).collect()] == [(2.0, 2, 1, "yes"), (None, None, None, None)]
    assert {name: type(each).__name__ for name, each in model.aggregates.items()} == {
        "total": "Sum", "more": "Max", "known": "Count", "all": "Count", "is_positive": "Max",
    }  # fmt: skip
    for other in (
        "max(n) + min(n) AS y", "count(1) FILTER (WHERE n > 0) AS good", "count(n, price) AS both",
        F.count_distinct("n").alias("kinds"), F.avg("n").alias("mean"), F.sum("n"),
    ):  # fmt: skip
        assert outcome(partial(aggregate_model, data, ("k",), [other], sink)) == "NOT_CHECKABLE", str(other)
