"""Runs: one incarnation of a batch, with a thread that decides where epochs end and workers that compute them."""

import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from itertools import takewhile

from falkirk.declare.cut import ByTime, OnArrival
from falkirk.errors import FalkirkError, LogError, SparkError, StoreError
from falkirk.errors.spark import SPARK_ERRORS
from falkirk.plan.batch import Batch
from falkirk.platform.deadline import left_s
from falkirk.runtime.spark.epochs.failures import may_have_lost_state, passes, raise_final, retry_text, waits_for
from falkirk.runtime.spark.epochs.files import is_lost
from falkirk.runtime.spark.epochs.inputs import Inputs, refuse_damaged
from falkirk.runtime.spark.epochs.log import Epoch
from falkirk.runtime.spark.epochs.runner import EpochRunner
from falkirk.runtime.spark.retry import FAILURES_MAX, pause_s
from falkirk.theory.ids import EpochNumber

log = logging.getLogger("falkirk")

#: The time between two checks for new input.
_POLL_S = 0.1
#: Why no epoch is computed.
LIVE_FIRST = "waits until the live regions have started"
#: How many epochs run at the same time, if they do not depend on each other.
_EPOCHS_AT_ONCE = 2
#: The time between two checks whether a lost file is back.
LOST_PAUSE_S = 1.0


