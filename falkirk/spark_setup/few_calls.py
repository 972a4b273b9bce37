"""Few calls: lets a process talk to the JVM of its session in fewer calls than PySpark does."""

from pyspark.sql import SparkSession

from falkirk.spark_setup.garbage import collect_in_batches
from falkirk.spark_setup.jvm import remember_names
from falkirk.spark_setup.lists import make_lists_in_one_call


def save_calls(session: SparkSession) -> None:
    """Ask the JVM once for each name, send its garbage in batches, and make a list in one call."""
    remember_names(session)
    collect_in_batches(session)
    make_lists_in_one_call(session)
