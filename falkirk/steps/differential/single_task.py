"""Alone: computes an epoch, or rounds of a loop, in one task while there is little to do.

A Spark job takes at least a tenth of a second, and a loop over few rows has little work in a round. So one task
computes an epoch with few changes. In other epochs, one task computes the rounds of a loop while few rows wait for the
next round. The task works in memory, over all partitions. It reads the same runs and writes the same kinds of files as
the jobs, so either can continue the other's work. If the task fails, or too many rows wait, the jobs take over.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from falkirk.steps.dataframes.casts import cast
from falkirk.steps.dataframes.empty import no_rows
from falkirk.steps.differential.expressions import Steps, Unsuitable
from falkirk.steps.differential.files import TaskFiles
from falkirk.steps.differential.graph import (
    Joined,
    Left,
    LoopGraph,
    LoopNode,
    Mapped,
    Reduced,
    Result,
    Scope,
)  # fmt: skip
from falkirk.steps.differential.hashing import is_hashed
from falkirk.steps.differential.in_memory import InMemory
from falkirk.steps.differential.reports import WrittenFiles
from falkirk.steps.differential.routes import Routes
from falkirk.steps.differential.rows import LoopTime, concat_rows
from falkirk.steps.differential.running_sums import Unusual
from falkirk.steps.differential.schedule import Rounds, Schedule, WaitingKey
from falkirk.steps.differential.schemas import arrow_of, port_schema, timed_schema

log = logging.getLogger("falkirk")

#: One task computes a round while at most this many rows wait for it.
ALONE_MAX = 600_000
#: The column in which the task gives its outcome to the driver.
OUTCOME = "outcome"


def prepare(graph: LoopGraph, session: SparkSession) -> frozenset[Scope]:
    """Return the loops of a graph that one task can compute, and the outermost scope if it can compute everything.

    This needs all steps and the hashes of all keys without Spark. It is determined once for each graph, which then has
    the steps in `Mapped.steps`.
    """
    if graph.alone is None:
        unsuitable = {node.scope for node in graph.nodes if not _is_suitable(node, session)}
        scopes = {node.scope for node in graph.nodes}
        graph.alone = frozenset(scope for scope in scopes if not any(bad.is_within(scope) for bad in unsuitable))
    return graph.alone


def _is_suitable(node: LoopNode, session: SparkSession) -> bool:
    if isinstance(node, Mapped):
        try:
            node.steps = Steps.of(node.how(no_rows(session, timed_schema(node.of.schema, node.scope.depth))))
        except Unsuitable as error:
            if node.scope.depth:
                log.info("Spark jobs compute a step of a loop, since one task could not: %s", error)
            return False
    if isinstance(node, Joined | Reduced):
        schema = port_schema(node, 0, node.scope.depth)
        return all(is_hashed(schema.field(key).type) for key in node.operator.keys)
    return not isinstance(node, Result) or all(is_hashed(f.type) for f in arrow_of(node.schema, 0))


def given_by(graph: LoopGraph, inputs: Mapping[str, DataFrame]) -> DataFrame | None:
    """Return the changes of all sources as the task's input: one column per source, and a value in one column of each
    row. None: nothing has changed."""
    frames = [inputs.get(source.name) for source in graph.sources()]
    parts = []
    for own in (number for number, frame in enumerate(frames) if frame is not None):
        columns = []
        for number, source in enumerate(graph.sources()):
            schema = timed_schema(source.schema, 0)
            row = F.struct(*[cast(F.col(f"`{f.name}`"), f.dataType).alias(f.name) for f in schema])
            columns.append((row if number == own else F.lit(None).cast(schema)).alias(f"source{number}"))
        frame = frames[own]
        assert frame is not None
        parts.append(frame.select(*columns))
    return reduce(DataFrame.unionAll, parts) if parts else None


@dataclass(frozen=True, kw_only=True)
class TaskOutcome:
    """The outcome of a task.

    Args: count: the number of rounds done. is_little: whether there was little to do until the last round. traces: new
        files of traces. merged: files whose rows are now in the new ones. pending, left: the rows that still wait, of
        the input and of the task's own, and those left for the next epoch. rounds, cut_short: of loops in the scope.
        written: all new files.
    """

    count: int
    is_little: bool
    traces: Mapping[tuple[str, str], tuple[str, ...]]
    merged: Mapping[tuple[str, str], tuple[str, ...]]
    pending: Mapping[WaitingKey, tuple[str, ...]]
    left: Mapping[WaitingKey, tuple[str, ...]]
    rounds: Mapping[str, Rounds]
    cut_short: Mapping[WaitingKey, int]
    written: WrittenFiles

    def text(self) -> str:
        """Return the outcome as JSON."""
        content = {
            "count": self.count,
            "is_little": self.is_little,
            "traces": [[*trace, list(files)] for trace, files in self.traces.items()],
            "merged": [[*trace, list(files)] for trace, files in self.merged.items()],
            "pending": [[*waiting, list(files)] for waiting, files in self.pending.items()],
            "left": [[*waiting, list(files)] for waiting, files in self.left.items()],
            "rounds": [[loop, rounds.count, rounds.converged] for loop, rounds in self.rounds.items()],
            "cut_short": [[*waiting, residue] for waiting, residue in self.cut_short.items()],
            "written": self.written,
        }
        return json.dumps(content)

    @classmethod
    def parse(cls, text: str) -> "TaskOutcome":
        """Return the outcome that a text describes. Raises: ValueError, KeyError, TypeError: it is no outcome."""
        content = json.loads(text)

        def files(name: str) -> dict[tuple[str, str], tuple[str, ...]]:
            return {(holder, what): tuple(map(str, paths)) for holder, what, paths in content[name]}

        def waiting(name: str) -> dict[WaitingKey, tuple[str, ...]]:
            return {(h, what, tuple(time)): tuple(map(str, paths)) for h, what, time, paths in content[name]}

        return cls(
            count=int(content["count"]),
            is_little=bool(content["is_little"]),
            traces=files("traces"),
            merged=files("merged"),
            pending=waiting("pending"),
            left=waiting("left"),
            rounds={loop: Rounds(count=int(n), converged=bool(c)) for loop, n, c in content["rounds"]},
            cut_short={(h, what, tuple(time)): int(residue) for h, what, time, residue in content["cut_short"]},
            written={str(name): [*map(int, measured)] for name, measured in content["written"].items()},
        )


@dataclass(frozen=True, kw_only=True)
class SingleTask:
    """The task.

    Args: rest: a loop that has begun, as its end, the time around it, and the number of rounds done before. None: the
        task computes the whole epoch, and its batches are the changes of the sources. entered: as in `Works`.
        traces, pending: the files of its input, of all partitions. rounds, cut_short: as in `Schedule`, so far. place:
        reads and writes files. folder: for those that it writes. partitions: their number. most: the number of rows
        that may wait for a round. is_load: whether no epoch precedes this one.
    """

    graph: LoopGraph
    rest: tuple[Left, LoopTime, int] | None
    entered: frozenset[Scope]
    traces: Mapping[tuple[str, str], tuple[str, ...]]
    pending: Mapping[WaitingKey, tuple[str, ...]]
    rounds: Mapping[str, Rounds]
    cut_short: Mapping[WaitingKey, int]
    place: TaskFiles
    folder: str
    partitions: int
    most: int
    is_load: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Compute, and yield the outcome as a row; if Spark has to compute it, the reason."""
        try:
            text = self.work(self._taken(batches)).text()
        except (Unsuitable, pa.ArrowException) as error:
            text = json.dumps(f"{type(error).__name__}: {error}")
        for _ in batches:  # Spark has to get rid of them
            pass
        yield pa.RecordBatch.from_pydict({OUTCOME: [text]})

    def _taken(self, batches: Iterator[pa.RecordBatch]) -> dict[str, pa.Table]:
        """Return the changes of each source."""
        found, rows = [], 0
        for batch in batches:
            found.append(batch)
            rows += batch.num_rows
            if rows > self.most:
                raise Unsuitable("too many changed rows")
        taken = {}
        for number, source in enumerate(self.graph.sources() if self.rest is None else []):
            columns = [batch.column(number) for batch in found]
            parts = [pa.Table.from_struct_array(column.filter(column.is_valid())) for column in columns]
            taken[source.name] = concat_rows(parts, arrow_of(source.schema, 0))
        return taken

    def outcome(self, rows: Sequence[str]) -> TaskOutcome | str:
        """Return the outcome in the task's only row, or why Spark has to compute it."""
        (text,) = rows
        reason = json.loads(text)
        return reason if isinstance(reason, str) else TaskOutcome.parse(text)

    def work(self, taken: Mapping[str, pa.Table]) -> TaskOutcome:
        """Compute. Args: taken: the sources' changes. Raises: Unsuitable, pa.ArrowException: Spark has to do it."""
        try:
            return self._work(taken, keeps_sums=True)
        except Unusual:
            return self._work(taken, keeps_sums=False)

    def _work(self, taken: Mapping[str, pa.Table], *, keeps_sums: bool) -> TaskOutcome:
        routes = Routes(graph=self.graph)
        works = InMemory(
            self.graph, routes, self.place, self.traces, self.pending, taken, set(self.entered), self.partitions,
            self.most, keeps_sums=keeps_sums, is_load=self.is_load,
        )  # fmt: skip
        turns = Schedule(self.graph, works, routes, self.cut_short)
        turns.rounds = dict(self.rounds)
        if self.rest is None:
            turns.run(self.graph.result.scope, ())
            works.flush()
            count = 1
        else:
            count = turns.rest(*self.rest, lambda: works.is_little)
        traces, merged = works.remembered_in(self.folder)
        pending, left = (
            works.stored(waiting, folder)
            for waiting, folder in ((works.pending, self.folder), (works.left, f"{self.folder}/left"))
        )
        return TaskOutcome(
            count=count, is_little=works.is_little, traces=traces, merged=merged, pending=pending, left=left,
            rounds=turns.rounds, cut_short=turns.cut_short, written=works.written,
        )  # fmt: skip
