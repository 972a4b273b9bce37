"""Made of, inputs: the records of a region's sources that may have made a result, and which of them came before it.

Each log is read by its own client, not by Spark, so the number of records is limited and the rights are those of other
commands. A log between two regions loses its records soon. So its rows come from the region that writes it. Their order
is that of the records that are left in the log: the next region got them so.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from falkirk.checker.timed import Place
from falkirk.declare.nodes import SourceNode
from falkirk.errors import LogError
from falkirk.kafka_client.signing import VerifiedHeader
from falkirk.plan.region import Region
from falkirk.recovery.decision_store import Store
from falkirk.steps.sources.topics import kafka_schema
from falkirk.theory.ids import LogId, Offset, Offsets
from falkirk.user_tools.commands.records import FoundRecord, RecordPlace, TopicRecords

#: The newest records of a source that have at most so many bytes are read: all are in memory here and in Spark.
READ_BYTES_MAX = 128 << 20
#: Spark has no timestamps beyond these, in milliseconds.
_TIME_MAX_MS = (1 << 63) // 1_000 - 1
#: So many records of a log between regions are read at once, for their stamps.
_TOGETHER = 1_000
#: The numbers of a stamp that name its record: source, partition, offset.
_OF_RECORD = 3


class NotRecomputed(Exception):
    """The records that made a result can't be found by computing it again. The text says why."""


@dataclass(kw_only=True)
class Unread:
    """The records that are not among the inputs. Attributes: deleted: from their topics. skipped: by the limit."""

    deleted: int = 0
    skipped: int = 0


