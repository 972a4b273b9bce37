"""Spark's planner keeps no time of its rules in a session of Falkirk's."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def runs_of_rules(spark: "SparkSession") -> int:
    """Plan a query; return the runs of rules that Spark has counted so far."""
    assert spark.range(3).selectExpr("sum(id) AS s").collect()[0]["s"] == 3
    meter: Any = getattr(spark._jvm.org.apache.spark.sql.catalyst.rules, "RuleExecutor$")
    return int(getattr(meter, "MODULE$").queryExecutionMeter().totalNumRuns())


def test_no_run_of_a_rule_is_counted(spark: "SparkSession") -> None:
    assert runs_of_rules(spark) == 0
    assert spark._jvm.org.falkirk.RuleTimes.forget() == 4, (
        "the runs and the times, of all runs and of those that changed a plan"
    )
    assert runs_of_rules(spark) == 0
