"""Runners: decide, compute and save the epochs of one batch, each in the thread of the caller.

`run.Run` calls a runner from its threads, and retries failures. The test kit calls it in the thread of a test.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from falkirk.declare.cut import ByTime
from falkirk.errors import StoreError
from falkirk.errors.conditions.spark import HOME_DAMAGED_STATE, SESSION_LOST_STATE
from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.platform.machine_time import MachineTime
from falkirk.platform.traced import add_attributes, step
from falkirk.runtime.spark.epochs.computed import OWN_STATE, Computed, EpochCut
from falkirk.runtime.spark.epochs.failures import raise_final
from falkirk.runtime.spark.epochs.inputs import Inputs
from falkirk.runtime.spark.epochs.jobs import EpochJobs
from falkirk.runtime.spark.epochs.log import Epoch
from falkirk.runtime.spark.epochs.results import Written
from falkirk.runtime.spark.epochs.term import Term
from falkirk.runtime.spark.retry import FAILURES_MAX, pause_s
from falkirk.steps.batch.in_epoch import BatchState
from falkirk.theory.ids import EpochNumber, LogId, Offset

log = logging.getLogger("falkirk")

#: How many epochs may wait for sinks that are slow or away. While this many wait, input stays in its logs.
BEHIND_MAX = 8


class EpochRunner:
    """Decides, computes and saves the epochs of one batch.

    Args: jobs: reads the inputs, and computes and writes epochs. number: the epoch from whose state it resumes. term:
        while it lasts, the runner may record. clock: by which it cuts and saves.

    Attributes:
        states: the states that later epochs may begin with, by the numbers of the epochs before.
        has_unsaved: some of them are in no file. is_restored: all were read or computed again after the start.
    """

    def __init__(self, jobs: EpochJobs, number: EpochNumber, term: Term, clock: MachineTime = time) -> None:
        self.jobs = jobs
        self.term, self.clock, self._number, self._batch = term, clock, number, jobs.batch
        self.states: dict[EpochNumber, BatchState] = {}
        self.has_unsaved = self.is_restored = False
        self._restore_fails = 0
        #: The folders of attempts of which the store did not say whether it has recorded them.
        self._unsure = set[str]()
        self._began_s, self._saved_at_s = jobs.began_s(), clock.monotonic()
        self._group = f"{jobs.batch.name}-{uuid.uuid4().hex[:8]}"

    def group_of(self, number: EpochNumber) -> str:
        """Return the name of the group of an epoch's Spark jobs, by which they can be cancelled."""
        return f"{self._group}-{number}"

    def restore(self) -> float | None:
        """Read the newest saved state, and compute the later states again.

        The store says which state is the newest, because it may have recorded one before an error.

        Returns: None: all states are restored. Otherwise the pause in seconds before the next try, because Spark could
            not compute one of them.
        """
        self.states, self.has_unsaved = {}, False
        if not self._batch.is_stateful:
            self.is_restored = True
            return None
        epochs = self.jobs.epochs.epochs()
        saved = [e for e in epochs if e.is_complete and e.saved and e.state is not None and e.number >= self._number]
        if self._number >= 0 and not saved:
            raise HOME_DAMAGED_STATE.error(where=self.jobs.epochs.folder, batch=self._batch.name, number=self._number)
        for newest in saved[-1:]:
            self.jobs.epochs.state(newest)
            state = self.jobs.states.read(str(newest.state), is_result=newest.state == newest.folder)
            self.states = {newest.number: state}
        for epoch in epochs:
            if epoch.number <= max(self.states, default=-1) or not epoch.is_complete:
                continue
            try:
                self._recompute(epoch)
            except SPARK_ERRORS as error:
                self.jobs.reads.refuse_changed(epoch)
                raise_final(error, self._batch, self.jobs.epochs.files(), epoch.number)
                self._restore_fails += 1
                if self._restore_fails >= FAILURES_MAX:
                    raise
                reason = first_line(error)
                log.warning("%s: epoch %d can't be computed again: %s", self._batch.name, epoch.number, reason)
                return pause_s(self._restore_fails)
            self.has_unsaved = True
        self.is_restored, self._restore_fails = True, 0  # only now, so that a partial failure repeats the whole restore
        return None

    def _recompute(self, epoch: Epoch) -> None:
        """Compute the state after a complete epoch again."""
        with self.jobs.reads.ended_pipes(epoch):
            computed = self.jobs.compute(epoch, self._before(epoch.number), self.group_of(epoch.number))
            try:
                after = self.jobs.states.after(computed.kept, str(epoch.folder))
                self.jobs.reads.check(epoch, computed.refused)
                self.states = {epoch.number: after}
            finally:
                computed.clean()

    def lose(self, number: EpochNumber, error: BaseException) -> None:
        """Handle the possible loss of states that are in no file, because an executor may have died.

        Args: number: the epoch that failed with the error.
        Raises: SparkError: `SESSION_LOST`: computed again, the states might not agree with the recorded results. The
            next start takes these results back first.
        """
        if not self._batch.deterministic:
            raise SESSION_LOST_STATE.error(
                region=self._batch.name, number=number, reason=str(error).splitlines()[0][:200]
            ) from error
        self.is_restored = False

    def cut_if_due(self, epochs: tuple[Epoch, ...]) -> bool:
        """Record where the next epoch is cut, if it is due; return whether it was recorded."""
        last_at_s, cut = self._last_cut_s(epochs), self.jobs.cut
        if not isinstance(cut, ByTime) and not cut.may_be_due(now_s=self.clock.time(), last_at_s=last_at_s):
            return False
        views = self.jobs.views()
        if views is None or self.jobs.is_ahead(BEHIND_MAX):
            return False
        if isinstance(cut, ByTime):
            found = self.jobs.next_slice(epochs)
            return found is not None and self._record_cut(found, views, self.clock.time())
        first = self.jobs.first_of_next(epochs)
        ends = self.jobs.ends(first)
        last = cut.end_of_epoch(first, ends, now_s=self.clock.time(), last_at_s=last_at_s)
        # Input that a cut has left is due at the same time as before.
        at_s = self.clock.time() if last == ends else last_at_s
        return last is not None and self._record_cut(EpochCut(first=first, last=last), views, at_s)

    def _last_cut_s(self, epochs: tuple[Epoch, ...]) -> float:
        """Return the time of the last cut. The first epoch of a view is due at once, because others wait for it."""
        if epochs:
            return epochs[-1].cut_at_s
        return 0.0 if self._batch.is_view else self._began_s

    def _record_cut(self, found: EpochCut, views: dict[LogId, EpochNumber], at_s: float) -> bool:
        def decide() -> None:
            self.jobs.epochs.decide(
                found.first, found.last, views, at_s, slice_=found.slice, then=found.then,
                may_be_out=self.jobs.direct.may_be_next(),
            )  # fmt: skip

        return self.term.record(decide)

    def run(self, epoch: Epoch, taken: Inputs | None = None) -> None:
        """Compute an epoch, write its results, and record it. Args: taken: its inputs, if they were read before."""
        self._drop_unsure()
        repeated = self.jobs.repeat(epoch, self.group_of(epoch.number)) if self._batch.is_direct else None
        if repeated is not None:
            self._complete(
                epoch, self.jobs.epochs.new_folder(epoch.number), repeated, saves=self._saves(epoch.number), direct=True
            )
            return
        with step("compute"):
            computed = self.jobs.compute(epoch, self._before(epoch.number), self.group_of(epoch.number), taken)
        folder, direct = self.jobs.epochs.new_folder(epoch.number), self.jobs.direct.takes(epoch)
        state = None
        try:
            with step("deliver" if direct else "write"):
                written = self.jobs.write(epoch, folder, computed, direct=direct)
            saves = self._saves(epoch.number)
            with step("save", saved=saves):
                state = self._state_of(epoch, computed, folder, saves=saves)
                marks = self.jobs.marks(computed, folder, written)
                self.jobs.reads.check(epoch, computed.refused)  # results and state were computed from the files
                self.jobs.epochs.sync(folder)
        except BaseException:
            self._drop(epoch.number, folder, state)
            raise
        finally:
            computed.clean()
        self._complete(
            epoch, folder, written, saves=saves, direct=direct, state=state, marks={**computed.reported, **marks},
            refused=computed.refused,
        )  # fmt: skip

    def _saves(self, number: EpochNumber) -> bool:
        return self._batch.saves(number, self.clock.monotonic() - self._saved_at_s)

    def _complete(
        self, epoch: Epoch, folder: str, written: Written, *, saves: bool, direct: bool, state: str | None = None,
        marks: Mapping[str, int] | None = None, refused: Mapping[LogId, Sequence[Offset]] | None = None,
    ) -> None:  # fmt: skip
        """Record an epoch. Args: as of `EpochLog.record`."""
        record = partial(
            self.jobs.epochs.record, epoch.number, folder=folder, rows=written.rows, dead=written.dead, state=state,
            saved=saves, marks=marks, direct=direct, refused=refused,
        )  # fmt: skip
        with step("record"):
            recorded = self._adopt(record, epoch.number, folder, state)
        outcome = "complete" if recorded else "not recorded"
        add_attributes(outcome=outcome, results=written.rows, dead_letters=written.dead, direct=direct)
        if recorded and self._batch.notes:
            self.jobs.states.sweep(self.states.values(), lambda: self.term.is_over)
        if recorded:
            self.states = {n: s for n, s in self.states.items() if n >= epoch.number}
        self.has_unsaved = self.has_unsaved and not (recorded and saves)
        if saves:
            self._saved_at_s = self.clock.monotonic()

    def refuse_unreadable(self, epoch: Epoch, stopping: threading.Event) -> bool:
        """Refuse the files of a failed epoch that Spark can't read to their end; return whether there are any.

        Args: stopping: if it is set, no file is refused.
        Raises: LogError: a file is lost (`is_lost`). A Spark error: Spark can't read any file.
        """
        found = self.jobs.unreadable(epoch, self.group_of(epoch.number), stopping)
        self.term.record(partial(self.jobs.reads.refuse, found))
        return bool(found)

    def _before(self, number: EpochNumber) -> BatchState:
        """Return the state that an epoch begins with."""
        earlier = [n for n in self.states if n < number]
        return self.states[max(earlier)] if earlier else {}

    def _state_of(self, epoch: Epoch, computed: Computed, folder: str, *, saves: bool) -> str | None:
        """Save the state after an epoch if its policy says so; return its folder, or None if it is in no folder."""
        state, kept = None, computed.kept
        if not self._batch.is_stateful:
            return None
        if self._batch.state is not None and not kept:
            state, after = folder, self.jobs.states.read(folder, is_result=True)
        elif saves:
            own = self._batch.state is not None and OWN_STATE not in kept  # then the result just written is the state
            whole = {**kept, **self.jobs.states.read(folder, is_result=True)} if own else kept
            state = self.jobs.states.write(epoch, whole)
            after = self.jobs.states.read(state, is_result=False)
        else:
            after, self.has_unsaved = self.jobs.states.after(kept, folder), True
        # The states before it stay too: if this epoch is not recorded after all, it is computed again from them.
        self.states[epoch.number] = after
        return state

    def saves_at_rest(self, last: Epoch) -> bool:
        """Return whether the state after the last epoch must be saved without a later one, as results may wait for it.

        Args: last: the last epoch, which is complete.
        """
        if last.saved:
            return False
        return self._batch.saves_at_rest(self.clock.monotonic() - self._saved_at_s) or self.jobs.is_last(last)

    def save(self, epoch: Epoch) -> None:
        """Save the state after a complete epoch."""
        self._drop_unsure()
        self.jobs.begin_jobs(epoch, self.group_of(epoch.number))
        epochs, states = self.jobs.epochs, self.jobs.states
        state = epoch.state or states.write(epoch, self.states[epoch.number])
        written = None if epoch.state else state
        if self._adopt(lambda: epochs.record_state(epoch.number, state), None, written):
            self.states, self.has_unsaved = {epoch.number: states.read(state, is_result=state == epoch.folder)}, False
        self._saved_at_s = self.clock.monotonic()

    def _adopt(self, record: Callable[[], None], number: EpochNumber | None, *folders: str | None) -> bool:
        """Record a complete epoch or a saved state; return whether it was recorded.

        Args: number: of the epoch, which is computed again if it is not recorded. folders: were written for it.
        """
        try:
            recorded = self.term.record(record)
        except (StoreError, OSError) as error:
            if isinstance(error, OSError) or error.certainty == "definitely":
                self._drop(number, *folders)
            else:
                self._unsure.update(filter(None, folders))
            raise
        if recorded:
            self.jobs.on_complete()
        return recorded

    def _drop_unsure(self) -> None:
        """Delete the folders of attempts that are not recorded, once the store says so. Raises: StoreError."""
        if due := frozenset(self._unsure):
            self.jobs.epochs.drop_unrecorded(due)
            self._unsure -= due

    def _drop(self, number: EpochNumber | None, *folders: str | None) -> None:
        """Delete the folders of a failed attempt: the retry uses others, and the disk may be full."""
        if number is not None:
            self.states.pop(number, None)
        for folder in folders:
            if folder is not None:
                self.jobs.epochs.drop(folder)
