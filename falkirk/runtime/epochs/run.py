"""Runs: one incarnation of a batch, with a thread that decides where epochs end and workers that compute them."""

import logging
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from functools import partial
from itertools import takewhile

from falkirk.declare.cut import ByTime, OnArrival
from falkirk.errors import FalkirkError, LogError, SparkError
from falkirk.errors.conditions.runtime import HOME_DAMAGED_STATE, SESSION_LOST_STATE
from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.operators.in_epoch import State
from falkirk.runtime.context import Clock
from falkirk.runtime.epochs.computed import OWN, Computed, Decided
from falkirk.runtime.epochs.failures import may_have_lost_state, passes, raise_final, told, waits_for
from falkirk.runtime.epochs.files import is_lost
from falkirk.runtime.epochs.inputs import Inputs, refuse_damaged
from falkirk.runtime.epochs.jobs import EpochJobs
from falkirk.runtime.epochs.log import Epoch
from falkirk.runtime.epochs.term import Term
from falkirk.runtime.retry import FAILURES_MAX, pause_s
from falkirk.theory.ids import EpochNumber, LogId

log = logging.getLogger("falkirk")

#: The time between two checks for new input.
LOOK_S = 0.1
#: How many epochs run at the same time, if they do not depend on each other.
AT_ONCE = 2
#: How many epochs may wait for sinks that are slow or away. While this many wait, input stays in its logs.
BEHIND_MAX = 8
#: The time between two checks whether a lost file is back.
LOST_PAUSE_S = 1.0


