"""Live host: the regions of an application in one Spark session, under the coordinator's protocol.

It handles the queries' errors: it decides which are permanent, how often a query may fail, and when it may start again.
The Wheel decides which regions are restored, to which checkpoint, and which results are released.
"""

import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial

from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from falkirk.errors import FalkirkError, GuaranteeError, LogError, SparkError, StoreError, is_away
from falkirk.errors.conditions.host import SESSION_LOST_GO_BACK, SESSION_LOST_MEMORY
from falkirk.home.executors import Executors
from falkirk.host.batches import BatchHost
from falkirk.host.failures import Cause, Failures, cause_of, has_progressed
from falkirk.local.spark import writes_elsewhere
from falkirk.plan.plan import Plan
from falkirk.plan.shape import Shape, shape_of
from falkirk.protocol.acceptance import Acceptance
from falkirk.protocol.kept import NO_HISTORY
from falkirk.protocol.recovery import RecoveryProtocol
from falkirk.protocol.rollback import Decision
from falkirk.runtime import fence
from falkirk.runtime.context import Context
from falkirk.runtime.live.region import LiveRegion, Opening
from falkirk.runtime.logs import AllLogs, KafkaLogs
from falkirk.runtime.retry import FAILURES_MAX
from falkirk.runtime.sinks import copying
from falkirk.runtime.status import RegionStatus
from falkirk.runtime.triage import damage_of, fatal_of, is_out_of_memory, refuse_split_keys
from falkirk.theory.history import History
from falkirk.theory.ids import Incarnation

log = logging.getLogger("falkirk")


@dataclass(kw_only=True)
class _Watched:
    live: LiveRegion
    status: RegionStatus
    #: Of the last failure, until it is counted.
    cause: Cause = Cause.OWN
    opening: Opening | None = None
    started_at_s: float = math.inf


