"""Planning: results of rows that went through Python are unknown, until the author declares the function."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.plan.batch import Batch
from falkirk.steps.static_analysis.functions import ROWS_OF_PYTHON, operation_name
from tests.integration.plans.test_plan_batches import batch, planned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _observed(rows: "DataFrame") -> Observation:
    found = Observation()
    rows.observe(found, F.count(F.lit(1))).count()
    return found


HANDED: dict[str, Callable[["DataFrame"], Any]] = {
    "collect": lambda rows: rows.collect(),
    "toPandas": lambda rows: rows.toPandas(),
    "toArrow": lambda rows: rows.toArrow(),
    "toLocalIterator": lambda rows: list(rows.toLocalIterator()),
    "first": lambda rows: rows.first(),
    "head": lambda rows: rows.head(3),
    "take": lambda rows: rows.take(3),
    "tail": lambda rows: rows.tail(3),
    "approxQuantile": lambda rows: rows.approxQuantile("x", [0.5], 0.1),
    "corr": lambda rows: rows.corr("x", "n"),
    "cov": lambda rows: rows.cov("x", "n"),
    "stat": lambda rows: rows.stat.cov("x", "n"),
    "foreach": lambda rows: rows.foreach(print),
    "foreachPartition": lambda rows: rows.foreachPartition(list),
    "toJSON": lambda rows: rows.toJSON(),
    "rdd": lambda rows: rows.rdd,
    "pandas_api": lambda rows: rows.pandas_api().to_numpy(),
    "checkpointed before": lambda rows: rows.localCheckpoint().collect(),
    "observed": lambda rows: _observed(rows).get,
    "in a subquery": lambda rows: rows.sparkSession.range(1).select(rows.agg(F.max("n")).scalar()).collect(),
}
NOT_HANDED: dict[str, Callable[["DataFrame"], Any]] = {
    "count": lambda rows: rows.count(),
    "isEmpty": lambda rows: rows.isEmpty(),
    "localCheckpoint": lambda rows: rows.localCheckpoint(),
    "columns": lambda rows: rows.columns,
    "of the program": lambda rows: rows.sparkSession.range(3).collect(),
    "of SQL": lambda rows: rows.sparkSession.sql("SELECT * FROM VALUES (1), (2)").collect(),
}


def of_calling(call: Callable[["DataFrame"], Any], spark: "SparkSession", word: Any = lambda body: body) -> Batch:
    """Return the planned batch of a function that calls something on its input."""

    def called(events: "DataFrame") -> "DataFrame":
        call(events)
        return events.select("word").distinct()

    return planned(spark, batch(word(called), policy=fk.Eager())).batches[0]


@pytest.mark.filterwarnings("ignore:.*toJSON", "ignore:.*to_numpy")
@pytest.mark.parametrize("name", HANDED)
def test_what_python_makes_of_rows_is_unknown(spark: "SparkSession", name: str) -> None:
    found = of_calling(HANDED[name], spark)
    assert ROWS_OF_PYTHON in found.undetermined
    assert any(reason.startswith(f"{operation_name(ROWS_OF_PYTHON)}: ") for reason in found.properties.differs)
    assert not found.is_direct
    vouched = of_calling(HANDED[name], spark, fk.deterministic(because="it is"))
    assert (vouched.properties.differs, vouched.undetermined, vouched.is_direct) == ((), (), False)
    assert [word.because for word in vouched.properties.assertions] == ["it is"]


@pytest.mark.parametrize("name", NOT_HANDED)
def test_what_spark_keeps_or_counts_is_known(spark: "SparkSession", name: str) -> None:
    found = of_calling(NOT_HANDED[name], spark)
    assert (found.properties.differs, found.is_direct) == ((), True)
