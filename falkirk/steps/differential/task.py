"""Tasks: runs one operator in one Spark job, on one partition.

A task reads the arriving rows, the rows that wait for the current time, and the operator's memory. It writes files, and
emits rows for other operators. All its files are in the job's folder, under names that describe them. They count only
once the task has reported them and the driver has added them to its lists.
"""

import gc
import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from falkirk.steps.differential import runs
from falkirk.steps.differential.files import Measured, TaskFiles
from falkirk.steps.differential.operators import Join, Reduce, Trace
from falkirk.steps.differential.ordered import FirstRows, Order, first_of, recorded_order
from falkirk.steps.differential.reports import Reporter, WrittenFiles
from falkirk.steps.differential.residue import residue
from falkirk.steps.differential.rows import (
    DIFFERENCE,
    HASH,
    Hashes,
    LoopTime,
    concat_rows,
    consolidate,
    distinct,
    rounds,
    split_by_time,
)  # fmt: skip

#: The column with the number of the join's input to which a row belongs.
PORT = "__falkirk_port"
#: The column in which a task that emits nothing names itself.
NUMBER = "number"
#: The name of a merge among the tasks of a job.
MERGE = "merge"
EdgeMove = Literal["stay", "next", "leave"]
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FileName:
    """The description of a file in a job's folder, which is its name.

    Args: holder: its owner. what: `input0`, `input1` and `output` are runs of the traces of its inputs and its results;
        `deferred0`, `deferred1` and `due` wait for a time. time: for which rows wait. attempt: of the task that writes
        it. No other task has the same names, and no other attempt of this one. rows: their number. residue:
        of rows without a round.
    """

    holder: str
    what: str
    partition: int
    rows: int
    time: LoopTime = ()
    attempt: str = "0"
    residue: int = 0

    def __str__(self) -> str:
        time, residue = ".".join(map(str, self.time)), f"_{self.residue}" if self.residue else ""
        return f"{self.holder}_{self.what}_{time}_{self.partition}_{self.attempt}_{self.rows}{residue}.arrow"

    @classmethod
    def parse(cls, text: str) -> "FileName":
        """Return the description that a name contains, or a path with it."""
        name = text.rpartition("/")[2].removesuffix(".arrow")
        holder, what, time, partition, attempt, rows, *residue = name.split("_")
        rounds_ = tuple(int(t) for t in time.split(".") if t)
        numbers = {"partition": int(partition), "rows": int(rows), "residue": int(*residue)}
        return cls(holder=holder, what=what, time=rounds_, attempt=attempt, **numbers)


def task_name(holder: str, now: LoopTime) -> str:
    """Return the name of an operator's tasks in a job."""
    return f"{holder} at {now}"


