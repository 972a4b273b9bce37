"""Tasks: what one operator does in one Spark job, on one partition: from what has arrived, what was parked for now, and
what it remembers, to files and to rows that go on.

Everything that a task writes is in the job's folder, under names that say what it is: until the driver has taken them
into its list, they are nobody's, and a task that is run twice writes the same.
"""

import gc
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from falkirk.differential import runs
from falkirk.differential.operators import Join, Reduce, Trace
from falkirk.differential.ordered import First, Order, first_of, order_of
from falkirk.differential.residue import residue
from falkirk.differential.rows import (
    DIFFERENCE,
    HASH,
    Hashes,
    Time,
    consolidate,
    distinct,
    rounds,
    split_by_time,
    together,
)  # fmt: skip

#: Which input of a join a row is for.
PORT = "__falkirk_port"
Move = Literal["stay", "next", "leave"]
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FileName:
    """What a file in a job's folder is.

    Args: holder: whose it is. what: `heard0`, `heard1` and `said` are runs of its traces; `parked0`, `parked1` and
        `woken` wait for a time. time: of what waits. part: tells apart what a partition gets from several places.
        rows: how many there are. residue: of rows that there is no round for.
    """

    holder: str
    what: str
    partition: int
    rows: int
    time: Time = ()
    part: int = 0
    residue: int = 0

    def __str__(self) -> str:
        time, residue = ".".join(map(str, self.time)), f"_{self.residue}" if self.residue else ""
        return f"{self.holder}_{self.what}_{time}_{self.partition}_{self.part}_{self.rows}{residue}.arrow"

    @classmethod
    def parse(cls, text: str) -> "FileName":
        """Return what a name says."""
        holder, what, time, partition, part, rows, *residue = text.removesuffix(".arrow").split("_")
        rounds_ = tuple(int(t) for t in time.split(".") if t)
        numbers = {"partition": int(partition), "part": int(part), "rows": int(rows), "residue": int(*residue)}
        return cls(holder=holder, what=what, time=rounds_, **numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hand:
    """Where results are handed to without a shuffle, for a later job.

    Args: holder, port: whose. names: the columns there. move: how their time changes on the way, see `moved`. rounds:
        how many a loop has whose `next` round it is, if they are dropped behind the last one.
    """

    holder: str
    port: int
    names: tuple[str, ...]
    move: Move = "stay"
    rounds: int | None = None

    def is_dropped(self, time: Time) -> bool:
        """Whether there is no round for rows of a time."""
        return self.rounds is not None and time[-1] >= self.rounds


def moved(table: pa.Table, depth: int, move: Move) -> tuple[pa.Table, int]:
    """Return rows as they go over an edge: they `leave` a loop, go back to its head with the `next` round, or `stay` at
    their time."""
    if move == "stay":
        return table, depth
    last = rounds(depth)[-1]
    if move == "leave":
        return table.drop_columns([last]), depth - 1
    column = pa.array(table.column(last).to_numpy() + np.int32(1))
    return table.set_column(table.schema.get_field_index(last), last, column), depth


@cache
def _forget_garbage() -> None:
    """Spark collects garbage behind each task: what a worker has imported need not be looked through each time."""
    gc.freeze()


@dataclass(frozen=True, kw_only=True)
class Task:
    """One operator in one job; called with the batches of one partition.

    Args:
        holder: the name of the operator.
        operator: None: rows are only added up, and are remembered by nobody.
        now: the time that is worked off.
        inputs: the schema of each input's rows, with hash, time and difference. output: that of its results.
        arrives: rows come from other operators of the job; the batches are them.
        files: what is there for it, by what it is; of all partitions.
        folder: of the job. partitions: how many there are.
        hands: where results are handed to. emits: they go on in this job as well.
    """

    holder: str
    operator: Join | Reduce | None
    now: Time
    inputs: tuple[pa.Schema, ...]
    output: pa.Schema
    arrives: bool
    files: Mapping[str, tuple[str, ...]]
    folder: str
    partitions: int
    hands: tuple[Hand, ...]
    emits: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Work; give the results."""
        _forget_garbage()
        context = TaskContext.get()
        assert context is not None
        yield from _Worker(self, context.partitionId()).work(batches)


class Place(Protocol):
    """Where an operator finds what it remembers, and leaves what it makes.

    Attributes: beside: what it wants to know of the rows that it is given to park, though whoever gets them does not.
    """

    beside: tuple[str, ...]

    def trace(self, what: str, schema: pa.Schema) -> Trace:
        """Return what it has been told, or has said."""

    def woken(self, schema: pa.Schema) -> pa.Table:
        """Return the keys that it wanted to be woken for now."""

    def write(self, what: str, rows: pa.Table, order: Order | None = None) -> None:
        """Remember rows. Args: order: that they are to be found in."""

    def park(self, what: str, time: Time, rows: pa.Table, holder: str = "", *, is_dropped: bool = False) -> None:
        """Leave rows for a time. Args: holder: for whom that they are handed to; else for the operator itself.
        is_dropped: nobody will read them, and what is asked of them is their residue."""


def act(
    operator: Join | Reduce, news: Sequence[pa.Table], now: Time, said: pa.Schema, place: Place
) -> pa.Table:  # fmt: skip
    """Do what an operator does at a time; return what is new of its results. Args: said: the schema of those."""
    if isinstance(operator, Join):
        traces = [place.trace(f"heard{port}", rows.schema) for port, rows in enumerate(news)]
        done = operator.work(news, traces, len(now))
    else:
        names = [HASH, *operator.keys]
        woken = distinct(place.woken(pa.schema([news[0].schema.field(n) for n in names])), names)
        heard = place.trace("heard0", news[0].schema)
        done = operator.work(news[0], woken, heard, place.trace("said", said), now, said)
        if done.out.num_rows:
            place.write("said", done.out)
    order = operator.order if isinstance(operator, Reduce) else None
    for port, rows in enumerate(done.heard):
        if rows.num_rows:
            place.write(f"heard{port}", rows, order)
    for time, keys in done.woken.items():
        place.park("woken", time, keys)
    return done.out


def hand_on(rows: pa.Table, depth: int, hands: Sequence[Hand], place: Place) -> None:
    """Leave what was made for those who get it without a shuffle."""
    for hand in hands:
        moving, there = moved(rows, depth, hand.move)
        beside = [n for n in place.beside if n in moving.column_names and n not in hand.names]
        moving = moving.select([*hand.names, *rounds(there), DIFFERENCE, *beside])
        for time, some in split_by_time(moving, there).items():
            place.park(f"parked{hand.port}", time, some, hand.holder, is_dropped=hand.is_dropped(time))


def said_by(operator: Join | Reduce, given: pa.Schema, output: pa.Schema, depth: int) -> pa.Schema:
    """Return the schema of what an operator says. Args: given: of what arrives. output: of its results."""
    if isinstance(operator, Join):
        return output
    fields = [output.field(n) for n in (*operator.keys, *operator.results)]
    ours = [given.field(n) for n in rounds(depth)]
    return pa.schema([pa.field(HASH, pa.int64()), *fields, *ours, pa.field(DIFFERENCE, pa.int64())])


class _Trace:
    def __init__(self, paths: Sequence[Path], schema: pa.Schema) -> None:
        self._paths, self._schema = paths, schema

    def rows(self, keys: Hashes) -> pa.Table:
        return runs.keys_of(self._paths, keys, self._schema) if len(keys) else self._schema.empty_table()

    def first(self, keys: Hashes, order: Order, most: int) -> First:
        return first_of(list(map(runs.load, self._paths)), keys, order, most, self._schema)


class _Worker:
    """A partition: a place whose rows are in files."""

    beside: tuple[str, ...] = ()

    def __init__(self, task: Task, number: int) -> None:
        self._task, self._depth = task, len(task.now)
        # Where several inputs come together each has all of the partitions, one after the other.
        self._partition = number % task.partitions
        # An operator has one task a partition, and may be run in two places of a job; what is only stored is not.
        self._part = 0 if task.operator is not None else number

    def work(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = self._task
        news = self._news(list(batches))
        if task.operator is None:
            out = consolidate(news[0])
        else:
            said = said_by(task.operator, task.inputs[0], task.output, self._depth)
            out = act(task.operator, news, task.now, said, self)
        hand_on(out, self._depth, task.hands, self)
        if task.emits and out.num_rows:
            yield from out.select(task.output.names).cast(task.output).to_batches(max_chunksize=_BATCH_ROWS)

    def _news(self, batches: list[pa.RecordBatch]) -> list[pa.Table]:
        """Return what is to be worked off now, of each input; what is for later is parked."""
        task, found = self._task, []
        arrived = pa.Table.from_batches(batches) if batches and task.arrives else None
        for port, schema in enumerate(task.inputs):
            parked = [runs.load(path) for path in self._paths(f"parked{port}")]
            rows = schema.empty_table() if arrived is None else _of_port(arrived, port, schema)
            if task.operator is not None:  # what is only handed on is so with its time
                by_time = split_by_time(rows, self._depth)
                rows = by_time.pop(task.now, schema.empty_table())
                for time, later in by_time.items():
                    self.park(f"parked{port}", time, later)
            found.append(together([rows, *parked], schema))
        return found

    def _paths(self, what: str) -> list[Path]:
        paths = map(Path, self._task.files.get(what, ()))
        return [path for path in paths if FileName.parse(path.name).partition == self._partition]

    def trace(self, what: str, schema: pa.Schema) -> Trace:
        """See Place."""
        return _Trace(self._paths(what), schema)

    def woken(self, schema: pa.Schema) -> pa.Table:
        """See Place."""
        return together(map(runs.load, self._paths("woken")), schema)

    def write(self, what: str, rows: pa.Table, order: Order | None = None) -> None:
        """See Place."""
        name = FileName(holder=self._task.holder, what=what, partition=self._partition, rows=rows.num_rows)
        runs.write(Path(self._task.folder) / str(name), rows, order)

    def park(self, what: str, time: Time, rows: pa.Table, holder: str = "", *, is_dropped: bool = False) -> None:
        """See Place."""
        name = FileName(
            holder=holder or self._task.holder, what=what, time=time, partition=self._partition, part=self._part,
            rows=rows.num_rows, residue=residue(rows) if is_dropped else 0,
        )  # fmt: skip
        # One holder may be handed to by several.
        path = Path(self._task.folder) / f"by-{self._task.holder}" if holder else Path(self._task.folder)
        path.mkdir(exist_ok=True)
        runs.store(path / str(name), rows)


def _of_port(arrived: pa.Table, port: int, schema: pa.Schema) -> pa.Table:
    if PORT in arrived.column_names:
        mask = pa.array(arrived.column(PORT).to_numpy() == port)
        arrived = arrived.filter(mask)
    return arrived.select(schema.names).cast(schema)


def small(runs: Sequence[str], rows: int = 0, most: float = math.inf) -> list[str]:
    """Return the runs that are worth merging: the smallest, and each further one that is not much greater than all
    before it together. Args: rows: that come as well. most: in all."""
    found: list[str] = []
    least = 0 if rows else 2
    for size, run in sorted((FileName.parse(Path(run).name).rows, run) for run in runs):
        if rows + size > most or (size > 2 * rows and len(found) >= least):
            break
        found.append(run)
        rows += size
    return found


@dataclass(frozen=True, kw_only=True)
class Merge:
    """Merges the runs of traces into one each, of one partition each.

    Args: files: of each, those to be merged. targets: the names of the files that come of it.
    """

    files: tuple[tuple[str, ...], ...]
    targets: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Merge those whose numbers are in the batches."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                tables = [runs.load(Path(path)) for path in self.files[number]]
                merged = consolidate(together(tables, tables[0].schema))
                if HASH in merged.column_names:
                    order = next(filter(None, map(order_of, tables)), None)
                    runs.write(Path(self.targets[number]), merged, order)
                else:
                    runs.store(Path(self.targets[number]), merged)
        yield from ()
