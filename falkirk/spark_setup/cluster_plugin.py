"""Cluster plugin: whether executors in other JVMs can call their driver, by Falkirk's plugin of Spark.

They ask for the views that live regions look up, and report the figures of their lanes. With a local master, tasks
run in the driver's JVM, and need no plugin.
"""

from typing import Any

from falkirk.spark_setup import exposure
from falkirk.spark_setup.submitted import PLUGINS

CLUSTER_PLUGIN = "org.falkirk.ClusterPlugin"


def reaches_driver(session: Any) -> bool:
    """Return whether the tasks of a session can call Falkirk's code in the driver's JVM."""
    context = session.sparkContext
    if exposure.is_local(context.master or ""):
        return True
    plugins = (context.getConf().get(PLUGINS) or "").split(",")
    return CLUSTER_PLUGIN in map(str.strip, plugins)
