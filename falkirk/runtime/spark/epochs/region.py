"""Batch regions: run a DataFrame job for each complete epoch, and record its results before anything depends on them.

One thread decides where epochs end, and workers run them, several at once if they do not depend on each other. An
epoch is

  1. decided: its cut, and the epochs of the views that it reads, are in the store;
  2. run: its results are in a new folder, and the state is in another one;
  3. recorded: from now on it is complete, and no later attempt can change it.

A crash before step 3 leaves a folder that no epoch uses, and the epoch runs again from the same decision. A failed
epoch is retried alone. In step 2, deterministic results may go straight to their topic (`direct.py`).
"""

import logging
import math

from falkirk.declare.endpoints import Kafka
from falkirk.errors.conditions.spark import HOME_DAMAGED_BATCH, WRITER_STILL_RUNNING
from falkirk.plan.batch import Batch
from falkirk.plan.topics import refuse_forgetful
from falkirk.platform.deadline import left_s
from falkirk.recovery.decision_store import RegionRecord
from falkirk.recovery.protocol.ports import Health
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.dead_letters import DeadLetters, letters_of
from falkirk.runtime.spark.epochs.at_rest import BatchAtRest
from falkirk.runtime.spark.epochs.jobs import EpochJobs, Shared
from falkirk.runtime.spark.epochs.ports import ReleaserPort, RunPort
from falkirk.runtime.spark.epochs.program import refuse_other_program
from falkirk.runtime.spark.epochs.run import Run
from falkirk.runtime.spark.epochs.runner import EpochRunner
from falkirk.runtime.spark.epochs.strays import Strays
from falkirk.runtime.spark.epochs.term import Term
from falkirk.runtime.spark.growth import grown, report_growth
from falkirk.runtime.spark.record import compare, completed, refuse_own_records, renamed
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.ids import CheckpointNumber, EpochNumber

log = logging.getLogger("falkirk")

#: A job is cancelled within this time. Python code of a user's function can't be cancelled. It is left to run, and its
#: results are not recorded. (Functions with direct results run no such code: `BatchRegion.fence`.)
_STOP_S = 10.0
#: A job that sends straight to a topic has this long to finish.
DRAIN_S = 5.0
#: At a stop, a state has this long to be saved.
SAVE_S = 5.0


