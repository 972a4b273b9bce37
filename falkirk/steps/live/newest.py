"""Newest: the columns of ours in the state of a key: those of its newest record, and what proves that it is the newest.

In a query, the last record of a key is its newest. All records of a key come from one partition. Each task reads a
partition in the order of its offsets, and Spark's streaming shuffle keeps the order of each sender. So no stamps are
compared for each record, which took a fifth of a task's time. The least and the greatest place and the greatest offset
are numbers, and cost little. They show if one of these assumptions is wrong.

As text, an expression is one call to the JVM.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from falkirk.steps.dataframes.names import BAD, CO_PARTITIONING, STAMP, quoted

_NEWEST, _LEAST, _MOST = "__falkirk_newest", "__falkirk_least", "__falkirk_most"
_OFFSET = "__falkirk_offset"


def of_key(data: DataFrame, place: str, latest: list[Column]) -> list[Column]:
    """Return the aggregates: the newest record and the least place; in a query, the greatest place and offset as well.

    Args: place: the place of a record, as an expression. latest: the columns whose newest values are needed.
    """
    record = F.struct(STAMP, BAD, *[column.alias(f"latest{i}") for i, column in enumerate(latest)])
    least = F.expr(f"min({place}) AS {_LEAST}")
    if not data.isStreaming:  # rows of a job have no order
        return [F.max_by(record, F.col(STAMP)).alias(_NEWEST), least]
    numbers = {_MOST: f"max({place})", _OFFSET: f"max({STAMP}.offset)"}
    return [F.last(record).alias(_NEWEST), least, *[F.expr(f"{number} AS {name}") for name, number in numbers.items()]]


def order_checked(data: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the rows of `of_key`. In a query, the task fails if the records of a key have no order that lasts.

    They come from two places, or Spark gave them in another order. The barrier looks at the newest record alone, so
    this comes before it.

    Args: keys: the columns of the key.
    """
    if not data.isStreaming:
        return data
    key = f"to_json(struct({', '.join(map(quoted, keys))}))"
    split = f"concat_ws('|', '{CO_PARTITIONING}', {_LEAST}, {_MOST}, substring({key}, 1, 200))"
    last = f"{_NEWEST}.{STAMP}.offset"
    order = f"concat('Spark gave the records of a key in another order: offset ', {last}, ' after ', {_OFFSET})"
    wrong = {f"{_LEAST} <> {_MOST}": split, f"{last} <> {_OFFSET}": order}
    raised = " ".join(f"WHEN {when} THEN CAST(raise_error({told}) AS BOOLEAN)" for when, told in wrong.items())
    return data.where(f"CASE {raised} ELSE true END")


def latest(place: int) -> Column:
    """Return the newest value of one of the columns."""
    return F.col(f"{_NEWEST}.latest{place}")


def ours() -> list[Column]:
    """Return the stamp of the newest record, and its reason if it is bad."""
    return [F.expr(f"{_NEWEST}.{name} AS {name}") for name in (STAMP, BAD)]
