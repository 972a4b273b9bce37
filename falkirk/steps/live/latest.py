"""Latest: looks up the newest row of a key in another stream, the table, which changes.

The rows of the table are put beside the records, as in a union. A hop gives the rows of each key one order, which no
replay changes. Behind it, an aggregation per key keeps the newest row of the table, and gives a result for each record.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from falkirk.declare.grouped import LatestValue
from falkirk.steps.dataframes.names import BAD, STAMP, quoted

_IS_RECORD = "__falkirk_is_record"


def grouping(columns: Sequence[str], keys: Sequence[str], name: str) -> tuple[Sequence[str], Sequence[Any]]:
    """Return the keys and the aggregates whose results are those of the lookup, and rows of the table besides.

    Args: columns: those of the records, and that of the lookup. keys: of a record. name: of the lookup's column.
    """
    is_row = _column(name).isNotNull()
    newest = F.max_by(_column(name), F.when(is_row, F.col(STAMP))).alias(name)
    others = [LatestValue(column=_column(each), name=each) for each in columns if each not in {*keys, name}]
    return keys, [*others, LatestValue(column=~is_row, name=_IS_RECORD), newest]


def of_records(grouped: DataFrame, columns: Sequence[str], carried: Sequence[str]) -> DataFrame:
    """Return the results of `grouping` that belong to records."""
    known = grouped.where(F.col(BAD).isNotNull() | F.col(_IS_RECORD))
    return known.select(*map(_column, columns), *map(F.col, carried))


def _column(name: str) -> Column:
    return F.col(quoted(name))
