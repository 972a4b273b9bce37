"""Needed: keeps the optimiser from merging the steps after an aggregation into it."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType, VariantType


def always_and_needs(data: DataFrame, names: Sequence[str]) -> Column:
    """Return a condition that holds always, but that the optimiser can't tell to, and that needs these columns.

    Without it, the optimiser merges the following steps into the aggregation. A change of these steps then changes the
    shape of the state: an unused aggregate is dropped, and others change places.
    """
    return F.hash(*[_part(F.col(f"`{name}`"), data.schema[name].dataType) for name in names]) >= F.lit(-(2**31))


def _part(column: Column, kind: DataType) -> Column:
    """Return something that is cheap to hash and can't be had without the column."""
    if isinstance(kind, StructType) and kind.fields:
        return _part(column.getField(kind.fields[0].name), kind.fields[0].dataType)
    if isinstance(kind, StringType | BinaryType):
        return F.octet_length(column)
    if isinstance(kind, ArrayType | MapType):
        return F.size(column)
    return column.isNull() if isinstance(kind, VariantType) else column
