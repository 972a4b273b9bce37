"""Logs: the topics of an application in Kafka, as the LogsPort of the recovery protocol.

If the broker does not answer, every call raises LogError `BROKER_AWAY`, and the caller retries. So an unreachable
broker is never mistaken for a missing topic.
"""

import logging
from collections.abc import Callable

from falkirk.errors import LogError
from falkirk.kafka_client.ranges import read_range
from falkirk.kafka_client.signing import RejectedHeader
from falkirk.recovery.protocol.layout import Layout
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.outputs import last_records, own_back_to
from falkirk.runtime.spark.sinks.epoch_logs import EpochLogs
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import LogId, LogKind, Offset, Offsets, Positions, cluster_of

log = logging.getLogger("falkirk")

Copier = Callable[[LogId, str, Offsets, Offsets], None]
"""Copies [first, last) of a held log to the end of a sink: (held, sink, first, last). Returns once all is copied.
If it raises, some of the records may be copied, in order."""
#: The largest number of records per partition to copy at once, because the copying thread also checks the regions.
RECORDS_AT_ONCE = 200_000


class KafkaLogs:
    """The logs of one application.

    Args:
        settle: returns where a sink ends, once no record of an earlier copy can still arrive there.
        copier: see `Copier`.
    """

    def __init__(
        self, layout: Layout, place: Storage, settle: Callable[[str], Offsets], copier: Copier | None = None
    ) -> None:
        self._layout, self._place, self._settle, self._copier = layout, place, settle, copier
        self._copied: dict[LogId, OffsetFrontier] = {}
        #: For each held log, the offsets that an earlier copy has left out, by partition.
        self._holes: dict[LogId, dict[int, list[Offset]]] = {}
        self._deleted: dict[LogId, OffsetFrontier] = {}
        self._acknowledged: dict[LogId, OffsetFrontier] = {}
        self.group = f"falkirk.{place.home.application}"

    def ends(self, topic: LogId) -> OffsetFrontier:
        """See LogsPort."""
        return OffsetFrontier.before({topic: self._place.topics.end_positions(topic)})

    def begins(self, topic: LogId) -> OffsetFrontier:
        """Return where each partition of a topic begins."""
        return OffsetFrontier.before({topic: self._place.topics.first_positions(topic)})

    # -- release ------------------------------------------------------------------------------------------------------

    def copy(self, held: LogId, sink: str, first: OffsetFrontier, last: OffsetFrontier) -> OffsetFrontier:
        """See LogsPort."""
        assert self._copier is not None, "an application at rest releases nothing"
        begin = _positions(self.copied(held, sink) | first, self._layout, held)
        self._fill(held, sink, begin)
        end = {p: min(o, Offset(begin[p] + RECORDS_AT_ONCE)) for p, o in _positions(last, self._layout, held).items()}
        self._copied.pop(held, None)  # until the copy is complete, only the sink has the position
        self._copier(held, sink, {p: min(o, end[p]) for p, o in begin.items()}, end)
        self._copied[held] = OffsetFrontier.before({held: {p: max(o, end[p]) for p, o in begin.items()}})
        return self._copied[held]

    def _fill(self, held: LogId, sink: str, at: Offsets) -> None:
        """Copy the records that an earlier copy has left out, because its producer gave up some and sent later ones."""
        assert self._copier is not None, "an application at rest releases nothing"
        holes = self._holes.get(held, {})
        if any(holes.values()):
            count = sum(map(len, holes.values()))
            log.warning("%r lacks %d results between published ones; Falkirk publishes them now", sink, count)
            self._copied.pop(held, None)
        while any(holes.values()):
            first = dict(at) | {p: offsets[0] for p, offsets in holes.items() if offsets}
            length = min(_run(offsets) for offsets in holes.values() if offsets)
            last = dict(at) | {p: Offset(first[p] + length) for p, offsets in holes.items() if offsets}
            self._copier(held, sink, first, last)
            holes = {p: offsets[length:] for p, offsets in holes.items()}
        self._holes.pop(held, None)

    def copied(self, held: LogId, sink: str) -> OffsetFrontier:
        """See LogsPort. The stamp of a sink's record is its position in the held log.

        Raises: LogError: `FOREIGN_WRITER`.
        """
        if held not in self._copied:
            self._copied[held] = OffsetFrontier.before({held: self._found(held, sink)})
        return self._copied[held]

    def sink_ends(self, held: LogId, sink: str) -> Positions:
        """See LogsPort."""
        return {LogId(sink): self._place.topics.end_positions(sink)}

    def remains(self, held: LogId, sink: str, released: OffsetFrontier) -> OffsetFrontier:
        """See LogsPort. A topic that has lost results is refused when it is read: see `outputs.last_records`."""
        return released

    def _found(self, held: LogId, sink: str) -> Offsets:
        known = self._place.home.store.releases(sink)
        released = {r.partition: r.released_exclusive for r in known if r.topic == held}
        ends = self._settle(sink)
        last = {p: stamp.offset for p, stamp in last_records(self._place, sink, ends)}
        if all(offset < released.get(p, 0) for p, offset in last.items()):
            return released  # no copy was interrupted
        return self._look_back(held, sink, ends, released)

    def _look_back(self, held: LogId, sink: str, ends: Offsets, released: Offsets) -> Offsets:
        """Return how far an interrupted copy has come, and remember the records that it has left out."""
        own = own_back_to(self._place, sink, ends, lambda p, stamp: stamp.offset < released.get(p, 0))
        there = {p: {stamp.offset for stamp in stamps} for p, stamps in own.items() if stamps}
        oldest = self._place.topics.first_positions(held)
        first = {p: max(released.get(p, Offset(0)), oldest[p]) for p in there}
        last = {p: Offset(max(first[p], *offsets) + 1) for p, offsets in there.items()}
        if self._copier is None:  # a command; a running application may delete these records of the held log meanwhile
            return released | last
        void, verifier = self._place.void(held), self._place.verifier(held)
        holes: dict[int, list[Offset]] = {p: [] for p in there}
        for record in read_range(self._place.connection, held, first, last):
            found = verifier.verify_record(record)
            incarnation = None if isinstance(found, RejectedHeader) else found.incarnation
            if record.offset not in there[record.partition] and not void.has(
                record.partition, record.offset, incarnation
            ):
                holes[record.partition].append(record.offset)
        self._holes[held] = holes
        return released | last

    # -- garbage and acknowledgement ----------------------------------------------------------------------------------

    def delete_below(self, topic: LogId, below: OffsetFrontier) -> None:
        """See LogsPort."""
        if self._deleted.get(topic) != below:
            self._place.topics.delete_below(topic, _positions(below, self._layout, topic))
            self._deleted[topic] = below

    def acknowledge(self, topic: LogId, upto: OffsetFrontier) -> None:
        """See LogsPort. The positions are committed as offsets of a consumer group that nobody joins."""
        if self._acknowledged.get(topic) == upto or cluster_of(topic):  # on another cluster, Falkirk only reads
            return
        try:
            self._place.topics.commit(self.group, topic, _positions(upto, self._layout, topic))
        except LogError as error:
            if error.condition == "BROKER_AWAY":
                raise
            # Only tools that show lag read these offsets. Nothing else depends on them.
            log.warning("the offsets of group %s can't be committed: %s", self.group, error.message)
        self._acknowledged[topic] = upto


