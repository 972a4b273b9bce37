"""Orders: the least of what a key has heard is found in its first rows, where they are in the order of what they say.

A node that a hundred thousand neighbours have told something need not listen to all of them again. The rows of a run
are in the order of their hashes; those of a trace of which only the least is asked are, of each key, in the order of
that value as well, and the file says so. Of such a run the first rows of a key can be read alone, and it is known
before which value none of them is missing.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from falkirk.differential.rows import HASH, Hashes, spans, together

Ordinals = npt.NDArray[np.int64]
"""Values as numbers, the first one the least."""

_METADATA = b"falkirk.order"
_ORDINAL = "__falkirk_ordinal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Of the rows of each key. Args: value: the column that they are in the order of, of whole numbers. falls: the
    greatest comes first."""

    keys: tuple[str, ...]
    value: str
    falls: bool = False

    def suits(self, table: pa.Table) -> bool:
        """Whether all rows have such a value, and keys of which it is said the same whether they are equal."""
        if any(pa.types.is_floating(table.schema.field(key).type) for key in self.keys):
            return False  # NaN: equal to those who group, and not to those who compare (`_same`)
        return pa.types.is_signed_integer(table.schema.field(self.value).type) and not table[self.value].null_count

    def ordinals(self, table: pa.Table) -> Ordinals:
        """Return the values as numbers of which the least comes first."""
        values: Ordinals = table.column(self.value).to_numpy().astype(np.int64)
        return ~values if self.falls else values


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """The first rows of some hashes.

    Args: rows: in no order. keys: the hashes, in order, each once. all_of: of each, whether these are all of its rows.
        upto: of each other one, the ordinal before which none is missing.
    """

    rows: pa.Table
    keys: Hashes
    all_of: npt.NDArray[np.bool_]
    upto: Ordinals

    def places(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """Return which hash each of these rows has; other rows than of these hashes have none."""
        found: npt.NDArray[np.int64] = np.searchsorted(self.keys, rows.column(HASH).to_numpy())
        return found

    def and_of(self, news: pa.Table) -> "First":
        """Return these with what is new of the same hashes."""
        place = np.minimum(self.places(news), len(self.keys) - 1)
        ours = news.filter(pa.array(self.keys[place] == news.column(HASH).to_numpy()))
        return replace(self, rows=together([self.rows, ours], news.schema))

    def known(self, order: Order) -> tuple[pa.Table, npt.NDArray[np.int64]] | None:
        """Return the rows before those of which some are missing, and which hash each has; None: it can't be said,
        since not all have such values, or since several keys share a hash."""
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


def order_of(run: pa.Table) -> Order | None:
    """Return the order that a run says it is in."""
    said = (run.schema.metadata or {}).get(_METADATA)
    if said is None:
        return None
    found = json.loads(said)
    return Order(keys=tuple(found["keys"]), value=found["value"], falls=found["falls"])


def in_order(table: pa.Table, order: Order | None) -> pa.Table:
    """Return rows in the order of the hashes of their keys, and in an order of their values, if they have it."""
    hashes = table.column(HASH).to_numpy()
    if order is None or not order.suits(table):
        there = np.argsort(hashes, kind="stable")
        return table.take(pa.array(there)).combine_chunks().replace_schema_metadata(None)
    plain = [pa.types.is_integer(table.schema.field(k).type) and not table[k].null_count for k in order.keys]
    if all(plain):
        keys = [table.column(k).to_numpy() for k in reversed(order.keys)]
        there = pa.array(np.lexsort((order.ordinals(table), *keys, hashes)))
    else:
        numbered = table.append_column(_ORDINAL, pa.array(order.ordinals(table)))
        there = pc.sort_indices(numbered, sort_keys=[(n, "ascending") for n in (HASH, *order.keys, _ORDINAL)])
    return table.take(there).combine_chunks().replace_schema_metadata({_METADATA: json.dumps(asdict(order))})


def first_of(runs: Sequence[pa.Table], keys: Hashes, order: Order, most: int, schema: pa.Schema) -> First:
    """Return at most so many of the first rows of each hash and run; of a run in another order, all of them.

    Args: keys: the hashes, in order, each once.
    """
    found, all_of = [], np.ones(len(keys), dtype=bool)
    upto = np.full(len(keys), np.iinfo(np.int64).max)
    for run in runs:
        if not run.num_rows:
            continue
        there = run.column(HASH).chunk(0).to_numpy()  # as it is in the file: copying it would read all of it
        first, counts = spans(there, keys)
        short = counts <= most if order_of(run) == order else np.ones(len(keys), dtype=bool)
        # Of several keys with one hash, one would come before the other.
        short[~short] |= ~_same(run, order.keys, first[~short], (first + counts)[~short] - 1)
        counts[~short] = most
        found.append(ranges(run, first, counts))
        ends = first[~short] + most - 1
        upto[~short] = np.minimum(upto[~short], order.ordinals(run.select([order.value]).take(pa.array(ends))))
        all_of &= short
    return First(rows=together(found, schema), keys=keys, all_of=all_of, upto=upto)


def ranges(run: pa.Table, first: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> pa.Table:
    """Return so many rows of a run from each of these places on."""
    total = int(counts.sum())
    if total == run.num_rows:
        return run
    # Each range one after the other: a step of 1, and a leap where a range begins.
    starts = np.repeat(first - np.concatenate(([0], np.cumsum(counts)[:-1])), counts) if total else first[:0]
    return run.take(pa.array(starts + np.arange(total)))


def _same(run: pa.Table, names: Sequence[str], one: Any, other: Any) -> npt.NDArray[np.bool_]:
    """Return where the keys at two lists of places are the same."""
    same = np.ones(len(one), dtype=bool)
    for name in names:
        column = run.column(name)
        if pa.types.is_integer(column.type) and not column.null_count:
            # As it is in a file, if it is in one: a column of chunks would be copied.
            numbers = column.chunk(0).to_numpy() if column.num_chunks == 1 else column.to_numpy()
            same &= numbers[one] == numbers[other]
            continue
        a, b = column.take(pa.array(one)), column.take(pa.array(other))
        equal = pc.or_(pc.fill_null(pc.equal(a, b), False), pc.and_(pc.is_null(a), pc.is_null(b)))
        same &= equal.to_numpy(zero_copy_only=False) if isinstance(equal, pa.Array) else equal.to_numpy()
    return same
