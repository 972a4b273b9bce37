"""Spark's errors: the exceptions of failed calls and jobs, and the useful part of their messages."""

from collections.abc import Iterator

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

#: The exceptions of a failed Spark job: PySpark has its own classes for most of Java's exceptions, but not for all.
SPARK_ERRORS = (PySparkException, Py4JJavaError)
#: The exceptions of a call whose JVM has died: py4j's own if it died during the call, the socket's if it died before.
JVM_DIED = (Py4JNetworkError, ConnectionError)
#: The exceptions of a call of the JVM that PySpark has no class for, those of a dead JVM included.
JVM_ERRORS = (Py4JError, OSError)


def first_line(error: Exception) -> str:
    """Return the first line of Spark's message, without its error class and final dot."""
    if isinstance(error, Py4JJavaError):
        said = str(error.java_exception).removeprefix(f"{error.java_exception.getClass().getName()}: ")
    else:
        said = str(error)
    return said.strip().split("\n")[0].removesuffix(".")


def innermost_line(error: Exception) -> str:
    """Return the first line of the message that the innermost cause of an error has."""
    causes = list(_causes(error))
    return next((line for each in reversed(causes) if (line := each.strip().split("\n")[0].removesuffix("."))), "")


def _causes(error: Exception) -> Iterator[str]:
    yield first_line(error)
    if isinstance(error, Py4JJavaError):
        java = error.java_exception.getCause()
        while java is not None:
            yield str(java.getMessage() or java)
            java = java.getCause()
    else:
        each = getattr(error, "_cause", None)
        while each is not None:
            yield str(each)
            each = getattr(each, "_cause", None)
