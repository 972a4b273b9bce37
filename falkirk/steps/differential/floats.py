"""Floating-point numbers: brings them into the form in which Spark compares them, with one zero and one NaN.

In Spark, NaN is the greatest number. Arrow groups and joins by bits, and -0.0 and NaN have several bit patterns. Arrow
also ignores NaN when it computes a maximum. So rows hold these numbers in one form (as Spark's
NormalizeFloatingNumbers), and code that orders them orders their ordinals.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def is_floating(column: Any) -> bool:
    """Whether a column has floating-point numbers."""
    return bool(pa.types.is_floating(column.type))


def normalised(table: pa.Table) -> pa.Table:
    """Return the rows; numbers that Spark groups together have the same bits in them."""
    for i, name in enumerate(table.column_names):
        column = table.column(i)
        if is_floating(column):
            zero, nan = (pa.scalar(number, column.type) for number in (0.0, float("nan")))
            column = pc.add(column, zero)  # -0.0 + 0.0 is 0.0
            table = table.set_column(i, name, pc.if_else(pc.is_nan(column), nan, column))
    return table


def ordinals(column: Any) -> pa.Array:
    """Return normalised numbers as whole numbers in the same order; null stays null."""
    there = np.asarray(column.is_valid())
    bits = np.asarray(pc.fill_null(pc.cast(column, pa.float64()), 0.0)).view(np.int64)
    return pa.array(_turned(bits), mask=~there)


def of_ordinals(column: Any, to: pa.DataType) -> pa.Array:
    """Return the numbers that have these ordinals: the inverse of `ordinals`."""
    there = np.asarray(column.is_valid())
    numbers = _turned(np.asarray(pc.fill_null(column, 0))).view(np.float64)
    return pc.cast(pa.array(numbers, mask=~there), to)


def _turned(bits: Any) -> Any:
    """Reverse the order of negative numbers: the bits of a lesser one are greater. A second call undoes the first."""
    return np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
