"""Iterations: batches whose parameters are collections that change, with loops over them.

The state of such a batch is in files that never change, and a note lists them. So to save a state is to save a note,
and to go back to one is to begin from its note. Files that no retained note names are deleted.
"""

import json
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, LongType, StructField, StructType

from falkirk.declare.parts import JOBS, ROUNDS, UNFINISHED, DeclaredProcessor
from falkirk.errors.conditions.batch import COLLECTION_MISSING, NON_DETERMINISTIC_PROGRAM, UNTIL_UNUSED
from falkirk.platform.data import Manifest
from falkirk.spark_setup.partitions import batch_partitions
from falkirk.steps.batch.call import current
from falkirk.steps.batch.loop_files import LoopFolders
from falkirk.steps.dataframes.empty import no_rows
from falkirk.steps.differential.collection import Collection, LoopLimits, limits
from falkirk.steps.differential.flow import Flow
from falkirk.steps.differential.graph import LoopGraph, Reduced, Scope, Source
from falkirk.steps.differential.operators import Group
from falkirk.steps.differential.program import Program, first_change, program_digest, program_of, tried_steps
from falkirk.steps.differential.rows import DIFFERENCE
from falkirk.steps.differential.state import LoopState
from falkirk.steps.static_analysis.functions import ITSELF

log = logging.getLogger("falkirk")

#: The column with the number of times that a row is added; below 0, that it is removed.
CHANGE = "difference"


class Iterating:
    """The function of a batch that is an iteration: it receives and returns DataFrames.

    The user's function is called once, and its result is stored as a graph, because the analysis by Spark takes longer
    than many an epoch.
    """

    def __init__(self, processor: DeclaredProcessor) -> None:
        assert processor.iteration is not None, "only an iteration iterates"
        self._processor, self._settings = processor, processor.iteration
        self._graph: LoopGraph | None = None
        self._made_for: object = None
        #: Whether the contents of the files with which this process began were checked.
        self._checked = False

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Process the new rows. Return the changes of the result, or the whole result.

        Raises: DefinitionError: as the function's operators; `COLLECTION_MISSING`: it returns no collection;
            `UNTIL_UNUSED`; `NON_DETERMINISTIC`: each call makes another program; `FUNCTION_UNREADABLE`.
        """
        call, session = current("iterate"), frames[0].sparkSession
        given = dict(zip(self._processor.reads, frames, strict=True))
        graph = self._planned(given, session)
        slot = call.slot("iterate")
        files, noted = call.files(slot), call.noted(slot)
        if files is None:
            call.determined_by([tried.content for tried in tried_steps(graph)])
            program = self._program(graph, given, session)
            call.note(slot, f"{graph.shape()}; program {program_digest(program, session)}")
            return session.createDataFrame([], self._returned(graph))
        first = {"partitions": batch_partitions(session), "state": ""}
        note: dict[str, Any] = first if noted is None else json.loads(noted)
        kept: Manifest = note.get("files", {})
        files.require(kept, contents=not self._checked)
        self._checked = True
        flow = Flow(graph, session, files, note["partitions"])
        # Several nodes may read a frame, and each would read the topic again.
        taken = {name: _changes(frame).persist() for name, frame in given.items()}
        try:
            state = LoopState.parse(note["state"]) if note["state"] else LoopState()
            done = flow.advance(state, taken, f"{call.epoch.number}-{uuid.uuid4().hex[:12]}")
        finally:
            for frame in taken.values():
                frame.unpersist()
        names = done.state.files()
        manifest = {name: kept[name] for name in names & kept.keys()} | dict(files.save(names - kept.keys()))
        call.note(slot, json.dumps({**note, "state": done.state.text(), "files": manifest}))
        call.reported[ROUNDS], call.reported[JOBS] = sum(r.count for r in done.rounds), done.jobs
        call.reported[UNFINISHED] = sum(not r.converged for r in done.rounds)
        if call.reported[UNFINISHED]:
            log.warning("%s: epoch %d did not converge within its rounds", self._processor.name, call.epoch.number)
        if self._settings.sends == "changes":
            return done.changes.withColumnRenamed(DIFFERENCE, CHANGE)
        return _all(flow.whole(done.state))

    def _planned(self, given: Mapping[str, DataFrame], session: SparkSession) -> LoopGraph:
        context = session.sparkContext
        if self._graph is None or self._made_for is not context:
            self._graph, self._made_for = self._plan(given, session), context
        return self._graph

    def _program(self, graph: LoopGraph, given: Mapping[str, DataFrame], session: SparkSession) -> Program:
        """Return the program, after calling the function a second time. A value that Python reads from a clock is a
        literal to Spark, but it differs in the second call.

        Raises: DefinitionError: `NON_DETERMINISTIC`.
        """
        program, again = program_of(graph, session), program_of(self._plan(given, session, is_checked=True), session)
        if program != again:
            raise NON_DETERMINISTIC_PROGRAM.error(
                where=first_change(graph, program, again) or self._processor.where,
                operation="iterate",
                operations=(ITSELF,),
                processor=self._processor.name,
            )
        return program

    def _plan(self, given: Mapping[str, DataFrame], session: SparkSession, *, is_checked: bool = False) -> LoopGraph:
        """Call the user's function. Args: is_checked: whether its steps were already found deterministic."""
        outside = Scope()
        collections = []
        for name, frame in given.items():
            fields = [f for f in frame.schema.fields if f.name != CHANGE]
            schema = StructType([StructField(f.name, f.dataType) for f in fields])
            like = no_rows(session, schema)
            collections.append(Collection(Source(scope=outside, schema=schema, name=name), like))
        token = limits.set(self._limits(is_checked))
        try:
            result = self._processor.body(*collections)
        finally:
            limits.reset(token)
        if not isinstance(result, Collection):
            raise COLLECTION_MISSING.error(
                where=self._processor.where, processor=self._processor.name, name=type(result).__name__
            )
        graph = result.graph()
        if self._settings.until and not _leaves_alone(graph, self._settings.until):
            raise UNTIL_UNUSED.error(
                where=self._processor.where, processor=self._processor.name, until=self._settings.until
            )
        return graph

    def _limits(self, is_checked: bool) -> LoopLimits:
        vouched = is_checked or self._processor.assertion is not None
        return LoopLimits(rounds=self._settings.rounds, until=self._settings.until, is_vouched=vouched)

    def _returned(self, graph: LoopGraph) -> StructType:
        changes = [StructField(CHANGE, LongType())] if self._settings.sends == "changes" else []
        return StructType([*graph.result.schema.fields, *changes])


