"""Supervised region: a live region as the host watches it. A failed query is counted, and may start again."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from falkirk.errors import FalkirkError, StoreError
from falkirk.errors.conditions.supervision import SESSION_LOST_MEMORY
from falkirk.plan import objective
from falkirk.plan.reasons import duration_text, listed
from falkirk.plan.region import Region
from falkirk.platform.traced import condition_of
from falkirk.recovery.protocol.down import is_comparison_open
from falkirk.runtime.spark.causes import is_out_of_memory
from falkirk.runtime.spark.dead_letters import DeadLetters
from falkirk.runtime.spark.live import inputs
from falkirk.runtime.spark.live.opening import Opening
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.runtime.spark.live.starved import Starvation
from falkirk.runtime.spark.live.state_files import damage_of_state
from falkirk.runtime.spark.live.triage import Damage, damage_of, fatal_of, refuse_split_keys
from falkirk.runtime.supervision.failures import IDLE_S, Cause, cause_of, has_progressed, shown_reason
from falkirk.runtime.supervision.figures import LiveFigures, Published
from falkirk.runtime.supervision.lag import SourceLag
from falkirk.runtime.supervision.measurements import RegionMeasurements
from falkirk.runtime.supervision.recorded import checkpoint_span
from falkirk.runtime.supervision.supervised import Supervised, Supervision
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import LogId, Offset
from falkirk.theory.times import TopicPartition

log = logging.getLogger("falkirk")


class SupervisedRegion(Supervised):
    """One live region of a plan.

    Args: missing: returns the views of a region without an epoch. are_loading: whether all will have one soon.
        Attributes: live: the region.
    """

    def __init__(
        self, live: LiveRegion, watch: Supervision, missing: Callable[[Region], tuple[str, ...]] = lambda region: (),
        are_loading: Callable[[Region], bool] = lambda region: False,
    ) -> None:  # fmt: skip
        super().__init__(live.region.name, live.region.where, watch)
        self._missing, self._are_loading, self._waits = missing, are_loading, False
        self.live, self._figures = live, LiveFigures(live)
        self._measurements = RegionMeasurements(live, watch.context, watch.launch)
        self._lag = SourceLag(live, watch.context)
        #: The cause of the last failure, until it is counted.
        self._cause = Cause.OWN
        self._opening: Opening | None = None
        self._starvation = Starvation(math.inf)  # `refresh` makes one for each start
        self._started_at_s = math.inf
        #: The last batch of Spark whose span was recorded.
        self._recorded: object = None
        #: The positions that the present opening must reach (`has_progressed`), once they were needed.
        self._due: Mapping[TopicPartition, Offset] | None = None

    @property
    def port(self) -> LiveRegion:
        """See Supervised."""
        return self.live

    def delays_deletion(self, error: FalkirkError | None) -> bool:
        """See Supervised. Each start of its query compares them first, and the host those of a region that waits."""
        is_compared = self.live.opening is not None or self.live.is_compared
        return not is_compared and (error is None or is_comparison_open(error))

    def prepare(self) -> object:
        """See Supervised."""
        record = self.live.prepare()
        self.show_letters()
        return record

    @property
    def letters(self) -> DeadLetters | None:
        """See Supervised."""
        return self.live.letters

    @property
    def reads(self) -> tuple[LogId, ...]:
        """See Supervised."""
        return tuple(source.topic.log for source in self.live.region.sources)

    def before_start(self) -> bool:
        """See Supervised."""
        refuse_split_keys(self.live)
        self._waits = self.waits_for_views()
        return not self._waits and super().before_start()

    def begins(self) -> bool:
        """Return whether its query is about to start for the first time."""
        is_near = self.status.state == "starting" or (self._waits and self._are_loading(self.live.region))
        return self.live.query is None and is_near

    def waits_for_views(self) -> bool:
        """Return whether a view that it looks up has no epoch yet, and show which one."""
        missing = self._missing(self.live.region)
        if missing:
            self.status.state, views = "waiting", listed(list(missing))
            is_near = self._are_loading(self.live.region)
            self.status.detail = (
                f"reads {views} into memory" if is_near else f"the first epoch of {views} is not complete"
            )
        return bool(missing)

    def has_input(self) -> bool:
        """See Supervised."""
        return self.live.has_input()

    def poll(self) -> FalkirkError | None:
        """See Supervised."""
        live, status = self.live, self.status
        if live.query is None or self.waits_for_cluster():
            return None
        if (error := live.failure()) is not None:
            return self._end(error)
        last = live.observe()
        assert live.opening is not None, "its query runs"
        self._note_progress(live.opening)
        self._measurements.update(live.opening, last)
        self.show_letters()
        status.twin = None if live.twin is None else live.twin.query is not None
        status.last_commit, status.checkpoint_age_s, status.detail = last, live.checkpoint_age_s(), live.waits_for
        progress = live.query.lastProgress
        self._figures.update(progress, self._lag.update())
        if progress and self._context.recorder.is_on:
            self._record_checkpoint(progress)
        if (interval_s := self._starvation.update(live.checkpoints()[-1], live.has_input)) is not None:
            self._lengthen(interval_s)
        return None

    def _lengthen(self, interval_s: float) -> None:
        """Have the region start again with a longer interval, if it can start alone."""
        live, status = self.live, self.status
        before, after = duration_text(live.region.interval_s), duration_text(interval_s)
        reason = f"tasks took longer to start than {before}, and read nothing; checkpoints every {after} from now on"
        self._starvation = Starvation(math.inf)
        if live.may_write_elsewhere():  # a restart would be one of the Spark application, which begins with short ones
            log.warning("%s: %s would help", self.name, reason)
            return
        live.region = replace(live.region, interval_s=interval_s)
        live.end(reason)
        self._cause, live.ready_at_s = Cause.STARVED, self._context.clock.monotonic()
        status.state, status.detail = "restarting", f"{Cause.STARVED.value}{reason}"
        self._say(f"{self.name}: {reason}; restarting")

    def _record_checkpoint(self, progress: Mapping[str, Any]) -> None:
        if (batch := progress.get("batchId")) != self._recorded:
            self._recorded = batch
            if (span := checkpoint_span(self.name, progress)) is not None:
                self._context.recorder.add(span)

    def _note_progress(self, opening: Opening) -> None:
        """Tell the counts if it has got further. After a loss, a checkpoint may cover input that was not processed."""
        if self._was_lost():
            return
        ran_s = self._context.clock.monotonic() - self._started_at_s
        if self._due is None:  # without a failure, any progress will do
            topics, connection = self._context.topics, self._context.connection
            has_failed = self._failures.has_failed(self.name)
            self._due = inputs.due(topics, connection, opening.start) if has_failed else {}
        if has_progressed(self.live.checkpoints(), opening.restored_batch, self._due, ran_s):
            self._failures.forget(self.name)
        elif ran_s > IDLE_S:  # a checkpoint may be due only later, but a value that kills would have been read
            self._failures.note_progress(self.name)

    def _was_lost(self) -> bool:
        return self.live.observations is not None and self.live.observations.was_lost()

    def _end(self, error: Exception) -> FalkirkError | None:
        """Handle the error that ended the query; return the error for which the region has to stay down."""
        live, status = self.live, self.status
        fatal = fatal_of(error, live, self._context)
        status.error = condition_of(error if fatal is None else fatal)
        reason = shown_reason(error)
        cause = cause_of(error, was_lost=self._was_lost())
        if (found := damage_of(error, live.files.location) or self._damage(cause)) is not None:
            # Before the region ends: if the store is away, this raises, and the next poll repeats everything.
            live.distrust_checkpoints(found.first, found.reason)
        live.end(reason if fatal is None else f"{fatal.condition}: {fatal.message}")
        if fatal is not None:
            fatal.__cause__ = error
            return fatal
        if is_out_of_memory(error):  # a new JVM has the leaked memory again; by default Spark ends this one by itself
            self._failures.add(self.name, reason)
            raise SESSION_LOST_MEMORY.error(reason=reason) from error
        self._cause = cause = cause if found is None else Cause.DAMAGE
        status.state, status.detail = "restarting", f"{cause.value}{reason}"
        live.ready_at_s = self._context.clock.monotonic() + self._failures.pause_s(self.name, cause)
        self._say(f"{self.name}: failed ({status.detail}); restarting")
        return None

    def _damage(self, cause: Cause) -> Damage | None:
        """Return the damage to the state with which the query began, if Spark's error does not name it."""
        opening = self.live.opening
        if opening is None or cause not in (Cause.OWN, Cause.CONNECTION):
            return None
        session, logs = self._context.session, self._context.home.checkpoint(self.name)
        return damage_of_state(session, logs, opening.restored_batch, self.live.files)

    def count_failure(self, reason: str) -> None:
        """See Supervised."""
        if self._waits:  # it has not failed
            return
        if self.live.query is not None:  # the failure of an ended query was already reported
            self._say(f"{self.name}: {reason}; restarting")
        self.status.restarts += 1
        cause, self._cause = self._cause, Cause.OWN
        self._failures.add(self.name, self.status.detail or reason, cause)
        if self._failures.is_exhausted(self.name):
            self.live.end(reason)  # it may hang
            raise self._failures.error(self.name, self.where)

    def refresh(self) -> None:
        """See Supervised."""
        opening, status = self.live.opening, self.status
        if opening is None or opening is self._opening or self.live.query is None:
            return
        self._opening, self._started_at_s, self._due = opening, self._context.clock.monotonic(), None
        self._starvation = Starvation(self.live.region.interval_s)
        suppresses = opening.release.barrier is not None
        fate = "dropped" if suppresses else "published again"
        status.state, status.detail, status.incarnation = "running", "", opening.incarnation
        status.suppressed += opening.released if suppresses else 0
        if (choice := objective.objective_values(self.live.region)) is not None:
            status.objective = choice
            self._say(choice["text"])
            if choice["warning"] is not None:
                self._say(f"warning: {choice['warning']}")
        if opening.incarnation > 1:
            restored = opening.restored_batch
            source = f"resumes from checkpoint {restored}" if restored >= 0 else "begins at the start of its input"
            self._say(
                f"{self.name}: start {opening.incarnation} {source}; "
                f"{opening.released} results after it are already published and will be {fate}"
            )

    def describe(self, published: Published, released: OffsetFrontier) -> dict[str, Any]:
        """See Supervised."""
        return self._figures.describe(published, released)

    def wait(self, reason: str) -> None:
        """See Supervised."""
        self.status.detail = reason
        if self.live.query is None:
            self.status.state = "waiting"
        self.live.progressed_at_s = self._context.clock.monotonic()

    def leave_off(self) -> None:
        """See Supervised. A query works until it is stopped."""

    def stop(self, until_s: float = math.inf) -> None:
        """See Supervised. The fence of the next start flushes its producers."""
        try:
            self.live.end("stopped")
        except StoreError as error:  # the next start's fence finds what this one could not record
            log.warning("%s: %s", self.name, error.message)
        self.close_letters()
        self.status.state = "stopped"

    def flush(self) -> None:
        """See Supervised."""
        self.live.close_lanes()
