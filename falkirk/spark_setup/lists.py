"""Lists: sends the JVM a list of its objects, or a map of texts, in one call.

PySpark gives the JVM a list of columns for each `select`, `groupBy` and `struct`. py4j makes an empty list there and
adds each column in a separate call: a tenth of all calls while Falkirk builds a plan, and a fifth while it builds an
epoch. Options of a reader or a writer are one call each, too.
"""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from py4j.java_gateway import JavaClass, JavaObject
from pyspark.sql import DataFrameReader, DataFrameWriter, SparkSession

#: Stands between the names and values of a map, for TextMap.java.
_BETWEEN = "\x1f"
Options = TypeVar("Options", DataFrameReader, DataFrameWriter)


class ObjectLists:
    """A converter of py4j, for lists that have only objects of one JVM.

    Args: gateway: in that JVM. of: the method of the Java module.
    """

    def __init__(self, gateway: Any, of: Any) -> None:
        self._gateway, self._of = gateway, of

    def can_convert(self, value: Any) -> bool:
        """Return whether a value that Python passes to the JVM is such a list."""
        return isinstance(value, list) and bool(value) and all(isinstance(each, JavaObject) for each in value)

    def convert(self, value: list[Any], client: Any) -> Any:
        """Return the list in the JVM: an `ArrayList`, as py4j's own converter makes."""
        return self._of(self._gateway, " ".join(each._target_id for each in value))


def make_lists_in_one_call(session: SparkSession) -> None:
    """Let this process make a list in the JVM in one call, if the session has the Java module."""
    gateway = cast(Any, session.sparkContext)._gateway
    client, module = gateway._gateway_client, cast(Any, session)._jvm.org.falkirk.ObjectList
    if isinstance(module, JavaClass):
        lists = ObjectLists(gateway.java_gateway_server.getGateway(), module.of)
        # A list of this client alone: the former one is py4j's. A JVM may have had a session before.
        others = [each for each in client.converters if not isinstance(each, ObjectLists)]
        client.converters = [lists, *others]


def with_options(to: Options, options: Mapping[str, str]) -> Options:
    """Return a reader or writer with these options as well. One that is not PySpark's takes them itself."""
    if not isinstance(to, DataFrameReader | DataFrameWriter):
        return to.options(**options)
    java = cast(Any, to)
    made = text_map(java._spark, options)
    side = "_jreader" if isinstance(to, DataFrameReader) else "_jwrite"
    setattr(java, side, getattr(java, side).options(made))
    return to


def text_map(session: SparkSession, options: Mapping[str, str]) -> Any:
    """Return a map of texts in the JVM."""
    jvm: Any = session._jvm
    parts = [part for entry in options.items() for part in entry]
    if not any(_BETWEEN in part for part in parts):
        return jvm.org.falkirk.TextMap.of(_BETWEEN.join(parts))
    made = jvm.java.util.HashMap()
    for name, value in options.items():
        made.put(name, value)
    return made
