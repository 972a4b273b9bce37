"""Live host: starts the live regions of an application in one Spark session, watches them, and restarts the ones
that fail.

Slow, hung and dead are told apart. Dead: the query ended with an error. Hung: its batch is overdue by far although
the broker answers. Slow is anything else and is left alone; so is a region that waits for a broker that is away.
"""

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from falkirk.errors import DefinitionError, FalkirkError, LogError, SparkError
from falkirk.plan.region import Plan
from falkirk.regions import fence
from falkirk.regions.context import Context
from falkirk.regions.live import LiveRegion
from falkirk.regions.rows import CO_PARTITIONING

log = logging.getLogger("falkirk")

#: A region is hung when its commit is overdue by this much and the broker answers.
OVERDUE_S = 30.0
#: In Spark's ANSI mode, its default, such a value fails the task, and would fail it again at each restart.
_FAILED_EXPRESSION = re.compile(
    r"\[(CAST_INVALID_INPUT|CAST_OVERFLOW|DIVIDE_BY_ZERO|REMAINDER_BY_ZERO|ARITHMETIC_OVERFLOW|DATETIME_OVERFLOW|"
    r"INVALID_ARRAY_INDEX\w*|INVALID_INDEX\w*|NUMERIC_VALUE_OUT_OF_RANGE\w*|CANNOT_PARSE_TIMESTAMP)[^\n]{0,200}"
)
#: Spark found a state file missing, torn, or with another checksum than it was written with.
_STATE_NOT_LOADED = re.compile(r"CANNOT_LOAD_STATE_STORE|CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED")
#: A region that fails this often in a row without a commit in between will not get better by itself.
FAILURES_MAX = 5
BACKOFF_S = (0.0, 1.0, 2.0, 5.0, 10.0)


@dataclass(kw_only=True)
class RegionStatus:
    """What a user sees of a region. Times in seconds."""

    name: str
    state: str = "starting"
    incarnation: int = 0
    restarts: int = 0
    suppressed: int = 0
    dead_letters: int = 0
    last_commit: int = -1
    checkpoint_age_s: float | None = None
    input_rows_per_s: float = 0.0
    detail: str = ""


@dataclass(kw_only=True)
class _Watched:
    live: LiveRegion
    status: RegionStatus
    failures: int = 0
    retry_at_s: float = 0.0
    progressed_at_s: float = field(default_factory=time.monotonic)