class Run:
    """One incarnation of a batch: a thread that decides, and workers.

    Args: number: the epoch from whose state it resumes. clock: by which it cuts and saves.
    """

    def __init__(self, jobs: EpochJobs, number: EpochNumber, clock: Clock = time) -> None:
        self._jobs, self._number, self._term = jobs, number, Term()
        self._batch, self._clock = jobs.batch, clock
        self.error: Exception | None = None
        self._stopping, self._wake = threading.Event(), threading.Event()
        self._began_s = jobs.began_s()
        self._tries: dict[EpochNumber, int] = {}
        self._not_before_s: dict[EpochNumber, float] = {}
        #: The reasons for the failures of epochs that will be retried.
        self._failing: dict[EpochNumber, str] = {}
        self._running: dict[EpochNumber, Future[None]] = {}
        self._states: dict[EpochNumber, State] = {}
        #: Whether some states are in no file, and whether all states were read or computed again after the start.
        self._unsaved, self._restored = False, False
        self._restore_fails = 0
        self._saved_at_s = self._clock.monotonic()
        self._group = f"{jobs.batch.name}-{uuid.uuid4().hex[:8]}"
        # If epochs end on arrival, records that arrive meanwhile wait for the next epoch, because two small epochs at
        # once would both be later. A batch that sorts by time needs the marks of the previous epoch. A topic receives
        # one epoch after the other.
        one_by_one = self._batch.is_stateful or self._batch.is_direct or isinstance(self._batch.cut, OnArrival)
        self._at_once = at_once = 1 if one_by_one else AT_ONCE
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix=f"falkirk-{self._batch.name}")
        # While an epoch runs its rounds, the next epoch is decided and its inputs are read.
        takes_in = self._batch.iteration is not None and not isinstance(self._batch.cut, OnArrival | ByTime)
        self._ahead = at_once + takes_in
        self._intake = ThreadPoolExecutor(1, thread_name_prefix=f"falkirk-{self._batch.name}-in")
        self._taking: dict[EpochNumber, Future[Inputs]] = {}
        self._thread = threading.Thread(target=self._work, name=f"falkirk-{self._batch.name}", daemon=True)

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def leave_off(self) -> None:
        """Decide and start no further epoch."""
        self._stopping.set()
        self._wake.set()

    def drain(self, timeout_s: float) -> None:
        """Let running epochs finish, and start no further epoch."""
        self.leave_off()
        self._thread.join(timeout_s)
        wait_for(list(self._running.values()), timeout=timeout_s)

    def save_last(self, timeout_s: float) -> None:
        """Save the state after the last complete epoch if it is in no file; decide and start no further epoch.

        Without it, the steps that compute the state could not change before the next start (program.py). Failures are
        logged, because the next start can compute the state again.
        """
        self.drain(timeout_s)
        complete = list(takewhile(lambda epoch: epoch.is_complete, self._jobs.epochs.epochs()))
        if self.error is not None or not complete or complete[-1].saved or complete[-1].number not in self._states:
            return
        last = complete[-1]
        self._running[last.number] = future = self._pool.submit(self._save, last)
        if not wait_for([future], timeout=timeout_s).not_done and (error := future.exception()) is not None:
            log.warning("%s: its state was not saved at the stop: %s", self._batch.name, str(error)[:200])

    def stop(self, timeout_s: float) -> bool:
        """Stop the run, which records nothing from now on; return whether its thread and its epochs have ended."""
        self._term.end()
        self.leave_off()
        deadline = time.monotonic() + timeout_s
        for number in list(self._running):
            self._jobs.cancel(f"{self._group}-{number}")
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        running = dict(self._running)
        while running and time.monotonic() < deadline:
            for number in running:
                self._jobs.cancel(f"{self._group}-{number}")
            wait_for(running.values(), timeout=LOOK_S)
            running = {n: future for n, future in running.items() if not future.done()}
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._intake.shutdown(wait=False, cancel_futures=True)
        for number, taking in list(self._taking.items()):
            self._jobs.cancel(f"{self._group}-{number}-in")
            taking.add_done_callback(_release)
        return not running and not self._thread.is_alive()

    def _work(self) -> None:
        try:
            while not self._wait():
                try:
                    if not self._restored and not self._running:
                        self._restore()
                    self._turn()
                    state = next(iter(self._failing.values()), self._jobs.waits_for)
                    self._jobs.detail = "; ".join(filter(None, (state, self._jobs.reads.report())))
                except Exception as error:
                    if not passes(error):
                        raise
                    self._jobs.detail = waits_for(error)
                    if is_lost(error):
                        self._stopping.wait(LOST_PAUSE_S)
        except Exception as error:
            self.error = error

    def _wait(self) -> bool:
        """Wait until there may be work; return whether to stop."""
        self._wake.wait(LOOK_S)
        self._wake.clear()
        return self._stopping.is_set()

    def _restore(self) -> None:
        """Read the newest saved state, and compute the later states again.

        The store says which state is the newest, because it may have recorded one before an error.
        """
        self._states, self._unsaved = {}, False
        if not self._batch.is_stateful:
            self._restored = True
            return
        epochs = self._jobs.epochs.epochs()
        saved = [e for e in epochs if e.is_complete and e.saved and e.state is not None and e.number >= self._number]
        if self._number >= 0 and not saved:
            raise HOME_DAMAGED_STATE.error(where=self._jobs.epochs.folder, batch=self._batch.name, number=self._number)
        for newest in saved[-1:]:
            self._jobs.epochs.state(newest)
            state = self._jobs.states.read(str(newest.state), is_result=newest.state == newest.folder)
            self._states = {newest.number: state}
        for epoch in epochs:
            if epoch.number <= max(self._states, default=-1) or not epoch.is_complete:
                continue
            try:
                self._recompute(epoch)
            except SPARK_ERRORS as error:
                self._jobs.reads.refuse_changed(epoch)
                raise_final(error, self._jobs.batch, self._jobs.epochs.files(), epoch.number)
                self._restore_fails += 1
                if self._restore_fails >= FAILURES_MAX:
                    raise
                reason = first_line(error)
                log.warning("%s: epoch %d can't be computed again: %s", self._batch.name, epoch.number, reason)
                self._stopping.wait(pause_s(self._restore_fails))
                return
            self._unsaved = True
        self._restored, self._restore_fails = True, 0  # only now, so that a partial failure repeats the whole restore

    def _recompute(self, epoch: Epoch) -> None:
        """Compute the state after a complete epoch again."""
        with self._jobs.reads.ended_pipes(epoch):
            computed = self._jobs.compute(epoch, self._before(epoch.number), f"{self._group}-{epoch.number}")
            try:
                after = self._after(computed.kept, str(epoch.folder))
                self._jobs.reads.check(epoch, computed.refused)
                self._states = {epoch.number: after}
            finally:
                computed.clean()

    def _after(self, kept: State, folder: str) -> State:
        """Return a state that is in no file, kept in Spark's storage."""
        if self._batch.state is not None and OWN not in kept:
            kept = {**kept, **self._jobs.states.read(folder, is_result=True)}
        return {s: k if isinstance(k, str) else k.localCheckpoint(eager=True) for s, k in kept.items()}

    def _turn(self) -> None:
        for number in [n for n, future in self._running.items() if future.done()]:
            self._finish(number, self._running.pop(number))
        epochs = self._jobs.epochs.epochs()
        waiting = [e for e in epochs if not e.is_complete]
        current = {e.number for e in (*waiting, *epochs[-1:])}
        self._failing = {number: why for number, why in self._failing.items() if number in current}
        if len(waiting) < self._ahead and self._decide(epochs):
            self._wake.set()  # to run it at once
            return
        for epoch in waiting[: self._at_once] if self._restored else ():
            if epoch.number not in self._running and self._clock.monotonic() >= self._not_before_s.get(
                epoch.number, 0.0
            ):
                self._running[epoch.number] = future = self._pool.submit(self._execute, epoch)
                future.add_done_callback(lambda _: self._wake.set())
        for epoch in waiting[self._at_once :] if self._running else ():
            if epoch.number not in self._taking:
                group = f"{self._group}-{epoch.number}-in"
                self._taking[epoch.number] = self._intake.submit(self._jobs.take_in, epoch, group)
        if self._running:
            return
        if epochs and not waiting and self._restored:
            self._save_at_rest(epochs[-1])

    def _save_at_rest(self, last: Epoch) -> None:
        """Save the state after the last epoch if no later epoch saves one, because results may wait for it."""
        if last.saved:
            return
        is_time = self._batch.saves_at_rest(self._clock.monotonic() - self._saved_at_s) or self._jobs.is_last(last)
        if not is_time or self._clock.monotonic() < self._not_before_s.get(last.number, 0.0):
            return
        self._running[last.number] = future = self._pool.submit(self._save, last)
        future.add_done_callback(lambda _: self._wake.set())

    def _save(self, epoch: Epoch) -> None:
        self._jobs.begin_jobs(epoch, f"{self._group}-{epoch.number}")
        epochs, states = self._jobs.epochs, self._jobs.states
        state = epoch.state or states.write(epoch, self._states[epoch.number])
        if self._adopt(lambda: epochs.record_state(epoch.number, state)):
            self._states, self._unsaved = {epoch.number: states.read(state, is_result=state == epoch.folder)}, False
        self._saved_at_s = self._clock.monotonic()

    def _decide(self, epochs: tuple[Epoch, ...]) -> bool:
        last_at_s, cut = epochs[-1].cut_at_s if epochs else self._began_s, self._jobs.cut
        if not isinstance(cut, ByTime) and not cut.may_be_due(now_s=self._clock.time(), last_at_s=last_at_s):
            return False
        views = self._jobs.views()
        if views is None or self._jobs.is_ahead(BEHIND_MAX):
            return False
        if isinstance(cut, ByTime):
            decided = self._jobs.next_slice(epochs)
            return decided is not None and self._record_cut(decided, views, self._clock.time())
        first = self._jobs.first_of_next(epochs)
        ends = self._jobs.ends(first)
        last = cut.take(first, ends, now_s=self._clock.time(), last_at_s=last_at_s)
        # Input that a cut has left is due at the same time as before.
        at_s = self._clock.time() if last == ends else last_at_s
        return last is not None and self._record_cut(Decided(first=first, last=last), views, at_s)

    def _record_cut(self, decided: Decided, views: dict[LogId, EpochNumber], at_s: float) -> bool:
        return self._term.record(partial(self._jobs.decide, decided, views, at_s))

    def _adopt(self, record: Callable[[], None]) -> bool:
        """Record a complete epoch or a saved state; return whether it was recorded."""
        recorded = self._term.record(record)
        if recorded:
            self._jobs.on_complete()
        return recorded

    def _before(self, number: EpochNumber) -> State:
        """Return the state that an epoch begins with."""
        earlier = [n for n in self._states if n < number]
        return self._states[max(earlier)] if earlier else {}

    def _execute(self, epoch: Epoch) -> None:
        taken = self._taken(epoch.number)
        try:
            with self._jobs.reads.ended_pipes(epoch):
                try:
                    self._complete(epoch, taken)
                except SPARK_ERRORS:
                    if not self._refuse_unreadable(epoch):
                        raise
                    self._complete(epoch, None)
        finally:
            if taken is not None:
                taken.release()

    def _refuse_unreadable(self, epoch: Epoch) -> bool:
        """Refuse the files of a failed epoch that Spark can't read to their end; return whether there are any.

        Raises: LogError: a file is lost (`is_lost`). A Spark error: Spark can't read any file.
        """
        found = self._jobs.unreadable(epoch, f"{self._group}-{epoch.number}", self._stopping)
        self._term.record(partial(self._jobs.reads.refuse, found))
        return bool(found)

    def _taken(self, number: EpochNumber) -> Inputs | None:
        """Return the inputs of an epoch that were read before its turn, or None if there are none or reading failed."""
        taking = self._taking.pop(number, None)
        if taking is None or taking.exception() is not None:
            return None
        return taking.result()

    def _complete(self, epoch: Epoch, taken: Inputs | None) -> None:
        computed = self._jobs.compute(epoch, self._before(epoch.number), f"{self._group}-{epoch.number}", taken)
        folder, direct = self._jobs.epochs.new_folder(epoch.number), self._jobs.direct.takes(epoch)
        try:
            written = self._jobs.write(epoch, folder, computed, direct=direct)
            saves = self._batch.saves(epoch.number, self._clock.monotonic() - self._saved_at_s)
            state = self._state_of(epoch, computed, folder, saves=saves)
            marks = self._jobs.marks(computed, folder, written)
            self._jobs.reads.check(epoch, computed.refused)  # its results and its state were computed from the files
            self._jobs.epochs.sync(folder)
        except BaseException:
            self._jobs.epochs.drop(folder)  # the retry uses another folder, and the disk may be full
            raise
        finally:
            computed.clean()
        record = partial(
            self._jobs.epochs.record, epoch.number, folder=folder, rows=written.rows, dead=written.dead, state=state,
            saved=saves, marks={**computed.told, **marks}, direct=direct, refused=computed.refused,
        )  # fmt: skip
        recorded = self._adopt(record)
        if recorded and self._batch.notes:
            self._jobs.states.sweep(self._states.values())
        if recorded:
            self._states = {n: s for n, s in self._states.items() if n >= epoch.number}
        self._unsaved = self._unsaved and not (recorded and saves)
        if saves:
            self._saved_at_s = self._clock.monotonic()

    def _state_of(self, epoch: Epoch, computed: Computed, folder: str, *, saves: bool) -> str | None:
        """Save the state after an epoch if its policy says so; return its folder, or None if it is in no folder."""
        state, kept = None, computed.kept
        if not self._batch.is_stateful:
            return None
        if self._batch.state is not None and not kept:
            state, after = folder, self._jobs.states.read(folder, is_result=True)
        elif saves:
            own = self._batch.state is not None and OWN not in kept  # then the result just written is the state
            whole = {**kept, **self._jobs.states.read(folder, is_result=True)} if own else kept
            state = self._jobs.states.write(epoch, whole)
            after = self._jobs.states.read(state, is_result=False)
        else:
            after, self._unsaved = self._after(kept, folder), True
        # The states before it stay too: if this epoch is not recorded after all, it is computed again from them.
        self._states[epoch.number] = after
        return state

    def _finish(self, number: EpochNumber, future: "Future[None]") -> None:
        error = future.exception()
        if error is None or self._stopping.is_set():
            self._failing.pop(number, None)
            self._tries.pop(number, None)
            return
        raise_final(error, self._jobs.batch, self._jobs.epochs.files(), number)
        # If the broker is away or a topic was replaced, that is the cause of every error that Spark reports.
        epochs = self._jobs.epochs.epochs()
        self._jobs.ends(self._jobs.first_of_next(epochs))
        for epoch in epochs:
            if epoch.number == number and not epoch.is_complete:
                self._jobs.refuse_expired(epoch)
                refuse_damaged(self._batch, epoch, self._jobs.all_logs)
        tries = self._tries[number] = self._tries.get(number, 0) + 1
        if not is_lost(error) or number not in self._failing:  # log a lost file once, because the wait may be long
            log.warning("%s: epoch %d failed (try %d): %s", self._batch.name, number, tries, str(error)[:500])
        if passes(error):
            self._tries[number] = 0
        elif tries >= FAILURES_MAX or (
            isinstance(error, FalkirkError) and not isinstance(error, SparkError | LogError)
        ):
            raise error
        elif self._unsaved and may_have_lost_state(error):
            self._lose(number, error)
        self._failing[number] = told(error, number)
        self._not_before_s[number] = self._clock.monotonic() + pause_s(tries)

    def _lose(self, number: EpochNumber, error: BaseException) -> None:
        """Handle the possible loss of states that are in no file, because an executor may have died.

        Raises: SparkError: `SESSION_LOST`: computed again, the states might not agree with the recorded results. The
            next start takes these results back first.
        """
        if not self._batch.deterministic:
            raise SESSION_LOST_STATE.error(
                region=self._batch.name, number=number, reason=str(error).splitlines()[0][:200]
            ) from error
        self._restored = False


def _release(taking: "Future[Inputs]") -> None:
    if not taking.cancelled() and taking.exception() is None:
        taking.result().release()
