"""Running sums: keeps the sums of the keys that one task has read, so that a round of a loop reads only its changes.

In a `fixpoint`, each round changes a few summands of many keys. A reduction would read all summands of these keys
again. The sums of `exact_sums.py` do not depend on the order of additions. So a task keeps the sum of each key that it
has read, and adds each change. All rows of a `fixpoint` have the same time, so each key has one sum.

A reduction ignores a row whose count is below 1, which a sum can't know. So the rows of a key that is read must have
positive counts. At the end, the task checks the counts of all rows that it has changed. If one is below 1, or if
anything else is unusual (nulls, infinity, two keys with one hash), the task reads all summands again, as jobs do.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from falkirk.steps.differential.exact_sums import COUNT_MAX, Units
from falkirk.steps.differential.grouping import WholeNumbers, begins_of
from falkirk.steps.differential.operators import Aggregate, Group, Reduce, Trace
from falkirk.steps.differential.rows import DIFFERENCE, HASH, LoopTime, at, concat_rows, consolidate, equal_rows, is_by
from falkirk.steps.differential.task import OperatorStorage

#: Up to so many changes of results are all sent. Of more, those are held back that are less than this part of the
#: greatest one.
_FEW, _GREAT = 300, 1 / 32

Mask = npt.NDArray[np.bool_]


class Unusual(Exception):
    """The sums can't be kept. The task has to read all summands in each round."""


class FormerStorage(OperatorStorage, Protocol):
    """Where the sums find the rows of former epochs."""

    def former(self, what: str, schema: pa.Schema) -> Trace:
        """Return a trace without new rows. Keys whose sums are not kept yet have none."""


def can_run(operator: Any, given: pa.Schema) -> bool:
    """Whether the sums of an operator can be kept. Args: given: the schema of its input."""
    if not isinstance(operator, Reduce) or not operator.keys or not isinstance(operator.how, Group):
        return False
    if any(pa.types.is_floating(given.field(key).type) for key in operator.keys):
        return False
    only = operator.how.settling_sum
    return only is not None and pa.types.is_float64(given.field(only.column).type)


@dataclass(kw_only=True)
class _Sums:
    """The sums of keys, in the order of their hashes. Args: keys: a table of them. counts: of their rows. result: the
    former result. is_there: whether there is one."""

    hashes: WholeNumbers
    keys: pa.Table
    high: WholeNumbers
    low: WholeNumbers
    counts: WholeNumbers
    result: npt.NDArray[np.float64]
    is_there: Mask

    def numbers(self, tolerance: float) -> npt.NDArray[np.float64]:
        """Return the sums; 0 for keys without rows."""
        return np.where(self.counts > 0, Units.of(tolerance).numbers(self.high, self.low), 0.0)

    def extended(self, more: "_Sums") -> "_Sums":
        """Return these sums and those of other keys."""
        hashes = np.concatenate([self.hashes, more.hashes])
        order = np.argsort(hashes)
        keys = pa.concat_tables([self.keys, more.keys]).combine_chunks().take(pa.array(order))
        found = {
            name: np.concatenate([getattr(self, name), getattr(more, name)])[order]
            for name in ("high", "low", "counts", "result", "is_there")
        }
        return _Sums(hashes=hashes[order], keys=keys, **found)


@dataclass(kw_only=True)
class _Changes:
    """The changes of keys, in the order of their hashes."""

    hashes: WholeNumbers
    keys: pa.Table
    high: WholeNumbers
    low: WholeNumbers
    counts: WholeNumbers


