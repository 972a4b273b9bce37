"""Hadoop: makes the configuration smaller that Spark hands to its tasks.

Spark copies and serializes Hadoop's configuration for nearly every stage, and tasks read it. That took 7 % of the CPU
time of a session with live regions and batches. Nearly all of its 1,100 settings are defaults.
"""

from typing import Any, cast

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession

#: The masters whose applications need YARN's settings begin with it.
_YARN = "yarn"


def forget_defaults(session: SparkSession) -> None:
    """Let a session's configuration forget YARN's defaults, and where others come from, if it has the Java module.

    Settings of the user stay, and so do YARN's defaults on YARN.
    """
    context, module = cast(Any, session.sparkContext), cast(Any, session)._jvm.org.falkirk.HadoopDefaults
    if isinstance(module, JavaClass):
        module.forget(context._jsc.hadoopConfiguration(), (context.master or "").startswith(_YARN))
