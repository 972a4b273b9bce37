"""Residues: what rows come to that a loop had no round left for, as a number that is 0 once nothing is left of them.

A loop that was cut short has come to its end after all when everything that was ever left out in it adds up to nothing.
To know this no rows are kept, only of each its hash, as often as it is there, all added up modulo 2^64: that does not
depend on their order, nor on which epoch brought them. Of rows that do not cancel it is 0 once in 2^64 times.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from falkirk.differential.hashing import hash_of, is_hashed
from falkirk.differential.rows import DIFFERENCE

_OURS = "__falkirk"


def residue(rows: pa.Table) -> int:
    """Return the residue of rows, by all columns that are the user's."""
    names = sorted(name for name in rows.column_names if not name.startswith(_OURS))
    columns = [_hashable(rows.column(name).combine_chunks()) for name in names]
    # A hash says nothing of null: (null, 1) and (1, null) would be the same.
    nulls = [pc.cast(pc.is_null(column), pa.int32()) for column in columns]
    hashes = hash_of([*columns, *nulls], rows.num_rows).view(np.uint64)
    often = rows.column(DIFFERENCE).to_numpy().view(np.uint64)
    with np.errstate(over="ignore"):
        return int((hashes * often).sum(dtype=np.uint64))


def added_up(residues: Iterable[int]) -> int:
    """Return the residue of rows of which these are residues."""
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
