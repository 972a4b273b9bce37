"""Pairs: unites many DataFrames in pairs."""

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame


def united(frames: Sequence[DataFrame], unite: Callable[[DataFrame, DataFrame], DataFrame]) -> DataFrame:
    """Return the rows of all frames, at least one, in their order.

    Spark analyses a union with all that is below it. One after the other, the first of n frames would be analysed n
    times; in pairs, each is analysed log n times.
    """
    if len(frames) == 1:
        return frames[0]
    half = len(frames) // 2
    return unite(united(frames[:half], unite), united(frames[half:], unite))
