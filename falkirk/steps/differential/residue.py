"""Residues: records the rows for which a loop had no round left as one number, which is 0 once they have cancelled.

A loop that was cut short has converged after all when the sum of all rows that it left out is zero. To know this,
Falkirk keeps no rows. It adds the hash of each row, times its count, modulo 2^64. The sum depends neither on the order
of the rows nor on their epochs. If the rows do not cancel, the sum is 0 by chance once in 2^64 times.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from falkirk.steps.dataframes.names import PREFIX
from falkirk.steps.differential.hashing import hash_of, is_hashed
from falkirk.steps.differential.rows import DIFFERENCE


def residue(rows: pa.Table) -> int:
    """Return the residue of rows, computed from the user's columns."""
    names = sorted(name for name in rows.column_names if not name.startswith(PREFIX))
    columns = [_hashable(rows.column(name).combine_chunks()) for name in names]
    # The hash ignores nulls: without these columns (null, 1) and (1, null) would have the same hash.
    nulls = [pc.cast(pc.is_null(column), pa.int32()) for column in columns]
    hashes = hash_of([*columns, *nulls], rows.num_rows).view(np.uint64)
    often = rows.column(DIFFERENCE).to_numpy().view(np.uint64)
    with np.errstate(over="ignore"):
        return int((hashes * often).sum(dtype=np.uint64))


def added_up(residues: Iterable[int]) -> int:
    """Return the residue of several sets of rows together."""
    return sum(residues) % (1 << 64)


def _hashable(column: pa.Array) -> pa.Array:
    if is_hashed(column.type):
        return column
    if pa.types.is_floating(column.type):
        return pc.cast(column, pa.float64())
    if pa.types.is_duration(column.type):
        return pc.cast(column, pa.int64())
    if pa.types.is_binary(column.type):
        return pa.array([None if value is None else value.hex() for value in column.to_pylist()], pa.string())
    return pc.cast(column, pa.string())  # decimals
