"""Release: copies the epochs of batches from their logs to their sinks.

If a sink can't be reached, only its own epochs wait.
"""

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from falkirk.declare.endpoints import Kafka
from falkirk.declare.parts import DeclaredSink
from falkirk.errors import HomeError, SparkError
from falkirk.errors.conditions.spark import RELEASE_FAILED_STOP
from falkirk.errors.spark import SPARK_ERRORS
from falkirk.plan.region import BatchLogs
from falkirk.platform.deadline import left_s
from falkirk.platform.machine_time import MachineTime
from falkirk.platform.parallel import BackgroundCall
from falkirk.platform.traced import OFF, Recorder, step
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.epochs.inputs import PLACE_BITS, ROW, files_found, read_folders
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.runtime.spark.epochs.repeated_job import RepeatedJob
from falkirk.runtime.spark.retry import pause_s
from falkirk.runtime.spark.sinks.comparison import SinkComparison, concerns_one_sink
from falkirk.runtime.spark.sinks.epoch_topic import EpochTopicTarget
from falkirk.runtime.spark.sinks.target import Target
from falkirk.runtime.spark.sinks.targets import target_of
from falkirk.runtime.spark.sinks.topic import TopicTarget
from falkirk.spark_setup.spark import RELEASE_POOL, cancel_jobs
from falkirk.theory.ids import EpochNumber, LogId, Offsets, Positions

log = logging.getLogger("falkirk")

#: At a stop, a running release may wait this long for a sink. Then its jobs are cancelled.
_STOP_S = 10.0
#: A thread that compares waits this long for an epoch that goes straight to its topic.
_TURN_S = 1.0
#: A cancelled job ends within this time.
CANCEL_S = 5.0
#: Up to this many rows, in this many bytes of files, are released by one task, without a shuffle.
FEW_ROWS, FEW_BYTES = 20_000, 16_000_000
#: The place of a dead letter in its epoch begins with the number of its origin. Inputs come first, sinks from here on.
_SINKS_FROM = 128


