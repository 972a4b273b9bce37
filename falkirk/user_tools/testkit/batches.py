"""Batches: the batches of an application under test. They compute and release epochs in the caller's thread."""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from falkirk.declare.endpoints import Endpoint, EpochTopic, Kafka
from falkirk.declare.sink import OwnSink
from falkirk.errors.spark import SPARK_ERRORS
from falkirk.plan.batch import Batch
from falkirk.plan.plan import Plan
from falkirk.recovery.decision_store import RegionRecord
from falkirk.runtime.spark.epochs.at_rest import epoch_log_of
from falkirk.runtime.spark.epochs.files import FileLog
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.epochs.jobs import Shared
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.runtime.spark.epochs.ports import RunPort
from falkirk.runtime.spark.epochs.region import BatchRegion
from falkirk.runtime.spark.epochs.runner import EpochRunner
from falkirk.runtime.spark.epochs.term import Term
from falkirk.runtime.spark.growth import grown
from falkirk.runtime.spark.record import compare
from falkirk.runtime.spark.rows import too_large
from falkirk.runtime.spark.sinks.epoch_topic import KEYLESS
from falkirk.runtime.spark.sinks.own import OwnTarget
from falkirk.runtime.spark.sinks.release import EpochReleaser
from falkirk.runtime.spark.sinks.target import Target, letters, sorted_by_place
from falkirk.runtime.spark.sinks.topic import encoded_rows
from falkirk.theory.ids import EpochNumber, LogId
from falkirk.user_tools.testkit.place import RECORD_BYTES_MAX, KitContext
from falkirk.user_tools.testkit.values import decoded, shown
from falkirk.user_tools.testkit.world import SinkContent, World


class StepwiseRun:
    """A run whose work is done in the caller's thread, a RunPort. Its errors are raised there.

    Args: runner: of its epochs.
    """

    def __init__(self, runner: EpochRunner) -> None:
        self._runner = runner
        self.error: Exception | None = None

    def step(self) -> bool:
        """Do the next piece of work; return whether there was any. Raises: Crash. Errors of the user's function."""
        while not self._runner.is_restored:
            if (pause_s := self._runner.restore()) is not None:
                time.sleep(pause_s)
        epochs = self._runner.jobs.epochs.epochs()
        waiting = [e for e in epochs if not e.is_complete]
        if waiting:
            self._compute(waiting[0])
            return True
        if self._runner.cut_if_due(epochs):
            return True
        if not epochs or not self._runner.saves_at_rest(epochs[-1]):
            return False
        self._runner.save(epochs[-1])
        return True

    def _compute(self, epoch: Epoch) -> None:
        try:
            self._runner.run(epoch)
        except SPARK_ERRORS:
            if not self._runner.refuse_unreadable(epoch, threading.Event()):
                raise
            self._runner.run(epoch)

    def save(self, last: Epoch) -> None:
        """Save the state after the last epoch, which is complete, unless it is saved."""
        if not last.saved:
            self._runner.save(last)

    def leave_off(self) -> None:
        """See RunPort. Nothing runs between two steps."""

    def drain(self, timeout_s: float) -> None:
        """See RunPort. Nothing runs between two steps."""

    def save_last(self, timeout_s: float) -> None:
        """See RunPort. A test asks for a checkpoint itself."""

    def stop(self, timeout_s: float) -> bool:
        """See RunPort."""
        self._runner.term.end()
        return True


class MemoryBatch(BatchRegion):
    """A batch whose epochs run when the test asks."""

    def prepare(self) -> RegionRecord:
        """See BatchRegion. Nobody else writes the topics of a test, so there is nothing to check."""
        record = self._store.region(self.batch.name)
        partitions = {i.log: 1 for i in self.batch.inputs if i.topic is not None}
        if record is None:
            self._store.record_decision("began", self.batch.name, 0, {"at_s": self._context.clock.time()})
            record = RegionRecord(
                fingerprint=self.batch.fingerprint, start_offsets=self.jobs.first_start(), partitions=partitions
            )
            self._store.create_region(self.batch.name, record, {})
        now = grown(self.batch, record, self._context.topics, partitions)
        compare(self.batch, now, partitions)
        return self._resumed(record, now)

    def _begun(self, number: EpochNumber) -> RunPort:
        """See BatchRegion. The test does the work of this run."""
        return StepwiseRun(EpochRunner(self.jobs, number, Term(), self._context.clock))

    def step(self) -> bool:
        """Do the next piece of work; return whether there was any. Raises: Crash."""
        return isinstance(self._run, StepwiseRun) and self._run.step()

    def checkpoint(self) -> None:
        """Save the state after the last epoch if it is not saved. Raises: Crash."""
        epochs = self.epochs.epochs()
        if isinstance(self._run, StepwiseRun) and self.batch.is_stateful and epochs and epochs[-1].is_complete:
            self._run.save(epochs[-1])


class InlineReleaser(EpochReleaser):
    """Releases epochs in the caller's thread, so that a test sees them at once."""

    def release(self, session: SparkSession, first: EpochNumber, last: EpochNumber) -> EpochNumber:
        """See EpochReleaser. Raises: SparkError: a sink refuses an epoch; a test gets it at once."""
        self._asked = last
        self._done = max(first, self._done)
        for epoch in self.epochs.complete(self._done, last):
            self._deliver(session, epoch)
            self._done = EpochNumber(epoch.number + 1)
        self._done = max(self._done, last)
        return self._done