class BatchRegion(BatchAtRest):
    """One batch of an application, a RegionPort.

    Args: releaser: of its results; None: nothing is released.

    Attributes: jobs: reads, computes and writes its epochs. strays: its folders that no epoch uses.
    """

    def __init__(
        self, batch: Batch, context: Context, shared: Shared, releaser: ReleaserPort | None = None
    ) -> None:  # fmt: skip
        super().__init__(batch.logs(), context, shared.logs[batch.log], shared.files)
        self.batch, self._context, self.releaser = batch, context, releaser
        self.jobs = EpochJobs(batch, context, shared, releaser)
        self.strays = Strays(self.epochs, self._store, context.clock)
        self._run: RunPort | None = None
        #: Its dead letters, from the first `prepare` on, if it has a topic for them.
        self.letters: DeadLetters | None = None
        self.ready_at_s = 0.0

    def prepare(self) -> RegionRecord:
        """Check the inputs, and compare them with those in the home; record them before the first start.

        Raises: HomeError, LogError.
        """
        record, topic = self._prepared(), self.batch.dead_letter_topic
        if topic is not None and self.letters is None:
            self.letters = letters_of(self.batch.name, topic, self._context)
        return record

    def _prepared(self) -> RegionRecord:
        topics = self._context.topics
        partitions = {}
        for given in self.batch.inputs:
            if given.topic is None:
                continue
            facts = topics.facts(given.log)
            refuse_forgetful(facts, given.topic.where, self.batch.interval_s)
            partitions[given.log] = facts.partitions
        written = [sink.to.log for sink in self.batch.sinks if isinstance(sink.to, Kafka)]
        self._context.hold((*partitions, *written))
        letters = self.batch.dead_letter_topic
        written += [] if letters is None else [letters]
        partitions |= {topic: topics.facts(topic).partitions for topic in written}
        record = self._store.region(self.batch.name)
        if record is not None:
            now = grown(self.batch, record, topics, partitions)
            compare(self.batch, completed(self.batch, now, self._store), partitions)
            refuse_other_program(self.batch, self.epochs, self._store)
            return self._resumed(record, now)
        if self.epochs.folder.exists():
            raise HOME_DAMAGED_BATCH.error(where=self.epochs.folder, batch=self.batch.name)
        refuse_own_records(self.batch, self._context, written)
        if self.releaser is not None and (taken := self.releaser.has_taken()):
            raise renamed(self.batch, taken)
        record = RegionRecord(
            fingerprint=self.batch.fingerprint, start_offsets=self.jobs.first_start(), partitions=partitions
        )
        if self._store.decision("began", self.batch.name, 0) is None:
            self._store.record_decision("began", self.batch.name, 0, {"at_s": self._context.clock.time()})
        self._store.create_region(
            self.batch.name, record, {} if letters is None else {letters: topics.end_positions(letters)}
        )
        refuse_other_program(self.batch, self.epochs, self._store)
        self.jobs.partitions = record.partitions
        return record

    def _resumed(self, before: RegionRecord, now: RegionRecord) -> RegionRecord:
        """Record the topics that the batch reads from now on, if there are new ones; return the record."""
        if now is not before:
            self._store.grow_region(self.batch.name, now)
            report_growth(self.batch, before, now)
        self.epochs.learn_starts()
        self.jobs.partitions = now.partitions
        return now

    def health(self) -> Health:
        """See RegionPort. A batch whose thread has ended still counts as running until the caller has read `failure`
        and called `end`. A batch never hangs, because an epoch may take any time."""
        return Health(runs=self._run is not None, ready_at_s=self.ready_at_s)

    def start(self, number: CheckpointNumber) -> None:
        """See RegionPort."""
        assert self._run is None, "a region is started after its fence"
        self.prepare()
        self._store.open_incarnation(self.batch.name, number)
        self.epochs.folder.make()
        self.jobs.forget_ends()
        self._run = self._begun(EpochNumber(number))

    def _begun(self, number: EpochNumber) -> RunPort:
        """Return a run that works. Args: number: the epoch from whose state it resumes."""
        run = Run(EpochRunner(self.jobs, number, Term(), self._context.clock))
        run.begin()
        return run

    def rewind(self, number: CheckpointNumber) -> None:
        """See RegionPort. Raises: StoreError: as `Strays.note`."""
        super().rewind(number)
        self.strays.note()

    def fence(self) -> None:
        """See RegionPort. From now on the run records nothing, so the time of its end does not matter, except for
        results that go straight to their topic.

        Raises: SparkError: `WRITER_STILL_RUNNING`.
        """
        if not self.end() and self.batch.is_direct:
            raise WRITER_STILL_RUNNING.error(batch=self.batch.name)

    def leave_off(self) -> None:
        """Start no further epoch. Running epochs may finish."""
        if (run := self._run) is not None:
            run.leave_off()

    def save_last(self, until_s: float = math.inf) -> None:
        """Save the state at the end of an orderly stop, if it is saved by the clock and its results count already.

        Args: until_s: the monotonic time until which it may wait.
        """
        if self._run is not None and self.batch.program and self.batch.deterministic and self.batch.is_saved_by_clock:
            self._run.save_last(left_s(SAVE_S, until_s))

    def end(self, until_s: float = math.inf) -> bool:
        """Stop the run; return whether it has ended. Args: until_s: the monotonic time until which it may wait."""
        if self._run is not None and self.batch.is_direct:
            # So that a partly published epoch is published completely, if it can be.
            self._run.drain(left_s(DRAIN_S, until_s))
        run, self._run = self._run, None
        stopped = run is None or run.stop(left_s(_STOP_S, until_s))
        if not stopped:
            log.warning("%s: a running epoch does not stop; its results will not count", self.batch.name)
        return stopped

    def at_rest_with(self) -> OffsetFrontier:
        """Return the input that waits for a later event time, if no epoch is due; of other batches, nothing."""
        epochs = self.epochs.epochs()
        is_saved = not self.batch.is_stateful or all(e.saved for e in epochs[-1:])
        if not is_saved or not all(e.is_complete for e in epochs):
            return EMPTY
        return self._frontier(self.jobs.nothing_due_at, {})

    def failure(self) -> Exception | None:
        """Return the error that ended the batch, or None while it runs or after it was stopped."""
        return None if self._run is None else self._run.error