class LiveHost:
    """The regions of one plan in one session. It watches the live regions; `BatchHost` watches the batches.

    Args: history: as of `RecoveryProtocol`. say: receives one line for the user at each event. failures: the counts of
        the host before it; this host counts on.
    """

    def __init__(
        self,
        plan: Plan,
        context: Context,
        *,
        history: History = NO_HISTORY,
        say: Callable[[str], None] = log.info,
        failures: Failures | None = None,
    ) -> None:
        self._plan, self._context, self._history, self._say = plan, context, history, say
        self._failures = Failures() if failures is None else failures
        self._on_progress: Callable[[], None] = lambda: None
        self._watched = {
            region.name: _Watched(
                live=LiveRegion(
                    region,
                    context,
                    retain=plan.retained_of(region, history),
                    on_progress=lambda: self._on_progress(),
                ),
                status=RegionStatus(name=region.name),
            )
            for region in plan.regions
        }
        self._batches = BatchHost(plan.batches, context, partial(copying.settle, context))
        #: Batches that have completed an epoch since the last poll.
        self._completed: queue.SimpleQueue[str] = queue.SimpleQueue()
        for name, region in self._batches.regions.items():
            region.jobs.on_complete = partial(self._completed.put, name)
        self._recovery: RecoveryProtocol | None = None
        self._acceptance: Acceptance | None = None
        self._executors = Executors(context.session, context.home.path)
        self._releases_failed = 0

    def start(self, on_progress: Callable[[], None] = lambda: None, *, force: bool = False) -> None:
        """Take charge of every region and start it.

        Args: on_progress: called at intervals, because reading a long tail takes time. force: recover even if published
            results depend on a damaged checkpoint.
        Raises: FalkirkError: a region can't start. The regions that were started before it are stopped.
        """
        self._on_progress = on_progress
        try:
            self._executors.record()
            for watched in self._watched.values():
                watched.live.prepare()
            self._batches.prepare()
            shape = shape_of(self._plan, self._context.topics)
            shape.write(self._context.home.path)
            self._recovery = self._govern(shape)
            self._context.home.store.fail_taken(
                "rollback", "the application ended before it was done; it may be done or not"
            )
            if not self._serve(self._recovery.open):
                self._recovery.open(force=force)
            self._refresh()
        except BaseException:
            self.stop()
            raise

    def _govern(self, shape: Shape) -> RecoveryProtocol:
        context = self._context
        lives = {name: watched.live for name, watched in self._watched.items()}
        topics = KafkaLogs(shape.layout, context, partial(copying.settle, context), partial(copying.copy, context))
        logs = AllLogs(topics, self._batches.logs)
        if self._plan.push:
            self._acceptance = Acceptance(shape.layout, logs.ends, [s.topic.log for s in self._plan.push])
        return RecoveryProtocol(
            shape.layout,
            {**lives, **self._batches.regions},
            logs,
            context.home.store,
            time.monotonic,
            history=self._history,
            full_history=shape.full_history,
            live=lives,
            spare=self._plan.spare_checkpoints,
            say=self._say,
            on_failure=self._count_failure,
            before_start=self._before_start,
        )

    def _before_start(self, name: str) -> None:
        """Refuse to start a region or batch that a start can't help. Raises: FalkirkError."""
        if (watched := self._watched.get(name)) is not None:
            refuse_split_keys(watched.live)
            self._failures.begin(name, watched.live.region.where)
        else:
            self._failures.begin(name, self._batches.regions[name].batch.where)

    def flush(self, timeout_s: float) -> bool:
        """Flush the producers of stopped regions; return whether no process holds unsent records any more."""
        if writes_elsewhere(self._context.session):
            return False
        prefix, flushed = (
            fence.client_id(self._context.home.identity, "", Incarnation(0)).removesuffix("-0"),
            threading.Event(),
        )

        def flush() -> None:
            with contextlib.suppress(SparkError, Py4JError):
                fence.flush_lingering(self._context.session, lambda client: client.startswith(prefix))
                for watched in self._watched.values():
                    watched.live.close_lanes()
                flushed.set()

        threading.Thread(target=flush, name="falkirk-flush", daemon=True).start()  # it blocks while the broker is away
        return flushed.wait(timeout_s)

    def poll(self) -> tuple[RegionStatus, ...]:
        """Check every region once, and take one turn of the protocol. Call it about once a second.

        Raises: FalkirkError: a region can't be restored. The error says what to do.
        """
        self._executors.record()
        self._attempt(self._look_after)
        self._refresh()
        return self.status()

    def wait(self, timeout_s: float, stopping: threading.Event) -> bool:
        """Wait until the next poll is due, and release completed epochs meanwhile; return whether to stop.

        Raises: as `poll`.
        """
        assert self._recovery is not None, "a host that was not started waits for nothing"
        until_s = time.monotonic() + timeout_s
        while (left_s := until_s - time.monotonic()) > 0 and not stopping.is_set():
            try:
                names = {self._completed.get(timeout=left_s)}
            except queue.Empty:
                break
            while not self._completed.empty():
                names.add(self._completed.get())
            self._attempt(partial(self._recovery.release_of, names))
        return stopping.is_set()

    def _look_after(self) -> None:
        assert self._recovery is not None, "a host that was not started can't be polled"
        for watched in self._watched.values():
            self._look_at(watched)
        for name, error in self._batches.failures():
            if error.condition == "SESSION_LOST" and error.parameters.get("region") == name:
                self._failures.add(name, error.message)
            self._recovery.keep_down(name, error)
        for name in self._batches.look():
            self._failures.forget(name)
        if self._context.home.store.is_asked("rollback"):
            self._go_back(self._recovery)
        self._recovery.turn()
        self._releases_failed = 0
        if self._acceptance is not None:
            self._acceptance.take_in(self._recovery.points)

    def _attempt(self, action: Callable[[], None]) -> None:
        """Run an action that may have to wait for the broker or the store. Raises: as `poll`."""
        try:
            action()
        except (LogError, StoreError) as error:
            if not is_away(error):
                raise
            self._wait_for(error)
        except SparkError as error:
            self._excuse(error)

    # -- requests of commands -----------------------------------------------------------------------------------------

    def _go_back(self, recovery: RecoveryProtocol) -> None:
        if writes_elsewhere(self._context.session):
            raise SESSION_LOST_GO_BACK.error()
        self._serve(lambda **asked: recovery.recover(frozenset(), "asked for", **asked))

    def _serve(self, recover: Callable[..., Decision]) -> bool:
        """Take the oldest request to roll back, if there is one; return whether it was carried out."""
        store = self._context.home.store
        request = store.take_request("rollback")
        if request is None:
            return False
        self._failures.forget_all()
        try:
            decision = recover(asked=request.arguments["asked"], force=request.arguments["force"])
        except FalkirkError as error:
            answer = {"condition": error.condition, "text": str(error)}
            store.answer_request(request.request, answer, failed=True)
            if not isinstance(error, GuaranteeError):
                raise
            self._say(f"not gone back: {error.message}")
            return False
        store.answer_request(request.request, {"goes": dict(decision.goes)})
        self._say(f"went back as asked: {', '.join(f'{n} to {p}' for n, p in sorted(decision.goes.items()))}")
        return True

    # -- the queries --------------------------------------------------------------------------------------------------

    def _look_at(self, watched: _Watched) -> None:
        live, status = watched.live, watched.status
        if live.query is None:
            return
        if (error := live.failure()) is not None:
            self._end(watched, error)
            return
        last = live.observe()
        assert live.opening is not None, "its query runs"
        if has_progressed(live.points(), live.opening.restored_batch, time.monotonic() - watched.started_at_s):
            self._failures.forget(status.name)
        status.dead_letters = live.dead_letters
        status.last_commit, status.checkpoint_age_s, status.detail = last, live.checkpoint_age_s(), ""
        progress = live.query.lastProgress
        if progress:
            status.input_rows_per_s = float(progress.get("inputRowsPerSecond") or 0.0)

    def _end(self, watched: _Watched, error: Exception) -> None:
        """Handle the error that ended a region's query."""
        live, status = watched.live, watched.status
        fatal = fatal_of(error, live, self._context)
        reason = str(error).split("\n")[0][:300]
        if (found := damage_of(error, self._context.home.checkpoint(status.name))) is not None:
            # Before the region ends: if the store is away, this raises, and the next poll repeats everything.
            live.distrust_checkpoints(found.first, found.reason)
        live.end(reason if fatal is None else f"{fatal.condition}: {fatal.message}")
        if fatal is not None:
            assert self._recovery is not None, "it has started the query"
            fatal.__cause__ = error
            self._recovery.keep_down(status.name, fatal)
            return
        if is_out_of_memory(error):  # a new JVM has the leaked memory again; by default Spark ends this one by itself
            self._failures.add(status.name, reason)
            raise SESSION_LOST_MEMORY.error(reason=reason) from error
        was_lost = live.observations is not None and live.observations.was_lost()
        cause = watched.cause = cause_of(error, was_lost=was_lost)
        status.state, status.detail = "restarting", f"{cause.value}{reason}"
        live.ready_at_s = time.monotonic() + self._failures.pause_s(status.name, cause)
        self._say(f"{status.name}: failed ({status.detail}); restarting")

    def _count_failure(self, name: str, reason: str) -> None:
        if name in self._batches.regions:
            return  # a batch counts the failures of its epochs itself
        watched = self._watched[name]
        if watched.live.query is not None:  # the failure of an ended query was already reported
            self._say(f"{name}: {reason}; restarting")
        watched.status.restarts += 1
        cause, watched.cause = watched.cause, Cause.OWN
        self._failures.add(name, watched.status.detail or reason, cause)
        if self._failures.is_exhausted(name):
            watched.live.end(reason)  # it may hang
            raise self._failures.error(name, watched.live.region.where)

    def _wait_for(self, error: LogError | StoreError) -> None:
        """Show that the broker or the store is away. Work resumes once it is back."""
        reason = f"waiting for the {'broker' if isinstance(error, LogError) else 'store'}: {error.message}"
        for watched in self._watched.values():
            watched.status.detail = reason
            if watched.live.query is None:
                watched.status.state = "waiting"
            watched.live.progressed_at_s = time.monotonic()
        self._batches.wait(reason)

    def _excuse(self, error: SparkError) -> None:
        """Raise the error again unless the next turn may succeed."""
        if error.condition == "WRITER_STILL_RUNNING":
            raise SparkError("SESSION_LOST", error.message, certainty="maybe", hint=error.hint) from error
        self._releases_failed += 1
        elsewhere = writes_elsewhere(self._context.session)
        if error.condition != "RELEASE_FAILED" or elsewhere or self._releases_failed > FAILURES_MAX:
            raise error
        self._say(error.message)

    def _refresh(self) -> None:
        """Update the status of regions that have started since."""
        for watched in self._watched.values():
            opening, status = watched.live.opening, watched.status
            if opening is None or opening is watched.opening or watched.live.query is None:
                continue
            watched.opening, watched.started_at_s = opening, time.monotonic()
            suppresses = opening.release.barrier is not None
            fate = "suppressed" if suppresses else "repeated"
            status.state, status.detail, status.incarnation = "running", "", opening.incarnation
            status.suppressed += opening.released if suppresses else 0
            if opening.incarnation > 1:
                self._say(
                    f"{status.name}: incarnation {opening.incarnation} resumes after batch {opening.restored_batch}; "
                    f"{opening.released} results are already published and will be {fate}"
                )

    def status(self) -> tuple[RegionStatus, ...]:
        """Return the status of each region, upstream first."""
        live = [w.status for w in self._watched.values()]
        found = tuple(RegionStatus(**asdict(status)) for status in (*live, *self._batches.status()))
        return tuple(s if (error := self.down.get(s.name)) is None else s.failed(error) for s in found)

    @property
    def down(self) -> Mapping[str, FalkirkError]:
        """The processors that failed for good and stay down, with their errors, oldest first."""
        return {} if self._recovery is None else self._recovery.down.errors

    def push(self) -> list[dict[str, object]]:
        """Return the facts that the gateway needs about each source of requests: falkirk/host/gateway.py."""
        found = {s.name: s.describe() for s in self._plan.push}
        if (recovery := self._recovery) is not None and self._acceptance is not None and recovery.points:
            released = {held: recovery.released(held) for held in recovery.layout.held}
            for source in self._plan.push:
                topic = source.topic.log
                for what, upto in (
                    ("accepted", self._acceptance.accepted(topic, released)),
                    ("acknowledged", recovery.acknowledged(topic)),
                ):
                    found[source.name][what] = {e.partition: upto.length(e) for e in recovery.layout.sequences(topic)}
        return list(found.values())

    @property
    def foreign(self) -> list[dict[str, object]]:
        """Foreign records in topics of this home, as plain values: for each topic their number and one example."""
        return self._context.foreign_records()

    @property
    def hops(self) -> tuple[str, ...]:
        """The internal topics between the regions."""
        regions = [w.live.region for w in self._watched.values()]
        return tuple(region.hop.topic for region in regions if region.hop is not None)

    @property
    def queries(self) -> tuple[StreamingQuery, ...]:
        """Spark's queries of the regions that run."""
        return tuple(w.live.query for w in self._watched.values() if w.live.query is not None)

    def stop(self) -> None:
        """Stop all regions, writers first. The fence of the next start flushes their producers."""
        for watched in self._watched.values():
            try:
                watched.live.end("stopped")
            except StoreError as error:  # the next start's fence finds what this one could not record
                log.warning("%s: %s", watched.status.name, error.message)
            watched.status.state = "stopped"
        self._batches.stop()
        self._executors.record(complete=True)
