"""Live regions: each one is a Real-time Mode query from one Kafka log to another, exactly once.

An incarnation starts after the fence (falkirk/runtime/spark/fence.py) and after the choice of its checkpoint:
  1. tail: read the outputs up to the fence, from a position observed no later than the start of the batch after the
     restored checkpoint. Refuse records of a later incarnation than this home knows;
  2. open: record the incarnation's number, and the fence. The greatest published stamps per channel are the barrier;
  3. run: start the query with these stamps as a constant filter;
  4. watch: observe output positions and commits, so that the next incarnation has little to read in step 1.
After a crash between two steps, the earlier records remain, and the next incarnation starts at the fence.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from falkirk.declare.policy import Delivery
from falkirk.errors.conditions.spark import QUERY_ENDED, QUERY_NOT_STARTED, SESSION_LOST_ROLLBACK
from falkirk.errors.spark import JVM_ERRORS, SPARK_ERRORS, first_line
from falkirk.kafka_client.tail import Tail
from falkirk.plan.region import Region
from falkirk.plan.topics import refuse_forgetful, refuse_shorter
from falkirk.platform.silence import Silence
from falkirk.recovery.decision_store import RegionRecord, TailRecord
from falkirk.recovery.protocol.ports import Checkpoint, Health
from falkirk.runtime.spark import producers
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.dead_letters import DeadLetters, letters_of
from falkirk.runtime.spark.live import checkpoint
from falkirk.runtime.spark.live.at_rest import RegionAtRest
from falkirk.runtime.spark.live.checkpoint_files import restore_while
from falkirk.runtime.spark.live.inputs import has_records, read_before
from falkirk.runtime.spark.live.losses import Losses, Observations, refuse_repeats
from falkirk.runtime.spark.live.opening import Opening
from falkirk.runtime.spark.live.query import LiveQuery
from falkirk.runtime.spark.live.region_lanes import RegionLanes
from falkirk.runtime.spark.live.twin import Twin, discard
from falkirk.runtime.spark.record import region_record
from falkirk.runtime.spark.rows import IncarnationConstants
from falkirk.spark_setup.spark import SPARE_BATCHES, writes_elsewhere
from falkirk.theory.delivery import skip_ranges, touched
from falkirk.theory.ids import BatchId, CheckpointNumber, EpochNumber, LogId, Offset, Positions
from falkirk.theory.offsets import PartitionRange
from falkirk.theory.positions import TailPosition, is_caught_up

log = logging.getLogger("falkirk")

#: A region hangs if its commit is overdue by this time, and by the longest call of Python, and the broker answers. The
#: first commit may take longer, because executors start, and states are loaded. On a slow machine each commit takes
#: longer, and a restart would make it slower still: it also hangs only after `SLOWER` times its longest delay so far.
OVERDUE_S = 30.0
OVERDUE_AT_START_S = 150.0
SLOWER = 3.0
#: The recorded reason for an incarnation whose end nobody has seen.
UNSEEN = "nobody saw it end"


class LiveRegion(RegionAtRest):
    """One region of an application, with at most one running query: a RegionPort.

    Args: retain: the number of checkpoints whose state Spark keeps. on_progress: called before slow operations, such as
        reading a long tail. views: returns the epochs of the views that it looks up.
    """

    def __init__(
        self, region: Region, context: Context, *, retain: int = SPARE_BATCHES,
        on_progress: Callable[[], None] = lambda: None, views: Callable[[], dict[LogId, EpochNumber]] = dict,
    ) -> None:  # fmt: skip
        super().__init__(region.logs(), context, on_cluster=writes_elsewhere(context.session))
        self.retain, self.region, self._context, self._on_progress = retain, region, context, on_progress
        self._views = views
        self.query: StreamingQuery | None = None
        self.opening: Opening | None = None
        self._lanes, self._silence = RegionLanes(region, context), Silence(context.clock.monotonic)
        self._reached: dict[tuple[int, int], Offset] = {}
        #: On a cluster, from each start on: observations that are not yet known to be usable.
        self.observations: Observations | None = None
        self.twin: Twin | None = None
        #: Its dead letters, from the first `prepare` on. Each `observe` counts some.
        self.letters: DeadLetters | None = None
        #: The checkpoints at the last `observe`. While the query runs, `checkpoints` returns these.
        self._checkpoints: tuple[Checkpoint, ...] = ()
        #: The ends of the outputs at the last `observe`, and where the first incarnation began to read.
        self.ends, self.starts = Positions(), Positions()
        #: When the region last made progress, and when it may be started again.
        self.progressed_at_s, self.ready_at_s = context.clock.monotonic(), 0.0
        #: The longest delay of a commit since the start of this incarnation, beyond the interval.
        #: And the newest batch of Spark that counted as progress before it was saved.
        self._delay_s, self._unsaved = 0.0, BatchId(-1)

    def prepare(self) -> RegionRecord:
        """Check the topics against the record of this home; before the first start, make the record.

        Raises: HomeError, LogError. SparkError: `SESSION_SETTINGS_MISSING`.
        """
        refuse_repeats(self._context.session)
        region = self.region
        # The topic of dead letters is not checked: people may delete dead letters.
        outside = () if region.released_to is None else (region.released_to.topic,)
        self._context.hold((*(each.topic.topic for each in region.sources), region.output.topic, *outside))
        for source in (each.topic for each in region.sources):
            refuse_forgetful(self._context.topics.facts(source.topic), source.where, region.interval_s)
        self._written = self._outputs.topics()
        record = region_record(region, self._context, {t.name: t for t in self._written}, self._checkpoint)
        if self.letters is None:
            self.letters = letters_of(region.name, region.dead_letter_topic, self._context)
        self.starts = {topic: record.start_offsets[topic] for topic in self.logs.sources}
        return record

    # -- stopping ---------------------------------------------------------------------------------------------------

    def health(self) -> Health:
        """See RegionPort.

        A region whose query has just ended counts as running until `end` is called: the caller first checks the cause.
        """
        has_committed = self.opening is not None and self._checkpoints[-1].number > self.opening.restored_batch
        slow_s = min(OVERDUE_AT_START_S, max(OVERDUE_S, SLOWER * self._delay_s))
        slow_s = self.region.longest_call_s + (slow_s if has_committed else OVERDUE_AT_START_S)
        runs, hung_after_s = self.query is not None, self.region.interval_s + slow_s
        seen_s = self._silence.moved(self.progressed_at_s)
        return Health(runs=runs, progressed_at_s=seen_s, hung_after_s=hung_after_s, ready_at_s=self.ready_at_s)

    def fence(self) -> None:
        """See RegionPort.

        Raises: SparkError: `SESSION_LOST`: producers may linger in other JVMs, which this process can't flush;
            `WRITER_STILL_RUNNING`.
        """
        if self._ends is not None:
            return
        self._on_progress()
        self.end("stopped for a rollback")
        if self.opening is not None and self.may_write_elsewhere():
            raise SESSION_LOST_ROLLBACK.error(region=self.region.name)
        self.close_lanes()
        super().fence()

    def may_write_elsewhere(self) -> bool:
        """Return whether a task of the ended query may still write, from an executor that this process can't reach.

        The broker refuses the tasks of a transactional region. But once an executor is lost, the others may have too
        few slots for the next query, and a new Spark application asks for all of them.
        """
        was_lost = self.observations is not None and self.observations.was_lost()
        return writes_elsewhere(self._context.session) and (was_lost or not self.region.transactional)

    def close_lanes(self) -> None:
        """See `RegionLanes.close`."""
        self._lanes.close()

    def _fence_writers(self) -> None:
        self._lanes.fence()

    def distrust_checkpoints(self, first: int | None, reason: str) -> None:
        """Record damage to the restored checkpoint, and to older checkpoints that depend on the same file.

        Args: first: the oldest damaged checkpoint; None: only the restored one is damaged.
        """
        assert self.opening is not None, "a region that was never started has loaded no checkpoint"
        restored = self.opening.restored_batch
        for batch in self.files.numbers():
            if (restored if first is None else first) <= batch <= restored:
                log.warning("%s: checkpoint %d is damaged (%s)", self.region.name, batch, reason)
                self._store.distrust(self.region.name, batch, reason)

    # -- 1 to 3: starting --------------------------------------------------------------------------------------------

    def start(self, number: CheckpointNumber) -> None:
        """See RegionPort.

        Raises: HomeError, LogError, SparkError: no query was started.
        """
        region, context, batch = self.region, self._context, BatchId(number)
        if (wrong := restore_while(self.files, batch, self._on_progress)) is not None:
            log.warning("%s: checkpoint %d is damaged (%s)", region.name, batch, wrong)
            self._store.distrust(region.name, batch, wrong)
            return  # the next turn finds it dead, and restores an older one
        ends, self._ends = self._ends, None  # if this fails, the next try has to read the ends again
        assert ends is not None, "`fence` must be called before `start`"
        newest = checkpoint.last_committed_batch(self._checkpoint)
        assert newest == batch, f"Spark would resume from {newest}, but {batch} was decided"
        self._on_progress()
        record = self.prepare()
        main, dead = (self._outputs.tail(name, ends, batch) for name in self._outputs.names)
        self._outputs.refuse_ahead(main, dead)  # before this incarnation takes a number that was already used
        for name in self._outputs.names:
            context.sign_from(name, ends[name])
        self._judge_last_end(batch, ends)
        incarnation = self._store.open_incarnation(region.name, number)
        self._store.forget_tails_after(region.name, batch)
        self._store.forget_distrust_after(region.name, batch)
        start = self._read(batch)
        inputs = {each.topic.log: context.topics.end_positions(each.topic.topic) for each in region.sources}
        for source in (each.topic for each in region.sources):
            refuse_shorter(source, start[source.log], inputs[source.log])
        released = self._uncovered((main, dead), start)
        self._store.record_fence(region.name, incarnation, fence=ends)
        skips = self._skip(main, dead, start)
        reached = touched(main.released.merge(dead.released))
        if region.reorders and reached:
            reached = read_before(context.topics, context.connection, start)
        self._reached = reached
        signing_key = context.signing_key
        release = IncarnationConstants(
            application=context.home.identity,
            incarnation=incarnation,
            source_partitions=tuple(record.partitions[topic] for topic in self.logs.sources),
            state_partitions=context.state_partitions if region.stateful else 1,
            main=self._written[0],
            dead=self._written[1],
            barrier=None if region.repeats else self._outputs.barrier(main, dead, batch),
            main_key=signing_key.of(self._written[0].name, incarnation),
            dead_key=signing_key.of(self._written[1].name, incarnation),
        )
        self.opening = Opening(
            incarnation=incarnation, restored_batch=batch, release=release, released=released, skips=skips, start=start
        )
        if region.views:
            self.note_epochs(self._views())
        self._checkpoints = super().checkpoints()
        try:
            self.query = self._run(self.opening, record, start)
        except SPARK_ERRORS as error:
            raise QUERY_NOT_STARTED.error(where=region.where, region=region.name, reason=first_line(error)) from error
        self.progressed_at_s, self._delay_s, self._unsaved = context.clock.monotonic(), 0.0, batch

    def _judge_last_end(self, number: BatchId, ends: Positions) -> None:
        """Record whether the last incarnations have left a hole in an output.

        The end of an incarnation may be unrecorded, and a producer may also fail while its query is being stopped.
        """
        name, position = self.region.name, self._outputs.position(number)
        writers = [row for row in self._store.incarnations(name) if row.incarnation >= position.incarnation]
        if not writers or self.region.repeats or self._store.is_unsafe_since(name, position.incarnation):
            return
        tails = {
            topic: {p: o for p, o in ends[topic].items() if o > position.positions.get(topic, {}).get(p, 0)}
            for topic in self._outputs.names
            # Of records in transactions, readers see a prefix.
            if any(row.incarnation not in self._outputs.transactional(topic) for row in writers)
        }
        unseen = [row for row in writers if row.ended is None]
        whole = producers.are_whole(self._context.session, self._context.kafka_options(), tails)
        if whole is None:
            whole = not unseen
        for row in unseen if whole else [*unseen, writers[-1]]:
            self._store.end_incarnation(name, row.incarnation, ended=row.ended or UNSEEN, unsafe=not whole)
        if not whole:
            log.warning("%s: a producer may have left a hole in the output; each record there is compared", name)

    def _skip(self, main: Tail, dead: Tail, start: Positions) -> tuple[PartitionRange, ...]:
        """Return the input that is never processed. For at-most-once, first add the input from the downtime."""
        name = self.region.name
        if self.region.delivery is Delivery.AT_MOST_ONCE and len(self._store.incarnations(name)) > 1:
            ends = {(0, p): o for p, o in self._context.topics.end_positions(self.region.source.topic.topic).items()}
            reached = touched(main.released.merge(dead.released))
            ranges = skip_ranges(reached, self._numbered(start), ends)
            self._store.skip_input(name, tuple(PartitionRange(r.partition, r.first, r.last_exclusive) for r in ranges))
        return self._store.skipped_input(name)

    def _run(self, opening: Opening, record: RegionRecord, restored: Positions) -> StreamingQuery:
        self.files.open(self._context.session)
        losses = Losses(self._context.session)
        self.observations = Observations(losses.any) if writes_elsewhere(self._context.session) else None
        query = LiveQuery(
            region=self.region, context=self._context, release=opening.release, checkpoint=self.files.location,
            retain=self.retain, lanes=self._lanes, losses=losses,
        )  # fmt: skip
        discard(self._checkpoint)
        started = query.start(record.start_offsets, restored, opening.skips)
        if self.region.twins:
            again = partial(query.start_twin, record.start_offsets, restored, opening.skips)
            self.twin = Twin(again, self._checkpoint, self.region, self._context)
        return started

    # -- 4: watching --------------------------------------------------------------------------------------------------

    def observe(self) -> BatchId:
        """Record the outputs' present ends for a later barrier; read new checkpoints and return the last committed one.

        The ends are read before the commits. Only then is the position no later than the start of the next batch.
        Nothing is recorded until the commits cover all published results of former incarnations: a position after
        results that a restore would replay would hide these results from the barrier.
        """
        assert self.opening is not None, "`start` must be called before `observe`"
        self.ends = ends = {name: self._context.topics.end_positions(name) for name in self._outputs.names}
        assert self.letters is not None, "`prepare` makes it"
        self.letters.count(ends[self.region.dead_letter_topic])
        last = checkpoint.last_committed_batch(self._checkpoint)
        saved = self.files.save(last)
        if self._reached and is_caught_up(self._reached, self._numbered(self._read(saved))):
            self._reached = {}
        if not self._reached:
            self._note_tail(last, saved, ends)
        self._take_in(saved)
        if self._unsaved < last != saved:  # it works, whether the object store answers or not
            self._unsaved = last
            self._note_commit(self._context.clock.monotonic())
        if self.twin is not None:
            self.twin.update(last)
        return saved

    def _take_in(self, last: BatchId) -> None:
        """Add the new checkpoints up to `last` to the result of `checkpoints`."""
        known = self._checkpoints[-1].number if self._checkpoints else -2
        new = [n for n in self.files.numbers() if known < n <= last and self._is_whole(n)]
        if not new:
            return
        for topic in self.logs.sources:
            self._context.topics.exists(topic)  # and is still the topic of the checkpoints
        if not self.region.deterministic and not self._reached:
            # Results wait for this checkpoint, and readers may roll back to it. An exact boundary is worth the read.
            ends = {name: self._context.topics.end_positions(name) for name in self._outputs.names}
            self._record_tail(new[-1], self.boundary(new[-1], ends))
        self._checkpoints += self._points_of({n: self._read(n) for n in new})
        self._note_commit(self._context.clock.monotonic())

    def _note_commit(self, now_s: float) -> None:
        self._delay_s = max(self._delay_s, now_s - self.progressed_at_s - self.region.interval_s)
        self.progressed_at_s = now_s

    def _note_tail(self, last: BatchId, saved: BatchId, ends: Positions) -> None:
        """Record an observation, or an earlier one that a restore can certainly use by now."""
        if self.twin is not None:
            if (serving := self.twin.proven(ends, self._numbered(self._read(saved)))) is not None:
                self._record_tail(saved, serving)
        elif self.observations is None:
            self._record_tail(TailPosition.observed(last).valid_from_commit, ends)
        elif (proven := self.observations.proven(last, ends)) is not None:
            self._record_tail(*proven)

    def _record_tail(self, valid_from: BatchId, positions: Positions) -> None:
        assert self.opening is not None
        record = TailRecord(valid_from_commit=valid_from, incarnation=self.opening.incarnation, positions=positions)
        self._store.observe_tail(self.region.name, record)

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """See RegionPort. While the query runs: those at the last `observe`; else they are read from the files."""
        return super().checkpoints() if self.query is None else self._checkpoints

    def keep_only(self, numbers: Sequence[CheckpointNumber]) -> None:
        """See RegionPort. First set the files of checkpoints aside that Spark is about to delete."""
        self.set_aside(numbers)
        if tuple(BatchId(number) for number in numbers) != self._only:
            super().keep_only(numbers)

    def set_aside(self, numbers: Sequence[CheckpointNumber]) -> None:
        """See RegionPort. While the query runs, `checkpoints` returns no others: Spark may delete these at any time."""
        newest = BatchId(self._checkpoints[-1].number if self._checkpoints else -1)
        self.files.set_aside([BatchId(number) for number in numbers], newest=newest, retain=self.retain)
        super().set_aside(numbers)
        left = tuple(p for p in self._checkpoints if p.number >= numbers[-1] or p.number in numbers)
        if len(left) < len(self._checkpoints):
            self._checkpoints = left

    def has_input(self) -> bool:
        """Return whether its input has records behind its newest checkpoint. Raises: LogError, StoreError."""
        return has_records(self._context.topics, self._context.connection, self.checkpoints()[-1].read, self.starts)

    @property
    def waits_for(self) -> str:
        """Why new checkpoints do not count yet; empty: nothing is wrong."""
        return self.files.waits_for

    def checkpoint_age_s(self) -> float | None:
        """Return the time since the last commit in seconds, or None before the first commit."""
        last = max(self.files.numbers(), default=None)
        return None if last is None else self._context.clock.time() - self.files.made_at_s(last)

    def last_ended(self) -> str | None:
        """Return the reason why the last incarnation ended, or None if there was none or its end was not recorded."""
        incarnations = self._store.incarnations(self.region.name)
        return str(incarnations[-1].ended) if incarnations and incarnations[-1].ended is not None else None

    def failure(self) -> Exception | None:
        """Return the error that ended the query, or None if it runs or was stopped."""
        if self.query is None or self.query.isActive:
            return None
        return self.query.exception() or QUERY_ENDED.error(region=self.region.name)

    def end(self, reason: str) -> None:
        """Stop the query if it runs, and record the reason why this incarnation ended."""
        if self.query is None or self.opening is None:
            return
        unsafe = False
        try:
            errors = [self.query.exception(), None if self.twin is None else self.twin.stop()]
            unsafe = not self.region.transactional and any(e is not None and producers.is_error(str(e)) for e in errors)
            self.query.stop()
        except (PySparkException, *JVM_ERRORS) as error:  # the JVM may have died
            log.warning("%s: the query could not be stopped: %s", self.region.name, first_line(error))
        self.files.finish(checkpoint.last_committed_batch(self._checkpoint))
        self._store.end_incarnation(self.region.name, self.opening.incarnation, ended=reason, unsafe=unsafe)
        self.query = None