class MemoryTarget:
    """A sink of a batch in memory: a topic gets record after record, any other sink an epoch at once.

    Args: to: the declared target; None: dead letters. content: the part that outlives a crash. sink: its name.
    """

    def __init__(self, to: Endpoint | None, content: SinkContent, world: World, sink: str | None = None) -> None:
        self._to, self._content, self._world, self._sink = to, content, world, sink

    def visible(self) -> EpochNumber:
        """See Target."""
        return EpochNumber(max((epoch + 1 for epoch, _ in self._content.rows), default=0))

    def delivered(self) -> EpochNumber | None:
        """See Target."""
        return None

    def deliver(self, epoch: EpochNumber, rows: DataFrame, *, few: bool = False) -> DataFrame | None:
        """See Target. Raises: Crash: a part of the epoch may be in a topic."""
        if self._content.complete > epoch:
            return None
        ordered = sorted_by_place(rows, few=True)
        if isinstance(self._to, Kafka):
            values, refused = self._records(ordered, self._to, epoch)
            self._add(epoch, values)
            return refused
        refused = None
        if isinstance(self._to, EpochTopic):
            values, refused = self._records(ordered, self._to.record, epoch, needs_key=self._to.compacted)
        else:
            values = self._values(ordered.drop(ROW))
        if self._to is not None:
            self._world.write()
            self._content.rows += [(epoch, value) for value in values]
            self._content.complete = epoch + 1
        else:
            self._add(epoch, values)
        return refused

    def _add(self, epoch: EpochNumber, values: Sequence[Any]) -> None:
        """Write the records of an epoch that are not in the topic yet."""
        there = sum(number == epoch for number, _ in self._content.rows)
        for value in values[there:]:
            self._world.write()
            self._content.rows.append((epoch, value))

    def _values(self, rows: DataFrame) -> list[dict[str, Any]]:
        if self._to is None:
            return [json.loads(row["value"]) for row in rows.collect()]
        return [row.asDict(recursive=True) for row in rows.collect()]

    def _records(
        self, rows: DataFrame, to: Kafka, epoch: EpochNumber, *, needs_key: bool = False
    ) -> tuple[list[Any], DataFrame | None]:
        """Return the values of an epoch's records, and the rows that can't be records as dead letters."""
        data = rows.select(*encoded_rows(rows.columns, to))
        keyless = F.when(F.col("key").isNull() & F.lit(needs_key), F.lit(KEYLESS))
        reason = F.coalesce("unfit", keyless, too_large("value", "key", RECORD_BYTES_MAX))
        found = data.select(reason.alias("reason"), shown(F.col("value"), to).alias("shown")).collect()
        values = [decoded(row["shown"]) for row in found if row["reason"] is None]
        if len(values) == len(found):
            return values, None
        sink = self._sink if isinstance(self._to, EpochTopic) else None
        unfit = data.where(reason.isNotNull())
        return values, letters(unfit, F.col("key"), reason, to.topic, epoch, F.col("text"), sink)


class _CountedTarget:
    """A sink of the user's, which the application may crash before and after each delivery."""

    def __init__(self, target: OwnTarget, world: World) -> None:
        self._target, self._world = target, world
        self.visible, self.delivered = target.visible, target.delivered

    def deliver(self, epoch: EpochNumber, rows: DataFrame, *, few: bool = False) -> None:
        """See Target. Raises: Crash."""
        self._world.write()
        self._target.deliver(epoch, rows, few=few)
        self._world.write()


def batches_in_memory(
    plan: Plan, context: KitContext, files: Mapping[LogId, FileLog], own: bool
) -> tuple[dict[str, MemoryBatch], dict[LogId, EpochLog], dict[LogId, EpochReleaser]]:
    """Return the batches of a plan by name, and their logs and releases by log.

    Args: files: of all sources that are folders, by log. own: the sinks of the user's own are called. Otherwise they
        are in memory, too.
    """
    logs = {batch.log: epoch_log_of(batch.logs(), context) for batch in plan.batches}
    shared = Shared(logs=logs, files=files, on_complete=lambda name: None)
    releasers: dict[LogId, EpochReleaser] = {
        batch.log: InlineReleaser(
            logs[batch.log], _targets(batch, context.world, own), _dead_letters(batch, context.world), batch.schema
        )
        for batch in plan.batches
        if batch.is_held
    }
    regions = {b.name: MemoryBatch(b, context, shared, releasers.get(b.log)) for b in plan.batches}
    return regions, logs, releasers


def _targets(batch: Batch, world: World, own: bool) -> Mapping[str, Target]:
    found: dict[str, Target] = {}
    for sink in batch.sinks:
        if own and isinstance(sink.to, OwnSink):
            found[sink.name] = cast(Target, _CountedTarget(OwnTarget(sink.to, sink.name), world))
        else:
            content = world.sinks.setdefault(sink.name, SinkContent())
            found[sink.name] = MemoryTarget(sink.to, content, world, sink.name)
    return found


def _dead_letters(batch: Batch, world: World) -> Target | None:
    if batch.dead_letter_topic is None:
        return None
    return MemoryTarget(None, world.sinks.setdefault(f"dead letters of {batch.name}", SinkContent()), world)
