"""Epoch jobs: read, compute and write the epochs of one batch, in one Spark session.

`runner.EpochRunner` decides when an epoch is cut, run and recorded. This module knows how each of these steps is done.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from falkirk.declare.cut import ByTime, Cut, records_between
from falkirk.plan.batch import Batch, by_parameter
from falkirk.plan.batch_planning import returned
from falkirk.plan.topics import refuse_expired, refuse_shorter
from falkirk.platform.data import DataPath
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.epochs.computed import OWN_STATE, Computed, EpochCut, cast_to
from falkirk.runtime.spark.epochs.direct import Direct
from falkirk.runtime.spark.epochs.files import FileLog
from falkirk.runtime.spark.epochs.inputs import FitColumns, Inputs, read_folders
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.runtime.spark.epochs.ports import ReleaserPort
from falkirk.runtime.spark.epochs.repeated import RepeatedEpochs
from falkirk.runtime.spark.epochs.results import Results, Written
from falkirk.runtime.spark.epochs.states import States
from falkirk.runtime.spark.epochs.unreadable import BatchFiles
from falkirk.runtime.spark.epochs.until import Until
from falkirk.runtime.spark.record import first_positions, refuse_partitions
from falkirk.spark_setup.observing import observing
from falkirk.spark_setup.partitions import limit_partitions
from falkirk.spark_setup.spark import BATCH_POOL, cancel_jobs, writes_elsewhere
from falkirk.steps.batch.call import EpochContext
from falkirk.steps.batch.in_epoch import BatchState, InEpoch, empty
from falkirk.steps.batch.loop_files import LoopFolders
from falkirk.steps.batch.times import COMPLETE, marks_after
from falkirk.steps.dataframes.names import STAMP
from falkirk.steps.sources.topics import parsing
from falkirk.theory.ids import EpochNumber, LogId, Offset, Positions


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The parts that the batches of an application share.

    Args: logs: the epochs of all batches, by log. files: the files of all folder sources, by log. on_complete: called
        with the name of a batch that has recorded an epoch. may_work: returns whether batches may compute epochs now.
    """

    logs: Mapping[LogId, EpochLog]
    files: Mapping[LogId, FileLog]
    on_complete: Callable[[str], None]
    may_work: Callable[[], bool] = lambda: True