class LiveHost:
    """The live regions of one plan in one session."""

    def __init__(self, plan: Plan, context: Context, *, say: Callable[[str], None] = log.info) -> None:
        self._context, self._say = context, say
        self._watched = [
            _Watched(live=LiveRegion(region, context), status=RegionStatus(name=region.name)) for region in plan.regions
        ]

    def start(self, on_progress: Callable[[], None] = lambda: None) -> None:
        """Start every region, readers first, so that a hop's reader is warm when its first record comes.

        Args: on_progress: called before each region: reading a long tail takes its time.
        Raises: FalkirkError: a region can't start; those started before are stopped.
        """
        try:
            for watched in reversed(self._watched):
                on_progress()
                self._open(watched)
        except BaseException:
            self.stop()
            raise

    def flush(self, timeout_s: float) -> bool:
        """Flush what the producers of stopped regions still hold; tell whether nothing is left in any process."""
        if self._needs_new_session():
            return False
        prefix, flushed = fence.client_id(self._context.home.identity, "", 0).removesuffix("-0"), threading.Event()

        def flush() -> None:
            with contextlib.suppress(SparkError, Py4JError):
                fence.flush_lingering(self._context.session, lambda client: client.startswith(prefix))
                flushed.set()

        threading.Thread(target=flush, name="falkirk-flush", daemon=True).start()  # it blocks while the broker is away
        return flushed.wait(timeout_s)

    def _open(self, watched: _Watched) -> None:
        _refuse_split_keys(watched.live)
        opening = watched.live.start()
        status = watched.status
        status.state, status.detail = "running", ""
        status.incarnation = opening.incarnation
        status.suppressed += opening.released if opening.release.barrier is not None else 0
        watched.progressed_at_s = time.monotonic()
        if opening.incarnation > 1:
            fate = "suppressed" if opening.release.barrier is not None else "repeated"
            self._say(
                f"{status.name}: incarnation {opening.incarnation} goes on after batch {opening.restored_batch}; "
                f"{opening.released} results are out already and will be {fate}"
            )

    def poll(self) -> tuple[RegionStatus, ...]:
        """Look at every region once: observe, and restart what failed or hangs. Call it about once a second.

        Raises: FalkirkError: a region can't be brought back; what to do is in the error.
        """
        for watched in self._watched:
            if watched.live.query is None:
                self._retry(watched)
            elif (error := watched.live.failure()) is not None:
                self._fail(watched, error)
            else:
                self._observe(watched)
        return self.status()

    def _observe(self, watched: _Watched) -> None:
        status, region = watched.status, watched.live.region
        try:
            last = watched.live.observe()
        except LogError as error:
            if error.condition != "BROKER_AWAY":
                raise
            status.detail = f"waiting for the broker: {error.message}"
            watched.progressed_at_s = time.monotonic()
            return
        if last > status.last_commit:
            watched.progressed_at_s, watched.failures = time.monotonic(), 0
        status.dead_letters = watched.live.dead_letters
        status.last_commit, status.checkpoint_age_s, status.detail = last, watched.live.checkpoint_age_s(), ""
        progress = watched.live.query.lastProgress if watched.live.query else None
        if progress:
            status.input_rows_per_s = float(progress.get("inputRowsPerSecond") or 0.0)
        overdue = time.monotonic() - watched.progressed_at_s - region.interval_s
        if overdue > OVERDUE_S:
            self._fail(watched, SparkError("REGION_HUNG", f"no checkpoint for {overdue + region.interval_s:.0f} s"))

    def _fail(self, watched: _Watched, error: Exception) -> None:
        status = watched.status
        fatal = _fatal(error, watched.live, self._context)
        reason = str(error).split("\n")[0][:300]
        watched.live.end(reason if fatal is None else f"{fatal.condition}: {fatal.message}")
        if fatal is not None:
            status.state, status.detail = "failed", str(fatal)
            raise fatal from error
        if _STATE_NOT_LOADED.search(str(error)):
            watched.live.distrust_checkpoint()
        watched.failures += 1
        if watched.failures > FAILURES_MAX:
            status.state, status.detail = "failed", reason
            raise SparkError(
                "REGION_KEEPS_FAILING",
                f"region {status.name!r} failed {watched.failures} times without a checkpoint in between: {reason}",
                where=watched.live.region.where,
                hint="The host's log says more; the home is intact, run again once it is mended.",
                region=status.name,
            ) from error
        if self._needs_new_session():
            raise SparkError(
                "SESSION_LOST",
                f"region {status.name!r} failed on a cluster: {reason}",
                certainty="maybe",
                hint="The Spark application is restarted, so that no executor of it still writes.",
                region=status.name,
            ) from error
        status.restarts += 1
        status.state, status.detail = "restarting", reason
        watched.retry_at_s = time.monotonic() + BACKOFF_S[min(watched.failures, len(BACKOFF_S)) - 1]
        self._say(f"{status.name}: failed ({reason}); restarting")

    def _needs_new_session(self) -> bool:
        """Tell whether producers may linger in other JVMs, where they can't be flushed from here."""
        return not (self._context.session.sparkContext.master or "").startswith("local[")

    def _retry(self, watched: _Watched) -> None:
        if time.monotonic() < watched.retry_at_s:
            return
        try:
            self._open(watched)
        except SparkError as error:
            if error.condition != "WRITER_STILL_RUNNING":
                raise
            raise SparkError("SESSION_LOST", error.message, certainty="maybe", hint=error.hint) from error
        except LogError as error:
            if error.condition != "BROKER_AWAY":
                raise
            watched.status.state, watched.status.detail = (
                "waiting",
                f"waiting for the broker: {error.message}",
            )
            watched.retry_at_s = time.monotonic() + 1.0

    def status(self) -> tuple[RegionStatus, ...]:
        """Return what is known of each region, upstream first."""
        return tuple(RegionStatus(**asdict(w.status)) for w in self._watched)

    @property
    def hops(self) -> tuple[str, ...]:
        """The internal topics between the regions."""
        regions = [w.live.region for w in self._watched]
        return tuple(region.hop.topic for region in regions if region.hop is not None)

    @property
    def queries(self) -> tuple[StreamingQuery, ...]:
        """Spark's queries of the regions that run."""
        return tuple(w.live.query for w in self._watched if w.live.query is not None)

    def stop(self) -> None:
        """Stop all regions, writers first. What their producers still hold is flushed by the next start's fence."""
        for watched in self._watched:
            watched.live.end("stopped")
            watched.status.state = "stopped"


