"""Batch regions: a DataFrame job for each complete epoch, whose results are recorded before anything rests on them.

One thread decides where epochs end, and workers run them: several at once where none needs what another leaves. An
epoch is

  1. decided: its cut, and the epochs of the views that it reads, are in the store;
  2. run: its results are in a folder of their own, and the state in another;
  3. recorded: from now on it is complete, and no later try can change it.

A crash before 3 leaves a folder that is nobody's, and the epoch is run again from the same decision. One that fails is
tried again by itself; the others stay. Results that come out the same may go straight to their topic in 2
(`direct.py`).
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from falkirk.coordinator.durable import make_folder
from falkirk.coordinator.ports import Health
from falkirk.coordinator.store import RegionRecord
from falkirk.cut import SLICE, ByTime, Positions
from falkirk.endpoints import Kafka
from falkirk.epochs.at_rest import BatchAtRest
from falkirk.epochs.computed import OWN, Computed, Decided, cast_to
from falkirk.epochs.direct import Direct
from falkirk.epochs.inputs import Inputs
from falkirk.epochs.log import Epoch, EpochLog
from falkirk.epochs.results import Results
from falkirk.epochs.run import Run
from falkirk.epochs.states import States
from falkirk.epochs.unreadable import BatchFiles
from falkirk.errors import HomeError, SparkError
from falkirk.local.spark import BATCH_POOL, batch_partitions, cancel_jobs, observing
from falkirk.operators.call import Epoch as CalledFor
from falkirk.operators.in_epoch import InEpoch, State, empty
from falkirk.operators.times import COMPLETE, marks_after
from falkirk.plan.batch import Batch, returned
from falkirk.plan.frames import STAMP
from falkirk.plan.parsing import parsing
from falkirk.plan.topics import refuse_expired, refuse_forgetful, refuse_shorter
from falkirk.regions.context import Context
from falkirk.regions.record import compare, completed, refuse_own_records, refuse_partitions, renamed

log = logging.getLogger("falkirk")

#: A job is cancelled within seconds; what a user's function does in Python can't be, and is left alone: nothing of it
#: will be recorded. (What goes straight to a topic has none: `BatchRegion.fence`.)
STOP_S = 10.0
#: A job that sends straight to a topic has so long to come to its end.
DRAIN_S = 5.0


class BatchRegion(BatchAtRest):
    """One batch of an application, a RegionPort.

    Attributes:
        all_logs: the epochs of all batches, by log, this one's included.
        direct: how its results go straight to their topic, if they do.
        behind: returns how many epochs its sinks should have by now, and have not.
        on_complete: called when an epoch has been recorded.
    """

    def __init__(self, batch: Batch, context: Context) -> None:
        super().__init__(batch.logs(), context)
        self.batch, self._context = batch, context
        self.all_logs: Mapping[str, EpochLog] = {}
        self.behind: Callable[[], int] = lambda: 0
        self.on_complete: Callable[[], None] = lambda: None
        self._session: SparkSession = observing(context.session)
        self._session.conf.set("spark.sql.adaptive.enabled", "true")
        self._session.conf.set("spark.sql.debug.maxToStringFields", "10000")  # plans are compared as texts
        self._session.conf.set("spark.sql.shuffle.partitions", str(batch_partitions(context.session)))
        self._parsings = {given.log: parsing(given.topic) for given in batch.inputs if given.topic is not None}
        self.states = States(self._session, batch, self.epochs)
        self._results = Results(self._session, batch, self.epochs)
        self.reads = BatchFiles(self._session, batch, lambda: self.files)
        self.direct = Direct(batch, self.epochs, self._store, self._results)
        self._lock = threading.Lock()
        self._run: Run | None = None
        self.ready_at_s = 0.0
        self._nothing_due_at: Positions | None = None
        #: How many partitions each topic has had since this home was made.
        self._partitions: Mapping[str, int] = {}
        #: Of a view, and in all, why it does not get on.
        self.waits_for = self.detail = ""

    def prepare(self) -> RegionRecord:
        """Check what it reads, and what that was when this home was made; record it before the first start.

        Raises: HomeError, LogError.
        """
        topics = self._context.topics
        partitions = {}
        for given in self.batch.inputs:
            if given.topic is None:
                continue
            facts = topics.facts(given.log)
            refuse_forgetful(facts, given.topic.where, self.batch.interval_s)
            partitions[given.log] = facts.partitions
        written = [sink.to.topic for sink in self.batch.sinks if isinstance(sink.to, Kafka)]
        self._context.hold((*partitions, *written))
        written += [] if self.batch.dead_letter_topic is None else [self.batch.dead_letter_topic]
        partitions |= {topic: topics.facts(topic).partitions for topic in written}
        record = self._store.region(self.batch.name)
        if record is not None:
            compare(self.batch, completed(self.batch, record, self._store), partitions)
            self._partitions = record.partitions
            return record
        if self.epochs.folder.exists():
            raise HomeError(
                "HOME_DAMAGED",
                f"batch {self.batch.name!r} has epochs but no record of decisions.",
                where=self.epochs.folder,
                hint="Restore decisions.db from a backup, or use a new home.",
            )
        refuse_own_records(self.batch, self._context, written)
        if self.direct.outlet is not None and (taken := self.direct.outlet.has_taken()):
            raise renamed(self.batch, taken)
        record = RegionRecord(
            fingerprint=self.batch.fingerprint, start_offsets=self._first_start(), partitions=partitions
        )
        if self._store.decision("began", self.batch.name, 0) is None:
            self._store.record_decision("began", self.batch.name, 0, {"at_s": time.time()})
        self._store.create_region(self.batch.name, record, {})
        self._partitions = record.partitions
        return record

    def _first_start(self) -> Positions:
        first: Positions = {}
        for given in self.batch.inputs:
            if given.view:
                continue
            if given.topic is None:
                first[given.log] = {0: 0 if given.folder is not None else self.all_logs[given.log].begin()}
                continue
            topics = self._context.topics
            positions = topics.first_positions if given.topic.starting == "earliest" else topics.readable_positions
            first[given.log] = positions(given.log)
        return first

    # -- the port -----------------------------------------------------------------------------------------------------

    def health(self) -> Health:
        """See RegionPort. One whose thread has ended runs until somebody has looked at why, and called `end`; it never
        hangs: how long an epoch takes is the user's affair."""
        return Health(runs=self._run is not None, ready_at_s=self.ready_at_s)

    def start(self, number: int) -> None:
        """See RegionPort."""
        assert self._run is None, "a region is started behind its fence"
        self.prepare()
        self._store.open_incarnation(self.batch.name, number)
        make_folder(self.epochs.folder)
        self._nothing_due_at = None  # what was taken back may be due again
        self._run = Run(self, number)
        self._run.begin()

    def fence(self) -> None:
        """See RegionPort. From now on nothing of the run is recorded, so it does not matter when it ends; but of what
        goes straight to its topic it does.

        Raises: SparkError: `WRITER_STILL_RUNNING`.
        """
        if not self.end() and self.batch.is_direct:
            raise SparkError(
                "WRITER_STILL_RUNNING",
                f"a job of batch {self.batch.name!r} still writes.",
                certainty="maybe",
                hint="The Spark application is restarted to be rid of it.",
            )

    def leave_off(self) -> None:
        """Begin nothing more; what runs may come to its end."""
        if (run := self._run) is not None:
            run.leave_off()

    def end(self) -> bool:
        """Stop what runs; tell whether nothing does any more."""
        if self._run is not None and self.batch.is_direct:
            self._run.drain(DRAIN_S)  # an epoch that is out in part had better be out
        with self._lock:
            run, self._run = self._run, None
        stopped = run is None or run.stop(STOP_S)
        if not stopped:
            log.warning("%s: what it runs does not stop; it will not count", self.batch.name)
        return stopped

    def failure(self) -> Exception | None:
        """Return what ended it, or None while it runs or when it was stopped."""
        return None if self._run is None else self._run.error

    # -- what a run needs ---------------------------------------------------------------------------------------------

    def ends(self, first: Positions) -> Positions:
        """Return how much there is to read, of views nothing.

        Args: first: where the next epoch begins.
        Raises: LogError: `PARTITIONS_CHANGED`, `RANGE_NOT_THERE`: a topic is another one now. A cut of that would be
            recorded for good.
        """
        ends: Positions = {}
        for given in self.batch.inputs:
            if given.topic is not None:
                ends[given.log] = there = self._context.topics.readable_positions(given.log)
                refuse_partitions(self.batch, self._partitions, {given.log: len(there)})
                refuse_shorter(given.topic, first[given.log], there)
            elif given.folder is not None:
                ends[given.log] = {0: self.files[given.log].end()}
            elif not given.view:
                ends[given.log] = {0: self.all_logs[given.log].end()}
        return ends

    def refuse_expired(self, epoch: Epoch) -> None:
        """See that all is still there that an epoch reads of topics. Raises: LogError: `INPUT_EXPIRED`."""
        for given in self.batch.inputs:
            if given.topic is not None:
                oldest = self._context.topics.first_positions(given.log)
                refuse_expired(given.topic, epoch.first[given.log], epoch.last[given.log], oldest)

    def views(self) -> dict[str, int] | None:
        """Return the newest epoch of each view, or None while one of them has none."""
        found: dict[str, int] = {}
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
        """Tell whether so many epochs wait for their sinks that what else there is had better wait in its logs.

        Those that no checkpoint covers yet are not among them: more epochs are what they wait for.
        """
        behind = self.behind()
        if behind < epochs_max:
            return False
        self.waits_for = f"{behind} epochs wait for their sinks, and input for them"
        return True

    def first_of_next(self, epochs: tuple[Epoch, ...]) -> Positions:
        """Return where the next epoch begins."""
        return epochs[-1].then if epochs else self._start_positions()

    def take_in(self, epoch: Epoch, group: str) -> Inputs:
        """Read what an epoch reads, before its turn has come."""
        self.begin_jobs(epoch, group)
        inputs = self._inputs(epoch)
        try:
            inputs.take_in()
        except BaseException:
            inputs.release()
            raise
        return inputs

    def begin_jobs(self, epoch: Epoch, group: str) -> None:
        """Have what this thread asks of Spark counted to an epoch, so that it can be cancelled."""
        spark = self._session.sparkContext
        spark.setLocalProperty("spark.scheduler.pool", BATCH_POOL)
        spark.setJobGroup(group, f"{self.batch.name} epoch {epoch.number}", interruptOnCancel=True)

    def _inputs(self, epoch: Epoch) -> Inputs:
        few, refused = self.direct.is_small(epoch), self.reads.refused(epoch)
        return Inputs(
            self._session, self._context, self.batch, epoch, self.all_logs, self.files, self._parsings, few=few,
            refused=refused,
        )  # fmt: skip

    def compute(self, epoch: Epoch, state: State, group: str, taken: Inputs | None = None) -> Computed:
        """Return what an epoch comes to; what is computed once and for all has run then, the rest has not. Args: taken:
        its input, if that was taken in before."""
        self.begin_jobs(epoch, group)
        batch, inputs = self.batch, self._inputs(epoch) if taken is None else taken
        given = dict(inputs.frames)
        if batch.state is not None:
            own = state.get(OWN)
            given[batch.name] = own if isinstance(own, DataFrame) else empty(self._session, batch.state)
        views = {i.name: epoch.views[i.log] for i in batch.inputs if i.view}
        begins = ends = None
        if isinstance(batch.cut, ByTime) and epoch.slice is not None:
            begins, ends = batch.cut.bounds(epoch.slice)
        decided_at = datetime.fromtimestamp(epoch.decided_at_s, UTC)
        called_for = CalledFor(number=epoch.number, views=views, begins=begins, ends=ends, decided_at=decided_at)
        number = epoch.number
        marks, scratch = self._marks_before(epoch), lambda: self.epochs.path(self.epochs.new_folder(number, "once"))
        call = InEpoch(called_for, self._session, state, scratch, marks, self.epochs.files())
        try:
            result, kept = returned(batch.name, batch.body, batch.parameters, given, batch.state, batch.where, call)
        except BaseException:
            call.clean()
            raise
        after: dict[str, DataFrame | str] = {s: cast_to(frame, batch.slots[s]) for s, frame in call.kept.items()}
        after |= call.notes
        if kept is not None and kept is not result and batch.state is not None:
            after[OWN] = cast_to(kept, batch.state)
        return Computed(
            given=given, result=cast_to(result, batch.schema), kept=after, bad=inputs.bad,
            letters=[*self.reads.letters(inputs.refused), *call.letters], ran=call.ran, marks=marks, told=call.told,
            clean=call.clean, refused={log: sorted(files) for log, files in inputs.refused.items() if files},
        )  # fmt: skip

    def write(self, epoch: Epoch, name: str, computed: Computed, *, direct: bool) -> tuple[int, int]:
        """Write the results of an epoch into a folder, or straight to where they go; return how many there are, and how
        many did not fit."""
        found = self.direct.send(epoch, name, computed) if direct else self._results.write(name, computed)
        self.reads.check(epoch, computed.refused)
        return found

    def marks(self, computed: Computed, folder: str) -> dict[str, int]:
        """Return what the next epoch must know of one whose results are written: how far event time has come."""
        by = self.batch.sorts
        if by is None:
            return {}
        newest = {}
        if any(self.epochs.path(folder).glob(f"{SLICE}=*")):
            rows = self._session.read.schema(self.batch.schema).parquet(str(self.epochs.path(folder)))
            time = F.max(F.unix_micros(f"`{by.column}`")).alias("time")
            found = rows.groupBy(F.col(f"{STAMP}.partition").alias("partition")).agg(time).collect()
            newest = {str(row["partition"]): int(row["time"]) for row in found}
        return marks_after(computed.marks, newest, by)

    def _marks_before(self, epoch: Epoch) -> Mapping[str, int]:
        if self.batch.sorts is None:
            return {}
        before = [e for e in self.epochs.epochs() if e.number < epoch.number]
        return before[-1].marks if before else {}

    def next_slice(self, epochs: tuple[Epoch, ...]) -> Decided | None:
        """Return what the next epoch reads when they are cut by event time, or None while it is not complete."""
        by, first = self.batch.cut, self.first_of_next(epochs)
        assert isinstance(by, ByTime), "only such epochs have slices"
        logs = [self.all_logs[i.log] for i in self.batch.inputs if i.sliced]
        last = {log.name: {0: log.end()} for log in logs}
        if last == self._nothing_due_at:
            return None
        present, complete = {}, dict[str, int | None]()
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
        then = {log: {0: last[log][0] if number < 0 else number} for log, number in found[1].items()}
        return Decided(first=first, last=last, slice=found[0], then=then)

    def refuse_unreadable(self, run: Run, epoch: Epoch, group: str, stopping: threading.Event) -> bool:
        """Refuse the files of an epoch that failed that Spark can't read to their end; tell whether there are any.

        Raises: LogError: a file is lost (`is_lost`). Whatever keeps Spark from reading any file.
        """
        self.begin_jobs(epoch, group)
        found = self.reads.unreadable(epoch, stopping)
        with self._lock:
            if self._run is run:
                self.reads.refuse(found)
        return bool(found)

    def cancel(self, group: str) -> None:
        """Cancel the jobs of an epoch."""
        cancel_jobs(self._session, group)

    def decide(self, run: Run, decided: Decided, views: dict[str, int], at_s: float) -> bool:
        """Record where the next epoch is cut, unless whoever asked what there is was stopped meanwhile."""
        with self._lock:
            if self._run is not run:
                return False
            self.epochs.decide(
                decided.first, decided.last, views, at_s, slice_=decided.slice, then=decided.then,
                may_be_out=self.direct.may_be_next(),
            )  # fmt: skip
            return True

    def began_s(self) -> float:
        """Return when this home first ran the batch."""
        began = self._store.decision("began", self.batch.name, 0)
        return time.time() if began is None else float(began.content["at_s"])

    def adopt(self, run: Run, record: Callable[[], None]) -> bool:
        """Record a complete epoch, or that a state was saved, unless whoever did it was stopped meanwhile; tell whether
        it was recorded."""
        with self._lock:
            if self._run is not run:
                return False
            record()
        self.on_complete()
        return True