class EpochReleaser:
    """Releases the results and the dead letters of one batch. A separate thread does it, so that a slow sink never
    delays the thread that watches the application.

    Args: targets: the targets by name of their sink. dead_letters: the target of dead letters. schema: the schema of
        the results; without columns if nothing will be released. recorder: of the host. clock: measures pauses.
    """

    def __init__(
        self, epochs: EpochLog, targets: Mapping[str, Target], dead_letters: Target | None, schema: StructType,
        recorder: Recorder = OFF, clock: MachineTime = time,
    ) -> None:  # fmt: skip
        self.epochs, self._targets, self._dead_letters = epochs, targets, dead_letters
        self._recorder, self._clock = recorder, clock
        self._schema = StructType([*schema.fields, StructField(ROW, LongType())])
        self._stopping = threading.Event()
        self._comparison = SinkComparison(epochs, targets, dead_letters, self._stopping)
        self._thread: threading.Thread | None = None
        self._group = f"release-{epochs.name}-{uuid.uuid4().hex[:8]}"
        self._session: SparkSession | None = None
        #: The epoch up to which all are published, and the one up to which the thread will publish.
        self._done = self._promised = EpochNumber(0)
        #: The epoch up to which the last call of `release` asked for.
        self._asked = EpochNumber(0)
        self._error: Exception | None = None
        self._failures = 0
        self._not_before_s = 0.0
        self._comparing: BackgroundCall[bool] | None = None  # a comparison without a release
        #: The reason why the release does not progress; empty while it does.
        self.detail = ""
        #: Held while an epoch goes straight to its topic, and while sinks are compared: both change the target.
        self._sending = threading.Lock()

    @property
    def has_compared(self) -> bool:
        """Whether all sinks were compared with this home since it was opened."""
        return self._comparison.is_done

    def visible(self) -> EpochNumber:
        """Return the epoch, exclusive, up to which readers outside may have seen results.

        If a sink does not answer, these are all epochs.

        Raises: HomeError: `SINK_AHEAD`: a sink has epochs that this home has not completed. SparkError: `SESSION_LOST`.
        """
        self._comparison.begin()
        if self._is_at_work():
            return max(self._promised if self.has_compared else self.epochs.end(), self._comparison.straight())
        if self._clock.monotonic() < self._not_before_s or not self._sending.acquire(blocking=False):
            return max(self.epochs.end(), self._comparison.straight())
        try:
            return self._comparison.compare()
        except (SparkError, HomeError) as error:
            self._wait_for(error)
            return max(self.epochs.end(), self._comparison.straight())
        finally:
            self._sending.release()

    def compare(self) -> bool:
        """Return whether all sinks were compared with this home since it was opened.

        If not, another thread asks them, at intervals: the batch may have nothing to release for hours.

        Raises: as `visible`.
        """
        if (asked := self._comparing) is not None and asked.is_done:
            self._comparing = None
            try:
                asked.result()
            except (SparkError, HomeError) as error:
                self._wait_for(error)
        if not (self.has_compared or self._comparing or self._is_at_work() or self._error):
            self._comparison.begin()
            if self._clock.monotonic() >= self._not_before_s:
                self._comparing = BackgroundCall(self._compare_once, name=f"compare-{self.epochs.name}")
        return self.has_compared

    def _compare_once(self) -> bool:
        """Compare the sinks, unless an epoch is going straight to its topic; return whether they were compared."""
        if not self.has_compared and self._sending.acquire(timeout=_TURN_S):
            try:
                self._comparison.compare()
            finally:
                self._sending.release()
        return self.has_compared

    def remains(self, released: EpochNumber) -> EpochNumber:
        """Return the epoch, exclusive, up to which all sinks still have the released epochs.

        They have fewer after somebody restored an older copy of a sink. A sink that does not answer is asked again
        before it receives results.

        The sinks are compared first. Otherwise one that does not answer now would hide that another one is ahead.

        Raises: HomeError: `SINK_BEHIND`: the log no longer has the epochs that a sink lacks. Others: as `visible`.
        """
        try:
            with self._sending:
                if not self.has_compared:
                    self._comparison.compare()
            return self._comparison.remains(released)
        except (SparkError, HomeError) as error:
            self._wait_for(error)
            return released

    def has_taken(self) -> str:
        """Return the name of a table or folder that already has results of this home; empty: none, or it can't be
        asked."""
        for name, target in self._targets.items():
            with suppress(SparkError):
                if not isinstance(target, TopicTarget) and target.visible():
                    return name
        return ""

    def ends(self) -> Positions:
        """Return where the topics with results end now. Topics of dead letters are omitted: people may delete them."""
        return {LogId(t.topic): t.end() for t in self._targets.values() if isinstance(t, TopicTarget)}

    def found(self) -> EpochNumber:
        """Ask the only topic for the epoch, exclusive, up to which it has results.

        Raises: LogError, SparkError: it can't be asked now.
        """
        with self._sending:
            return self._topic().visible()

    def _topic(self) -> TopicTarget:
        (target,) = self._targets.values()
        assert isinstance(target, TopicTarget), "only a topic takes unrecorded results (falkirk/plan/direct.py)"
        return target

    def send(self, epoch: EpochNumber, rows: DataFrame, *, few: bool) -> DataFrame | None:
        """Deliver an epoch to the only topic before it is recorded, in the caller's thread.

        First the topic and the dead letters are compared with the home. If the home is an older copy, the topic knows
        the number of the epoch, and would drop its rows.

        Returns: the rows that are too large, as dead letters.
        Raises: LogError: as `TopicTarget.deliver_computed`. HomeError: `SINK_AHEAD`. SparkError: `RELEASE_FAILED`: a
            topic does not answer. Errors of the computation.
        """
        with self._sending:
            if not self.has_compared:
                self._comparison.compare()
            return self._topic().deliver_computed(epoch, rows, few=few)

    def job(self, result: DataFrame, rows: DataFrame, observed: Sequence[str]) -> RepeatedJob | None:
        """See ReleaserPort."""
        with self._sending:
            return self._topic().job(result, rows, observed)

    def repeat(self, epoch: EpochNumber, ranges: str, job: RepeatedJob) -> dict[str, dict[str, Any]] | None:
        """See ReleaserPort."""
        with self._sending:
            return self._topic().deliver_repeated(epoch, ranges, job) if self.has_compared else None

    def release(self, session: SparkSession, first: EpochNumber, last: EpochNumber) -> EpochNumber:
        """Have the epochs [first, last) released in order; return the epoch up to which all are published by now.

        Raises: the error that ended the thread. If a sink can't be reached, the release is retried instead.
        """
        self._asked = last
        if self._is_at_work():
            self._promised = max(self._promised, last)
            return max(first, self._done)
        if (error := self._error) is not None:
            self._error = None
            raise error
        self._done = done = max(first, self._done)
        if done < last and self._clock.monotonic() >= self._not_before_s:
            self._promised, self._session = last, session
            self._thread = threading.Thread(
                target=self._work, args=(session,), name=f"release-{self.epochs.name}", daemon=True
            )
            self._thread.start()
        return done

    def released(self) -> EpochNumber:
        """Return the epoch, exclusive, up to which this process has published all."""
        return self._done

    def backlog(self) -> int:
        """Return how many epochs may be released, but are not yet."""
        return max(0, self._asked - self._done)

    def stop(self, until_s: float = math.inf) -> None:
        """Stop the release. The part of an epoch that is already in a sink stays there. Args: until_s: monotonic.

        Running jobs are cancelled: the session may outlive this, and a job that sends later would repeat results. A
        running comparison asks no further sink: later, the question would fence the writers of the next start.
        """
        self._stopping.set()
        for target in self._targets.values():
            if isinstance(target, EpochTopicTarget):
                target.stop()  # it may wait for its broker, not for a job; the next start sends the epoch again
        wait_until_s = min(until_s, time.monotonic() + _STOP_S)
        if self._comparing is not None:
            self._comparing.wait(left_s(_STOP_S, wait_until_s))
        if self._thread is not None:
            self._thread.join(left_s(_STOP_S, wait_until_s))
        if self._thread is not None and self._thread.is_alive() and self._session is not None:
            cancel_jobs(self._session, self._group)
            self._thread.join(left_s(CANCEL_S, until_s))

    def _is_at_work(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _work(self, session: SparkSession) -> None:
        try:
            session.sparkContext.setLocalProperty("spark.scheduler.pool", RELEASE_POOL)
            session.sparkContext.setJobGroup(self._group, f"release of {self.epochs.name}", interruptOnCancel=True)
            if not self._compare_once():
                return  # the next call of `release` begins again
            self._comparison.refuse_behind(self._done)
            while self._done < (last := self._promised):  # further calls of `release` may raise it meanwhile
                for epoch in self.epochs.complete(self._done, last):
                    if self._stopping.is_set():
                        return
                    with self._recorder.span("release", processor=self.epochs.region, epoch=epoch.number):
                        self._deliver_if_valid(session, epoch)
                    self._done, self._failures, self.detail = EpochNumber(epoch.number + 1), 0, ""
                self._done = last
        except Exception as error:
            if concerns_one_sink(error):
                self._fail(_text_of(error))
            else:
                self._error = error

    def _deliver_if_valid(self, session: SparkSession, epoch: Epoch) -> None:
        """Deliver an epoch, unless a forced rollback makes it invalid and deletes its results meanwhile."""
        try:
            if self._is_valid(epoch):
                self._deliver(session, epoch)
        except (HomeError, *SPARK_ERRORS) as error:
            if self._is_valid(epoch):
                raise
            log.info("%s: epoch %d became invalid during its release: %s", self.epochs.name, epoch.number, error)

    def _is_valid(self, epoch: Epoch) -> bool:
        return self.epochs.any_counts(epoch.number, EpochNumber(epoch.number + 1))

    def _deliver(self, session: SparkSession, epoch: Epoch) -> None:
        folder, dead = self.epochs.results(epoch), []
        is_small = sum(size for name, size in folder.files().items() if name.endswith(".parquet")) <= FEW_BYTES
        for i, (name, target) in enumerate(self._targets.items() if not epoch.direct else ()):
            if self._stopping.is_set():
                raise RELEASE_FAILED_STOP.error(what=f"the release of {self.epochs.name}")
            rows = read_folders(session, [folder], self._schema)
            with step("deliver", sink=name):
                too_large = target.deliver(epoch.number, rows, few=is_small and epoch.rows <= FEW_ROWS)
            if too_large is not None:
                dead.append(too_large.withColumn(ROW, F.col(ROW) + F.lit((_SINKS_FROM + i) << PLACE_BITS)))
        if epoch.dead:
            paths = [p for part in folder.children() if part.name.startswith("_dead") for p in part.rows()]
            with files_found(folder):
                dead.append(session.read.parquet(*paths).select("key", "value", ROW))
        if self._dead_letters is not None and dead:
            texts = [d.select(F.col("key").cast("string").alias("key"), "value", ROW) for d in dead]
            self._dead_letters.deliver(
                epoch.number, reduce(DataFrame.unionByName, texts), few=is_small and epoch.dead <= FEW_ROWS
            )

    def _wait_for(self, error: SparkError | HomeError) -> None:
        """Ask a sink again later. Raises: the error, if it concerns more than one sink."""
        if not concerns_one_sink(error):
            raise error
        self._fail(_text_of(error))

    def _fail(self, detail: str) -> None:
        self.detail = detail
        if not self._failures:
            log.warning("%s", detail)
        self._failures += 1
        self._not_before_s = self._clock.monotonic() + pause_s(
            self._failures + 1
        )  # never at once: it is somebody's server


def _text_of(error: SparkError | HomeError) -> str:
    return error.message if isinstance(error, SparkError) else f"the results wait. {error}"


def releaser_of(
    logs: BatchLogs,
    sinks: Mapping[str, DeclaredSink],
    epochs: EpochLog,
    place: Storage,
    settle: Callable[[str], Offsets],
    schema: StructType,
    recorder: Recorder = OFF,
    *,
    runs_elsewhere: bool = False,
) -> EpochReleaser:
    """Return the releaser of a batch.

    Args: sinks: the sinks of the application, by name. settle, runs_elsewhere: see `target_of`. schema, recorder: see
        `EpochReleaser`.
    """
    dead = logs.dead_letters
    declared = {name: sinks[name].to for name in logs.sinks if name in sinks}
    return EpochReleaser(
        epochs,
        {n: target_of(to, n, place, settle, runs_elsewhere=runs_elsewhere) for n, to in declared.items()},
        None if dead is None else TopicTarget(place, Kafka(dead), settle, encoded=True),
        schema,
        recorder,
        place.clock,
    )
