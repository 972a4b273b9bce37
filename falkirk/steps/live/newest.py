"""Newest: the columns of ours in the state of a key: those of its newest record, and what proves that it is the newest.

In a query, the last record of a key is its newest: each task reads a partition in the order of its offsets, Spark's
streaming shuffle keeps the order of each sender, and all records of a key come from one partition. So no stamps are
compared for each record, which took a fifth of a task's time. The least and the greatest place and the greatest offset
are numbers, and cost little. They show if one of these assumptions is wrong.

As text, an expression is one call to the JVM.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from falkirk.steps.dataframes.names import BAD, LEAST, STAMP

_NEWEST, _MOST, _OFFSET = "__falkirk_newest", "__falkirk_most", "__falkirk_offset"
#: The stamp of the newest record, in the state.
STAMP_OF_NEWEST = f"{_NEWEST}.{STAMP}"


def of_key(data: DataFrame, place: str, latest: list[Column]) -> list[Column]:
    """Return the aggregates: the newest record and the least place; in a query, the greatest place and offset as well.

    Args: place: the place of a record, as an expression. latest: the columns whose newest values are needed.
    """
    record = F.struct(STAMP, BAD, *[column.alias(f"latest{i}") for i, column in enumerate(latest)])
    least = F.expr(f"min({place}) AS {LEAST}")
    if not data.isStreaming:  # rows of a job have no order
        return [F.max_by(record, F.col(STAMP)).alias(_NEWEST), least]
    numbers = {_MOST: f"max({place})", _OFFSET: f"max({STAMP}.offset)"}
    return [F.last(record).alias(_NEWEST), least, *[F.expr(f"{number} AS {name}") for name, number in numbers.items()]]


def with_valid_newest(data: DataFrame) -> DataFrame:
    """Return the rows of `of_key`. In a query, the task fails if the last record of a key has not the greatest offset.

    Records of several places have an error of their own (`other_place`).
    """
    if not data.isStreaming:
        return data
    last = f"{STAMP_OF_NEWEST}.offset"
    told = f"concat('Spark gave the records of a key in another order: offset ', {last}, ' after ', {_OFFSET})"
    in_order = f"{LEAST} <> {_MOST} OR {last} = {_OFFSET}"
    return data.where(f"CASE WHEN {in_order} THEN true ELSE CAST(raise_error({told}) AS BOOLEAN) END")


def latest(place: int) -> Column:
    """Return the newest value of one of the columns."""
    return F.col(f"{_NEWEST}.latest{place}")


def ours() -> list[Column]:
    """Return the stamp of the newest record, and its reason if it is bad."""
    return [F.expr(f"{_NEWEST}.{name} AS {name}") for name in (STAMP, BAD)]


def other_place(data: DataFrame, newest: str) -> Column:
    """Return another place of the key's records if there is one, and otherwise the newest one's.

    Args: newest: its place, as an expression.
    """
    if not data.isStreaming:  # the newest one's is the greatest, since a stamp begins with it
        return F.col(LEAST)
    return F.expr(f"CASE WHEN {LEAST} = {newest} THEN {_MOST} ELSE {LEAST} END AS {LEAST}")
