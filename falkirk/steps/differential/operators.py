"""Operators with memory: computes what a join or a reduction does at one time, on the keys of one partition.

    join     is bilinear: it pairs the changes of each side with all rows of the other side
    reduce   computes each changed key again; its output is the new result less the former one

Both work on rows with times. A reduction's result can also change at a later time at which no row arrives: if a former
epoch has a change there, and this epoch changes the key now. The result may then change at the earliest time after
both, so the reduction asks to be called for the key at that time. The key is then *due*.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from falkirk.steps.differential import exact_sums
from falkirk.steps.differential.floats import is_floating, of_ordinals, ordinals
from falkirk.steps.differential.grouping import float_sums
from falkirk.steps.differential.ordered import FirstRows, Order
from falkirk.steps.differential.rows import (
    DIFFERENCE,
    HASH,
    Hashes,
    LoopTime,
    at,
    concat_rows,
    consolidate,
    distinct,
    hashes,
    is_by,
    join_rows,
    lub,
    rounds,
    split_by_time,
    summands,
    whole,
)  # fmt: skip

AggregateKind = Literal["count", "sum", "min", "max"]
_OLD, _THERE = "__falkirk_old", "__falkirk_there_"
#: The least value of a key is searched first in this many of its rows, and then in a multiple of as many.
_FIRST, _MORE = 16, 16


class Trace(Protocol):
    """The former input or output of an operator: rows, which can be read by key."""

    def rows(self, keys: Hashes) -> pa.Table:
        """Return the rows with these hashes (sorted, distinct); other keys may have the same hash."""

    def first(self, keys: Hashes, order: Order, most: int) -> FirstRows:
        """Return about `most` rows of each of these hashes (sorted, distinct): the first ones in an order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The output of an operator at one time.

    Args: out: the changes of its results. inputs: the changes of each of its inputs. due: by time, the keys for which
        it asks to be called then.
    """

    out: pa.Table
    inputs: tuple[pa.Table, ...]
    due: dict[LoopTime, pa.Table] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Pairs of rows with equal keys. Args: left, right: the columns besides the keys."""

    keys: tuple[str, ...]
    left: tuple[str, ...]
    right: tuple[str, ...]

    def work(self, news: Sequence[pa.Table], traces: Sequence[Trace], depth: int) -> Work:
        """Join the changes of all times. Args: traces: of both inputs."""
        left, right = map(consolidate, news)
        # Changes of one side are paired with all rows of the other. Pairs of two changes are in the first part only.
        before = traces[0].rows(hashes(right)) if right.num_rows else left.slice(0, 0)
        beside = traces[1].rows(hashes(left)) if left.num_rows else right.slice(0, 0)
        all_right = concat_rows([beside, right], right.schema)
        ours = [HASH, *self.keys, *self.left, *self.right, *rounds(depth), DIFFERENCE]
        pairs = [join_rows(left, all_right, self.keys, depth), join_rows(before, right, self.keys, depth)]
        out = pa.concat_tables([p.select(ours) for p in pairs])
        return Work(out=out, inputs=(left, right))


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """One number per key. Args: column: its input; empty for a count. name: the result column."""

    kind: AggregateKind
    column: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One row for each key that has rows. Without aggregates the row holds only the key."""

    aggregates: tuple[Aggregate, ...] = ()
    #: A number that moves by no more than this keeps its old value.
    tolerance: float = 0.0

    def outcome(self, rows: pa.Table, keys: Sequence[str]) -> pa.Table:
        """Return the results of rows, whose differences are counts."""
        only = self.settling_sum
        if only is None or not rows.num_rows or not pa.types.is_float64(rows.column(only.column).type):
            return self._outcome(rows, keys)
        order, first = _by_key(rows, keys)
        values, counts = (rows.column(name) for name in (only.column, DIFFERENCE))
        numbers = pc.fill_null(values, math.nan).to_numpy()
        sums, suits = exact_sums.sums_by_key(numbers, counts.to_numpy(), order, first, self.tolerance)
        found = rows.select([HASH, *keys]).take(pa.array(order[first[suits]]))
        found = found.append_column(only.name, pa.array(sums[suits]))
        if suits.all():
            return found
        others = order[~np.repeat(suits, np.diff(first, append=len(order)))]
        return pa.concat_tables([found, self._outcome(rows.take(pa.array(others)), keys)])

    @property
    def settling_sum(self) -> Aggregate | None:
        """The only aggregate, if it is a sum with a tolerance."""
        return self.aggregates[0] if self.tolerance and len(self.aggregates) == 1 == len(self._sums()) else None

    def _outcome(self, rows: pa.Table, keys: Sequence[str]) -> pa.Table:
        if len(self.aggregates) == 1 and self._sums():
            (only,) = self.aggregates
            summed = float_sums(rows, [HASH, *keys], only.column, DIFFERENCE)
            if summed is not None:
                found = rows.select([HASH, *keys]).take(pa.array(summed[0]))
                return found.append_column(only.name, pa.array(summed[1]))
        if self.tolerance or any(is_floating(rows.column(a.column)) for a in self._sums()):
            # A floating-point sum depends on the order of rows, and a repeated epoch must give the same sum.
            rows = rows.sort_by([(name, "ascending") for name in rows.column_names])
        counts = rows.column(DIFFERENCE)
        for a in self._sums():
            values = rows.column(a.column)
            if is_floating(values):
                product = pc.multiply(pc.cast(values, pa.float64()), pc.cast(counts, pa.float64()))
            else:
                product = summands(values, counts)
            rows = rows.append_column(_made(a), product)
        floating = [a for a in self.aggregates if a.kind in ("min", "max") and is_floating(rows.column(a.column))]
        for a in floating:  # Arrow ignores NaN
            rows = rows.append_column(_made(a), ordinals(rows.column(a.column)))
        wanted = [(self._source(a, rows), "sum" if a.kind == "count" else a.kind) for a in self.aggregates]
        found = rows.group_by([HASH, *keys], use_threads=False).aggregate(wanted)
        found = found.rename_columns([HASH, *keys, *(a.name for a in self.aggregates)])
        for a in self._sums():
            if pa.types.is_decimal(found.column(a.name).type):
                i = found.schema.get_field_index(a.name)
                found = found.set_column(i, a.name, whole(found.column(a.name)))
        for a in floating:
            numbers = of_ordinals(found.column(a.name), rows.column(a.column).type)
            found = found.set_column(found.schema.get_field_index(a.name), a.name, numbers)
        return found

    def _sums(self) -> list[Aggregate]:
        return [a for a in self.aggregates if a.kind == "sum"]

    @staticmethod
    def _source(a: Aggregate, rows: pa.Table) -> str:
        if a.kind == "count":
            return DIFFERENCE
        return _made(a) if _made(a) in rows.column_names else a.column


@dataclass(frozen=True, slots=True, kw_only=True)
class Top:
    """The first rows of each key. Args: by: columns, and whether the greatest comes first. rows: their number."""

    by: tuple[tuple[str, bool], ...]
    rows: int

    def outcome(self, rows: pa.Table, keys: Sequence[str]) -> pa.Table:
        """See Group. The other columns order rows that are equal in `by`. Nulls are less than all other values, as in
        Spark."""
        others = [n for n in rows.column_names if n not in (HASH, DIFFERENCE, *keys) and n not in dict(self.by)]
        order = [*((k, False) for k in (HASH, *keys)), *self.by, *((n, False) for n in others)]
        sortable = rows
        for name in dict(self.by):
            if is_floating(rows.column(name)):  # Arrow sorts NaN last in both directions
                sortable = sortable.set_column(rows.schema.get_field_index(name), name, ordinals(rows.column(name)))
        sorting: list[tuple[str, str]] = []
        for name, falls in order:
            if not falls and rows.column(name).null_count:  # as in Spark's ascending order, nulls come first
                sortable = sortable.append_column(f"{_THERE}{name}", pc.is_valid(rows.column(name)))
                sorting.append((f"{_THERE}{name}", "ascending"))
            sorting.append((name, "descending" if falls else "ascending"))
        rows = rows.take(pc.sort_indices(sortable, sort_keys=sorting))
        if not rows.num_rows:
            return rows
        first = _begins(rows, keys)
        counts = rows.column(DIFFERENCE).to_numpy()
        upto = np.cumsum(counts)
        group = np.cumsum(first) - 1
        before = upto - counts - (upto - counts)[first][group]
        kept = np.clip(self.rows - before, 0, counts)
        i = rows.schema.get_field_index(DIFFERENCE)
        rows = rows.set_column(i, DIFFERENCE, pa.array(kept))
        return rows.filter(pa.array(kept > 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduce:
    """The result of the rows of each key.

    A row whose count is below 1 does not count as present: it may have been removed before it was added.

    Args: values: the input columns besides the keys. results: the output columns besides the keys.
    """

    keys: tuple[str, ...]
    values: tuple[str, ...]
    results: tuple[str, ...]
    how: Group | Top

    @property
    def order(self) -> Order | None:
        """The order of the input in which a key's first present row determines its result. None: the result needs all
        rows."""
        if not isinstance(self.how, Group) or len(self.how.aggregates) != 1 or self.how.tolerance:
            return None
        (only,) = self.how.aggregates
        if only.kind not in ("min", "max"):
            return None
        return Order(keys=self.keys, value=only.column, falls=only.kind == "max")

    def work(
        self, news: pa.Table, due: pa.Table, inputs: Trace, results: Trace, now: LoopTime, schema: pa.Schema
    ) -> Work:  # fmt: skip
        """Process the current changes, and the due keys.

        Args: schema: of the results. inputs, results: their traces.
        """
        news = consolidate(news)
        names = [HASH, *self.keys]
        touched = hashes(pa.concat_tables([news.select([HASH]), due.select([HASH])]))
        rows, there = self._input_rows(news, touched, inputs, now)
        after = self._after(there)
        former = results.rows(touched)
        before = consolidate(former.filter(is_by(former, now)).select(after.column_names))
        after = after.cast(before.schema)
        if isinstance(self.how, Group) and self.how.tolerance:
            after = self._settled(before, after, self.how.tolerance)
        minus = pc.negate(before.column(DIFFERENCE))
        gone = before.set_column(before.schema.get_field_index(DIFFERENCE), DIFFERENCE, minus)
        out = at(consolidate(pa.concat_tables([after, gone])), now).select(schema.names).cast(schema)
        timed = [*names, *rounds(len(now))]
        later = [rows.filter(pc.invert(is_by(rows, now))).select(timed)]
        if isinstance(self.how, Group) and (self.how.tolerance or self.order is not None):
            # The result of a settled key can differ from the former one at a time at which only the result changed. In
            # an ordered trace, only rows before the new result were read. So the times of former results count too.
            later.append(former.filter(pc.invert(is_by(former, now))).select(timed))
        return Work(out=out, inputs=(news,), due=_due_keys(pa.concat_tables(later), names, now))

    def _input_rows(self, news: pa.Table, touched: Hashes, inputs: Trace, now: LoopTime) -> tuple[pa.Table, pa.Table]:
        """Return the input rows of the keys, and those of them that are present now. With an order, it returns only the
        first rows of each key, up to a present row. Later rows, of any time, can't change the result while that row is
        present. The returned rows tell at which times it may not be."""
        order = self.order
        if order is None or not order.suits(news):
            rows = concat_rows([inputs.rows(touched), news], news.schema)
            return rows, self._there(rows, now)
        found, found_there, keys, most = [], [], touched, _FIRST
        while len(keys):
            first = inputs.first(keys, order, most).and_of(news)
            known = first.known(order)
            if known is None:
                rows = concat_rows([inputs.rows(touched), news], news.schema)
                return rows, self._there(rows, now)
            rows, place = known
            there = self._there(rows, now)
            done = first.all_of.copy()
            if not done.all():
                done[first.places(there)] = True
                rows = rows.filter(pa.array(done[place]))
            found.append(rows)
            found_there.append(there)  # the other keys have no present row yet
            keys, most = keys[~done], most * _MORE
        return concat_rows(found, news.schema), concat_rows(found_there, self._there(news, now).schema)

    def _there(self, rows: pa.Table, now: LoopTime) -> pa.Table:
        """Return the rows that are present at a time, with their counts."""
        found = consolidate(rows.filter(is_by(rows, now)).select([HASH, *self.keys, *self.values, DIFFERENCE]))
        return found.filter(pc.greater(found.column(DIFFERENCE), 0))

    def _after(self, there: pa.Table) -> pa.Table:
        after = self.how.outcome(there, self.keys)
        if isinstance(self.how, Group):
            after = _once(after)
        return after.select([HASH, *self.keys, *self.results, DIFFERENCE])

    def _settled(self, before: pa.Table, after: pa.Table, tolerance: float) -> pa.Table:
        """Return the new results, but the old results of keys that have hardly moved.

        If results of other times were emitted before, a time may have several old rows of a key, or negative counts,
        until it is processed itself. Any row within the tolerance is correct, and the choice is always the same.
        """
        keys = [HASH, *self.keys]
        before = before.filter(pc.greater(before.column(DIFFERENCE), 0))
        both = pa.concat_tables([after, before]).append_column(
            _OLD, pa.array(np.repeat([False, True], [after.num_rows, before.num_rows]))
        )
        both = both.sort_by([(name, "ascending") for name in (*keys, _OLD, *self.results)])
        if not both.num_rows:
            return after
        first = np.flatnonzero(_begins(both, self.keys))
        group = np.cumsum(_begins(both, self.keys)) - 1
        old = both.column(_OLD).to_numpy()
        near = old.copy()
        for name in self.results:
            one = both.column(name)
            other = one.take(pa.array(first[group]))
            if pa.types.is_floating(one.type):
                same = pc.less_equal(pc.abs(pc.subtract(one, other)), tolerance)
            else:
                same = pc.equal(one, other)
            near &= pc.fill_null(same, False).to_numpy()
        kept = first.copy()
        nearest = np.flatnonzero(near)[::-1]
        kept[group[nearest]] = nearest  # the first of several near rows is assigned last, so it wins
        settled = both.take(pa.array(kept[~old[first]])).drop_columns([DIFFERENCE])
        return _once(settled).select(after.column_names)


def _made(a: Aggregate) -> str:
    """Return the name of the helper column of an aggregate."""
    return f"__falkirk_{a.kind}_{a.name}"


def _once(rows: pa.Table) -> pa.Table:
    """Return the rows with a count of 1."""
    return rows.append_column(DIFFERENCE, pa.array(np.ones(rows.num_rows, dtype=np.int64)))


def _by_key(rows: pa.Table, keys: Sequence[str]) -> tuple[Any, Any]:
    """Return the places of rows such that the rows of each key are adjacent, and where each key begins there."""
    hashed = rows.column(HASH).to_numpy()
    order = np.argsort(hashed)
    ordered = rows.select([HASH, *keys]).take(pa.array(order))
    begins = _begins(ordered, [HASH])
    if _begins(ordered, keys)[~begins].any():  # several keys share a hash
        order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in (HASH, *keys)]).to_numpy()
        begins = _begins(rows.select([HASH, *keys]).take(pa.array(order)), [HASH, *keys])
    return order, np.flatnonzero(begins)


def _begins(rows: pa.Table, keys: Sequence[str]) -> Any:
    """Return a mask of the first row of each key. Args: rows: sorted by key."""
    first = np.zeros(rows.num_rows, dtype=bool)
    first[:1] = True
    for name in keys:
        column = rows.column(name).combine_chunks()
        after, before = column[1:], column[:-1]
        same = pc.or_(pc.fill_null(pc.equal(after, before), False), pc.and_(pc.is_null(after), pc.is_null(before)))
        if pa.types.is_floating(column.type):
            same = pc.or_(same, pc.fill_null(pc.and_(pc.is_nan(after), pc.is_nan(before)), False))
        first[1:] |= ~same.to_numpy(zero_copy_only=False)
    return first


def _due_keys(later: pa.Table, names: Sequence[str], now: LoopTime) -> dict[LoopTime, pa.Table]:
    """Return the keys to wake, by time: the earliest time after both now and a time of the key."""
    wakes: dict[LoopTime, list[pa.Table]] = {}
    later = distinct(later, [*names, *rounds(len(now))])
    for time, rows in split_by_time(later, len(now)).items():
        wakes.setdefault(lub(time, now), []).append(rows.select(names))
    return {
        time: distinct(pa.concat_tables(tables), names) if len(tables) > 1 else tables[0]
        for time, tables in wakes.items()
    }
