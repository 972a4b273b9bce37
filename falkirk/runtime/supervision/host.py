"""Host: the regions and batches of an application in one Spark session, under the recovery protocol.

The protocol decides which processors are restored, to which checkpoint, and which results are released. The host gives
it turns, watches every processor (supervised.py), and waits for a broker or a store that is away.
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from falkirk.errors import FalkirkError, LogError, SparkError, StoreError, is_away
from falkirk.errors.conditions.supervision import SESSION_LOST_GO_BACK
from falkirk.errors.spark import JVM_ERRORS, first_line
from falkirk.plan import objective
from falkirk.plan.plan import Plan
from falkirk.plan.shape import Shape, planned_shape
from falkirk.recovery.ownership.executors import Executors
from falkirk.recovery.protocol.acceptance import Acceptance
from falkirk.recovery.protocol.kept import NO_HISTORY
from falkirk.recovery.protocol.ports import RegionPort
from falkirk.recovery.protocol.recovery import RecoveryProtocol
from falkirk.recovery.protocol.rollback import RollbackDecision
from falkirk.runtime.spark.application.batches import batches_of
from falkirk.runtime.spark.application.logs import AllLogs, KafkaLogs
from falkirk.runtime.spark.application.views import HeldViews
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.figures import published
from falkirk.runtime.spark.foreign import ForeignWatch, judges_of
from falkirk.runtime.spark.live.losses import Losses
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.runtime.spark.retry import FAILURES_MAX
from falkirk.runtime.spark.settling import look_first
from falkirk.runtime.spark.sinks import copying, writing
from falkirk.runtime.spark.status import AWAY_DETAIL, RegionStatus
from falkirk.runtime.supervision.clocks import Clocks
from falkirk.runtime.supervision.failures import Failures
from falkirk.runtime.supervision.flushing import succeed_within
from falkirk.runtime.supervision.live_first import LiveFirst
from falkirk.runtime.supervision.measurements import UNKNOWN, Launch
from falkirk.runtime.supervision.once import Once, OnceStatus, begin_once
from falkirk.runtime.supervision.push_facts import push_facts
from falkirk.runtime.supervision.recorded import RecordedRecovery, recorded
from falkirk.runtime.supervision.rollback_requests import RollbackRequests
from falkirk.runtime.supervision.supervised import Supervised, Supervision, count_all_letters, statuses
from falkirk.runtime.supervision.supervised_batch import SupervisedBatch
from falkirk.runtime.supervision.supervised_region import SupervisedRegion
from falkirk.spark_setup.spark import writes_elsewhere
from falkirk.theory.frontier import EMPTY
from falkirk.theory.history import History

log = logging.getLogger("falkirk")


class Host:
    """The regions and batches of one plan in one session.

    Args: history: as of `RecoveryProtocol`. say: receives one line for the user at each event. failures: the counts of
        the host before it; this host counts on. is_once: it is over when it has processed the input of its start.
        launch: how it was started.
    """

    def __init__(
        self,
        plan: Plan,
        context: Context,
        *,
        history: History = NO_HISTORY,
        say: Callable[[str], None] = log.info,
        failures: Failures | None = None,
        is_once: bool = False,
        launch: Launch = UNKNOWN,
    ) -> None:
        self._plan, self._context, self._history, self._say = plan, context, history, say
        self._is_once, self._launch = is_once, launch
        self._once: Once | None = None
        self._failures = Failures() if failures is None else failures
        self._on_progress: Callable[[], None] = lambda: None
        #: Batches that have completed an epoch since the last poll.
        self._completed: queue.SimpleQueue[str] = queue.SimpleQueue()
        watch = Supervision(context=context, failures=self._failures, say=say, launch=launch)
        self._live_first = LiveFirst()
        self._batches = batches_of(
            plan.batches, context, partial(writing.settle, context), self._completed.put,
            self._live_first.batches_may_work,
        )  # fmt: skip
        epochs = {each.epochs.name: each.epochs for each in self._batches.regions.values()}
        self._views = HeldViews(plan.regions, context, epochs, self._completed.put)
        self._regions = {
            region.name: SupervisedRegion(
                LiveRegion(
                    region,
                    context,
                    retain=plan.retained_of(region, history),
                    on_progress=lambda: self._on_progress(),
                    views=partial(self._views.epochs, region),
                ),
                watch,
                self._views.missing,
                self._views.are_loading,
            )
            for region in plan.regions
        }
        batches = {name: SupervisedBatch(region, watch) for name, region in self._batches.regions.items()}
        #: All of them, upstream first, except that live regions look up views of batches.
        self._units: dict[str, Supervised] = {**self._regions, **batches}
        self._recovery: RecoveryProtocol | None = None
        self._acceptance: Acceptance | None = None
        self._executors = Executors(context.session, context.home.path)
        self._releases_failed = 0
        self._losses = Losses(context.session)
        self._foreign = ForeignWatch(context, judges_of(plan, context))
        self._clocks = Clocks(plan.clocks, context)
        self._rollbacks = RollbackRequests(context.home.store, say)
        #: The processor that may start now, after the trial of another one. It counts no failure while it waits.
        self._admitted: str | None = None

    def start(self, on_progress: Callable[[], None] = lambda: None, *, force: bool = False) -> None:
        """Take charge of every region and start it.

        Args: on_progress: called at intervals, because reading a long tail takes time. force: recover even if published
            results depend on a damaged checkpoint.
        Raises: FalkirkError: a region can't start. The regions that were started before it are stopped.
        """
        self._on_progress = on_progress
        self._context.home.may_delete = False
        try:
            if self._regions:
                self._live_first.begin()
            self._executors.record()
            self._batches.prepare()
            for unit in self._units.values():
                unit.prepare()
            look_first(self._context, {topic for unit in self._plan.units for topic in unit.written})
            shape = planned_shape(self._plan, self._context.topics)
            shape.write(self._context.home.path)
            if self._context.home.is_shared:  # for the commands on other machines
                shape.write(self._context.home.data)
            self._recovery = self._new_protocol(shape)
            if waiting := self._failures.line_up([*self._units]):
                self._say(f"executors died repeatedly, so these processors wait for the progress of others: {waiting}")
            self._rollbacks.settle()
            if not self._answer_rollback(self._recovery.open):
                self._recovery.open(force=force)
            self._refresh()
            self.figures()  # results that are published from now on count
            self._foreign.start()
        except BaseException as error:
            self.note_end(error)
            self.stop()
            raise

    def _new_protocol(self, shape: Shape) -> RecoveryProtocol:
        context = self._context
        topics = KafkaLogs(shape.layout, context, partial(writing.settle, context), partial(copying.copy, context))
        logs = AllLogs(topics, self._batches.logs)
        if self._plan.push:
            self._acceptance = Acceptance(shape.layout, logs.ends, [s.topic.log for s in self._plan.push])
        self._once = begin_once(
            shape.layout, logs.ends, context, self._batches.regions, is_once=self._is_once, tick=self._clocks.tick
        )
        regions: dict[str, RegionPort] = {name: unit.port for name, unit in self._units.items()}
        make: Callable[..., RecoveryProtocol] = RecoveryProtocol
        if context.recorder.is_on:
            regions, make = recorded(regions), partial(RecordedRecovery, recorder=context.recorder)
        return make(
            shape.layout, regions, logs, context.home.store, context.clock.monotonic, history=self._history,
            full_history=shape.full_history, live=self._regions, spare=self._plan.spare_checkpoints, say=self._say,
            on_failure=self._count_failure, before_start=self._before_start, may_start=self._may_start,
            may_delete=lambda: context.home.may_delete,
        )  # fmt: skip

    def _before_start(self, name: str) -> bool:
        """Return whether a processor may start now. First choose the interval of a region with an objective."""
        self._views.load_early()
        if name in self._regions and (live := self._regions[name].live).region.has_objective:
            known, standby = self._context.home.store.measurements(name), self._launch.keeps_standby
            live.region = objective.chosen(live.region, known, standby=standby)
            live.retain = self._plan.retained_of(live.region, self._history)
        return self._units[name].before_start()

    def _may_start(self, name: str) -> bool:
        waits = name in self._regions and self._regions[name].waits_for_views()
        return not waits and not self._failures.waits(name) and not self._units[name].waits_for_cluster(ask=True)

    def flush(self, timeout_s: float) -> bool:
        """Flush the producers of stopped regions; return whether no process holds unsent records any more."""
        if writes_elsewhere(self._context.session):
            return False
        actions: list[Callable[[], None]] = [partial(writing.flush, self._context)]
        actions += [unit.flush for unit in self._units.values()]
        return succeed_within(timeout_s, actions)

    def poll(self) -> tuple[RegionStatus, ...]:
        """Check every region once, and take one turn of the protocol. Call it about once a second.

        Raises: FalkirkError: a region can't be restored. The error says what to do.
        """
        self._executors.record()
        self._attempt(self._check_units)
        self._refresh()
        return self.status()

    def wait(self, timeout_s: float, stopping: threading.Event) -> bool:
        """Wait until the next poll is due, and release completed epochs meanwhile; return whether to end.

        Raises: as `poll`.
        """
        assert self._recovery is not None, "a host that was not started waits for nothing"
        until_s, is_due = time.monotonic() + timeout_s, False
        while not is_due and (left_s := until_s - time.monotonic()) > 0 and not stopping.is_set():
            try:
                names = {self._completed.get(timeout=left_s)}
            except queue.Empty:
                break
            while not self._completed.empty():
                names.add(self._completed.get())
            is_due = bool(self._attempt(partial(self._release_of, names)))
        return stopping.is_set() or self.is_over

    def _release_of(self, names: set[str]) -> bool:
        """Release what new epochs of these batches allow. Return whether a region may wait for the next poll."""
        assert self._recovery is not None, "a host that was not started releases nothing"
        self._recovery.release_of(names)
        return self._update_views(self._recovery)

    def _update_views(self, recovery: RecoveryProtocol) -> bool:
        return self._views.update(recovery.watermarks.settled_epochs, [unit.live for unit in self._regions.values()])

    @property
    def is_over(self) -> bool:
        """Whether it has processed all that it should, and ends by itself."""
        return self.once is not None and self.once.is_over

    def _check_units(self) -> None:
        assert self._recovery is not None, "a host that was not started can't be polled"
        for unit in self._units.values():
            try:
                error = unit.poll()
            except LogError as away:
                if not (is_away(away) and unit.waits_for_cluster(ask=True)):
                    raise
                continue  # the others can work
            if error is not None:
                self._recovery.keep_down(unit.name, error)
        if (name := self._failures.next_trial(self.down)) is not None:
            self._admitted = name
        if self._rollbacks.are_there():
            self._roll_back(self._recovery)
        self._update_views(self._recovery)  # a region that waits for them can start in this turn
        self._recovery.turn()
        self._batches.sweep(
            [unit.live for unit in self._regions.values()], self._recovery.down.errors, self._context.home
        )
        self._clocks.update(self._recovery)
        self._releases_failed = 0
        if self._acceptance is not None:
            self._acceptance.take_in(self._recovery.checkpoints)
        if self._once is not None:
            self._once.update(self._recovery)
            if self._once.status.is_over:
                count_all_letters(self._units.values())

    @property
    def once(self) -> OnceStatus | None:
        """How far it is, if it ends by itself."""
        return None if self._once is None else self._once.status

    def _count_failure(self, name: str, reason: str) -> None:
        if name == self._admitted:
            self._admitted = None
        else:
            self._units[name].count_failure(reason)

    def note_end(self, error: BaseException) -> None:
        """Count the end of the Spark application if executors died, for each processor that may be the cause.

        Call it before `stop`. Args: error: that ends this host.
        """
        if isinstance(error, FalkirkError) and error.condition not in ("SESSION_LOST", "WRITER_STILL_RUNNING"):
            return
        if not isinstance(error, Exception) or not self._have_executors_died():
            return
        for name, unit in self._units.items():
            with contextlib.suppress(LogError, StoreError):  # then the network may be the cause
                if name not in self.down and unit.has_input():
                    self._failures.add_loss(name, unit.status.detail or first_line(error))

    def _have_executors_died(self) -> bool:
        """Return whether Spark has lost an executor. On one machine the JVM is the executor."""
        try:
            return self._losses.any()
        except JVM_ERRORS:
            return True

    def _attempt(self, action: Callable[[], bool | None]) -> bool | None:
        """Run an action that may have to wait for the broker or the store; None: it has to. Raises: as `poll`."""
        try:
            return action()
        except (LogError, StoreError) as error:
            if not is_away(error):
                raise
            self._wait_for(error)
        except SparkError as error:
            self._excuse(error)
        return None

    # -- requests of commands -----------------------------------------------------------------------------------------

    def _roll_back(self, recovery: RecoveryProtocol) -> None:
        if writes_elsewhere(self._context.session):
            raise SESSION_LOST_GO_BACK.error()
        self._answer_rollback(partial(recovery.recover, frozenset()))

    def _answer_rollback(self, recover: Callable[..., RollbackDecision]) -> bool:
        """Take the oldest request to roll back, if there is one; return whether it was carried out."""

        def with_all_tries(**asked: Any) -> RollbackDecision:
            self._failures.forget_all()
            return recover(**asked)

        return self._rollbacks.answer(with_all_tries)

    def _wait_for(self, error: LogError | StoreError) -> None:
        """Show that the broker or the store is away. Work resumes once it is back."""
        what = "broker" if isinstance(error, LogError) else "store"
        reason = f"{AWAY_DETAIL}{what}: {error.message}"
        for unit in self._units.values():
            unit.wait(reason)

    def _excuse(self, error: SparkError) -> None:
        """Raise the error again unless the next turn may succeed."""
        if error.condition == "WRITER_STILL_RUNNING":
            raise SparkError("SESSION_LOST", error.message, certainty="maybe", hint=error.hint) from error
        self._releases_failed += 1
        elsewhere = writes_elsewhere(self._context.session) and not self._context.transactional
        if error.condition != "RELEASE_FAILED" or elsewhere or self._releases_failed > FAILURES_MAX:
            raise error
        self._say(error.message)

    def _refresh(self) -> None:
        for unit in self._units.values():
            unit.refresh()
        self._live_first.look(unit.begins() for name, unit in self._regions.items() if name not in self.down)

    def status(self) -> tuple[RegionStatus, ...]:
        """Return the status of each region and batch, upstream first."""
        waiting = {} if self._recovery is None else self._recovery.sinks.waiting
        return statuses(self._units, self.down, waiting, may_delete=self._context.home.may_delete)

    def figures(self) -> list[dict[str, Any]]:
        """Return the counts and measurements of each processor, upstream first: see figures.py."""
        found, recovery = published(self._context), self._recovery
        if recovery is None:
            return []
        outputs = {name: stage.output for name, stage in recovery.layout.stages.items()}
        released = {name: recovery.released(log) for name, log in outputs.items() if log in recovery.layout.held}
        return [unit.describe(found, released.get(name, EMPTY)) for name, unit in self._units.items()]

    @property
    def down(self) -> Mapping[str, FalkirkError]:
        """The processors that failed for good and stay down, with their errors, oldest first."""
        return {} if self._recovery is None else self._recovery.down.errors

    def push(self) -> list[dict[str, object]]:
        """Return the facts that the gateway needs about each source of requests: see push_facts.py."""
        return push_facts(self._plan.push, self._recovery, self._acceptance)

    @property
    def foreign(self) -> list[dict[str, object]]:
        """Foreign records in topics of this home, as plain values: for each topic their number and one example."""
        return self._context.foreign_records()

    @property
    def hops(self) -> tuple[str, ...]:
        """The internal topics between the regions."""
        return tuple(unit.live.region.hop.topic for unit in self._regions.values() if unit.live.region.hop is not None)

    @property
    def queries(self) -> tuple[StreamingQuery, ...]:
        """Spark's queries of the regions that run."""
        return tuple(each.live.query for each in self._regions.values() if each.live.query is not None)

    def stop(self, until_s: float = float("inf")) -> None:
        """Stop all releases, regions and batches, writers first. Args: until_s: as of `Supervised.stop`."""
        units = self._units.values()
        stops: list[Callable[[], object]] = [self._foreign.stop, self._clocks.stop, *(unit.leave_off for unit in units)]
        for stop in (self._batches.stop, *(unit.stop for unit in units), self._views.stop):
            stops.append(partial(stop, until_s))
        with contextlib.ExitStack() as all_of_them:  # if one fails, the others are stopped, and then it is raised
            for each in reversed(stops):
                all_of_them.callback(each)
        self._executors.record(complete=True)
