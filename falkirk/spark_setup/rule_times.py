"""Rule times: lets Spark's planner not add up the time of its rules, which takes longer than many of them.

Before and after each run of a set of rules, Spark adds up the runs and times of all rules. It logs the difference at a
level that is off by default (`spark.sql.planChangeLog.level`).
"""

from typing import Any, cast

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession


def forget_rule_times(session: SparkSession) -> None:
    """Let the JVM of a session forget the time of each rule, if it has the Java module."""
    module = cast(Any, session)._jvm.org.falkirk.RuleTimes
    if isinstance(module, JavaClass):
        module.forget()