@dataclass(kw_only=True)
class RegionInputs:
    """The records that may have made a result of a region.

    Args: path: the region, and those that write the logs between it and the topics of users. hops: the latter by their
        logs. look: at most this many records of each partition are read.
    Attributes: looked_at: the number of records that were read. unread: the others.
    """

    region: Region
    path: Sequence[Region]
    hops: Mapping[str, Region]
    result: FoundRecord
    records: TopicRecords
    store: Store
    session: SparkSession
    look: int
    needs_all_partitions: bool = False
    looked_at: int = 0
    unread: Unread = field(default_factory=Unread)
    _found: dict[tuple[str, int, int], FoundRecord] = field(default_factory=dict)

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, source: SourceNode) -> DataFrame:
        """Return the records of a source with the columns of Spark's reader."""
        if source.topic.reads_headers:
            raise NotRecomputed(f"{source.topic.topic} has headers as a column, which this command does not read")
        first, last = self._range(source)
        read = self._forward(source.topic.log, first, last)
        kept = (
            each for each in read
            if not each.is_void and (not source.is_hop or isinstance(each.writer, VerifiedHeader))
        )  # fmt: skip
        found = self._newest(kept, READ_BYTES_MAX // max(1, len(last)))
        self.looked_at += len(found)
        self._found |= {(source.topic.topic, each.at.partition, each.at.offset): each for each in found}
        return self._frame(found)

    def _newest(self, records: Iterable[FoundRecord], most_bytes: int) -> list[FoundRecord]:
        """Return the newest records of each partition that have at most so many bytes together. Count the others."""
        kept, sizes = defaultdict[int, deque[FoundRecord]](deque), defaultdict[int, int](int)
        for each in records:
            partition = each.at.partition
            kept[partition].append(each)
            sizes[partition] += _size(each)
            while sizes[partition] > most_bytes and len(kept[partition]) > 1:
                sizes[partition] -= _size(kept[partition].popleft())
                self.unread.skipped += 1
        return [each for several in kept.values() for each in several]

    def _forward(self, log: LogId, first: Offsets, last: Offsets) -> Iterator[FoundRecord]:
        try:
            yield from self.records.forward(log, first, last)
        except LogError as error:
            if error.condition != "TOPIC_MISSING":
                raise

    def _range(self, source: SourceNode) -> tuple[Offsets, Offsets]:
        """Return the offsets [first, last) of each partition. Those before them count as unread."""
        log = source.topic.log
        begins, ends = self.records.bounds(log)
        started = self._started(log)
        own = self._direct_cause
        first, last = dict[int, Offset](), dict[int, Offset]()
        for p, end in ends.items():
            if own is not None and own[0].topic.topic == source.topic.topic:
                if p == own[1]:
                    end = min(end, Offset(own[2] + 1))
                elif not self.needs_all_partitions:
                    continue
            begin = max(begins.get(p, Offset(0)), started.get(p, Offset(0)))
            first[p], last[p] = max(begin, Offset(end - self.look)), max(begin, end)
            self.unread.deleted += max(0, min(begin, end) - started.get(p, Offset(0)))
            self.unread.skipped += max(0, first[p] - begin)
        return first, last

    def _started(self, log: LogId) -> Offsets:
        """Return where the reader of a log began."""
        for region in self.path:
            record = self.store.region(region.name)
            if record is not None and log in record.start_offsets:
                return record.start_offsets[log]
        return {}

    def _frame(self, found: Sequence[FoundRecord]) -> DataFrame:
        columns = kafka_schema()
        raw = [each.record for each in found]
        times = [max(-_TIME_MAX_MS, min(r.timestamp_ms, _TIME_MAX_MS)) * 1_000 for r in raw]
        table = pa.table({
            "key": pa.array([r.key for r in raw], pa.binary()), "value": pa.array([r.value for r in raw], pa.binary()),
            "topic": pa.array([str(each.at.topic) for each in found], pa.string()),
            "partition": pa.array([r.partition for r in raw], pa.int32()),
            "offset": pa.array([r.offset for r in raw], pa.int64()),
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * len(raw), pa.int32()),
        })  # fmt: skip
        return self.session.createDataFrame(table).to(columns)

    # -- places -------------------------------------------------------------------------------------------------------

    @cached_property
    def _numbers(self) -> Place:
        assert isinstance(self.result.writer, VerifiedHeader), "a result of this home"
        return tuple(self.result.writer.numbers)

    @property
    def direct_source(self) -> SourceNode:
        """The log of the region that has the cause of the result."""
        return self.region.sources[self._numbers[0]]

    @property
    def _direct_cause(self) -> tuple[SourceNode, int, Offset] | None:
        """The cause, if its log is read itself."""
        source, (_, partition, offset, *_) = self.direct_source, self._numbers
        return None if source.topic.topic in self.hops else (source, partition, Offset(offset))

    def cause(self, topics: Sequence[str]) -> Place | None:
        """Return the stamp of the row that caused the result, as far as its log is still there.

        Args: topics: as the evaluation numbers them.
        """
        return self._resolved(self.region, [self._numbers], topics).get(self._numbers)

    def _resolved(self, region: Region, stamps: Collection[Place], topics: Sequence[str]) -> dict[Place, Place]:
        """Return stamps of a region as those of the topics that are read, as far as the logs between are still there.

        The records of a log are read together: there may be thousands.
        """
        found, through = dict[Place, Place](), defaultdict[str, dict[RecordPlace, list[Place]]](dict)
        for stamp in stamps:
            source, partition, offset, *subs = stamp
            topic = region.sources[source].topic
            if topic.topic not in self.hops:
                found[stamp] = (topics.index(topic.topic), partition, offset, *subs)
            else:
                at = RecordPlace(topic=topic.log, partition=partition, offset=Offset(offset))
                through[topic.topic].setdefault(at, []).append(stamp)
        for name, places in through.items():
            causes = self._causes(sorted(places))
            before = self._resolved(self.hops[name], {*causes.values()}, topics)
            for at, cause in causes.items():
                if cause in before:
                    found |= {stamp: (*before[cause], *stamp[_OF_RECORD:]) for stamp in places[at]}
        return found

    def _causes(self, places: Sequence[RecordPlace]) -> dict[RecordPlace, Place]:
        """Return the stamps of records, as far as they are still there."""
        found = dict[RecordPlace, Place]()
        for begin in range(0, len(places), _TOGETHER):
            records = self.records.get(places[begin : begin + _TOGETHER])
            found |= {
                at: tuple(record.writer.numbers) for at, record in records.items()
                if isinstance(record, FoundRecord) and isinstance(record.writer, VerifiedHeader)
            }  # fmt: skip
        return found

    def at(self, stamp: Place, topics: Sequence[str]) -> FoundRecord:
        """Return the record of a stamp."""
        return self._found[topics[stamp[0]], stamp[1], stamp[2]]

    # -- order --------------------------------------------------------------------------------------------------------

    def before(self, stamps: Iterable[Place], topics: Sequence[str]) -> list[Place]:
        """Return the stamps of the rows that the region had when it gave the result, oldest first.

        In a log, offsets decide. Rows of other logs, whose order nobody has recorded, are compared by timestamps.
        """
        if self.direct_source.topic.topic in self.hops:
            return self._through_hop(list(stamps), topics)
        cause, until = self.cause(topics), self.result.record.timestamp_ms
        assert cause is not None, "its log is read itself"

        def is_before(stamp: Place) -> bool:
            if stamp[:2] == cause[:2]:
                return stamp <= cause[: len(stamp)]
            return self.at(stamp, topics).record.timestamp_ms <= until

        found = [stamp for stamp in stamps if is_before(stamp)]
        if len({stamp[:2] for stamp in found}) == 1:
            return sorted(found)
        # The row of the cause is the last one, whatever its timestamp is.
        return sorted(
            found,
            key=lambda s: (s == cause[: len(s)], self.at(s, topics).record.timestamp_ms, s),
        )

    def _through_hop(self, stamps: list[Place], topics: Sequence[str]) -> list[Place]:
        _, partition, offset, *_ = self._numbers
        places, depth = self._places_in_hop(partition, topics)
        lows: dict[Place, Place] = {}
        for stamp in places:
            lows[stamp[:2]] = min(stamp, lows.get(stamp[:2], stamp))
        found: list[tuple[int, int, Place]] = []
        for stamp in stamps:
            mine = stamp[:depth]
            if mine in places:
                if places[mine] <= offset:
                    found.append((places[mine], 0, stamp))
                continue
            time = self.at(stamp, topics).record.timestamp_ms
            # Otherwise the hop has no record of this partition any more, or not yet.
            is_known, is_early = mine[:2] in lows, time <= self.result.record.timestamp_ms
            was_deleted = mine < lows[mine[:2]] if is_known else is_early
            if was_deleted:
                found.append((-1, time, stamp))
        return [stamp for _, _, stamp in sorted(found)]

    def _places_in_hop(self, partition: int, topics: Sequence[str]) -> tuple[dict[Place, int], int]:
        """Return the offsets in a partition of the hop by stamps, and how many numbers such a stamp has."""
        topic = self.direct_source.topic
        writer, offset = self.hops[topic.topic], self._numbers[2]
        begin, end = (bounds.get(partition, Offset(0)) for bounds in self.records.bounds(topic.log))
        first, last = max(begin, Offset(offset - self.look)), min(end, Offset(offset + self.look))
        offsets = {
            tuple(each.writer.numbers): each.at.offset
            for each in self._forward(topic.log, {partition: first}, {partition: last})
            if not each.is_void and isinstance(each.writer, VerifiedHeader)
        }
        found = {stamp: int(offsets[own]) for own, stamp in self._resolved(writer, offsets, topics).items()}
        return found, max(map(len, found), default=_OF_RECORD)


def _size(found: FoundRecord) -> int:
    return len(found.record.key or b"") + len(found.record.value or b"")
