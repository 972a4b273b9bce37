"""Twin: a second query of a live region, which hides the pauses of the first one.

While Spark ends a batch of Real-time Mode and begins the next one, no result leaves a query. That takes 0.2 to 1 s. A
region may have twins instead: two queries with the same steps, which read the same records and make their checkpoints
at different times. Both send through the same lanes, and a lane drops a result that the other query has sent
(Marks.java). The results are equal, because each is a function of the region's input.

The first query is the region's. Its checkpoints are those that a failure returns to, and its failure ends both. The
second one, the twin, begins with a copy of the newest checkpoint of the first, and its own checkpoints only shift it in
time: nothing else reads them. If it fails, or comes too close to the first one in time, it is begun again.

Positions in the output need another rule than for one query: `Reached` in theory/positions.py. The lanes tell how far
the sent results reach into the input.
"""

import json
import logging
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from falkirk.errors.spark import JVM_ERRORS, SPARK_ERRORS, first_line
from falkirk.plan.region import Region
from falkirk.runtime.spark import lanes, retry
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.live import checkpoint
from falkirk.runtime.spark.live.kept import copy_checkpoint
from falkirk.theory.delivery import SourcePartition
from falkirk.theory.ids import BatchId, Offset, Positions
from falkirk.theory.positions import Reached

log = logging.getLogger("falkirk")

#: The share of the interval by which the checkpoints of the two queries must at least differ.
APART = 1 / 6
#: The first estimate of the time from the start of a query to the beginning of its first batch.
LEAD_S = 1.5
#: For how long, in each interval of the first query, the twin may be begun.
MOMENT_S = 1.0
#: The folder of its checkpoint, in that of the first query.
FOLDER = "twin"


def discard(first: Path) -> None:
    """Delete the checkpoint of an ended twin. Args: first: the folder of the first query."""
    shutil.rmtree(first / FOLDER, ignore_errors=True)


class Twin:
    """The second query of one incarnation of a region. All methods are called by the thread that watches the region.

    Args: start: starts it with a checkpoint's folder. first: the checkpoint's folder of the first query.
    """

    def __init__(self, start: Callable[[Path], StreamingQuery], first: Path, region: Region, context: Context) -> None:
        self._start, self._first, self._folder = start, first, first / FOLDER
        self._region, self._context, self._clock = region, context, context.clock
        self.query: StreamingQuery | None = None
        #: How often it was begun, and how often it failed in a row.
        self.begun, self._failed = 0, 0
        self._not_before_s, self._lead_s = 0.0, LEAD_S
        self._copied = BatchId(-1)
        self._is_placed = False
        self._observed = Reached[Positions]()

    def proven(self, ends: Positions, covered: Mapping[SourcePartition, Offset]) -> Positions | None:
        """Add an observation; return the newest one that serves a checkpoint, and forget older ones. None: none does.

        Args: ends: of the outputs, read before this call. covered: the first offset of each partition that the
            checkpoint does not cover.
        """
        _, reached = lanes.sent_ends(self._context, self._region.name)
        self._observed.add(ends, reached)
        return self._observed.newest(covered)

    def update(self, last: BatchId) -> None:
        """Begin, replace or keep the query. Args: last: the newest checkpoint of the first query."""
        if self.query is not None and not self.query.isActive:
            self._note_failure(self.query.exception())
        if last < 0:
            return
        since_s = self._clock.time() - checkpoint.committed_at_s(self._first, last)
        if self.query is None:
            if self._is_time(since_s) and self._clock.monotonic() >= self._not_before_s:
                self._begin(last)
        elif self._is_close(since_s):
            log.info("%s: the twin is begun again, apart from the first query", self._region.name)
            self.stop()

    def _is_time(self, since_s: float) -> bool:
        """Return whether a query that is begun now makes its checkpoints in the middle of the first one's intervals."""
        begin_s = max(0.0, self._region.interval_s / 2 - self._lead_s)
        return begin_s <= since_s <= begin_s + MOMENT_S

    def _is_close(self, since_s: float) -> bool:
        """Return whether the last checkpoints of both queries were made at nearly the same time."""
        mine, interval_s = checkpoint.last_committed_batch(self._folder), self._region.interval_s
        if mine <= self._copied:
            return False
        self._failed = 0
        later_s = (since_s - self._clock.time() + checkpoint.committed_at_s(self._folder, mine)) % interval_s
        if not self._is_placed:  # its first checkpoint shows how long its start took
            self._is_placed = True
            self._lead_s = min(interval_s / 2, max(0.0, self._lead_s + later_s - interval_s / 2))
        return min(later_s, interval_s - later_s) < APART * interval_s

    def _begin(self, last: BatchId) -> None:
        discard(self._first)
        try:
            if not copy_checkpoint(self._first, self._folder, last, *self._region.reads):
                return  # Spark has deleted a file meanwhile: the next look tries again
            # Spark refuses a second query with the identity of a running one, and a checkpoint without an identity.
            (self._folder / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
            self.query = self._start(self._folder)
            self.begun, self._copied, self._is_placed = self.begun + 1, last, False
        except (OSError, *SPARK_ERRORS) as error:
            self._note_failure(error)

    def _note_failure(self, error: Exception | None) -> None:
        """The first query continues. Its own failure, if there is one, tells the cause to the user."""
        self.query = None
        self._failed += 1
        # Never at once: results do not depend on a twin, and each start of one takes time from the first query.
        pause_s = retry.pause_s(1 + self._failed) if self._failed < retry.FAILURES_MAX else retry.RARE_S
        self._not_before_s = self._clock.monotonic() + pause_s
        reason = "it ended" if error is None else first_line(error)
        log.warning("%s: the twin has failed, the next one begins in %.0f s: %s", self._region.name, pause_s, reason)

    def stop(self) -> Exception | None:
        """Stop the query if it runs. Returns: the error that had ended it."""
        query, self.query = self.query, None
        if query is None:
            return None
        try:
            error = query.exception()
            query.stop()
        except (PySparkException, *JVM_ERRORS) as failed:  # the JVM may have died
            log.warning("%s: the twin could not be stopped: %s", self._region.name, first_line(failed))
            return None
        return error
