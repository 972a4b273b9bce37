"""Rows of changes: Arrow tables of a collection's rows, each with the hash of its key, its time and its difference.

The time of a row in n loops is n numbers, one round per loop, outermost first. The epoch is not part of it: an epoch is
complete before the next one begins, so all changes of earlier epochs precede those of the current one. Times have a
partial order (product order), so neither of two times need be the later one; `lub` is the earliest time after both.
Source: Falkirk Wheel, §2.2; the collections are those of Differential Dataflow.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from falkirk.steps.differential import grouping
from falkirk.steps.differential.floats import is_floating, normalised

LoopTime = tuple[int, ...]
"""The rounds of the loops around a row, outermost first."""

Hashes = npt.NDArray[np.int64]
"""Hashes of keys."""

#: The hash of a row's key, which decides its partition, and the difference: by how much the row's count changes.
HASH, DIFFERENCE = "__falkirk_hash", "__falkirk_difference"
_ROUND = "__falkirk_round"
#: The text of the error that a sum or product exceeds the numbers of its column.
TOO_MANY = "more than 2^62 of one thing"
_MOST = 1 << 62


def rounds(depth: int) -> list[str]:
    """Return the names of the columns that hold a time. Args: depth: the number of loops."""
    return [f"{_ROUND}{i}" for i in range(depth)]


def lub(one: LoopTime, other: LoopTime) -> LoopTime:
    """Return the earliest time that is not before either."""
    return tuple(map(max, one, other))


def is_by(table: pa.Table, now: LoopTime) -> Any:
    """Return the mask of the rows whose time is now or earlier."""
    mask = np.ones(table.num_rows, dtype=bool)
    for name, bound in zip(rounds(len(now)), now, strict=True):
        mask &= table.column(name).to_numpy() <= bound
    return pa.array(mask)


def split_by_time(table: pa.Table, depth: int) -> dict[LoopTime, pa.Table]:
    """Return the rows by time."""
    if not depth:
        return {(): table} if table.num_rows else {}
    names = rounds(depth)
    columns = [table.column(name).to_numpy() for name in names]
    if table.num_rows and all((column == column[0]).all() for column in columns):
        return {tuple(int(column[0]) for column in columns): table}
    times = {
        tuple(row.values()) for row in table.select(names).group_by(names, use_threads=False).aggregate([]).to_pylist()
    }
    found = {}
    for time in times:
        mask = np.ones(table.num_rows, dtype=bool)
        for column, value in zip(columns, time, strict=True):
            mask &= column == value
        found[time] = table.filter(pa.array(mask))
    return found


def at(table: pa.Table, time: LoopTime) -> pa.Table:
    """Return the rows with their time replaced."""
    for name, value in zip(rounds(len(time)), time, strict=True):
        column = pa.array(np.full(table.num_rows, value, dtype=np.int32))
        i = table.schema.get_field_index(name)
        table = table.append_column(name, column) if i < 0 else table.set_column(i, name, column)
    return table


def consolidate(table: pa.Table) -> pa.Table:
    """Return the rows with the differences of equal rows added, without rows whose sum is 0.

    The order of rows is undefined. Rows are equal if Spark groups them together. An operator's whole input and output
    pass through this function, so its keys may be compared by bits.
    """
    if not table.num_rows:
        return table
    table = normalised(table)
    names = [name for name in table.column_names if name != DIFFERENCE]
    added = grouping.added(table, names, DIFFERENCE, dependent=HASH)
    if added is not None:
        return added
    check_sums(table, names, DIFFERENCE)
    summed = table.group_by(names, use_threads=False).aggregate([(DIFFERENCE, "sum")])
    summed = summed.rename_columns([*names, DIFFERENCE]).select(table.column_names)
    return summed.filter(pc.not_equal(summed.column(DIFFERENCE), 0))


def check_sums(table: pa.Table, keys: Sequence[str], name: str) -> None:
    """Check that sums of whole numbers by key do not overflow: Arrow's sums wrap around.

    Raises: OverflowError: `TOO_MANY`.
    """
    values = table.column(name).to_numpy()
    if not len(values) or max(abs(int(values.min())), abs(int(values.max()))) * len(values) < _MOST:
        return
    rows = table.select(list(keys)).append_column(name, pa.array(np.abs(values.astype(np.float64))))
    sums = rows.group_by(list(keys), use_threads=False).aggregate([(name, "sum")])
    if pc.max(sums.column(f"{name}_sum")).as_py() >= _MOST:
        raise OverflowError(TOO_MANY)


def concat_rows(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return the rows of all tables."""
    found = [table.select(schema.names) for table in tables if table.num_rows]
    return pa.concat_tables(found).cast(schema) if found else schema.empty_table()


