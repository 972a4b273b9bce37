"""Spark's errors: the exceptions of failed calls and jobs, and the useful part of their messages."""

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

#: The exceptions of a failed Spark job: PySpark has its own classes for most of Java's exceptions, but not for all.
SPARK_ERRORS = (PySparkException, Py4JJavaError)


def first_line(error: Exception) -> str:
    """Return the first line of Spark's message, without its error class and final dot."""
    if isinstance(error, Py4JJavaError):
        said = str(error.java_exception).removeprefix(f"{error.java_exception.getClass().getName()}: ")
    else:
        said = str(error)
    return said.strip().split("\n")[0].removesuffix(".")
