"""Jobs: builds one Spark job for each time of a graph, runs it, and adds the files that it wrote to lists.

The memory of operators is in files. The driver sees the names of the files and the number of their rows, never rows.
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from falkirk.steps.dataframes.casts import cast
from falkirk.steps.dataframes.pairs import united
from falkirk.steps.differential.evaluator import Evaluated, Evaluator
from falkirk.steps.differential.files import FlowFiles
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
    inputs_of,
    is_loose,
)  # fmt: skip
from falkirk.steps.differential.reports import JobReports, TaskId, WrittenFiles
from falkirk.steps.differential.routes import Routes
from falkirk.steps.differential.rows import DIFFERENCE, HASH, LoopTime, rounds
from falkirk.steps.differential.schedule import Schedule
from falkirk.steps.differential.schemas import arrow_of, port_names, port_schema, port_types, timed_schema
from falkirk.steps.differential.single_task import OUTCOME, SingleTask, TaskOutcome, given_by, prepare
from falkirk.steps.differential.state import LoopState
from falkirk.steps.differential.task import MERGE, NUMBER, PORT, FileName, LaterReader, Merge, Task, small, task_name

log = logging.getLogger("falkirk")

K = TypeVar("K")

#: If a trace has more runs than this, on average over its partitions, small runs are merged.
RUNS_MAX = 24
#: The greatest number of runs that an epoch leaves in a partition's part of a trace.
NEW_MAX = 2


@dataclass
class _Job:
    """A job that is being built.

    Args: folder: in the flow's. reports: of its tasks. ends: steps that only store. shared: frames with several
        readers. operators: their names.
    """

    folder: str
    reports: JobReports
    ends: list[DataFrame] = field(default_factory=list)
    shared: list[DataFrame] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)


class Jobs(Evaluator[DataFrame]):
    """The jobs of one epoch.

    Args: routes: of the graph. inputs: by the source's name, its changed rows with their difference. files: of the
        flow. name: the epoch's folder. alone: as in `Flow`.
    """

    def __init__(
        self, session: SparkSession, graph: LoopGraph, routes: Routes, state: LoopState,
        inputs: Mapping[str, DataFrame], files: FlowFiles, name: str, partitions: int, alone: int,
    ) -> None:  # fmt: skip
        super().__init__(state.left, set())
        self._session, self._graph, self._routes, self._inputs = session, graph, routes, inputs
        #: The number of rows that may wait for a round that one task computes, and the loops that one task can compute.
        self._alone, self._suitable = alone, set(prepare(graph, session)) if alone else set()
        self._too_much: dict[Scope, int] = {}
        self._files, self._name, self._partitions = files, name, partitions
        self.traces = dict(state.traces)
        self._given = state.files()
        self._open = self._new_job()

    def operated(
        self, holder: Joined | Reduced, now: LoopTime, frames: Sequence[DataFrame | None],
        waiting: Mapping[str, tuple[Any, ...]],
    ) -> DataFrame:  # fmt: skip
        """See Evaluator. It adds the operator's work to the job."""
        traces = {what: files for (name, what), files in self.traces.items() if name == holder.name}
        task = Task(
            holder=holder.name, operator=holder.operator, now=now,
            inputs=tuple(port_schema(holder, port, len(now)) for port in range(len(frames))),
            output=arrow_of(holder.schema, len(now)),
            arrives=any(frame is not None for frame in frames), files=(files := {**traces, **waiting}),
            place=self._files.of_task(chain(*files.values())), folder=self._open.folder, partitions=self._partitions,
            readers=self._routes.readers_of(holder), emits=id(holder) in self._routes.emits,
            report=self._open.reports.reporter,
        )  # fmt: skip
        self._open.operators.append(task_name(holder.name, now))
        made = self._task(task, self._arriving(holder, frames, now), holder.schema)
        if self._routes.emits[id(holder)] > 1:  # otherwise Spark would compute it once for each reader
            self._open.shared.append(made.persist())
        return made

    def conclude(self, result: Result, now: LoopTime) -> None:
        """Add a step that stores the changes of the result, equal rows together."""
        frame = self.frame(result.of, now)
        if frame is not None:
            reader = LaterReader(holder=result.name, port=0, names=port_names(result, 0))
            hashed = F.xxhash64(*[F.col(f"`{n}`") for n in result.schema.names])
            self._store_frame(result, frame.repartition(self._partitions, hashed), now, [reader])

    def store(self, node: LoopNode, now: LoopTime, readers: list[LaterReader], sign: int = 1) -> None:
        """Add a step that stores the changes of a node for a later job."""
        frame = self._even(node, now)
        if frame is not None:
            if any(reader.holder in self._routes.mixed for reader in readers):
                frame = frame.repartition(self._partitions, *[F.col(f"`{n}`") for n in node.schema.names])
            if sign < 0:
                frame = frame.withColumn(DIFFERENCE, -F.col(DIFFERENCE))
            self._store_frame(node, frame, now, readers)

    def _store_frame(self, node: LoopNode, frame: DataFrame, now: LoopTime, readers: list[LaterReader]) -> None:
        schema = arrow_of(node.schema, len(now))
        task = Task(
            holder=_store(len(self._open.ends)), operator=None, now=now, inputs=(schema,), output=schema,
            arrives=True, files={}, place=self._files.of_task(()), folder=self._open.folder,
            partitions=self._partitions, readers=tuple(readers), emits=False, report=self._open.reports.reporter,
        )  # fmt: skip
        self._open.ends.append(self._task(task, frame, node.schema))

    def _task(self, task: Task, arriving: DataFrame | None, schema: StructType) -> DataFrame:
        n = self._partitions
        frame = self._session.range(0, n, 1, n) if arriving is None else arriving
        columns = f"{NUMBER} INT" if task.only_stores else timed_schema(schema, len(task.now))
        return frame.mapInArrow(task, columns)

    def _arriving(
        self, holder: Joined | Reduced, frames: Sequence[DataFrame | None], now: LoopTime
    ) -> DataFrame | None:
        """Return the arriving rows of all inputs, partitioned by key."""
        nodes, parts = inputs_of(holder), []
        ours = [*rounds(len(now)), DIFFERENCE]
        every = list(dict.fromkeys(n for port in range(len(frames)) for n in port_names(holder, port)))
        types = port_types(holder)
        # Frames without a fixed partitioning come last: in a union, a task's number tells it its partition.
        for port, frame in sorted(enumerate(frames), key=lambda part: is_loose(nodes[part[0]])):
            if frame is None:
                continue
            own = set(port_names(holder, port))
            key = [F.col(f"`{k}`") for k in holder.operator.keys]
            hashed = F.xxhash64(*(key or [F.lit(0)])).alias(HASH)
            columns = [
                F.col(f"`{n}`") if n in own else cast(F.lit(None), types[n]).alias(n) for n in every if n != HASH
            ]  # fmt: skip
            tagged = [F.lit(port).alias(PORT)] if len(frames) > 1 else []
            parts.append(frame.select(hashed, *columns, *[F.col(n) for n in ours], *tagged))
        if not parts:
            return None
        return united(parts, DataFrame.unionAll).repartition(self._partitions, HASH)

    # -- as Evaluator --------------------------------------------------------------------------------------------------

    def source(self, node: Source) -> DataFrame | None:
        """See Evaluator."""
        return self._inputs.get(node.name)

    def mapped(self, node: Mapped, of: DataFrame, now: LoopTime) -> DataFrame:
        """See Evaluator."""
        return node.how(of)

    def enter(self, node: Entered, of: DataFrame, now: LoopTime) -> DataFrame:
        """See Evaluator."""
        names = [F.col(f"`{n}`") for n in node.schema.names]
        entered = F.lit(0).cast("int").alias(rounds(len(now))[-1])
        return of.select(*names, *[F.col(r) for r in rounds(len(now) - 1)], entered, F.col(DIFFERENCE))

    def union(self, node: LoopNode, frames: Sequence[DataFrame], now: LoopTime) -> DataFrame:
        """See Evaluator."""
        return united(frames, DataFrame.unionByName)

    def beside(self, nodes: Sequence[LoopNode], now: LoopTime) -> list[DataFrame | None]:
        """See Evaluator. In a union with other rows, a task's number tells it its partition."""
        loose = all(map(is_loose, nodes)) and len(nodes) > 1
        return [self.frame(node, now) if loose else self._even(node, now) for node in nodes]

    def _even(self, node: LoopNode, now: LoopTime) -> DataFrame | None:
        """Return the changes of a node in `partitions` partitions."""
        frame = self.frame(node, now)
        return frame.repartition(self._partitions) if frame is not None and is_loose(node) else frame

    def taken(self, node: Holder, rows: tuple[Any, ...], now: LoopTime) -> tuple[Any, ...]:
        """See Evaluator."""
        return rows

    def reading(self, node: Holder, rows: tuple[str, ...], now: LoopTime) -> DataFrame:
        """See Evaluator."""
        schema = arrow_of(node.schema, len(now))
        task = Task(
            holder="reading", operator=None, now=now, inputs=(schema,), output=schema, arrives=False,
            files={"deferred0": rows}, place=self._files.of_task(rows), folder="", partitions=self._partitions,
            readers=(), emits=True, report=None,
        )  # fmt: skip
        return self._task(task, None, node.schema)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def _new_folder(self, name: str) -> str:
        return f"{self._name}/{name}-{uuid.uuid4().hex[:6]}"

    def _new_job(self) -> _Job:
        return _Job(folder=self._new_folder(str(self.count)), reports=JobReports(self._session.sparkContext))

    def flush(self) -> None:
        """Run the open job, and add its files to the lists."""
        job, step, self._open, self.step = self._open, self.step, self._new_job(), Evaluated()
        stores = [end.select(F.lit(_store(n)).alias("end"), NUMBER) for n, end in enumerate(job.ends)]
        unread = [
            frame.select(F.lit("").alias("end"), F.lit(0).alias(NUMBER))
            for made, frame in step.made.items() if made not in step.read
        ]  # fmt: skip
        if not stores and not unread:
            return
        try:
            ended = united([*stores, *unread], DataFrame.unionAll).collect()
        finally:
            for frame in job.shared:
                frame.unpersist()
        self.count += 1
        stored = {(end, number) for end, number in ended if end}
        tasks = {(name, number) for name in job.operators for number in range(self._partitions)}
        for path in self._reported(job.reports, sorted(stored | tasks)):
            name = FileName.parse(path)
            if name.what.startswith(("deferred", "due")):
                key = (name.holder, name.what, name.time)
                self.pending[key] = (*self.pending.get(key, ()), path)
            else:
                trace = (name.holder, name.what)
                self.traces[trace] = (*self.traces.get(trace, ()), path)
        self.tidy()

    def _reported(self, reports: JobReports, tasks: Iterable[TaskId]) -> list[str]:
        """Return the files that tasks have written."""
        written: WrittenFiles = {}
        for each in reports.of(tasks):
            written |= each
        self._files.add(written)
        return list(written)

    def residue(self, rows: Any) -> int:
        """See Works."""
        return FileName.parse(rows).residue

    def go_round(self, turns: Schedule, left: Left, now: LoopTime, count: int) -> int:
        """See Works: one task computes rounds while few rows wait."""
        waiting = turns.waiting(left.loop)
        rows = sum(FileName.parse(path).rows for key in waiting for path in self.pending[key])
        if left.loop not in self._suitable or rows > min(self._alone, self._too_much.get(left.loop, rows)):
            return 0
        outcome = self._go_alone(turns, left.loop, self._session.range(0, 1, 1, 1), (left, now, count))
        if outcome is None:
            return 0
        if not outcome.is_little:  # one task tries again when half as many rows wait
            self._too_much[left.loop] = rows // 2
        return outcome.count

    def go_alone(self, turns: Schedule) -> bool:
        """Let one task compute the whole epoch if it can. Return whether it did."""
        everything = self._graph.result.scope
        # A first epoch is a load, which usually has many rows.
        if everything not in self._suitable or not self.traces:
            return False
        given = given_by(self._graph, self._inputs)
        return given is not None and self._go_alone(turns, everything, given.coalesce(1), None) is not None

    def _go_alone(
        self, turns: Schedule, scope: Scope, given: DataFrame, rest: tuple[Left, LoopTime, int] | None
    ) -> TaskOutcome | None:  # fmt: skip
        waiting = turns.waiting(scope)
        holders = {h.name for h in self._graph.holders() if h.scope.is_within(scope)}
        traces = {t: files for t, files in self.traces.items() if t[0] in holders}
        pending = {key: self.pending[key] for key in waiting}
        task = SingleTask(
            graph=self._graph, rest=rest, entered=frozenset(self.entered), traces=traces, pending=pending,
            rounds=turns.rounds, cut_short=turns.cut_short, partitions=self._partitions, most=self._alone,
            place=self._files.of_task(chain(*traces.values(), *pending.values())),
            folder=self._new_folder(str(self.count)), is_load=not self._given,
        )  # fmt: skip
        ended = given.mapInArrow(task, f"{OUTCOME} STRING").collect()
        self.count += 1
        outcome = task.outcome([row[OUTCOME] for row in ended])
        if isinstance(outcome, str):
            log.info("Spark jobs compute this, since one task could not: %s", outcome)
            self._suitable.discard(scope)
            return None
        self._files.add(outcome.written)
        for key in waiting:
            del self.pending[key]
        for trace, gone in outcome.merged.items():
            self.traces[trace] = tuple(file for file in self.traces.get(trace, ()) if file not in gone)
        _add(self.traces, outcome.traces)
        _add(self.pending, outcome.pending)
        _add(self.left, outcome.left)
        turns.rounds, turns.cut_short = dict(outcome.rounds), dict(outcome.cut_short)
        self.tidy()
        return outcome

    def tidy(self) -> None:
        """Merge small runs of traces that have many. A run is written again only when the merged rows have
        doubled. So the total cost of merging grows with the changes and not with the size of the trace."""
        if any(len(files) > RUNS_MAX * self._partitions for files in self.traces.values()):
            self._merge(lambda runs: small(runs) if len(runs) > RUNS_MAX // 2 else [])

    def compact(self) -> None:
        """Merge the runs of this epoch if there are many: in a loop most of their rows cancel."""

        def new(runs: list[str]) -> list[str]:
            found = [run for run in runs if run not in self._given]
            return found if len(found) > NEW_MAX else []

        self._merge(new)

    def _merge(self, chosen: Callable[[list[str]], list[str]]) -> None:
        """Merge runs into one per partition. Args: chosen: returns those of a partition's runs to merge."""
        files, targets, of = list[tuple[str, ...]](), list[FileName](), list[tuple[str, str]]()
        for trace, paths in self.traces.items():
            kept: list[str] = []
            by_partition: dict[int, list[str]] = {}
            for path in paths:
                by_partition.setdefault(FileName.parse(path).partition, []).append(path)
            for partition, runs in by_partition.items():
                merged = chosen(runs)
                kept += [run for run in runs if run not in merged]
                if merged:
                    rows = sum(FileName.parse(run).rows for run in merged)
                    targets.append(FileName(holder=trace[0], what=trace[1], partition=partition, rows=rows))
                    files.append(tuple(merged))
                    of.append(trace)
            self.traces[trace] = tuple(kept)
        if not files:
            return
        reports = JobReports(self._session.sparkContext)
        merge = Merge(
            files=tuple(files), targets=tuple(targets), place=self._files.of_task(chain(*files)),
            folder=self._new_folder("merged"), report=reports.reporter,
        )  # fmt: skip
        parts = min(len(files), self._partitions)
        self._session.range(0, len(files), 1, parts).mapInArrow(merge, "id LONG").collect()
        self.count += 1
        written = self._reported(reports, ((MERGE, number) for number in range(len(files))))
        for trace, path in zip(of, written, strict=True):
            self.traces[trace] = (*self.traces[trace], path)


def _store(number: int) -> str:
    """Return the name of a step that only stores, among the tasks of a job."""
    return f"store-{number}"


def _add(lists: dict[K, tuple[str, ...]], more: Mapping[K, tuple[str, ...]]) -> None:
    """Add files to lists."""
    for key, files in more.items():
        lists[key] = (*lists.get(key, ()), *files)