class EpochJobs:
    """Reads, computes and writes the epochs of one batch.

    Args: releaser: of its results; None: nothing is released. loops: the files of its iterations; None: the home's.

    Attributes:
        direct: sends results straight to their topic, for batches that do so.
        partitions: how many partitions each topic has had since this home was made.
        waits_for: the reason why no epoch is cut now. detail: the text for the status.
    """

    def __init__(
        self, batch: Batch, context: Context, shared: Shared, releaser: ReleaserPort | None,
        loops: LoopFolders | None = None,
    ) -> None:  # fmt: skip
        self.batch, self.epochs, self._context, self._store = batch, shared.logs[batch.log], context, context.home.store
        self.recorder = context.recorder
        self.all_logs, self.files, self._on_complete = shared.logs, shared.files, shared.on_complete
        self.may_work = shared.may_work
        self._releaser, epochs = releaser, self.epochs
        self.session: SparkSession = observing(context.session)
        self.session.conf.set("spark.sql.adaptive.enabled", "true")
        self.session.conf.set("spark.sql.debug.maxToStringFields", "10000")  # plans are compared as texts
        limit_partitions(self.session)
        topics = {given.log: given.topic for given in batch.inputs if given.topic is not None}
        self._parsings = {log: parsing(topic, self.session) for log, topic in topics.items()}
        copy = context.home.checkpoint(batch.name) if context.home.is_shared else None
        self._loops = loops or LoopFolders(
            epochs.files(), copy, self._store.require_charge, on_cluster=writes_elsewhere(self.session),
            may_delete=lambda: context.home.may_delete,
        )  # fmt: skip
        kept = batch.slots if batch.state is None else {**batch.slots, OWN_STATE: batch.state}
        self._columns, self._casts = cast_to(batch.schema), {slot: cast_to(schema) for slot, schema in kept.items()}
        self._fit = FitColumns()
        self.states = self.states_of(epochs)
        self._results = Results(batch, epochs)
        self.reads = BatchFiles(self.session, batch, self.files)
        self.direct = Direct(batch, epochs, self._store, self._results, releaser)
        self._repeated = RepeatedEpochs(
            self.session, context, batch, self._parsings, self._fit, self._columns, self.direct, releaser,
            self._called_for,
        )  # fmt: skip
        self.partitions: Mapping[LogId, int] = {}
        self._nothing_due_at: Positions | None = None
        #: Where each input ended at the last look.
        self.seen_ends: Positions = {}
        #: How far to read in a run that ends by itself.
        self.until: Until | None = None
        self.waits_for = self.detail = ""

    def states_of(self, epochs: EpochLog) -> States:
        """Return the states in a log of this batch's epochs."""
        return States(self.session, self.batch, epochs, self._loops)

    @property
    def cut(self) -> Cut | ByTime:
        """When the next epoch is complete."""
        return self.batch.cut if self.until is None else self.until.cut(self.batch.cut)

    def is_last(self, epoch: Epoch) -> bool:
        """Return whether no epoch follows in a run that ends by itself, so that its state must be saved now."""
        if self.until is None or not self.until.is_final or not self.batch.is_stateful:
            return False
        if isinstance(self.batch.cut, ByTime):
            return self._nothing_due_at is not None
        return records_between(epoch.last, self.ends(epoch.then)) == 0

    @property
    def nothing_due_at(self) -> Positions:
        """The ends of the inputs at which a batch that is cut by event time had no epoch due; nothing for others."""
        return self._nothing_due_at or {}

    def forget_ends(self) -> None:
        """Forget that no epoch was due, because a rollback may have voided epochs that are due again."""
        self._nothing_due_at = None

    def first_start(self) -> Positions:
        """Return where a new home begins to read."""
        first: Positions = {}
        for given in self.batch.inputs:
            if given.view:
                continue
            if given.topic is None:
                first[given.log] = {0: Offset(0 if given.folder is not None else self.all_logs[given.log].begin())}
                continue
            first[given.log] = first_positions(given.topic, self._context.topics)
        return first

    # -- the port -----------------------------------------------------------------------------------------------------

    def ends(self, first: Positions) -> Positions:
        """Return where each input ends, without views.

        Args: first: where the next epoch begins.
        Raises: LogError: `PARTITIONS_CHANGED`, `RANGE_NOT_THERE`: a topic was replaced. A cut of the new topic would be
            recorded permanently.
        """
        ends: Positions = {}
        for given in self.batch.inputs:
            if given.topic is not None:
                ends[given.log] = there = self._context.topics.readable_positions(given.log)
                refuse_partitions(self.batch, self.partitions, {given.log: len(there)})
                refuse_shorter(given.topic, first[given.log], there)
            elif given.folder is not None:
                ends[given.log] = {0: self.files[given.log].end()}
            elif not given.view:
                ends[given.log] = {0: Offset(self.all_logs[given.log].end())}
        self.seen_ends, until = ends, self.until
        return ends if until is None else {log: until.clip(log, first.get(log, {}), o) for log, o in ends.items()}

    def refuse_expired(self, epoch: Epoch) -> None:
        """Check that the topics still have all records that an epoch reads. Raises: LogError: `INPUT_EXPIRED`."""
        for given in self.batch.inputs:
            if given.topic is not None:
                oldest = self._context.topics.first_positions(given.log)
                refuse_expired(given.topic, epoch.first[given.log], epoch.last[given.log], oldest)

    def views(self) -> dict[LogId, EpochNumber] | None:
        """Return the newest epoch of each view, or None while one of them has none."""
        found: dict[LogId, EpochNumber] = {}
        for given in self.batch.inputs:
            if given.view:
                newest = self.all_logs[given.log].newest()
                if newest is None:
                    self.waits_for = f"waiting for the first epoch of {given.name}"
                    return None
                found[given.log] = newest
        self.waits_for = ""
        return found

    def is_ahead(self, epochs_max: int) -> bool:
        """Return whether at least `epochs_max` epochs wait for their sinks, so that further input waits in its logs.

        Epochs that no checkpoint covers yet do not count, because they wait for further epochs.
        """
        backlog = 0 if self._releaser is None else self._releaser.backlog()
        if backlog < epochs_max:
            return False
        self.waits_for = f"{backlog} epochs wait for their sinks, and input for them"
        return True

    def first_of_next(self, epochs: tuple[Epoch, ...]) -> Positions:
        """Return where the next epoch begins."""
        if epochs:
            return epochs[-1].then
        record = self._store.region(self.batch.name)
        return {} if record is None else record.start_offsets

    def take_in(self, epoch: Epoch, group: str) -> Inputs:
        """Read the inputs of an epoch before its turn."""
        self.begin_jobs(epoch, group)
        inputs = self._inputs(epoch)
        try:
            with self.reads.ended_pipes(epoch):
                inputs.take_in()
        except BaseException:
            inputs.release()
            raise
        return inputs

    def begin_jobs(self, epoch: Epoch, group: str) -> None:
        """Assign the Spark jobs of this thread to an epoch, so that they can be cancelled."""
        spark = self.session.sparkContext
        spark.setLocalProperty("spark.scheduler.pool", BATCH_POOL)
        spark.setJobGroup(group, f"{self.batch.name} epoch {epoch.number}", interruptOnCancel=True)

    def _inputs(self, epoch: Epoch) -> Inputs:
        few, refused = self.direct.is_small(epoch), self.reads.refused(epoch)
        return Inputs(
            self.session, self._context, self.batch, epoch, self.all_logs, self.files, self._parsings, self._fit,
            few=few, refused=refused,
        )  # fmt: skip

    def compute(self, epoch: Epoch, state: BatchState, group: str, taken: Inputs | None = None) -> Computed:
        """Call the batch's function for an epoch and return its results, most of them not yet computed.

        Only DataFrames that the function computes once have run by then.

        Args: taken: the inputs, if they were read before.
        """
        self.begin_jobs(epoch, group)
        batch, inputs = self.batch, self._inputs(epoch) if taken is None else taken
        given = by_parameter(batch.inputs, inputs.frames)
        if batch.state is not None:
            own = state.get(OWN_STATE)
            given[batch.name] = own if isinstance(own, DataFrame) else empty(self.session, batch.state)
        marks = self._marks_before(epoch)
        call = self._call(epoch, state, marks)
        try:
            result, kept = returned(batch.name, batch.body, batch.parameters, given, batch.state, batch.where, call)
        except BaseException:
            call.clean()
            raise
        after: dict[str, DataFrame | str] = {s: frame.select(*self._casts[s]) for s, frame in call.kept.items()}
        after |= call.notes
        if kept is not None and kept is not result and batch.state is not None:
            after[OWN_STATE] = kept.select(*self._casts[OWN_STATE])
        return Computed(
            given=given, result=result.select(*self._columns), kept=after, bad=inputs.bad,
            letters=[*self.reads.letters(inputs.refused), *call.letters], ran=call.ran, marks=marks,
            reported=call.reported, clean=call.clean,
            refused={log: sorted(files) for log, files in inputs.refused.items() if files},
        )  # fmt: skip

    def _call(self, epoch: Epoch, state: BatchState, marks: Mapping[str, int]) -> InEpoch:
        number = epoch.number

        def scratch() -> DataPath:
            return self.epochs.path(self.epochs.new_folder(number, "once"))

        return InEpoch(self._called_for(epoch), self.session, state, scratch, marks, self._loops)

    def _called_for(self, epoch: Epoch) -> EpochContext:
        batch = self.batch
        begins = ends = None
        if isinstance(batch.cut, ByTime) and epoch.slice is not None:
            begins, ends = batch.cut.bounds(epoch.slice)
        return EpochContext(
            number=epoch.number, views={i.name: epoch.views[i.log] for i in batch.inputs if i.view}, begins=begins,
            ends=ends, decided_at=datetime.fromtimestamp(epoch.decided_at_s, UTC), partitions=_partitions(batch, epoch),
        )  # fmt: skip

    def repeat(self, epoch: Epoch, group: str) -> Written | None:
        """Send an epoch with the job of earlier ones; None: it is none of those (`repeated.py`)."""
        return self._repeated.written(epoch, lambda: self.begin_jobs(epoch, group))

    def write(self, epoch: Epoch, name: str, computed: Computed, *, direct: bool) -> Written:
        """Write the results of an epoch into a folder or straight to their topic."""
        if direct:
            return self.direct.send(epoch, name, computed)
        partitions = {p for ends in epoch.last.values() for p in ends}
        return self._results.write(name, computed, partitions)

    def marks(self, computed: Computed, folder: str, written: Written) -> dict[str, int]:
        """Return the marks that an epoch with written results leaves for the next: how far event time has come."""
        by = self.batch.sorts
        if by is None:
            return {}
        newest = written.newest or {}
        if written.newest is None and self.epochs.path(folder).arrow()[1]:
            rows = read_folders(self.session, [self.epochs.path(folder)], self.batch.schema)
            time = F.max(F.unix_micros(f"`{by.column}`")).alias("time")
            found = rows.groupBy(F.col(f"{STAMP}.partition").alias("partition")).agg(time).collect()
            newest = {str(row["partition"]): int(row["time"]) for row in found}
        return marks_after(computed.marks, newest, by)

    def _marks_before(self, epoch: Epoch) -> Mapping[str, int]:
        if self.batch.sorts is None:
            return {}
        before = [e for e in self.epochs.epochs() if e.number < epoch.number]
        return before[-1].marks if before else {}

    def next_slice(self, epochs: tuple[Epoch, ...]) -> EpochCut | None:
        """Return the cut of the next epoch by event time, or None while its slice is not complete."""
        by, first = self.batch.cut, self.first_of_next(epochs)
        assert isinstance(by, ByTime), "only epochs by event time have slices"
        logs = [self.all_logs[i.log] for i in self.batch.inputs if i.sliced]
        last = {log.name: {0: Offset(log.end())} for log in logs}
        if last == self._nothing_due_at:
            return None
        present, complete = {}, dict[LogId, int | None]()
        for log in logs:
            end = last[log.name][0]
            known = [e for e in log.epochs() if e.number < end]
            present[log.name] = {e.number: log.slices(e) for e in known if e.number >= first[log.name][0]}
            complete[log.name] = known[-1].marks.get(COMPLETE) if known else None
        before = epochs[-1].slice if epochs else None
        found = by.next_slice(present, complete, before, keeps=self.batch.is_stateful)
        self._nothing_due_at = last if found is None else None
        if found is None:
            return None
        then = {log: {0: last[log][0] if number < 0 else Offset(number)} for log, number in found[1].items()}
        return EpochCut(first=first, last=last, slice=found[0], then=then)

    def on_complete(self) -> None:
        """Tell the host that an epoch or a state was recorded."""
        self._on_complete(self.batch.name)

    def cancel(self, group: str) -> None:
        """Cancel the jobs of an epoch."""
        cancel_jobs(self.session, group)

    def began_s(self) -> float:
        """Return when this home first ran the batch."""
        began = self._store.decision("began", self.batch.name, 0)
        return self._context.clock.time() if began is None else float(began.content["at_s"])

    def unreadable(self, epoch: Epoch, group: str, stopping: threading.Event) -> dict[tuple[LogId, Offset], str]:
        """Return the files of an epoch that Spark can't read to their end, by log and number, with the reasons.

        Raises: LogError: a file is lost (`is_lost`). A Spark error: Spark can't read any file.
        """
        self.begin_jobs(epoch, group)
        return self.reads.unreadable(epoch, stopping)


def _partitions(batch: Batch, epoch: Epoch) -> dict[str, int]:
    """Return how many partitions each parameter reads, and each topic of a list."""
    found: dict[str, int] = {}
    for given in batch.inputs:
        if given.log in epoch.last and given.log not in epoch.absent:
            count = len(epoch.last[given.log])
            for name in dict.fromkeys((given.parameter, given.name)):
                found[name] = found.get(name, 0) + count
    return found
