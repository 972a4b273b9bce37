"""Plans the batches of an application: the logs that each reads, and the views that it needs, upstream first."""

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

from pyspark.sql import SparkSession

from falkirk.declare.application import Application
from falkirk.declare.cut import ByTime
from falkirk.declare.nodes import LOOKUP, SourceNode, Step
from falkirk.declare.parts import DeclaredProcessor
from falkirk.errors.conditions.plan import (
    ITERATION_INVALID_CHANGES,
    PATTERN_MISPLACED_TIME,
    VIEW_HAS_NO_EPOCHS,
    VIEW_OF_CHANGES,
)
from falkirk.errors.location import SourceLocation
from falkirk.plan.added import sorter_of, view_of
from falkirk.plan.batch import Batch, BatchInput
from falkirk.plan.batch_planning import plan_batch, stamped
from falkirk.plan.promises import check_printed
from falkirk.plan.refusals import check_batch_of_files
from falkirk.steps.dataframes.names import STAMP
from falkirk.steps.dataframes.schemas import own_schema
from falkirk.steps.live.lookups import PlannedView
from falkirk.steps.live.stamped import Frame
from falkirk.steps.sources.files import file_columns
from falkirk.theory.ids import LogId


class LivePlanner(Protocol):
    """The facts that are needed about the live part of an application."""

    dead_letter_topics: set[str]

    def visit(self, processor: DeclaredProcessor) -> AbstractContextManager[None]:
        """Refuse a processor that reads itself, while its inputs are planned."""

    def log_of(self, name: str, where: SourceLocation) -> tuple[SourceNode, Frame, tuple[str, ...]]:
        """Return a log, its frame, and the columns of the key for whose every change it has a record."""


