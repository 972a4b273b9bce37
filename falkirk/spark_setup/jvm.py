"""Caches the objects behind names in the JVM, because py4j looks a name up at each use; and redirects its standard
error.

`jvm.org.apache.spark.X` takes five lookups. For each package in the name, the JVM searches some 250 jars for a class of
that name. PySpark and Falkirk use a few names thousands of times while they build a plan or an epoch.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView
from pyspark import SparkContext
from pyspark.sql import SparkSession


class _Names:
    """A base of py4j's classes that stores a lookup as an attribute if its result can't change."""

    def __getattr__(self, name: str) -> Any:
        answer = super().__getattr__(name)  # type: ignore[misc]
        if isinstance(answer, JavaPackage):
            # The JVM reports a class that is not loaded yet as a package.
            lasts = name[:1].islower()
            answer = _Package(answer._fqn, answer._gateway_client, answer._jvm_id)
        elif isinstance(answer, JavaClass):
            lasts = True
            answer = _Class(answer._fqn, answer._gateway_client)
        else:
            lasts = isinstance(answer, JavaMember)  # a method; a field may change
        if lasts:
            self.__dict__[name] = answer
        return answer


class _View(_Names, JVMView):  # type: ignore[misc]
    pass


class _Package(_Names, JavaPackage):  # type: ignore[misc]
    pass


class _Class(_Names, JavaClass):  # type: ignore[misc]
    pass


def remember_names(session: SparkSession) -> None:
    """Let a session's Python side, and sessions that are derived from it, look up each name only once."""
    found = cast(Any, session)._jvm
    view = _View(found._gateway_client, found._jvm_name, id=found._id)
    SparkContext._jvm = view
    for holder, name in ((session.sparkContext._gateway, "jvm"), (session, "_jvm")):
        setattr(holder, name, view)


@contextmanager
def unseen() -> Iterator[None]:
    """Keep the standard error of a JVM that starts here, as long as it lives, from the terminal.

    The JVM warns of Spark's incubator modules, and Spark logs errors that it also raises. If the JVM does not start,
    its output is shown.
    """
    ours = os.dup(2)
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        except BaseException:
            written.seek(0)
            os.write(ours, written.read())
            raise
        finally:
            os.dup2(ours, 2)
            os.close(ours)
