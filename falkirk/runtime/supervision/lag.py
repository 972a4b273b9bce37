"""Lag: counts the records in the sources of a live region that its query has not read yet, also between checkpoints.

Spark reports how far a query has read only at a checkpoint, so its figure is as old as that. In this JVM, `Figures`
knows the newest record that was read of each partition (Figures.java). On a cluster only the executors know it.
"""

from collections.abc import Mapping
from functools import partial

from falkirk.platform.parallel import Looks
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.figures import read_ends
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.spark_setup.spark import writes_elsewhere
from falkirk.theory.delivery import SourcePartition
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import LogId, Offset, Positions

#: The time between two looks, in seconds. Each costs two requests to Kafka per source.
LAG_LOOK_S = 5.0


class SourceLag:
    """The lag of one live region."""

    def __init__(self, live: LiveRegion, context: Context) -> None:
        self._live, self._context = live, context
        self._looked_at_s: float | None = None
        #: The host does not wait for a look: one at a topic without a leader takes 10 s, for each region that reads it.
        self._looks = Looks[Mapping[LogId, int]]({})

    def update(self) -> Mapping[LogId, int]:
        """Return the number of unread records of each source at the last look; empty: nobody knows it.

        Call it while the query runs. Offsets count as records, and so do markers of transactions.
        """
        now_s, opening = self._context.clock.monotonic(), self._live.opening
        if opening is None or writes_elsewhere(self._context.session):
            return {}
        found = self._looks.found
        if self._looked_at_s is None or now_s - self._looked_at_s >= LAG_LOOK_S:
            read = read_ends(self._context, self._live.region.name)  # before the ends, so it is never behind them
            covered = self._live.checkpoints()[-1].read
            if self._looks.begin(partial(self._look, opening.start, covered, read)):
                self._looked_at_s = now_s
        return found

    def _look(
        self, starts: Positions, covered: OffsetFrontier, read: Mapping[SourcePartition, Offset]
    ) -> Mapping[LogId, int]:
        """Runs in a thread. Raises: LogError: the poll reports that the broker is away."""
        found = dict[LogId, int]()
        for number, source in enumerate(self._live.region.sources):
            log = source.topic.log
            start, ends = starts.get(log, {}), self._context.topics.end_positions(source.topic.topic)
            found[log] = sum(
                max(0, end - max(start.get(p, 0), int(covered.length_of(log, p)), read.get((number, p), 0)))
                for p, end in ends.items()
            )
        return found