def _leaves_alone(graph: LoopGraph, until: float) -> bool:
    """Whether any floating-point result has this tolerance."""
    for node in graph.nodes:
        if isinstance(node, Reduced) and isinstance(node.operator.how, Group):
            types = [node.schema[name].dataType for name in node.operator.results]
            if node.operator.how.tolerance == until and any(isinstance(t, DoubleType | FloatType) for t in types):
                return True
    return False


def _changes(frame: DataFrame) -> DataFrame:
    """Return rows with their difference in the column that collections use."""
    if CHANGE not in frame.columns:
        return frame.withColumn(DIFFERENCE, F.lit(1).cast("long"))
    difference = F.coalesce(F.col(CHANGE).cast("long"), F.lit(1)).alias(DIFFERENCE)
    return frame.select(*[F.col(f"`{c}`") for c in frame.columns if c != CHANGE], difference)


def _all(rows: DataFrame) -> DataFrame:
    """Return each row as many times as its count."""
    there = rows.where(F.col(DIFFERENCE) > 0)
    return there.withColumn(DIFFERENCE, F.explode(F.sequence(F.lit(1).cast("long"), DIFFERENCE))).drop(DIFFERENCE)


def named_files(notes: Iterable[str]) -> set[str]:
    """Return the files of a slot that these notes name."""
    states = [LoopState.parse(json.loads(note)["state"]) for note in notes]
    return set().union(*(state.files() for state in states))


def fetch_files(folders: LoopFolders, notes: Mapping[str, str]) -> None:
    """Fetch the files that notes name, by slot, before somebody deletes them. Raises: as `LoopFiles.require`."""
    for slot, note in notes.items():
        folders.of(slot).require(json.loads(note).get("files", {}), contents=True)


def iterating(processor: DeclaredProcessor) -> Callable[..., Any]:
    """Return the function of a batch, which gets and returns DataFrames."""
    return processor.body if processor.iteration is None else Iterating(processor)
