"""Grouping: groups and sorts the rows of large tables by whole numbers, faster than Arrow does.

Arrow groups rows of several columns with a hash table that reads memory at random. In a large table it is faster to mix
the columns of a row into one number and to sort these numbers. NumPy sorts with the processor's vector instructions.
Rows with equal numbers are compared, since different rows can have the same number. `added` and
`float_sums` return None if they can't help, and the caller uses Arrow.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

WholeNumbers = npt.NDArray[np.int64]
RowPlaces = npt.NDArray[np.intp]

#: Arrow is faster for tables with fewer rows.
ROWS_MIN = 8_192
#: A sum whose summands' absolute values add up to less does not overflow.
_MOST = 1 << 62
_FACTOR = np.uint64(0x9E3779B185EBCA87)


def sorted_distinct(numbers: WholeNumbers) -> WholeNumbers:
    """Return each number once, in order."""
    ordered = np.sort(numbers)
    return ordered[begins_of([ordered])]


def stable_order(numbers: WholeNumbers) -> RowPlaces:
    """Return the places of the numbers in order; of equal numbers, the first place comes first."""
    if len(numbers) < ROWS_MIN:
        return np.argsort(numbers, kind="stable")
    order = np.argsort(numbers)
    place = np.cumsum(begins_of([numbers[order]])) - 1
    found: RowPlaces = np.sort(place * len(numbers) + order) - place * len(numbers)
    return found


def stable_order_of_pairs(first: WholeNumbers, second: WholeNumbers) -> RowPlaces | None:
    """Return the places in the order of the first numbers, then of the second ones, then of the places. None: there are
    few numbers, or their range is too large.

    The group of equal first numbers, the second number and the place are parts of one number, and these are sorted.
    """
    rows = len(first)
    if rows < ROWS_MIN:
        return None
    least = int(second.min())
    span = int(second.max()) - least + 1
    order = np.argsort(first)
    group = np.cumsum(begins_of([first[order]])) - 1
    bits = rows.bit_length()
    if (int(group[-1]) + 1) * span << bits > _MOST:
        return None
    packed: WholeNumbers = np.sort((group * span + (second[order] - least) << bits) + order)
    return packed & ((1 << bits) - 1)


def sorting_order(numbers: WholeNumbers) -> RowPlaces:
    """Return the places of the numbers in order, which they may already have."""
    if len(numbers) < 2 or (numbers[1:] >= numbers[:-1]).all():
        return np.arange(len(numbers))
    return np.argsort(numbers)


def added(table: pa.Table, names: Sequence[str], difference: str, dependent: str) -> pa.Table | None:
    """Return the distinct rows of some columns, with the sums of whole numbers, without sums of 0.

    The order of rows depends only on their values. Args: dependent: a column that need not be compared, if there are
    others: its values follow from those of the others.
    """
    if table.num_rows < ROWS_MIN:
        return None
    columns = _as_numbers(table, [name for name in names if name != dependent] or names)
    counts = table.column(difference).to_numpy()
    if columns is None or max(abs(int(counts.min())), abs(int(counts.max()))) * len(counts) >= _MOST:
        return None
    grouped = _grouped([column for column in columns if column.min() != column.max()] or columns[:1])
    if grouped is None:
        return None
    order, begins = grouped
    first = np.flatnonzero(begins)
    sums = np.add.reduceat(counts[order], first)
    kept = np.flatnonzero(sums)
    found = table.select(list(names)).take(pa.array(order[first[kept]]))
    return found.append_column(difference, pa.array(sums[kept])).select(table.column_names)


def float_sums(table: pa.Table, keys: Sequence[str], values: str, counts: str) -> tuple[RowPlaces, Any] | None:
    """Return the sums of floating-point numbers times their counts, by key, and the place of a row of each key.

    A sum depends on the order of its summands. They are added from the least to the greatest, which is the order in
    which Arrow adds the rows of a table that is sorted by all columns. Args: table: rows that differ in the keys or
    values. keys: the first one is the hash of the others.
    """
    value = table.column(values)
    if table.num_rows < ROWS_MIN or not pa.types.is_float64(value.type) or value.null_count:
        return None
    columns = _as_numbers(table, keys)
    numbers = value.to_numpy()
    if columns is None or np.isnan(numbers).any():
        return None
    by_value = np.argsort(numbers)
    order = by_value[stable_order(columns[0][by_value])]
    begins = begins_of([columns[0][order]])
    if not np.array_equal(begins, begins_of([column[order] for column in columns])):  # several keys share a hash
        return None
    with np.errstate(over="ignore"):
        summands = (numbers * table.column(counts).to_numpy())[order]
    return order[begins], np.bincount(np.cumsum(begins) - 1, weights=summands)


def _as_numbers(table: pa.Table, names: Sequence[str]) -> list[WholeNumbers] | None:
    """Return columns as whole numbers that are equal where the values have the same bits. None: a column has nulls, or
    values of another kind."""
    found = []
    for column in map(table.column, names):
        if column.null_count or not (pa.types.is_float64(column.type) or pa.types.is_signed_integer(column.type)):
            return None
        numbers = column.to_numpy()
        is_float = numbers.dtype.kind == "f"
        found.append(numbers.view(np.int64) if is_float else numbers.astype(np.int64, copy=False))
    return found


def _grouped(columns: Sequence[WholeNumbers]) -> tuple[RowPlaces, npt.NDArray[np.bool_]] | None:
    """Return the places of rows such that equal rows are adjacent, and a mask of the first of each group. None:
    different rows have the same number."""
    mixed = np.zeros(len(columns[0]), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            mixed = (mixed ^ column.view(np.uint64)) * _FACTOR
            mixed ^= mixed >> np.uint64(32)
    numbers = mixed.view(np.int64)
    order = np.argsort(numbers)
    begins = begins_of([numbers[order]])
    if np.array_equal(begins, begins_of([column[order] for column in columns])):
        return order, begins
    return None


def begins_of(columns: Sequence[Any]) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that differ from the row before."""
    found = np.zeros(len(columns[0]), dtype=bool)
    found[:1] = True
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found