def _refuse_split_keys(live: LiveRegion) -> None:
    """Refuse a region whose input was found not to be partitioned as declared: a replay may meet it in another order.

    Raises: DefinitionError: `NOT_CO_PARTITIONED`, as the incarnation that found it.
    """
    condition, _, message = (live.last_ended() or "").partition(": ")
    if condition == "NOT_CO_PARTITIONED":
        raise _split_key(message, live)


def _split_key(message: str, live: LiveRegion) -> DefinitionError:
    source = live.region.source.topic
    return DefinitionError(
        "NOT_CO_PARTITIONED",
        message,
        where=source.where,
        hint="Leave out key=, and a sequencer hop orders the records; nothing wrong was released. Use a new home.",
        topic=source.topic,
    )


def _fatal(error: Exception, live: LiveRegion, context: Context) -> FalkirkError | None:
    """Return the error to give up with when a restart can't help."""
    text, region = str(error), live.region
    source = region.source.topic.topic
    # The text holds the query's plan as well, so only the raised form of the marker counts: with numbers behind it.
    if split := re.search(rf"{CO_PARTITIONING}\|(\d+)\|(\d+)\|(.*)", text):
        return _split_key(
            f"topic {source!r} is said to be partitioned by {', '.join(region.source.topic.keys)}, but one key came "
            f"from partitions {split[1]} and {split[2]}: {split[3][:200]}",
            live,
        )
    if "OffsetOutOfRangeException" in text or "KAFKA_DATA_LOSS" in text:
        return LogError(
            "INPUT_EXPIRED",
            f"records of {source!r} that are still needed have been deleted.",
            where=region.source.topic.where,
            hint="Its retention must outlast the checkpoint interval and any downtime. Begin with a new home.",
            topic=source,
        )
    if failed := _FAILED_EXPRESSION.search(text):
        return DefinitionError(
            "EXPRESSION_FAILED",
            f"an expression of region {region.name!r} fails on a record: {failed[0]}",
            where=region.where,
            hint="Make it yield null instead (try_cast, try_divide, try_element_at, …), run again, and it goes on.",
            region=region.name,
            spark_condition=failed[1],
        )
    if "UnknownTopicOrPartition" in text and (gone := _missing((source, region.output.topic), context)):
        return LogError(
            "TOPIC_MISSING",
            f"{', '.join(gone)} is gone, while region {region.name!r} runs.",
            where=region.where,
            hint="What it held is lost to this home: create it anew, and begin with a new home.",
            topics=gone,
        )
    return None


def _missing(topics: tuple[str, ...], context: Context) -> tuple[str, ...]:
    """Return the topics that are gone. The broker says the same of a partition that is about to change its leader."""
    try:
        return tuple(topic for topic in topics if not context.topics.exists(topic))
    except LogError:
        return ()
