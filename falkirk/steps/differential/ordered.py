"""Orders: finds the least value of a key in its first rows, without reading the others.

A node may have received values from a hundred thousand neighbours. The rows of a run are sorted by hash. If only the
least value of a trace is needed, the rows of each key are also sorted by value, and the file records that order. Then
the first rows of a key can be read alone, and it is known up to which value they are complete.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from falkirk.steps.differential.grouping import RowPlaces, begins_of, stable_order, stable_order_of_pairs
from falkirk.steps.differential.rows import HASH, Hashes, concat_rows, spans

Ordinals = npt.NDArray[np.int64]
"""Values as numbers; the first one in the order has the least number."""

_METADATA = b"falkirk.order"
_ORDINAL = "__falkirk_ordinal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order of the rows of each key. Args: value: the column by which they are sorted, of whole numbers. falls:
    the greatest value comes first."""

    keys: tuple[str, ...]
    value: str
    falls: bool = False

    def suits(self, table: pa.Table) -> bool:
        """Whether all rows have a whole-number value, and keys whose equality is unambiguous."""
        if any(pa.types.is_floating(table.schema.field(key).type) for key in self.keys):
            return False  # grouping treats NaN as equal to itself, and a comparison (`_same`) does not
        return pa.types.is_signed_integer(table.schema.field(self.value).type) and not table[self.value].null_count

    def ordinals(self, table: pa.Table) -> Ordinals:
        """Return the values as numbers; the first value in the order has the least number."""
        values: Ordinals = table.column(self.value).to_numpy().astype(np.int64)
        return ~values if self.falls else values


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRows:
    """The first rows of some hashes.

    Args: rows: unsorted. keys: the hashes, sorted and distinct. all_of: for each hash, whether these are all of its
        rows. upto: for each other hash, the ordinal below which no row is missing.
    """

    rows: pa.Table
    keys: Hashes
    all_of: npt.NDArray[np.bool_]
    upto: Ordinals

    def places(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """Return the place in `keys` of the hash of each row. Rows with other hashes have no valid place."""
        found: npt.NDArray[np.int64] = np.searchsorted(self.keys, rows.column(HASH).to_numpy())
        return found

    def and_of(self, news: pa.Table) -> "FirstRows":
        """Return these rows together with the changes of the same hashes."""
        place = np.minimum(self.places(news), len(self.keys) - 1)
        ours = news.filter(pa.array(self.keys[place] == news.column(HASH).to_numpy()))
        return replace(self, rows=concat_rows([self.rows, ours], news.schema))

    def known(self, order: Order) -> tuple[pa.Table, npt.NDArray[np.int64]] | None:
        """Return the rows before the first missing row of each hash, and the place of the hash of each. None: unknown,
        because some rows have unsuitable values, or several keys share a hash."""
        if not order.suits(self.rows):
            return None
        place = self.places(self.rows)
        if self.all_of.all():
            return self.rows, place
        whole = self.all_of[place]
        some = np.flatnonzero(~whole)
        one_of = np.zeros(len(self.keys), dtype=np.int64)
        one_of[place[some]] = some
        if not _same(self.rows, order.keys, some, one_of[place[some]]).all():
            return None
        before = whole | (order.ordinals(self.rows) < self.upto[place])
        return self.rows.filter(pa.array(before)), place[before]


def recorded_order(run: pa.Table) -> Order | None:
    """Return the order that a run records, if any."""
    text = (run.schema.metadata or {}).get(_METADATA)
    if text is None:
        return None
    found = json.loads(text)
    return Order(keys=tuple(found["keys"]), value=found["value"], falls=found["falls"])


def sorted_by_hash(table: pa.Table, order: Order | None) -> pa.Table:
    """Return rows sorted by the hash of their key, and then by the order if they suit it."""
    hashes = table.column(HASH).to_numpy()
    if order is None or not order.suits(table):
        there = stable_order(hashes)
        return table.take(pa.array(there)).combine_chunks().replace_schema_metadata(None)
    plain = [pa.types.is_integer(table.schema.field(k).type) and not table[k].null_count for k in order.keys]
    if all(plain):
        numbers = [order.ordinals(table), *(table.column(k).to_numpy() for k in reversed(order.keys)), hashes]
        there = pa.array(_lexical_order(numbers))
    else:
        numbered = table.append_column(_ORDINAL, pa.array(order.ordinals(table)))
        there = pc.sort_indices(numbered, sort_keys=[(n, "ascending") for n in (HASH, *order.keys, _ORDINAL)])
    return table.take(there).combine_chunks().replace_schema_metadata({_METADATA: json.dumps(asdict(order))})


def _lexical_order(numbers: Sequence[npt.NDArray[Any]]) -> RowPlaces:
    """Return the places in the order of the last numbers, then of those before, as NumPy's `lexsort`. Numbers in the
    middle are rarely needed: they are keys, and the last numbers are their hashes."""
    order = stable_order_of_pairs(numbers[-1], numbers[0])
    if order is None:
        return np.lexsort(numbers)
    same = np.flatnonzero(~begins_of([numbers[-1][order]]))
    if all(np.array_equal(column[order[same]], column[order[same - 1]]) for column in numbers[1:-1]):
        return order
    return np.lexsort(numbers)


def first_of(runs: Sequence[pa.Table], keys: Hashes, order: Order, most: int, schema: pa.Schema) -> FirstRows:
    """Return at most `most` first rows of each hash from each run; from a run in another order, all rows.

    Args: keys: the hashes, sorted and distinct.
    """
    found, all_of = [], np.ones(len(keys), dtype=bool)
    upto = np.full(len(keys), np.iinfo(np.int64).max)
    for run in runs:
        if not run.num_rows:
            continue
        there = run.column(HASH).chunk(0).to_numpy()  # a view of the file: a copy would read the whole column
        first, counts = spans(there, keys)
        short = counts <= most if recorded_order(run) == order else np.ones(len(keys), dtype=bool)
        # Several keys can share a hash. Then the rows of one key would all precede those of another.
        short[~short] |= ~_same(run, order.keys, first[~short], (first + counts)[~short] - 1)
        counts[~short] = most
        found.append(ranges(run, first, counts))
        ends = first[~short] + most - 1
        upto[~short] = np.minimum(upto[~short], order.ordinals(run.select([order.value]).take(pa.array(ends))))
        all_of &= short
    return FirstRows(rows=concat_rows(found, schema), keys=keys, all_of=all_of, upto=upto)


def ranges(run: pa.Table, first: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> pa.Table:
    """Return `counts` rows of a run from each of the places `first`."""
    total = int(counts.sum())
    if total == run.num_rows:
        return run
    # The indexes of all ranges, one range after the other.
    starts = np.repeat(first - np.concatenate(([0], np.cumsum(counts)[:-1])), counts) if total else first[:0]
    return run.take(pa.array(starts + np.arange(total)))


def _same(run: pa.Table, names: Sequence[str], one: Any, other: Any) -> npt.NDArray[np.bool_]:
    """Return a mask: whether the keys at the places `one` and `other` are equal."""
    same = np.ones(len(one), dtype=bool)
    for name in names:
        column = run.column(name)
        if pa.types.is_integer(column.type) and not column.null_count:
            # A view of the file if the column has one chunk: a column of several chunks is copied.
            numbers = column.chunk(0).to_numpy() if column.num_chunks == 1 else column.to_numpy()
            same &= numbers[one] == numbers[other]
            continue
        a, b = column.take(pa.array(one)), column.take(pa.array(other))
        equal = pc.or_(pc.fill_null(pc.equal(a, b), False), pc.and_(pc.is_null(a), pc.is_null(b)))
        same &= equal.to_numpy(zero_copy_only=False) if isinstance(equal, pa.Array) else equal.to_numpy()
    return same
