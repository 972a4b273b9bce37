"""Logs: the topics of an application in Kafka, as the coordinator's LogsPort.

If the broker does not answer, every call raises LogError `BROKER_AWAY`, and the caller retries. So an unreachable
broker is never mistaken for a missing topic.
"""

import logging
from collections.abc import Callable

from falkirk.coordinator.layout import Layout
from falkirk.epochs.release import EpochLogs
from falkirk.errors import LogError
from falkirk.plan.batch import is_epoch_log, is_file_log
from falkirk.regions.at_rest import frontier
from falkirk.regions.context import Place
from falkirk.regions.outputs import last_records
from falkirk.theory.frontier import OffsetFrontier

log = logging.getLogger("falkirk")

Positions = dict[int, int]
Copier = Callable[[str, str, Positions, Positions], None]
"""Copies [first, last) of a held log to the end of a sink: (held, sink, first, last). Returns once all is copied.
If it raises, some of the records may be copied, in order and without a gap."""
#: The largest number of records per partition to copy at once, because the copying thread also checks the regions.
RECORDS_AT_ONCE = 200_000


class KafkaLogs:
    """The logs of one application.

    Args:
        settle: returns where a sink ends, once no record of an earlier copy can still arrive there.
        copier: see `Copier`.
    """

    def __init__(
        self, layout: Layout, place: Place, settle: Callable[[str], Positions], copier: Copier | None = None
    ) -> None:
        self._layout, self._place, self._settle, self._copier = layout, place, settle, copier
        self._copied: dict[str, OffsetFrontier] = {}
        self._deleted: dict[str, OffsetFrontier] = {}
        self._acknowledged: dict[str, OffsetFrontier] = {}
        self.group = f"falkirk.{place.home.application}"

    def ends(self, topic: str) -> OffsetFrontier:
        """See LogsPort."""
        return frontier(topic, self._place.topics.end_positions(topic))

    def begins(self, topic: str) -> OffsetFrontier:
        """Return where each partition of a topic begins."""
        return frontier(topic, self._place.topics.first_positions(topic))

    # -- release ------------------------------------------------------------------------------------------------------

    def copy(self, held: str, sink: str, first: OffsetFrontier, last: OffsetFrontier) -> OffsetFrontier:
        """See LogsPort."""
        assert self._copier is not None, "an application at rest releases nothing"
        begin = _positions(self.copied(held, sink) | first, self._layout, held)
        end = {p: min(o, begin[p] + RECORDS_AT_ONCE) for p, o in _positions(last, self._layout, held).items()}
        self._copied.pop(held, None)  # until the copy is complete, only the sink has the position
        self._copier(held, sink, {p: min(o, end[p]) for p, o in begin.items()}, end)
        self._copied[held] = frontier(held, {p: max(o, end[p]) for p, o in begin.items()})
        return self._copied[held]

    def copied(self, held: str, sink: str) -> OffsetFrontier:
        """See LogsPort. The stamp of a sink's last record is its position in the held log.

        Raises: LogError: `FOREIGN_WRITER`.
        """
        if held not in self._copied:
            self._copied[held] = frontier(held, self._found(held, sink))
        return self._copied[held]

    def remains(self, held: str, sink: str, released: OffsetFrontier) -> OffsetFrontier:
        """See LogsPort. A topic can't show a loss, because its older records may have expired."""
        return released

    def _found(self, held: str, sink: str) -> Positions:
        known = self._place.home.store.releases(sink)
        found = {r.partition: r.released_exclusive for r in known if r.topic == held}
        for partition, stamp in last_records(self._place, sink, self._settle(sink)):
            found[partition] = max(found.get(partition, 0), stamp.offset + 1)
        return found

    # -- garbage and acknowledgement ----------------------------------------------------------------------------------

    def delete_below(self, topic: str, below: OffsetFrontier) -> None:
        """See LogsPort."""
        if self._deleted.get(topic) != below:
            self._place.topics.delete_below(topic, _positions(below, self._layout, topic))
            self._deleted[topic] = below

    def acknowledge(self, topic: str, upto: OffsetFrontier) -> None:
        """See LogsPort. The positions are committed as offsets of a consumer group that nobody joins."""
        if self._acknowledged.get(topic) == upto:
            return
        try:
            self._place.topics.commit(self.group, topic, _positions(upto, self._layout, topic))
        except LogError as error:
            if error.condition == "BROKER_AWAY":
                raise
            # Only tools that show lag read these offsets. Nothing else depends on them.
            log.warning("the offsets of group %s can't be committed: %s", self.group, error.message)
        self._acknowledged[topic] = upto


def _positions(upto: OffsetFrontier, layout: Layout, topic: str) -> Positions:
    return {e.partition: int(upto.length(e)) for e in layout.sequences(topic)}


class AllLogs:
    """The topics and the logs of epochs of one application, as one LogsPort."""

    def __init__(self, topics: KafkaLogs, epochs: EpochLogs) -> None:
        self._topics, self._epochs = topics, epochs

    def _of(self, log: str) -> KafkaLogs | EpochLogs:
        return self._epochs if is_epoch_log(log) else self._topics

    def ends(self, topic: str) -> OffsetFrontier:
        """See LogsPort."""
        return self._of(topic).ends(topic)

    def begins(self, topic: str) -> OffsetFrontier:
        """Return where each partition of a log begins."""
        return self._of(topic).begins(topic)

    def copy(self, held: str, sink: str, first: OffsetFrontier, last: OffsetFrontier) -> OffsetFrontier:
        """See LogsPort."""
        return self._of(held).copy(held, sink, first, last)

    def copied(self, held: str, sink: str) -> OffsetFrontier:
        """See LogsPort."""
        return self._of(held).copied(held, sink)

    def remains(self, held: str, sink: str, released: OffsetFrontier) -> OffsetFrontier:
        """See LogsPort."""
        return self._of(held).remains(held, sink, released)

    def delete_below(self, topic: str, below: OffsetFrontier) -> None:
        """See LogsPort."""
        self._of(topic).delete_below(topic, below)

    def acknowledge(self, topic: str, upto: OffsetFrontier) -> None:
        """See LogsPort. For files, there is nobody to notify."""
        if not is_file_log(topic):
            self._of(topic).acknowledge(topic, upto)