class BatchPlanner:
    """Plans the batches of one application."""

    def __init__(self, app: Application, session: SparkSession, live: LivePlanner) -> None:
        self._app, self._session, self._live = app, session, live
        self._planned: dict[str, Batch] = {}
        self._sorters: dict[tuple[str, ByTime], Batch] = {}

    @property
    def planned(self) -> tuple[Batch, ...]:
        """The batches planned so far, upstream first."""
        return tuple(self._planned.values())

    def add(self, processor: DeclaredProcessor) -> Batch:
        """Return the planned batch of a processor. Its inputs are planned first.

        Raises: DefinitionError: as `plan_batch`; `CYCLE`, `VIEW_HAS_NO_EPOCHS`, `VIEW_OF_CHANGES`.
        """
        name = processor.name
        if name in self._planned:
            return self._planned[name]
        with self._live.visit(processor):
            inputs = tuple(i for read in processor.reads if read != name for i in self._inputs(read, processor))
        sinks = tuple(s for s in self._app.sinks.values() if s.reads == name)
        for sink in sinks:
            check_printed(sink)
        may_fail = any((i.topic is not None and not i.reads_hop) or i.folder is not None for i in inputs)
        may_fail = may_fail or any(sink.to.may_refuse for sink in sinks)
        dead = self._dead_letters(name)
        batch = plan_batch(processor, sinks, inputs, self._session, dead_letter_topic=dead, may_fail=may_fail)
        if batch.dead_letter_topic is not None:
            self._live.dead_letter_topics.add(batch.dead_letter_topic)
        is_view = any(name in reader.views for reader in self._app.processors.values())
        self._planned[name] = replace(batch, is_view=is_view)
        return self._planned[name]

    def with_view(self, step: Step, reader: DeclaredProcessor, identity: str) -> Step:
        """Return a step of a live processor; a lookup knows its view, whose batch is planned first.

        Args: identity: of the home. Raises: as `add`.
        """
        if step.operation != LOOKUP:
            return step
        view, *others = step.arguments
        (given,) = self._inputs(view.name, reader)
        handle = f"{identity}/{given.log}"
        return replace(
            step,
            arguments=(PlannedView(name=view.name, log=given.log, schema=given.schema, handle=handle), *others),
        )

    def _dead_letters(self, batch: str) -> LogId:
        """Return the dead-letter topic of a batch."""
        return LogId(f"{self._app.name}-{batch}.dead-letters")

    def _inputs(self, name: str, reader: DeclaredProcessor) -> tuple[BatchInput, ...]:
        """Return what a parameter reads: for a list, each of its topics, in an order that the user's list does not
        change."""
        if name not in self._app.lists:
            return (self._input(name, reader),)
        if name in reader.views:
            raise VIEW_HAS_NO_EPOCHS.error(where=reader.where, upstream=name, reader=reader.name)
        if name in self._app.patterns and isinstance(reader.cut, ByTime):
            raise PATTERN_MISPLACED_TIME.error(where=reader.where, processor=reader.name, source=name)
        column, parts = reader.stamped.get(name), sorted(self._app.lists[name])
        of_parts = replace(reader, stamped={} if column is None else dict.fromkeys(parts, column))
        return tuple(replace(self._input(part, of_parts), list_name=name) for part in parts)

    def _input(self, name: str, reader: DeclaredProcessor) -> BatchInput:
        if not isinstance(reader.cut, ByTime) or name in reader.views:
            given = self._log(name, reader)
            return _with_stamps(given, reader)
        given = self._log(name, reader)
        batch = self._sorter(given, replace(reader.cut, over=1), reader)
        return _with_stamps(BatchInput(name=name, log=batch.log, sliced=True, schema=given.schema), reader)

    def _sorter(self, given: BatchInput, by: ByTime, reader: DeclaredProcessor) -> Batch:
        """Return the batch that sorts a log by event time. Readers with the same settings share it."""
        if (given.log, by) not in self._sorters:
            label = f"{given.name.replace('/', '-')}-by-{by.column}"
            known = sum(name == label or name.startswith(f"{label}-") for name in self._planned)
            sorter = sorter_of(label if not known else f"{label}-{known + 1}", reader, given, by)
            dead = self._dead_letters(sorter.name)
            read = (stamped(given, STAMP, reader.where),)
            batch = plan_batch(sorter, (), read, self._session, dead_letter_topic=dead, may_fail=True, sorts=by)
            self._planned[batch.name] = self._sorters[given.log, by] = batch
            self._live.dead_letter_topics.add(dead)
        return self._sorters[given.log, by]

    def _log(self, name: str, reader: DeclaredProcessor) -> BatchInput:
        upstream = self._app.processors.get(name)
        if upstream is not None and upstream.cut is not None:
            batch = self.add(upstream)
            if name in reader.views and upstream.iteration is not None and upstream.iteration.sends == "changes":
                raise VIEW_OF_CHANGES.error(where=reader.where, upstream=name, reader=reader.name)
            if reader.iteration is not None and upstream.iteration is not None and upstream.iteration.sends == "all":
                raise ITERATION_INVALID_CHANGES.error(where=reader.where, upstream=name, reader=reader.name)
            return BatchInput(name=name, log=batch.log, view=name in reader.views, schema=batch.schema)
        if (folder := self._app.folders.get(name)) is not None:
            check_batch_of_files(name, reader, reader.where)
            return BatchInput(name=name, log=LogId.of_files(name), folder=folder, schema=file_columns(folder))
        source, frame, keys = self._live.log_of(name, reader.where)
        schema = own_schema(frame.data.schema)
        given = BatchInput(
            name=name, log=source.topic.log, topic=source.topic, reads_hop=upstream is not None, schema=schema
        )
        if name not in reader.views:
            return given
        if upstream is None or not keys:
            raise VIEW_HAS_NO_EPOCHS.error(where=reader.where, upstream=name, reader=reader.name)
        view = view_of(upstream, keys, schema)
        if view.name not in self._planned:
            changes = stamped(given, STAMP, upstream.where)
            dead = self._dead_letters(view.name)
            self._planned[view.name] = plan_batch(
                view, (), (changes,), self._session, dead_letter_topic=dead, may_fail=False
            )
        return BatchInput(name=name, log=self._planned[view.name].log, view=True, schema=schema)


def _with_stamps(given: BatchInput, reader: DeclaredProcessor) -> BatchInput:
    """Return an input with the column of stamps, if its reader asks for stamps."""
    column = reader.stamped.get(given.name)
    return given if column is None else stamped(given, column, reader.where)
