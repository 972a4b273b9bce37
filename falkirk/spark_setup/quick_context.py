"""Context: makes Spark's context one that does not examine the lambdas of Spark's own code (`QuickContext.java`)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from py4j.java_gateway import JavaClass
from pyspark import SparkContext


@contextmanager
def quick_context() -> Iterator[None]:
    """Within the block, a new Spark context is such a one if its JVM has the Java module.

    `_initialize_context` is PySpark's own method for contexts of other classes. The builder of sessions can't be given
    another class.
    """
    sparks = SparkContext._initialize_context

    def initialize(self: SparkContext, conf: Any) -> Any:
        jvm = cast(Any, self._jvm)
        module = jvm.org.falkirk.QuickContext
        return jvm.JavaSparkContext(module(conf)) if isinstance(module, JavaClass) else sparks(self, conf)

    cast(Any, SparkContext)._initialize_context = initialize
    try:
        yield
    finally:
        cast(Any, SparkContext)._initialize_context = sparks
