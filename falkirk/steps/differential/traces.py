"""Traces: the memory of all operators in one task, as tables that are sorted by hash.

The files of a trace have the rows of former epochs. New rows are in the task's memory until it has ended.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from falkirk.steps.differential import runs
from falkirk.steps.differential.files import TaskFiles
from falkirk.steps.differential.ordered import FirstRows, Order, first_of, recorded_order, sorted_by_hash
from falkirk.steps.differential.rows import Hashes, concat_rows, consolidate

TraceName = tuple[str, str]
"""The name of a trace: its operator, and what it holds."""

#: The new rows of a trace are in no more tables than this when they are read.
_TABLES_MAX = 3
#: So many new rows of a trace wait at least until equal ones are added up.
_ADDED_MAX = 1 << 20


class Traces:
    """The traces of a task. Args: files: of each trace. Attributes: touched: the number of rows that were read."""

    def __init__(self, place: TaskFiles, files: Mapping[TraceName, Sequence[str]]) -> None:
        self._place, self._files = place, files
        self._opened: dict[str, pa.Table] = {}
        self._new: dict[TraceName, _NewRows] = {}
        #: The number of rows that were read of each trace, and the former rows of traces that were read often.
        self._reads, self._former = Counter[TraceName](), dict[TraceName, list[pa.Table]]()
        self.touched = 0

    def open(self, path: str) -> pa.Table:
        """Return the rows of a file."""
        if path not in self._opened:
            self._opened[path] = self._place.load(path)
        return self._opened[path]

    def add(self, name: TraceName, rows: pa.Table, order: Order | None) -> None:
        """Add rows to a trace."""
        self._new.setdefault(name, _NewRows(order)).add(rows)

    def new_rows(self) -> Iterator[tuple[TraceName, pa.Table, Order | None]]:
        """Return the new rows of all traces, equal rows together, with their order."""
        return ((name, new.all_of(), new.order) for name, new in self._new.items())

    def rows(self, name: TraceName, keys: Hashes, schema: pa.Schema, *, is_former: bool) -> pa.Table:
        """Return the rows of a trace with these hashes. Args: is_former: only those of former epochs."""
        if not len(keys):
            return schema.empty_table()
        tables = self._former_tables(name) if is_former else self._tables(name)
        found = concat_rows((runs.rows_with_hashes(table, keys) for table in tables), schema)
        self._touch(name, found.num_rows)
        return found

    def first(self, name: TraceName, keys: Hashes, order: Order, most: int, schema: pa.Schema) -> FirstRows:
        """Return the first rows of a trace with these hashes, see `first_of`."""
        found = first_of(self._tables(name), keys, order, most, schema)
        self._touch(name, found.rows.num_rows)
        return found

    def _tables(self, name: TraceName) -> list[pa.Table]:
        return [*self._former_tables(name), *(self._new[name].tables() if name in self._new else [])]

    def _former_tables(self, name: TraceName) -> list[pa.Table]:
        return self._former.get(name) or [self.open(path) for path in self._files.get(name, ())]

    def _touch(self, name: TraceName, rows: int) -> None:
        """Count rows that were read. Once they are as many as the trace had at first, its files become one table, since
        each reading searches every table."""
        self.touched += rows
        self._reads[name] += rows
        if name in self._former or len(self._files.get(name, ())) < 2:
            return
        tables = list(map(self.open, self._files[name]))
        if self._reads[name] < _rows_in(tables):
            return
        self._former[name], order = tables, recorded_order(tables[0])
        if all(recorded_order(table) == order for table in tables):
            self._former[name] = [sorted_by_hash(concat_rows(tables, _plain(tables[0])), order)]


class _NewRows:
    """The rows that a task adds to a trace. They are sorted when somebody reads them. Args: order: of the rows of a
    key."""

    def __init__(self, order: Order | None) -> None:
        self.order = order
        self._sorted: list[pa.Table] = []
        self._added: list[pa.Table] = []
        self._most = _ADDED_MAX

    def add(self, rows: pa.Table) -> None:
        """Add rows. Most rows of a loop cancel each other, so equal rows of many are added up."""
        self._added.append(rows)
        if _rows_in(self._added) > self._most:
            self._added, self._sorted = [self.all_of()], []
            self._most = _ADDED_MAX + 2 * _rows_in(self._added)

    def tables(self) -> list[pa.Table]:
        """Return all rows in tables that are sorted by hash."""
        if self._added:
            self._sorted.append(sorted_by_hash(_added_up(self._added), self.order))
            self._added = []
        if len(self._sorted) > _TABLES_MAX:
            self._sorted = [sorted_by_hash(_added_up(self._sorted), self.order)]
        return self._sorted

    def all_of(self) -> pa.Table:
        """Return all rows, equal rows together."""
        tables = [*self._sorted, *self._added]
        return consolidate(concat_rows(tables, _plain(tables[0])))


def _plain(table: pa.Table) -> pa.Schema:
    return table.schema.remove_metadata()


def _rows_in(tables: Sequence[pa.Table]) -> int:
    return sum(table.num_rows for table in tables)


def _added_up(tables: Sequence[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else consolidate(concat_rows(tables, _plain(tables[0])))
