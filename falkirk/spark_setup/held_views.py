"""Held views: whether the JVMs that run tasks hold the views that live regions look up.

With a local master, tasks find them in the driver's JVM. On a cluster, a plugin of Spark brings them to executors.
"""

from typing import Any

from falkirk.spark_setup import exposure
from falkirk.spark_setup.submitted import PLUGINS

VIEWS_PLUGIN = "org.falkirk.ViewsPlugin"


def holds_views(session: Any) -> bool:
    """Return whether the tasks of a session can look views up."""
    context = session.sparkContext
    if exposure.is_local(context.master or ""):
        return True
    plugins = (context.getConf().get(PLUGINS) or "").split(",")
    return VIEWS_PLUGIN in map(str.strip, plugins)
