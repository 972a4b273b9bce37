"""Window stamps: gives the results of windows the order that they have in a query, for a keyed step after them.

In a query (Windows.java), a result has the stamp of the record that caused it, and its place among the results of that
record: they are in the order of the windows' ends, and for one end in that of the keys' bytes. Windows in micro-batches
have no such order. The test kit needs it, because it computes live regions by operators of micro-batches.
"""

from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from falkirk.steps.dataframes.names import STAMP

_NEWEST, _BYTES = "__falkirk_newest", "__falkirk_bytes"


def newest() -> Column:
    """Return a further aggregate that `stamped_windows` needs: the stamp of the newest record in a window."""
    return F.max(F.col(STAMP)).alias(_NEWEST)


def stamped_windows(results: DataFrame, moves: DataFrame | None, depth: int) -> DataFrame:
    """Return results with their stamps, which have one sub-index more than those of the records.

    Args: results: with the columns key, end and values, from one partition of a source. moves: the stamps of the
        epoch's records, each with the time `upto` which windows are closed then; None: each record gives the results of
        its windows. depth: how many sub-indexes the stamps of records have.
    """
    if moves is None:
        caused = results.withColumn(STAMP, F.col(f"values.{_NEWEST}"))
    else:  # each window that closes in an epoch was open before a record of the epoch
        ends = results.select("end").distinct().join(moves, F.col("upto") >= F.col("end"))
        caused = results.join(ends.groupBy("end").agg(F.min(STAMP).alias(STAMP)), "end")
    session: Any = results.sparkSession
    keyed = DataFrame(session._jvm.org.falkirk.KeyBytes.added(caused._jdf, "key", _BYTES), session)
    place = F.row_number().over(Window.partitionBy(STAMP).orderBy("end", _BYTES)) - F.lit(1)
    return keyed.withColumn(STAMP, F.struct(F.col(f"{STAMP}.*"), place.alias(f"sub{depth}")))
