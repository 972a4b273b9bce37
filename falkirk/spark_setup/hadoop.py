"""Hadoop: makes the configuration smaller that Spark hands to its tasks, and decides where paths without a scheme are.

Spark copies and serializes Hadoop's configuration for nearly every stage, and tasks read it. That took 7 % of the CPU
time of a session with live regions and batches. Nearly all of its 1,100 settings are defaults.

Falkirk's paths have no scheme, and are those of a machine. If HADOOP_CONF_DIR names a folder with core-site.xml, they
are usually paths in an HDFS for Spark. It would then write the files of a home there, and Falkirk would find none.
"""

from typing import Any, cast

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession

from falkirk.spark_setup import exposure, objects

#: Hadoop's setting with the file system of paths without a scheme, and its default: that of each machine.
_DEFAULT_PLACE, _MACHINE = "fs.defaultFS", "file:///"


def forget_defaults(session: SparkSession) -> None:
    """Let a session's configuration forget YARN's defaults, and where others come from, if it has the Java module.

    Settings of the user stay, and so do YARN's defaults on YARN.
    """
    context, module = cast(Any, session.sparkContext), cast(Any, session)._jvm.org.falkirk.HadoopDefaults
    if isinstance(module, JavaClass):
        module.forget(context._jsc.hadoopConfiguration(), exposure.is_yarn(context.master or ""))


def local_paths(master: str, data: str | None) -> dict[str, str]:
    """Return the setting with which paths without a scheme are those of a machine, if Falkirk uses such paths.

    On YARN there is none: Spark itself puts files into the HDFS by such paths. The user has to decide.

    Args: data: the address of the home's data, if they are elsewhere.
    """
    is_needed = _has_local_paths(master, data) and not exposure.is_yarn(master)
    return {f"spark.hadoop.{_DEFAULT_PLACE}": _MACHINE} if is_needed else {}


def other_place(session: SparkSession, data: str | None) -> tuple[str, str, str] | None:
    """Return where paths without a scheme are, if Falkirk uses such paths and they are not on a machine.

    Returns: the setting, its right value, and the present one. Args: as of `local_paths`.
    """
    context = cast(Any, session.sparkContext)
    found = str(context._jsc.hadoopConfiguration().get(_DEFAULT_PLACE, _MACHINE))
    is_right = found.startswith("file:") or not _has_local_paths(context.master or "", data)
    return None if is_right else (f"spark.hadoop.{_DEFAULT_PLACE}", _MACHINE, found)


def _has_local_paths(master: str, data: str | None) -> bool:
    """Return whether Spark gets paths of a machine. On a cluster, executors write into an object store by addresses."""
    return exposure.is_local(master) or not objects.needs_jars(data)
