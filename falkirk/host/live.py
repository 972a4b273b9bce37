"""Live host: the regions of an application in one Spark session, under the coordinator's protocol.

It looks after what only it can see, the queries' errors: which of them a restart does not help against, how often one
may fail, and when it may be tried again. What is brought back, to where, and what leaves, is decided by the Wheel.
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial

from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from falkirk.errors import FalkirkError, GuaranteeError, LogError, SparkError, StoreError, is_away
from falkirk.home.executors import Executors
from falkirk.host.batches import BatchHost
from falkirk.local.spark import writes_elsewhere
from falkirk.plan.plan import Plan
from falkirk.plan.shape import Shape, shape_of
from falkirk.protocol.acceptance import Acceptance
from falkirk.protocol.kept import NO_HISTORY
from falkirk.protocol.recovery import Wheel
from falkirk.protocol.rollback import Decision
from falkirk.runtime import fence
from falkirk.runtime.context import Context
from falkirk.runtime.live.region import LiveRegion, Opening
from falkirk.runtime.logs import AllLogs, KafkaLogs
from falkirk.runtime.sinks import copying
from falkirk.runtime.status import RegionStatus
from falkirk.runtime.triage import damage_of, fatal_of, is_out_of_memory, is_stray, refuse_split_keys
from falkirk.system.disk import is_full
from falkirk.theory.history import History

log = logging.getLogger("falkirk")

#: A region that fails this often in a row without a commit in between will not get better by itself.
FAILURES_MAX = 5
BACKOFF_S = (0.0, 1.0, 2.0, 5.0, 10.0)
#: How long a region waits for space on a full disk before it is tried again.
FULL_S = 5.0


@dataclass(kw_only=True)
class _Watched:
    live: LiveRegion
    status: RegionStatus
    failures: int = 0
    #: Since its last commit, failures for which somebody outside is to blame; and whether the last one was such.
    strays: int = 0
    is_stray: bool = False
    opening: Opening | None = None


class LiveHost:
    """The regions of one plan in one session: it looks after the live ones, and `BatchHost` after the batches.

    Args: history: as of `Wheel`. say: takes one line for the user at each event.
    """

    def __init__(
        self,
        plan: Plan,
        context: Context,
        *,
        history: History = NO_HISTORY,
        say: Callable[[str], None] = log.info,
    ) -> None:
        self._plan, self._context, self._history, self._say = plan, context, history, say
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
        self._wheel: Wheel | None = None
        self._acceptance: Acceptance | None = None
        self._executors = Executors(context.session, context.home.path)
        self._releases_failed = 0

    def start(self, on_progress: Callable[[], None] = lambda: None, *, force: bool = False) -> None:
        """Take charge of every region and start it.

        Args: on_progress: called now and then: reading a long tail takes its time. force: go on though published
            results rest on a checkpoint that is damaged.
        Raises: FalkirkError: a region can't start; those started before are stopped.
        """
        self._on_progress = on_progress
        try:
            self._executors.record()
            for watched in self._watched.values():
                watched.live.prepare()
            self._batches.prepare()
            shape = shape_of(self._plan, self._context.topics)
            shape.write(self._context.home.path)
            self._wheel = self._govern(shape)
            self._context.home.store.fail_taken(
                "rollback", "the application ended before it was done; it may be done or not"
            )
            if not self._serve(self._wheel.open):
                self._wheel.open(force=force)
            self._refresh()
        except BaseException:
            self.stop()
            raise

    def _govern(self, shape: Shape) -> Wheel:
        context = self._context
        lives = {name: watched.live for name, watched in self._watched.items()}
        topics = KafkaLogs(shape.layout, context, partial(copying.settle, context), partial(copying.copy, context))
        logs = AllLogs(topics, self._batches.logs)
        if self._plan.push:
            self._acceptance = Acceptance(shape.layout, logs.ends, [s.topic.topic for s in self._plan.push])
        return Wheel(
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
            before_start=lambda name: refuse_split_keys(lives[name]) if name in lives else None,
        )

    def flush(self, timeout_s: float) -> bool:
        """Flush what the producers of stopped regions still hold; tell whether nothing is left in any process."""
        if writes_elsewhere(self._context.session):
            return False
        prefix, flushed = fence.client_id(self._context.home.identity, "", 0).removesuffix("-0"), threading.Event()

        def flush() -> None:
            with contextlib.suppress(SparkError, Py4JError):
                fence.flush_lingering(self._context.session, lambda client: client.startswith(prefix))
                flushed.set()

        threading.Thread(target=flush, name="falkirk-flush", daemon=True).start()  # it blocks while the broker is away
        return flushed.wait(timeout_s)

    def poll(self) -> tuple[RegionStatus, ...]:
        """Look at every region once, and do what is due. Call it about once a second.

        Raises: FalkirkError: a region can't be brought back; what to do is in the error.
        """
        self._executors.record()
        self._attempt(self._look_after)
        self._refresh()
        return self.status()

    def wait(self, timeout_s: float, stopping: threading.Event) -> bool:
        """Wait until the next poll is due, releasing epochs as they are completed; tell whether to stop instead.

        Raises: as `poll`.
        """
        assert self._wheel is not None, "a host that was not started waits for nothing"
        until_s = time.monotonic() + timeout_s
        while (left_s := until_s - time.monotonic()) > 0 and not stopping.is_set():
            try:
                names = {self._completed.get(timeout=left_s)}
            except queue.Empty:
                break
            while not self._completed.empty():
                names.add(self._completed.get())
            self._attempt(partial(self._wheel.release_of, names))
        return stopping.is_set()

    def _look_after(self) -> None:
        assert self._wheel is not None, "a host that was not started can't be polled"
        for watched in self._watched.values():
            self._look_at(watched)
        for name, error in self._batches.failures():
            self._wheel.keep_down(name, error)
        self._batches.look()
        if self._context.home.store.is_asked("rollback"):
            self._go_back(self._wheel)
        self._wheel.turn()
        self._releases_failed = 0
        if self._acceptance is not None:
            self._acceptance.take_in(self._wheel.points)

    def _attempt(self, action: Callable[[], None]) -> None:
        """Do something that may have to wait for the broker or the store. Raises: as `poll`."""
        try:
            action()
        except (LogError, StoreError) as error:
            if not is_away(error):
                raise
            self._wait_for(error)
        except SparkError as error:
            self._excuse(error)

    # -- what commands ask for ----------------------------------------------------------------------------------------

    def _go_back(self, wheel: Wheel) -> None:
        if writes_elsewhere(self._context.session):
            raise SparkError(
                "SESSION_LOST",
                "asked to go back, and executors on a cluster may still write.",
                certainty="maybe",
                hint="The Spark application is restarted and goes back before it starts anything.",
            )
        self._serve(lambda **asked: wheel.recover(frozenset(), "asked for", **asked))

    def _serve(self, recover: Callable[..., Decision]) -> bool:
        """Take the oldest request to go back, if there is one; tell whether it was carried out."""
        store = self._context.home.store
        request = store.take_request("rollback")
        if request is None:
            return False
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
        if last > status.last_commit:
            watched.failures = watched.strays = 0
        status.dead_letters = live.dead_letters
        status.last_commit, status.checkpoint_age_s, status.detail = last, live.checkpoint_age_s(), ""
        progress = live.query.lastProgress
        if progress:
            status.input_rows_per_s = float(progress.get("inputRowsPerSecond") or 0.0)

    def _end(self, watched: _Watched, error: Exception) -> None:
        """Take note of what ended a region's query."""
        live, status = watched.live, watched.status
        fatal = fatal_of(error, live, self._context)
        reason = str(error).split("\n")[0][:300]
        if (found := damage_of(error, self._context.home.checkpoint(status.name))) is not None:
            # Before it ends: while the store is away this raises, and all of it is done again.
            live.distrust_checkpoints(found.first, found.reason)
        live.end(reason if fatal is None else f"{fatal.condition}: {fatal.message}")
        if fatal is not None:
            assert self._wheel is not None, "it has started the query"
            fatal.__cause__ = error
            self._wheel.keep_down(status.name, fatal)
            return
        if is_out_of_memory(error):  # a new JVM has what a leak has taken; by default Spark ends this one by itself
            raise SparkError("SESSION_LOST", f"Spark ran out of memory: {reason}", certainty="maybe") from error
        status.state, status.detail = "restarting", reason
        pause_s = BACKOFF_S[min(watched.failures, len(BACKOFF_S) - 1)]
        if is_full(error):  # until there is space, however long that takes
            watched.failures, pause_s = 0, FULL_S
            status.detail = f"the disk is full: {reason}"
        if is_stray(error):  # who connects to Spark's ports may fail it, and never end the application
            watched.is_stray, pause_s = True, BACKOFF_S[min(watched.strays, len(BACKOFF_S) - 1)]
            status.detail = f"a stray connection to a port of Spark's streaming shuffle: {reason}"
        live.ready_at_s = time.monotonic() + pause_s
        self._say(f"{status.name}: failed ({status.detail}); restarting")

    def _count_failure(self, name: str, reason: str) -> None:
        if name in self._batches.regions:
            return  # it counts how often an epoch fails itself
        watched = self._watched[name]
        if watched.live.query is not None:  # of one that has ended it was said already
            self._say(f"{name}: {reason}; restarting")
        watched.status.restarts += 1
        if watched.is_stray:
            watched.is_stray, watched.strays = False, watched.strays + 1
            return
        watched.failures += 1
        if watched.failures > FAILURES_MAX:
            reason = watched.status.detail or reason
            watched.live.end(reason)  # it may hang
            often, watched.failures = watched.failures, 0  # if it is started again, it may fail as often again
            raise SparkError(
                "REGION_KEEPS_FAILING",
                f"region {name!r} failed {often} times without a checkpoint in between: {reason}",
                where=watched.live.region.where,
                hint="The host's log says more; the home is intact, run again once it is mended.",
                region=name,
            )

    def _wait_for(self, error: LogError | StoreError) -> None:
        """Take note that the broker, or the store, is away: all goes on once it is back."""
        reason = f"waiting for the {'broker' if isinstance(error, LogError) else 'store'}: {error.message}"
        for watched in self._watched.values():
            watched.status.detail = reason
            if watched.live.query is None:
                watched.status.state = "waiting"
            watched.live.progressed_at_s = time.monotonic()
        self._batches.wait(reason)

    def _excuse(self, error: SparkError) -> None:
        """Raise the error again unless the next turn may do better."""
        if error.condition == "WRITER_STILL_RUNNING":
            raise SparkError("SESSION_LOST", error.message, certainty="maybe", hint=error.hint) from error
        self._releases_failed += 1
        elsewhere = writes_elsewhere(self._context.session)
        if error.condition != "RELEASE_FAILED" or elsewhere or self._releases_failed > FAILURES_MAX:
            raise error
        self._say(error.message)

    def _refresh(self) -> None:
        """Bring the status up to date with what was started since."""
        for watched in self._watched.values():
            opening, status = watched.live.opening, watched.status
            if opening is None or opening is watched.opening or watched.live.query is None:
                continue
            watched.opening = opening
            suppresses = opening.release.barrier is not None
            fate = "suppressed" if suppresses else "repeated"
            status.state, status.detail, status.incarnation = "running", "", opening.incarnation
            status.suppressed += opening.released if suppresses else 0
            if opening.incarnation > 1:
                self._say(
                    f"{status.name}: incarnation {opening.incarnation} goes on after batch {opening.restored_batch}; "
                    f"{opening.released} results are out already and will be {fate}"
                )

    def status(self) -> tuple[RegionStatus, ...]:
        """Return what is known of each region, upstream first."""
        live = [w.status for w in self._watched.values()]
        found = tuple(RegionStatus(**asdict(status)) for status in (*live, *self._batches.status()))
        return tuple(s if (error := self.down.get(s.name)) is None else s.failed(error) for s in found)

    @property
    def down(self) -> Mapping[str, FalkirkError]:
        """The processors that failed for good and stay down, with their errors, oldest first."""
        return {} if self._wheel is None else self._wheel.down.errors

    def push(self) -> list[dict[str, object]]:
        """Return what the gateway has to know of each source of requests: falkirk/host/gateway.py."""
        found = {s.name: s.describe() for s in self._plan.push}
        if (wheel := self._wheel) is not None and self._acceptance is not None and wheel.points:
            released = {held: wheel.released(held) for held in wheel.layout.held}
            for source in self._plan.push:
                topic = source.topic.topic
                for what, upto in (
                    ("accepted", self._acceptance.accepted(topic, released)),
                    ("acknowledged", wheel.acknowledged(topic)),
                ):
                    found[source.name][what] = {e.partition: upto.length(e) for e in wheel.layout.sequences(topic)}
        return list(found.values())

    @property
    def foreign(self) -> list[dict[str, object]]:
        """What others have written into topics of this home, as plain values: by topic, how many records, and one of
        them."""
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
        """Stop all regions, writers first. What their producers still hold is flushed by the next start's fence."""
        for watched in self._watched.values():
            try:
                watched.live.end("stopped")
            except StoreError as error:  # the next start knows by its fence what this one could not write down
                log.warning("%s: %s", watched.status.name, error.message)
            watched.status.state = "stopped"
        self._batches.stop()
        self._executors.record(complete=True)
