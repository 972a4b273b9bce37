"""Floating-point numbers as Spark compares them: there is one zero, and one NaN, which is the greatest of all.

Arrow groups and joins by bits, of which -0.0 and NaN have several, and leaves NaN out where it looks for the greatest.
So rows have these numbers in one form (Spark's NormalizeFloatingNumbers), and whoever orders them orders ordinals.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def is_floating(column: Any) -> bool:
    """Whether a column has such numbers."""
    return bool(pa.types.is_floating(column.type))


def normalised(table: pa.Table) -> pa.Table:
    """Return rows in which numbers that Spark groups together have the same bits."""
    for i, name in enumerate(table.column_names):
        column = table.column(i)
        if is_floating(column):
            zero, nan = (pa.scalar(number, column.type) for number in (0.0, float("nan")))
            column = pc.add(column, zero)  # -0.0 + 0.0 is 0.0
            table = table.set_column(i, name, pc.if_else(pc.is_nan(column), nan, column))
    return table


def ordinals(column: Any) -> pa.Array:
    """Return numbers, normalised, as whole ones in the same order; null stays null."""
    there = np.asarray(column.is_valid())
    bits = np.asarray(pc.fill_null(pc.cast(column, pa.float64()), 0.0)).view(np.int64)
    return pa.array(_turned(bits), mask=~there)


def of_ordinals(column: Any, to: pa.DataType) -> pa.Array:
    """Return the numbers that these are the ordinals of."""
    there = np.asarray(column.is_valid())
    numbers = _turned(np.asarray(pc.fill_null(column, 0))).view(np.float64)
    return pc.cast(pa.array(numbers, mask=~there), to)


def _turned(bits: Any) -> Any:
    """Turn the order of negative numbers, whose bits are the greater the less they are; or turn it back."""
    return np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
