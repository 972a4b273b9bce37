"""Observing: sessions in which a write to Kafka reports observed metrics."""

from pyspark.sql import SparkSession

from falkirk.spark_setup import objects
from falkirk.spark_setup.spark import TIME_PARSER, writes_elsewhere

#: The sources that Spark uses through its first data source interface.
_FIRST_INTERFACE = "spark.sql.sources.useV1SourceList"


def observing(session: SparkSession) -> SparkSession:
    """Return a session of the same Spark application in which a write to Kafka reports observed metrics.

    By default Spark writes batches to Kafka through its first data source interface, which does not report them.
    Through the second interface, a failed task leaves its sent records in its producer. If that producer can't be
    flushed, the first interface is kept.
    """
    own = session.newSession()
    for name in (
        "spark.sql.session.timeZone",
        "spark.sql.ansi.enabled",
        TIME_PARSER,
        objects.PROTOCOL,
    ):  # as in the session of the planner
        own.conf.set(name, str(session.conf.get(name)))
    if not writes_elsewhere(session):
        listed = str(own.conf.get(_FIRST_INTERFACE)).split(",")
        own.conf.set(_FIRST_INTERFACE, ",".join(name for name in listed if name.strip().lower() != "kafka"))
    return own


def tells_observed(session: SparkSession) -> bool:
    """Return whether a session is as `observing` makes it, if `observing` can make one."""
    return "kafka" not in str(session.conf.get(_FIRST_INTERFACE))
