"""In memory: computes an epoch, or rounds of a loop, in the memory of one task, over all partitions.

Its input and output are files of the same kinds as those of the tasks in `jobs.py`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from falkirk.steps.differential.evaluator import Evaluated, Evaluator
from falkirk.steps.differential.expressions import Unsuitable
from falkirk.steps.differential.files import Measured, TaskFiles
from falkirk.steps.differential.graph import (
    Entered,
    Holder,
    Joined,
    Left,
    LoopGraph,
    LoopNode,
    Mapped,
    Reduced,
    Result,
    Scope,
    Source,
)  # fmt: skip
from falkirk.steps.differential.hashing import hash_of, partition_of_hash
from falkirk.steps.differential.operators import Reduce, Trace
from falkirk.steps.differential.ordered import FirstRows, Order
from falkirk.steps.differential.reports import WrittenFiles
from falkirk.steps.differential.residue import residue
from falkirk.steps.differential.routes import Routes
from falkirk.steps.differential.rows import (
    DIFFERENCE,
    HASH,
    Hashes,
    LoopTime,
    concat_rows,
    consolidate,
    rounds,
    split_by_time,
)
from falkirk.steps.differential.running_sums import RunningSums, Unusual, can_run
from falkirk.steps.differential.schedule import Schedule, WaitingKey
from falkirk.steps.differential.schemas import arrow_of, port_schema
from falkirk.steps.differential.task import (
    FileName,
    LaterReader,
    act,
    due_schema,
    new_attempt,
    schema_of_results,
    small,
    store_for_readers,
)
from falkirk.steps.differential.traces import TraceName, Traces

_Files = dict[TraceName, tuple[str, ...]]
"""The files of traces, by holder and kind."""

#: A round that reads more rows of traces than this is faster as a job of several tasks.
TOUCHED_MAX = 4_000_000
#: If the task computes a whole epoch, its work is lost only if a round exceeds the limits by this factor.
_LOST = 2


class InMemory(Evaluator[pa.Table]):
    """Implements `Works` in one task."""

    def __init__(
        self, graph: LoopGraph, routes: Routes, place: TaskFiles, traces: Mapping[tuple[str, str], Sequence[str]],
        pending: Mapping[WaitingKey, Sequence[str]], taken: Mapping[str, pa.Table], entered: set[Scope],
        partitions: int, most: int, *, keeps_sums: bool, is_load: bool,
    ) -> None:  # fmt: skip
        super().__init__(pending, entered)
        self._routes, self._partitions, self._files, self._taken, self._most = routes, partitions, traces, taken, most
        #: Where the files are, the names that this task gives to its own, and those that it has written.
        self._place, self._attempt, self.written = place, new_attempt(), WrittenFiles()
        #: For each holder in a loop, the number of rounds after which its rows are dropped.
        self._limits = {h.name: h.scope.rounds for h in graph.holders() if h.scope.depth and h.scope.restarts}
        #: The holders that receive rows with the hash of their key, and partitioned by it.
        self._by_key = {h.name for h in graph.holders() if isinstance(h, Joined | Reduced)}
        #: Whether the last round had little to do: few rows wait for the next round, and few rows were read.
        self.is_little = True
        #: Rows that wait for a later round; one of the current round may have the same time.
        self._deferred: list[tuple[WaitingKey, pa.Table]] = []
        self._is_empty = True
        self.memory = Traces(place, traces)
        #: The sums that are kept, by the operator's name.
        self._keeps_sums, self._is_load, self._sums = keeps_sums, is_load, dict[str, RunningSums]()

    # -- as Works ------------------------------------------------------------------------------------------------------

    def operated(
        self, holder: Joined | Reduced, now: LoopTime, frames: Sequence[pa.Table | None],
        waiting: Mapping[str, tuple[Any, ...]],
    ) -> pa.Table:  # fmt: skip
        """See Evaluator."""
        place, news = _Memory(self, holder.name, waiting["due"]), []
        for port, frame in enumerate(frames):
            schema = port_schema(holder, port, len(now))
            by_time = {} if frame is None else split_by_time(_hashed(holder, port, frame, schema), len(now))
            rows = by_time.pop(now, schema.empty_table())
            for time, later in by_time.items():
                place.defer(f"deferred{port}", time, later)
            news.append(concat_rows([rows, *self.loaded(waiting[f"deferred{port}"])], schema))
        output = arrow_of(holder.schema, len(now))
        results = schema_of_results(holder.operator, news[0].schema, output, len(now))
        sums = self._sums_of(holder, now, results)
        if sums is None:
            out = act(holder.operator, news, now, results, place)
        else:
            out = sums.run(news[0], place.due(due_schema(holder.operator, news[0].schema)), place)
        store_for_readers(out, len(now), self._routes.readers_of(holder), place)
        self._is_empty = False
        return out.select(output.names).cast(output)

    def _sums_of(self, holder: Joined | Reduced, now: LoopTime, results: pa.Schema) -> RunningSums | None:
        """Return the running sums of an operator; None: it must read all its rows."""
        if not self._keeps_sums or holder.scope.restarts or len(now) != 1:
            return None
        if holder.name not in self._sums:
            if not can_run(holder.operator, port_schema(holder, 0, len(now))):
                return None
            assert isinstance(holder.operator, Reduce)
            self._sums[holder.name] = RunningSums(
                operator=holder.operator, now=now, results=results, is_load=self._is_load
            )
        if self._sums[holder.name].now != now:
            raise Unusual
        return self._sums[holder.name]

    def conclude(self, result: Result, now: LoopTime) -> None:
        """See Works."""
        frame = self.frame(result.of, now)
        if frame is not None:
            rows = consolidate(frame)
            hashes = hash_of([rows.column(name) for name in result.schema.names], rows.num_rows)
            self.wait((result.name, "deferred0", now), rows.append_column(HASH, pa.array(hashes)))
            self._is_empty = False

    def store(self, node: LoopNode, now: LoopTime, readers: list[LaterReader], sign: int = 1) -> None:
        """See Works."""
        frame = self.frame(node, now)
        if frame is None:
            return
        rows = consolidate(frame)
        if sign < 0:
            minus = pc.negate(rows.column(DIFFERENCE))
            rows = rows.set_column(rows.schema.get_field_index(DIFFERENCE), DIFFERENCE, minus)
        store_for_readers(rows, len(now), readers, _Memory(self, "", ()))
        self._is_empty = False

    def flush(self) -> None:
        """See Works."""
        self.count += not self._is_empty
        deferred, self._deferred, self._is_empty, self.step = self._deferred, [], True, Evaluated()
        for key, rows in deferred:
            self.pending[key] = (*self.pending.get(key, ()), rows)
        part = max(sum(rows.num_rows for _, rows in deferred) / self._most, self.memory.touched / TOUCHED_MAX)
        self.is_little, self.memory.touched = part <= 1, 0
        if self._taken and part > _LOST:
            raise Unsuitable("too many rows wait for the next round")

    def residue(self, rows: Any) -> int:
        """See Works."""
        return FileName.parse(rows).residue if isinstance(rows, str) else residue(rows)

    def go_round(self, turns: Schedule, left: Left, now: LoopTime, count: int) -> int:
        """See Works."""
        return 0

    # -- as Evaluator --------------------------------------------------------------------------------------------------

    def source(self, node: Source) -> pa.Table | None:
        """See Evaluator."""
        return self._taken.get(node.name)

    def mapped(self, node: Mapped, of: pa.Table, now: LoopTime) -> pa.Table:
        """See Evaluator."""
        assert node.steps is not None, "a task receives only loops whose steps are known"
        schema = arrow_of(node.schema, len(now))
        return node.steps(of).select(schema.names).cast(schema)

    def enter(self, node: Entered, of: pa.Table, now: LoopTime) -> pa.Table:
        """See Evaluator."""
        first = pa.array(np.zeros(of.num_rows, dtype=np.int32))
        return of.append_column(rounds(len(now))[-1], first).select(arrow_of(node.schema, len(now)).names)

    def union(self, node: LoopNode, frames: Sequence[pa.Table], now: LoopTime) -> pa.Table:
        """See Evaluator."""
        return concat_rows(frames, arrow_of(node.schema, len(now)))

    def taken(self, node: Holder, rows: tuple[Any, ...], now: LoopTime) -> pa.Table:
        """See Evaluator."""
        return concat_rows(self.loaded(rows), arrow_of(node.schema, len(now)))

    def reading(self, node: Holder, rows: pa.Table, now: LoopTime) -> pa.Table:
        """See Evaluator."""
        return rows

    # -- memory --------------------------------------------------------------------------------------------------------

    def wait(self, key: WaitingKey, rows: pa.Table) -> None:
        """Store rows that wait for a time."""
        self._deferred.append((key, rows))

    def loaded(self, several: Iterable[Any]) -> list[pa.Table]:
        """Return waiting rows as tables: some are in memory, others in files."""
        return [self._place.load(rows) if isinstance(rows, str) else rows for rows in several]

    # -- files ---------------------------------------------------------------------------------------------------------

    def remembered_in(self, folder: str) -> tuple[_Files, _Files]:
        """Store the new rows of all traces as runs of their partitions. Return the new files, and the old files that
        were merged into them: the small ones, since a search for a key opens every run. Raises: Unusual."""
        found, merged = {}, {}
        changed = [*self.memory.new_rows()]
        for (holder, what), rows, _ in changed:
            if holder in self._sums and what == "input0":
                self._sums[holder].check(rows)
        for (holder, what), rows, order in changed:
            write = partial(self._place.write_run, order=order)
            merged[holder, what] = self._small(self._files.get((holder, what), ()), rows)
            if merged[holder, what]:
                rows = consolidate(concat_rows([rows, *map(self.memory.open, merged[holder, what])], rows.schema))
            found[holder, what] = self._stored(folder, holder, what, (), rows, write)
        return found, merged

    def _small(self, files: Sequence[str], rows: pa.Table) -> tuple[str, ...]:
        """Return the runs of each partition that are worth merging with its new rows."""
        there = partition_of_hash(rows.column(HASH).to_numpy(), self._partitions)
        news = np.bincount(there, minlength=self._partitions)
        by_partition: dict[int, list[str]] = {}
        for file in files:
            by_partition.setdefault(FileName.parse(file).partition, []).append(file)
        most = self._most // self._partitions
        return tuple(f for p, some in by_partition.items() if news[p] for f in small(some, int(news[p]), most))

    def stored(self, several: Mapping[WaitingKey, Sequence[Any]], folder: str) -> dict[WaitingKey, tuple[str, ...]]:
        """Store waiting rows. Return their files, the existing ones included."""
        found = {}
        for (holder, what, time), waiting in several.items():
            tables = [rows for rows in waiting if not isinstance(rows, str)]
            files = [rows for rows in waiting if isinstance(rows, str)]
            if tables:
                names = [n for n in tables[0].column_names if all(n in table.column_names for table in tables)]
                rows = pa.concat_tables([table.select(names) for table in tables])
                files += self._stored(folder, holder, what, time, rows, self._place.store)
            found[holder, what, time] = tuple(files)
        return found

    def _stored(
        self, folder: str, holder: str, what: str, time: LoopTime, rows: pa.Table,
        write: Callable[[str, pa.Table], Measured],
    ) -> tuple[str, ...]:  # fmt: skip
        if HASH in rows.column_names:
            there = partition_of_hash(rows.column(HASH).to_numpy(), self._partitions)
            rows = rows if holder in self._by_key else rows.drop_columns([HASH])
            parts = {int(p): rows.filter(pa.array(there == p)) for p in np.unique(there)}
        else:
            parts = {0: rows} if rows.num_rows else {}
        found = []
        for partition, some in parts.items():
            is_dropped = bool(time) and holder in self._limits and time[-1] >= self._limits[holder]
            name = FileName(
                holder=holder, what=what, time=time, partition=partition, attempt=self._attempt, rows=some.num_rows,
                residue=residue(some) if is_dropped else 0,
            )  # fmt: skip
            found.append(f"{folder}/{name}")
            self.written[found[-1]] = write(found[-1], some)
        return tuple(found)


class _Memory:
    """The `Place` of one operator at one time, in the memory of a task.

    Attributes: beside: the hash of the key with which rows were made; it tells their partition.
    """

    beside: tuple[str, ...] = (HASH,)

    def __init__(self, works: InMemory, holder: str, due: Sequence[Any]) -> None:
        self._works, self._holder, self._due = works, holder, due

    def trace(self, what: str, schema: pa.Schema) -> Trace:
        """See Place."""
        return _Trace(self._works, (self._holder, what), schema)

    def former(self, what: str, schema: pa.Schema) -> Trace:
        """See FormerStorage."""
        return _Trace(self._works, (self._holder, what), schema, is_former=True)

    def due(self, schema: pa.Schema) -> pa.Table:
        """See Place."""
        return concat_rows(self._works.loaded(self._due), schema)

    def write(self, what: str, rows: pa.Table, order: Order | None = None) -> None:
        """See Place."""
        self._works.memory.add((self._holder, what), rows, order)

    def defer(self, what: str, time: LoopTime, rows: pa.Table, holder: str = "", *, is_dropped: bool = False) -> None:
        """See Place."""
        self._works.wait((holder or self._holder, what, time), rows)


class _Trace:
    def __init__(self, works: InMemory, name: TraceName, schema: pa.Schema, *, is_former: bool = False) -> None:
        self._memory, self._name, self._schema, self._is_former = works.memory, name, schema, is_former

    def rows(self, keys: Hashes) -> pa.Table:
        return self._memory.rows(self._name, keys, self._schema, is_former=self._is_former)

    def first(self, keys: Hashes, order: Order, most: int) -> FirstRows:
        return self._memory.first(self._name, keys, order, most, self._schema)


def _hashed(holder: Joined | Reduced, port: int, frame: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the arriving rows, with the hash of their key."""
    hashes = hash_of([frame.column(key) for key in holder.operator.keys], frame.num_rows)
    return frame.append_column(HASH, pa.array(hashes)).select(schema.names).cast(schema)