def distinct(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return these columns, each combination once."""
    return table.group_by(list(names), use_threads=False).aggregate([])


def join_rows(left: pa.Table, right: pa.Table, keys: Sequence[str], depth: int) -> pa.Table:
    """Return each pair of rows with equal keys, at the earliest time after both; their differences are multiplied."""
    places = _paired(left, right, keys)
    if places is not None:
        return _pairs(left, right, *places, depth)
    ours = [*rounds(depth), DIFFERENCE]
    right = right.rename_columns([f"{n}_right" if n in ours else n for n in right.column_names])
    pairs = left.join(right, keys=[HASH, *keys], join_type="inner", use_threads=False)
    for name in rounds(depth):
        latest = pc.max_element_wise(pairs.column(name), pairs.column(f"{name}_right"))
        pairs = pairs.set_column(pairs.schema.get_field_index(name), name, latest)
    product = product_of(pairs.column(DIFFERENCE), pairs.column(f"{DIFFERENCE}_right"))
    pairs = pairs.set_column(pairs.schema.get_field_index(DIFFERENCE), DIFFERENCE, product)
    return pairs.drop_columns([f"{n}_right" for n in ours])


def _paired(left: pa.Table, right: pa.Table, keys: Sequence[str]) -> tuple[Any, Any] | None:
    """Return the places of the rows of each pair. None: Arrow has to find them, since keys may have nulls or
    floating-point numbers, or share a hash."""
    if not left.num_rows or not right.num_rows:
        return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp)
    if any(is_floating(table.column(key)) or table.column(key).null_count for table in (left, right) for key in keys):
        return None
    ours, theirs = (table.column(HASH).to_numpy() for table in (left, right))
    sorted_left, sorted_right = (grouping.sorting_order(numbers) for numbers in (ours, theirs))
    first, counts = spans(theirs[sorted_right], ours[sorted_left])
    one = np.repeat(sorted_left, counts)
    before = np.concatenate(([0], np.cumsum(counts)[:-1]))
    other = sorted_right[np.repeat(first - before, counts) + np.arange(len(one))]
    return (one, other) if equal_rows(left.select(list(keys)), one, right, other) else None


def equal_rows(table: pa.Table, places: Any, other: pa.Table, there: Any) -> bool:
    """Whether the rows at some places of a table have the same values as the rows at other places of another table,
    which has the same columns."""
    for name in table.column_names:
        column, theirs = table.column(name), other.column(name)
        if pa.types.is_integer(column.type) and not column.null_count and not theirs.null_count:
            if not np.array_equal(column.to_numpy()[places], theirs.to_numpy()[there]):
                return False
        elif column.take(pa.array(places)).combine_chunks() != theirs.take(pa.array(there)).combine_chunks():
            return False
    return True


def _pairs(left: pa.Table, right: pa.Table, one: Any, other: Any, depth: int) -> pa.Table:
    """Return the pairs of rows at some places of both tables."""
    ours = [*rounds(depth), DIFFERENCE]
    taken = left.drop_columns(ours).take(pa.array(one))
    beside = right.select([n for n in right.column_names if n not in left.column_names]).take(pa.array(other))
    for name in beside.column_names:
        taken = taken.append_column(name, beside.column(name))
    for name in ours:
        both = (pa.array(table.column(name).to_numpy()[some]) for table, some in ((left, one), (right, other)))
        taken = taken.append_column(name, product_of(*both) if name == DIFFERENCE else pc.max_element_wise(*both))
    return taken


def product_of(one: Any, other: Any) -> Any:
    """Return the products of numbers. Raises: OverflowError: `TOO_MANY`."""
    try:
        return pc.multiply_checked(one, other)
    except pa.ArrowInvalid as error:
        raise OverflowError(TOO_MANY) from error


def spans(there: Hashes, keys: Hashes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return for each key the place of its first row, and the number of its rows. Args: there: sorted, not empty."""
    first = np.searchsorted(there, keys, "left")
    counts = np.zeros(len(keys), dtype=np.int64)
    found = np.flatnonzero(there[np.minimum(first, len(there) - 1)] == keys)
    counts[found] = np.searchsorted(there, keys[found], "right") - first[found]
    return first, counts


def summands(values: Any, counts: Any) -> Any:
    """Return the products of values and counts in a type in which their sums are exact: 64 bits, or decimals if 64 bits
    may overflow."""
    most = _greatest(values) * _greatest(counts) * len(values)
    wide = pa.int64() if most < _MOST else pa.decimal256(19, 0)
    return pc.multiply(pc.cast(values, wide), pc.cast(counts, wide))


def whole(sums: Any) -> Any:
    """Return decimals as 64-bit numbers. Raises: OverflowError: `TOO_MANY`."""
    try:
        return pc.cast(sums, pa.int64())
    except pa.ArrowInvalid as error:
        raise OverflowError(TOO_MANY) from error


def _greatest(numbers: Any) -> int:
    """Return the greatest absolute value of whole numbers."""
    return max((abs(bound or 0) for bound in pc.min_max(numbers).as_py().values()), default=0)


def hashes(table: pa.Table) -> Hashes:
    """Return the distinct hashes, sorted."""
    return grouping.sorted_distinct(table.column(HASH).to_numpy())
