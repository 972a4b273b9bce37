"""Newest: the columns of ours in the state of a key: those of its newest record, and what proves that it is the newest.

In a query, the last record of a key is its newest: each task reads a partition in the order of its offsets, Spark's
streaming shuffle keeps the order of each sender, and all records of a key come from one partition. So no stamps are
compared for each record, which took a fifth of a task's time. The least and the greatest place and the greatest offset
are numbers, and cost little. They show if one of these assumptions is wrong.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from falkirk.steps.dataframes.names import BAD, LEAST, STAMP

_NEWEST, _MOST, _OFFSET = "__falkirk_newest", "__falkirk_most", "__falkirk_offset"
#: The number of these columns.
COUNT = 4


def of_key(data: DataFrame, place: Column, latest: list[Column]) -> list[Column]:
    """Return the aggregates: the newest record, the least and the greatest place, and the greatest offset.

    Args: place: the place of a record. latest: the columns whose newest values are needed.
    """
    record = F.struct(STAMP, BAD, *[column.alias(f"latest{i}") for i, column in enumerate(latest)])
    # Rows of a job have no order.
    newest = F.last(record) if data.isStreaming else F.max_by(record, F.col(STAMP))
    least, most = F.min(place).alias(LEAST), F.max(place).alias(_MOST)
    return [newest.alias(_NEWEST), least, most, F.max(f"{STAMP}.offset").alias(_OFFSET)]


def holds() -> Column:
    """Return a condition that fails the task if the last record of a key is not the one with the greatest offset.

    Records of several places have an error of their own (`other_place`).
    """
    last = F.col(f"{_NEWEST}.{STAMP}.offset")
    told = F.concat_ws(
        " ", F.lit("Spark gave the records of a key in another order: offset"), last, F.lit("after"), _OFFSET
    )
    in_order = (F.col(LEAST) != F.col(_MOST)) | (last == F.col(_OFFSET))
    return F.when(in_order, F.lit(True)).otherwise(F.raise_error(told).cast("boolean"))


def latest(place: int) -> Column:
    """Return the newest value of one of the columns."""
    return F.col(f"{_NEWEST}.latest{place}")


def ours() -> list[Column]:
    """Return the stamp of the newest record, and its reason if it is bad."""
    return [F.col(f"{_NEWEST}.{name}").alias(name) for name in (STAMP, BAD)]


#: The stamp of the newest record, in the state.
STAMP_OF_NEWEST = f"{_NEWEST}.{STAMP}"


def other_place(newest: Column) -> Column:
    """Return another place of the key's records if there is one, and otherwise the newest one's.

    Args: newest: the place of the newest record.
    """
    return F.when(F.col(LEAST) == newest, F.col(_MOST)).otherwise(F.col(LEAST)).alias(LEAST)
