"""Partitions: the number of tasks in which batches shuffle and read files."""

import os
from typing import TYPE_CHECKING

from falkirk.spark_setup import exposure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def batch_partitions(active: "SparkSession") -> int:
    """Return the number of partitions of a batch's shuffles: at most the number of processors.

    So live regions find free slots.
    """
    if exposure.is_on_this_machine(active.sparkContext.master or ""):
        return max(2, os.cpu_count() or 2)
    return max(2, active.sparkContext.defaultParallelism)


def limit_partitions(session: "SparkSession") -> None:
    """Let a session for batches shuffle and read files in as many tasks as the machine has processors.

    A local session has a slot for each task of a live region. By its number of slots, Spark would read each small file
    of a folder in a separate task.
    """
    for name in ("spark.sql.shuffle.partitions", "spark.sql.leafNodeDefaultParallelism"):
        session.conf.set(name, str(batch_partitions(session)))
