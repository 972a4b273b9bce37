"""Epoch logs: the logs of the epochs of batches, as the protocol sees them."""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.sinks.release import EpochReleaser
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import EpochNumber, LogId, Positions


class EpochLogs:
    """The logs of epochs of an application, as a LogsPort.

    Args: logs: all logs by name. releasers: those of the logs that have sinks. session: None: the application is
        at rest, and releases nothing.
    """

    def __init__(
        self,
        logs: Mapping[LogId, EpochLog],
        releasers: Mapping[LogId, EpochReleaser],
        session: SparkSession | None = None,
    ) -> None:
        self._logs, self._releasers, self._session = logs, releasers, session

    def ends(self, topic: LogId) -> OffsetFrontier:
        """See LogsPort."""
        return OffsetFrontier.prefix(topic, self._logs[topic].end())

    def begins(self, topic: LogId) -> OffsetFrontier:
        """Return where a log begins, at its oldest existing epoch."""
        return OffsetFrontier.prefix(topic, self._logs[topic].begin())

    def copy(self, held: LogId, sink: str, first: OffsetFrontier, last: OffsetFrontier) -> OffsetFrontier:
        """See LogsPort."""
        assert self._session is not None, "an application at rest releases nothing"
        return OffsetFrontier.prefix(
            held,
            self._releasers[held].release(self._session, _number(first, held), _number(last, held)),
        )

    def copied(self, held: LogId, sink: str) -> OffsetFrontier:
        """See LogsPort. Raises: HomeError: `SINK_AHEAD`."""
        return OffsetFrontier.prefix(held, self._releasers[held].visible())

    def sink_ends(self, held: LogId, sink: str) -> Positions:
        """See LogsPort."""
        return self._releasers[held].ends()

    def remains(self, held: LogId, sink: str, released: OffsetFrontier) -> OffsetFrontier:
        """See LogsPort. An application at rest releases nothing, so nothing is copied again."""
        if self._session is None:
            return released
        return OffsetFrontier.prefix(held, self._releasers[held].remains(_number(released, held)))

    def delete_below(self, topic: LogId, below: OffsetFrontier) -> None:
        """See LogsPort."""
        self._logs[topic].drop_results_below(_number(below, topic))

    def acknowledge(self, topic: LogId, upto: OffsetFrontier) -> None:
        """See LogsPort: nobody outside writes epochs."""


def _number(frontier: OffsetFrontier, log: LogId) -> EpochNumber:
    return EpochNumber(int(frontier.length_of(log)))