class Run:
    """One incarnation of a batch: a thread that decides, and workers. Args: runner: of its epochs."""

    def __init__(self, runner: EpochRunner) -> None:
        self._runner = runner
        self._jobs, self._batch, self._clock = runner.jobs, runner.jobs.batch, runner.clock
        self.error: Exception | None = None
        self._stopping, self._wake = threading.Event(), threading.Event()
        self._tries: dict[EpochNumber, int] = {}
        self._not_before_s: dict[EpochNumber, float] = {}
        #: The reasons for the failures of epochs that will be retried.
        self._failing: dict[EpochNumber, str] = {}
        self._running: dict[EpochNumber, Future[None]] = {}
        # If epochs end on arrival, records that arrive meanwhile wait for the next epoch, because two small epochs at
        # once would both be later. A batch that sorts by time needs the marks of the previous epoch. A topic receives
        # one epoch after the other.
        one_by_one = self._batch.is_stateful or self._batch.is_direct or isinstance(self._batch.cut, OnArrival)
        self._at_once = at_once = 1 if one_by_one else _EPOCHS_AT_ONCE
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
        until_s = time.monotonic() + timeout_s
        self.leave_off()
        self._thread.join(timeout_s)
        wait_for(list(self._running.values()), timeout=left_s(timeout_s, until_s))

    def save_last(self, timeout_s: float) -> None:
        """Save the state after the last complete epoch if it is in no file; decide and start no further epoch.

        Without it, the steps that compute the state could not change before the next start (program.py). Failures are
        logged, because the next start can compute the state again.
        """
        until_s = time.monotonic() + timeout_s
        self.drain(timeout_s)
        complete = list(takewhile(lambda epoch: epoch.is_complete, self._jobs.epochs.epochs()))
        if self.error is not None or not complete:
            return
        last = complete[-1]
        if last.saved or last.number not in self._runner.states:
            return
        self._running[last.number] = future = self._pool.submit(self._runner.save, last)
        if (
            not wait_for([future], timeout=left_s(timeout_s, until_s)).not_done
            and (error := future.exception()) is not None
        ):
            log.warning("%s: its state was not saved at the stop: %s", self._batch.name, str(error)[:200])

    def stop(self, timeout_s: float) -> bool:
        """Stop the run, which records nothing from now on; return whether its thread and its epochs have ended."""
        self._runner.term.end()
        self.leave_off()
        deadline = time.monotonic() + timeout_s
        for number in list(self._running):
            self._jobs.cancel(self._runner.group_of(number))
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        running = dict(self._running)
        while running and time.monotonic() < deadline:
            for number in running:
                self._jobs.cancel(self._runner.group_of(number))
            wait_for(running.values(), timeout=_POLL_S)
            running = {n: future for n, future in running.items() if not future.done()}
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._intake.shutdown(wait=False, cancel_futures=True)
        for number, taking in list(self._taking.items()):
            self._jobs.cancel(self._intake_group(number))
            taking.add_done_callback(_release)
        return not running and not self._thread.is_alive()

    def _work(self) -> None:
        try:
            while not self._wait():
                if not self._jobs.may_work():
                    self._jobs.detail = LIVE_FIRST
                    continue
                try:
                    if not self._runner.is_restored and not self._running:
                        pause = self._runner.restore()
                        if pause is not None:
                            self._stopping.wait(pause)
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
        self._wake.wait(_POLL_S)
        self._wake.clear()
        return self._stopping.is_set()

    def _turn(self) -> None:
        for number in [n for n, future in self._running.items() if future.done()]:
            self._finish(number, self._running.pop(number))
        epochs = self._jobs.epochs.epochs()
        waiting = [e for e in epochs if not e.is_complete]
        current = {e.number for e in (*waiting, *epochs[-1:])}
        self._failing = {number: why for number, why in self._failing.items() if number in current}
        if len(waiting) < self._ahead and self._runner.cut_if_due(epochs):
            self._wake.set()  # to run it at once
            return
        for epoch in waiting[: self._at_once] if self._runner.is_restored else ():
            if epoch.number not in self._running and self._clock.monotonic() >= self._not_before_s.get(
                epoch.number, 0.0
            ):
                self._running[epoch.number] = future = self._pool.submit(self._execute, epoch)
                future.add_done_callback(lambda _: self._wake.set())
        for epoch in waiting[self._at_once :] if self._running else ():
            if epoch.number not in self._taking:
                group = self._intake_group(epoch.number)
                self._taking[epoch.number] = self._intake.submit(self._jobs.take_in, epoch, group)
        if self._running:
            return
        if epochs and not waiting and self._runner.is_restored:
            self._save_at_rest(epochs[-1])

    def _save_at_rest(self, last: Epoch) -> None:
        """Save the state after the last epoch if no later epoch saves one, because results may wait for it."""
        if not self._runner.saves_at_rest(last) or self._clock.monotonic() < self._not_before_s.get(last.number, 0.0):
            return
        self._running[last.number] = future = self._pool.submit(self._runner.save, last)
        future.add_done_callback(lambda _: self._wake.set())

    def _intake_group(self, number: EpochNumber) -> str:
        return f"{self._runner.group_of(number)}-in"

    def _execute(self, epoch: Epoch) -> None:
        if not (recorder := self._jobs.recorder).is_on:
            self._compute(epoch)
            return
        tries = self._tries.get(epoch.number, 0) + 1
        with recorder.span("epoch", processor=self._batch.name, epoch=epoch.number, **{"try": tries}) as span:
            waited_s = max(0.0, time.time() - epoch.decided_at_s)
            span.note(records=_records(epoch, self._batch), waited_s=round(waited_s, 3))
            try:
                self._compute(epoch)
            except BaseException:
                span.note(outcome="stopped" if self._stopping.is_set() else "failed")
                raise

    def _compute(self, epoch: Epoch) -> None:
        taken = self._taken(epoch.number)
        try:
            with self._jobs.reads.ended_pipes(epoch):
                try:
                    self._runner.run(epoch, taken)
                except SPARK_ERRORS:
                    if not self._runner.refuse_unreadable(epoch, self._stopping):
                        raise
                    self._runner.run(epoch)
        finally:
            if taken is not None:
                taken.release()

    def _taken(self, number: EpochNumber) -> Inputs | None:
        """Return the inputs of an epoch that were read before its turn, or None if there are none or reading failed."""
        taking = self._taking.pop(number, None)
        if taking is None or taking.exception() is not None:
            return None
        return taking.result()

    def _finish(self, number: EpochNumber, future: "Future[None]") -> None:
        error = future.exception()
        if error is None or self._stopping.is_set():
            self._failing.pop(number, None)
            self._tries.pop(number, None)
            return
        raise_final(error, self._batch, self._jobs.epochs.files(), number)
        # If the broker is away or a topic was replaced, that is the cause of every error that Spark reports.
        epochs = self._jobs.epochs.epochs()
        self._jobs.ends(self._jobs.first_of_next(epochs))
        for epoch in epochs:
            if epoch.number == number and not epoch.is_complete:
                self._jobs.refuse_expired(epoch)
                try:
                    refuse_damaged(self._batch, epoch, self._jobs.all_logs)
                except StoreError as away:  # if raised, the next turn would repeat the epoch and tell nothing
                    if away.condition != "DATA_AWAY":
                        raise
                    error = away
        tries = self._tries[number] = self._tries.get(number, 0) + 1
        if not is_lost(error) or number not in self._failing:  # log a lost file once, because the wait may be long
            log.warning("%s: epoch %d failed (try %d): %s", self._batch.name, number, tries, str(error)[:500])
        if passes(error):
            self._tries[number], tries = 0, 2 if number in self._failing else 1
        elif tries >= FAILURES_MAX or (
            isinstance(error, FalkirkError) and not isinstance(error, SparkError | LogError)
        ):
            raise error
        elif self._runner.has_unsaved and may_have_lost_state(error):
            self._runner.lose(number, error)
        self._failing[number] = retry_text(error, number)
        self._not_before_s[number] = self._clock.monotonic() + pause_s(tries)


def _records(epoch: Epoch, batch: Batch) -> int:
    """Return how many records of topics an epoch reads, by their offsets."""
    topics = {given.log for given in batch.inputs if given.topic is not None}
    ends = [(log, p, o) for log in topics for p, o in epoch.last.get(log, {}).items()]
    return sum(max(0, o - epoch.first.get(log, {}).get(p, 0)) for log, p, o in ends)


def _release(taking: "Future[Inputs]") -> None:
    if not taking.cancelled() and taking.exception() is None:
        taking.result().release()
