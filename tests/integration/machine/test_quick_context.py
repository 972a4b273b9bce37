"""Spark's context does not examine the lambdas of Spark's own code, and names the steps of a job by its description."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest
from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def context(spark: "SparkSession") -> Iterator[Any]:
    """The context of the driver's JVM, whose next job has no name and no description."""
    found = cast(Any, spark.sparkContext)

    def forget() -> None:
        found._jsc.clearCallSite()
        found.setLocalProperty("spark.job.description", None)

    forget()
    yield found._jsc.sc()
    forget()


def test_functions_of_spark_are_not_examined_and_others_are(spark: "SparkSession", context: Any) -> None:
    jvm: Any = spark._jvm
    some = jvm.scala.jdk.javaapi.CollectionConverters.asScala(jvm.java.util.HashMap())
    # Java can't serialize the object that this lambda belongs to.
    sparks = jvm.org.apache.spark.internal.config.ConfigBuilder("x").stringConf().transform(some).converter()
    assert context.clean(sparks, True).equals(sparks)
    others = sparks.andThen(sparks)  # a lambda of Scala's
    with pytest.raises(Py4JJavaError, match="Task not serializable"):
        context.clean(others, True)


def test_a_step_has_the_name_of_its_job(spark: "SparkSession", context: Any) -> None:
    def name() -> str:
        return str(context.getCallSite().shortForm())

    of_sparks = name()
    spark.sparkContext.setJobDescription("totals epoch 5")
    assert of_sparks != name() == "totals epoch 5"
    context.setCallSite("a line of the user's")
    assert name() == "a line of the user's"