@dataclass(kw_only=True)
class RunningSums:
    """The sums of one reduction at one time. Args: results: the schema of its results. is_load: whether the epoch is
    the first one; all changes are then sent at once."""

    operator: Reduce
    now: LoopTime
    results: pa.Schema
    is_load: bool
    _sums: _Sums | None = None
    #: The former rows of the keys.
    _former: list[pa.Table] = field(default_factory=list)
    #: Whether the last round has held back changes of results.
    _holds: bool = False

    @property
    def _tolerance(self) -> float:
        assert isinstance(self.operator.how, Group)
        return self.operator.how.tolerance

    @property
    def _only(self) -> Aggregate:
        assert isinstance(self.operator.how, Group)
        assert self.operator.how.settling_sum is not None
        return self.operator.how.settling_sum

    def run(self, news: pa.Table, due: pa.Table, place: FormerStorage) -> pa.Table:
        """Do the same as `act`, but hold back small changes while there are great ones. Args: due: keys to wake.

        Raises: Unusual.
        """
        self._add(news, place)
        if not self._holds:  # others were held back by another task, or were left by a former epoch
            self._add(self._nothing(due, news.schema), place)
        if news.num_rows:
            place.write("input0", news)
        if self._sums is None:
            return self.results.empty_table()
        sent, held = self._moved(self._sums)
        self._holds = len(held) > 0
        if self._holds:
            place.defer("due", self.now, self._keys(held))
        out = self._sent(self._sums, sent)
        if out.num_rows:
            place.write("output", out)
        return out

    def _nothing(self, due: pa.Table, schema: pa.Schema) -> pa.Table:
        """Return a row for each key that is due, which changes nothing."""
        zeros = {field.name: np.zeros(due.num_rows) for field in schema if field.name not in due.column_names}
        for name, values in zeros.items():
            due = due.append_column(name, pa.array(values).cast(schema.field(name).type))
        return due.select(schema.names)

    def _add(self, news: pa.Table, place: FormerStorage) -> None:
        """Add changes to the sums."""
        if not news.num_rows:
            return
        changes = self._summed(news)
        found = self._places(changes, place.former("input0", news.schema), place.former("output", self.results))
        sums = self._sums
        assert sums is not None
        if not equal_rows(sums.keys, found, changes.keys, np.arange(len(found))):
            raise Unusual
        for name in ("high", "low", "counts"):
            getattr(sums, name)[found] += getattr(changes, name)
        counts = sums.counts[found]
        if counts.min() < 0 or counts.max() > COUNT_MAX:
            raise Unusual

    def _moved(self, sums: _Sums) -> tuple[Any, Any]:
        """Return the places of keys whose results change now, and of those whose changes are held back.

        A node that waits for further small changes sends one message instead of several. So only the greatest changes
        are sent, unless there are few, or the epoch is a load.
        """
        is_there = sums.counts > 0
        moves = np.abs(sums.numbers(self._tolerance) - sums.result)
        appears = sums.is_there != is_there
        moved = np.flatnonzero(appears | (moves > self._tolerance))
        if self.is_load or len(moved) <= _FEW:
            return moved, moved[:0]
        is_great = appears[moved] | (moves[moved] >= moves[moved].max() * _GREAT)
        return moved[is_great], moved[~is_great]

    def _keys(self, places: Any) -> pa.Table:
        assert self._sums is not None
        found = self._sums.keys.take(pa.array(places)).append_column(HASH, pa.array(self._sums.hashes[places]))
        return found.select([HASH, *self.operator.keys])

    def _sent(self, sums: _Sums, places: Any) -> pa.Table:
        """Return the changes of the results of keys, and keep the new results."""
        before, was, is_there = sums.result[places], sums.is_there[places], sums.counts[places] > 0
        after = sums.numbers(self._tolerance)[places]
        sums.result[places], sums.is_there[places] = after, is_there
        both = np.concatenate([places[was], places[is_there]])
        out = self._keys(both)
        out = out.append_column(self.operator.results[0], pa.array(np.concatenate([before[was], after[is_there]])))
        out = out.append_column(DIFFERENCE, pa.array(np.repeat([-1, 1], [was.sum(), is_there.sum()])))
        return at(out, self.now).select(self.results.names).cast(self.results)

    def check(self, changed: pa.Table) -> None:
        """Check the counts of the rows of all keys. Args: changed: the new rows of the input. Raises: Unusual."""
        less = changed.filter(pc.less(changed.column(DIFFERENCE), 0))
        if less.num_rows:
            _positive(consolidate(concat_rows([*self._former, less], changed.schema)))

    def _summed(self, rows: pa.Table) -> _Changes:
        """Return the sums of rows by key."""
        values, counts = rows.column(self._only.column), rows.column(DIFFERENCE).to_numpy()
        high, low, suits = Units.of(self._tolerance).parts(pc.fill_null(values, np.nan).to_numpy())
        if not suits.all() or (len(counts) and max(-int(counts.min()), int(counts.max())) > COUNT_MAX):
            raise Unusual
        hashes = rows.column(HASH).to_numpy()
        order = np.argsort(hashes)
        hashes = hashes[order]
        first = np.flatnonzero(begins_of([hashes]))
        keys = rows.select(list(self.operator.keys))
        # Other rows of a key must have the same key as its first row.
        if not equal_rows(keys, np.repeat(order[first], np.diff(first, append=len(order))), keys, order):
            raise Unusual
        if (np.add.reduceat(np.abs(counts)[order], first) > COUNT_MAX).any():
            raise Unusual
        sums = [np.add.reduceat(part[order], first) for part in (high * counts, low * counts, counts)]
        keys = keys.take(pa.array(order[first]))
        return _Changes(hashes=hashes[first], keys=keys, high=sums[0], low=sums[1], counts=sums[2])

    def _places(self, changes: _Changes, inputs: Trace, results: Trace) -> Any:
        """Return the places of keys among the sums. It reads those that are missing."""
        if self._sums is not None and len(self._sums.hashes):
            found = np.minimum(np.searchsorted(self._sums.hashes, changes.hashes), len(self._sums.hashes) - 1)
            missing = self._sums.hashes[found] != changes.hashes
            if not missing.any():
                return found
        else:
            missing = np.ones(len(changes.hashes), dtype=bool)
        more = self._read(changes, np.flatnonzero(missing), inputs, results)
        self._sums = more if self._sums is None else self._sums.extended(more)
        return np.searchsorted(self._sums.hashes, changes.hashes)

    def _read(self, changes: _Changes, which: Any, inputs: Trace, results: Trace) -> _Sums:
        """Return the sums of keys before the changes."""
        hashes = changes.hashes[which]
        rows, former = (consolidate(trace.rows(hashes)) for trace in (inputs, results))
        for found in (rows, former):
            _positive(found)
            if not pc.all(is_by(found, self.now), min_count=0).as_py():
                raise Unusual
        self._former.append(rows)
        keys = changes.keys.take(pa.array(which))
        read, place = self._summed(rows), np.searchsorted(hashes, former.column(HASH).to_numpy())
        there = np.searchsorted(hashes, read.hashes)
        result = former.column(self.operator.results[0])
        if (
            len(np.unique(place)) < len(place) or result.null_count
            or not equal_rows(keys, place, former.select(list(self.operator.keys)), np.arange(len(place)))
            or not equal_rows(keys, there, read.keys, np.arange(len(there)))
        ):  # fmt: skip
            raise Unusual
        sums = _Sums(
            hashes=hashes, keys=keys, result=np.zeros(len(hashes)), is_there=np.zeros(len(hashes), dtype=bool),
            **{name: np.zeros(len(hashes), dtype=np.int64) for name in ("high", "low", "counts")},
        )  # fmt: skip
        sums.high[there], sums.low[there], sums.counts[there] = read.high, read.low, read.counts
        sums.result[place], sums.is_there[place] = result.to_numpy(), True
        return sums


def _positive(rows: pa.Table) -> None:
    if rows.num_rows and pc.min(rows.column(DIFFERENCE)).as_py() < 1:
        raise Unusual
