"""Lag: counts the records in the sources of a live region that its query has not read yet, also between checkpoints.

Spark reports how far a query has read only at a checkpoint, so its figure is as old as that. In this JVM, `Figures`
knows the newest record that was read of each partition (Figures.java). On a cluster only the executors know it.
"""

from collections.abc import Mapping

from falkirk.errors import LogError
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.figures import read_ends
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.spark_setup.spark import writes_elsewhere
from falkirk.theory.ids import LogId

#: The time between two looks, in seconds. Each costs two requests to Kafka per source.
LAG_LOOK_S = 5.0


class SourceLag:
    """The lag of one live region."""

    def __init__(self, live: LiveRegion, context: Context) -> None:
        self._live, self._context = live, context
        self._looked_at_s: float | None = None
        self._found: dict[LogId, int] = {}

    def update(self) -> Mapping[LogId, int]:
        """Return the number of unread records of each source at the last look; empty: nobody knows it.

        Call it while the query runs. Offsets count as records, and so do markers of transactions.
        """
        now_s = self._context.clock.monotonic()
        if self._looked_at_s is None or now_s - self._looked_at_s >= LAG_LOOK_S:
            self._looked_at_s, self._found = now_s, self._look()
        return self._found

    def _look(self) -> dict[LogId, int]:
        live, context, found = self._live, self._context, dict[LogId, int]()
        if live.opening is None or writes_elsewhere(context.session):
            return found
        read = read_ends(context, live.region.name)  # before the ends, so it is never behind them
        covered = live.checkpoints()[-1].read
        try:
            for number, source in enumerate(live.region.sources):
                log = source.topic.log
                start, ends = live.opening.start.get(log, {}), context.topics.end_positions(source.topic.topic)
                found[log] = sum(
                    max(0, end - max(start.get(p, 0), int(covered.length_of(log, p)), read.get((number, p), 0)))
                    for p, end in ends.items()
                )
        except LogError:  # the poll reports that the broker is away
            return {}
        return found