def _run(offsets: list[Offset]) -> int:
    """Return how many offsets follow one another, from the first on."""
    return next((i for i, offset in enumerate(offsets) if offset != offsets[0] + i), len(offsets))


def _positions(upto: OffsetFrontier, layout: Layout, topic: LogId) -> Offsets:
    return {e.partition: Offset(int(upto.length(e))) for e in layout.sequences(topic)}


class AllLogs:
    """The topics and the logs of epochs of one application, as one LogsPort."""

    def __init__(self, topics: KafkaLogs, epochs: EpochLogs) -> None:
        self._topics, self._epochs = topics, epochs

    def _of(self, log: LogId) -> KafkaLogs | EpochLogs:
        return self._epochs if log.kind is LogKind.EPOCHS else self._topics

    def ends(self, topic: LogId) -> OffsetFrontier:
        """See LogsPort."""
        return self._of(topic).ends(topic)

    def begins(self, topic: LogId) -> OffsetFrontier:
        """Return where each partition of a log begins."""
        return self._of(topic).begins(topic)

    def copy(self, held: LogId, sink: str, first: OffsetFrontier, last: OffsetFrontier) -> OffsetFrontier:
        """See LogsPort."""
        return self._of(held).copy(held, sink, first, last)

    def copied(self, held: LogId, sink: str) -> OffsetFrontier:
        """See LogsPort."""
        return self._of(held).copied(held, sink)

    def sink_ends(self, held: LogId, sink: str) -> Positions:
        """See LogsPort."""
        return self._of(held).sink_ends(held, sink)

    def remains(self, held: LogId, sink: str, released: OffsetFrontier) -> OffsetFrontier:
        """See LogsPort."""
        return self._of(held).remains(held, sink, released)

    def delete_below(self, topic: LogId, below: OffsetFrontier) -> None:
        """See LogsPort."""
        self._of(topic).delete_below(topic, below)

    def acknowledge(self, topic: LogId, upto: OffsetFrontier) -> None:
        """See LogsPort. For files, there is nobody to notify."""
        if topic.kind is not LogKind.FILES:
            self._of(topic).acknowledge(topic, upto)