def new_attempt() -> str:
    """Return a name for an attempt of a task."""
    return uuid.uuid4().hex[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterReader:
    """A reader for which results are stored without a shuffle, for a later job.

    Args: holder, port: the reader and its input. names: the columns of that input. move: how the time of the rows
        changes, see `moved`. rounds: the number of rounds of a loop that drops later rows; otherwise None.
    """

    holder: str
    port: int
    names: tuple[str, ...]
    move: EdgeMove = "stay"
    rounds: int | None = None

    def is_dropped(self, time: LoopTime) -> bool:
        """Whether the loop has no round left for a time."""
        return self.rounds is not None and time[-1] >= self.rounds


def _moved(table: pa.Table, depth: int, move: EdgeMove) -> tuple[pa.Table, int]:
    """Return rows after they moved over an edge, and the depth there. They `leave` a loop, return to its head with the
    `next` round, or `stay` at their time."""
    if move == "stay":
        return table, depth
    last = rounds(depth)[-1]
    if move == "leave":
        return table.drop_columns([last]), depth - 1
    column = pa.array(table.column(last).to_numpy() + np.int32(1))
    return table.set_column(table.schema.get_field_index(last), last, column), depth


@cache
def _forget_garbage() -> None:
    """Exempt imported modules from garbage collection: Spark collects after each task, which would scan them again."""
    gc.freeze()


@dataclass(frozen=True, kw_only=True)
class Task:
    """One operator in one job; called with the batches of one partition.

    Args:
        holder: the name of the operator.
        operator: None: rows are only consolidated, and nobody remembers them.
        now: the time that is processed.
        inputs: the schema of each input's rows, with hash, time and difference. output: that of its results.
        arrives: whether the batches are rows from other operators of the job.
        files: the files for the operator, by kind; of all partitions. place: reads and writes files.
        folder: of the job, in the flow's. partitions: their number.
        readers: the readers for which results are stored. emits: whether other operators of this job read them too.
        report: takes the names of the written files; None: it writes none.
    """

    holder: str
    operator: Join | Reduce | None
    now: LoopTime
    inputs: tuple[pa.Schema, ...]
    output: pa.Schema
    arrives: bool
    files: Mapping[str, tuple[str, ...]]
    place: TaskFiles
    folder: str
    partitions: int
    readers: tuple[LaterReader, ...]
    emits: bool
    report: Reporter | None

    @property
    def only_stores(self) -> bool:
        """Whether the task emits its number alone, from which the driver learns how many tasks there were."""
        return self.operator is None and not self.emits

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the operator, and yield its results."""
        _forget_garbage()
        context = TaskContext.get()
        assert context is not None
        yield from Worker(self, context.partitionId()).work(batches)


class OperatorStorage(Protocol):
    """Where an operator finds its memory, and stores its results.

    Attributes: beside: columns that the place itself needs in deferred rows, though their reader does not.
    """

    beside: tuple[str, ...]

    def trace(self, what: str, schema: pa.Schema) -> Trace:
        """Return the trace of an input or of the results."""

    def due(self, schema: pa.Schema) -> pa.Table:
        """Return the keys to wake at the current time."""

    def write(self, what: str, rows: pa.Table, order: Order | None = None) -> None:
        """Add rows to a trace. Args: order: by which they are sorted."""

    def defer(self, what: str, time: LoopTime, rows: pa.Table, holder: str = "", *, is_dropped: bool = False) -> None:
        """Store rows that wait for a time. Args: holder: the reader; by default the operator itself. is_dropped: nobody
        will read the rows, and only their residue matters."""


def act(
    operator: Join | Reduce, news: Sequence[pa.Table], now: LoopTime, results: pa.Schema, place: OperatorStorage
) -> pa.Table:  # fmt: skip
    """Run an operator at a time. Return the changes of its results. Args: results: the schema of its results."""
    if isinstance(operator, Join):
        traces = [place.trace(f"input{port}", rows.schema) for port, rows in enumerate(news)]
        done = operator.work(news, traces, len(now))
    else:
        schema = due_schema(operator, news[0].schema)
        due = distinct(place.due(schema), schema.names)
        inputs = place.trace("input0", news[0].schema)
        done = operator.work(news[0], due, inputs, place.trace("output", results), now, results)
        if done.out.num_rows:
            place.write("output", done.out)
    order = operator.order if isinstance(operator, Reduce) else None
    for port, rows in enumerate(done.inputs):
        if rows.num_rows:
            place.write(f"input{port}", rows, order)
    for time, keys in done.due.items():
        place.defer("due", time, keys)
    return done.out


def due_schema(operator: Join | Reduce, given: pa.Schema) -> pa.Schema:
    """Return the schema of the keys that an operator wakes. Args: given: of its input."""
    return pa.schema([given.field(name) for name in (HASH, *operator.keys)])


def store_for_readers(rows: pa.Table, depth: int, readers: Sequence[LaterReader], place: OperatorStorage) -> None:
    """Store results for the readers that get them without a shuffle."""
    for reader in readers:
        moving, there = _moved(rows, depth, reader.move)
        beside = [n for n in place.beside if n in moving.column_names and n not in reader.names]
        moving = moving.select([*reader.names, *rounds(there), DIFFERENCE, *beside])
        for time, some in split_by_time(moving, there).items():
            place.defer(f"deferred{reader.port}", time, some, reader.holder, is_dropped=reader.is_dropped(time))


def schema_of_results(operator: Join | Reduce, given: pa.Schema, output: pa.Schema, depth: int) -> pa.Schema:
    """Return the schema of an operator's trace of results. Args: given: of arriving rows. output: of results."""
    if isinstance(operator, Join):
        return output
    fields = [output.field(n) for n in (*operator.keys, *operator.results)]
    ours = [given.field(n) for n in rounds(depth)]
    return pa.schema([pa.field(HASH, pa.int64()), *fields, *ours, pa.field(DIFFERENCE, pa.int64())])


class _Trace:
    def __init__(self, files: TaskFiles, names: Sequence[str], schema: pa.Schema) -> None:
        self._files, self._names, self._schema = files, names, schema

    def rows(self, keys: Hashes) -> pa.Table:
        found = map(self._files.load, self._names)
        return runs.rows_of_keys(found, keys, self._schema) if len(keys) else self._schema.empty_table()

    def first(self, keys: Hashes, order: Order, most: int) -> FirstRows:
        return first_of(list(map(self._files.load, self._names)), keys, order, most, self._schema)


class Worker:
    """A `OperatorStorage` for one partition, whose rows are in files."""

    beside: tuple[str, ...] = ()

    def __init__(self, task: Task, number: int) -> None:
        self._task, self._depth = task, len(task.now)
        # In a union of several inputs, each input has all partitions, one after the other.
        self._partition, self._number = number % task.partitions, number
        self._attempt, self._written = new_attempt(), WrittenFiles()

    def work(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = self._task
        news = self._news(list(batches))
        if task.operator is None:
            out = consolidate(news[0])
        else:
            results = schema_of_results(task.operator, task.inputs[0], task.output, self._depth)
            out = act(task.operator, news, task.now, results, self)
        store_for_readers(out, self._depth, task.readers, self)
        # An operator may run at two places of a job, and has all rows of a partition. Steps that only store run once,
        # and several tasks may have a partition's rows.
        name, number = (
            (task.holder, self._number)
            if task.operator is None
            else (task_name(task.holder, task.now), self._partition)
        )
        if task.report is not None:
            task.report((name, number), self._written)
        if task.only_stores:
            yield pa.RecordBatch.from_pydict({NUMBER: pa.array([number], pa.int32())})
        if task.emits and out.num_rows:
            yield from out.select(task.output.names).cast(task.output).to_batches(max_chunksize=_BATCH_ROWS)

    def _news(self, batches: list[pa.RecordBatch]) -> list[pa.Table]:
        """Return the rows of each input that are processed now; later rows are deferred."""
        task, found = self._task, []
        arrived = pa.Table.from_batches(batches) if batches and task.arrives else None
        for port, schema in enumerate(task.inputs):
            deferred = map(task.place.load, self._names(f"deferred{port}"))
            rows = schema.empty_table() if arrived is None else _of_port(arrived, port, schema)
            if task.operator is not None:  # rows that are only stored keep their time
                by_time = split_by_time(rows, self._depth)
                rows = by_time.pop(task.now, schema.empty_table())
                for time, later in by_time.items():
                    self.defer(f"deferred{port}", time, later)
            found.append(concat_rows([rows, *deferred], schema))
        return found

    def _names(self, what: str) -> list[str]:
        names = self._task.files.get(what, ())
        return [name for name in names if FileName.parse(name).partition == self._partition]

    def trace(self, what: str, schema: pa.Schema) -> Trace:
        """See Place."""
        return _Trace(self._task.place, self._names(what), schema)

    def due(self, schema: pa.Schema) -> pa.Table:
        """See Place."""
        return concat_rows(map(self._task.place.load, self._names("due")), schema)

    def write(self, what: str, rows: pa.Table, order: Order | None = None) -> None:
        """See Place."""
        name = self._named(self._task.holder, what, rows)
        self._written[name] = self._task.place.write_run(name, rows, order)

    def defer(self, what: str, time: LoopTime, rows: pa.Table, holder: str = "", *, is_dropped: bool = False) -> None:
        """See Place."""
        name = self._named(holder or self._task.holder, what, rows, time, residue(rows) if is_dropped else 0)
        self._written[name] = self._task.place.store(name, rows)

    def _named(self, holder: str, what: str, rows: pa.Table, time: LoopTime = (), dropped: int = 0) -> str:
        # An operator that reads its own results stores them beside rows that arrived for the same time.
        attempt = f"{self._attempt}{len(self._written)}"
        name = FileName(
            holder=holder, what=what, time=time, partition=self._partition, attempt=attempt, rows=rows.num_rows,
            residue=dropped,
        )  # fmt: skip
        return f"{self._task.folder}/{name}"


def _of_port(arrived: pa.Table, port: int, schema: pa.Schema) -> pa.Table:
    if PORT in arrived.column_names:
        mask = pa.array(arrived.column(PORT).to_numpy() == port)
        arrived = arrived.filter(mask)
    return arrived.select(schema.names).cast(schema)


def small(runs: Sequence[str], rows: int = 0, most: float = math.inf) -> list[str]:
    """Return the runs that are worth merging: the smallest ones, and each further one that is not much greater than all
    smaller ones together. Args: rows: the number of new rows to merge. most: the greatest number of rows in all."""
    found: list[str] = []
    least = 0 if rows else 2
    for size, run in sorted((FileName.parse(run).rows, run) for run in runs):
        if rows + size > most or (size > 2 * rows and len(found) >= least):
            break
        found.append(run)
        rows += size
    return found


@dataclass(frozen=True, kw_only=True)
class Merge:
    """Merges runs of traces: each group of runs of one partition into one run.

    Args: files: for each group, the runs to merge. targets: for each group, the description of the new file. place,
        folder, report: as of `Task`.
    """

    files: tuple[tuple[str, ...], ...]
    targets: tuple[FileName, ...]
    place: TaskFiles
    folder: str
    report: Reporter

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Merge the groups whose numbers are in the batches."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                name = f"{self.folder}/{replace(self.targets[number], attempt=new_attempt())}"
                self.report((MERGE, number), {name: self._merged(self.files[number], name)})
        yield from ()

    def _merged(self, files: Sequence[str], name: str) -> Measured:
        tables = list(map(self.place.load, files))
        merged = consolidate(concat_rows(tables, tables[0].schema))
        if HASH not in merged.column_names:
            return self.place.store(name, merged)
        return self.place.write_run(name, merged, next(filter(None, map(recorded_order, tables)), None))
