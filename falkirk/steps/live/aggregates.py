"""Aggregates: those of the user's, as columns of Spark."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from falkirk.declare.grouped import LatestValue
from falkirk.steps.dataframes.names import STAMP


def grouping_of(arguments: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the keys and the aggregates of a step `agg` or `count`. Args: arguments: of the step."""
    keys, *given = arguments
    return keys, given[0] if given else [F.count("*").alias("count")]


def latest_of(aggregate: LatestValue) -> tuple[Column, str]:
    """Return the column whose newest value is wanted, and the name of the result."""
    column = F.col(aggregate.column) if isinstance(aggregate.column, str) else aggregate.column
    return column, aggregate.name


def aggregates_of(aggregates: Sequence[Any]) -> list[Column]:
    """Return the aggregates of windows as columns. The latest value is that of the greatest stamp."""
    found = []
    for each in aggregates:
        if isinstance(each, LatestValue):
            column, name = latest_of(each)
            found.append(F.max_by(column, F.col(STAMP)).alias(name))
        else:
            found.append(F.expr(each) if isinstance(each, str) else each)
    return found
