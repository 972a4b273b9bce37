"""Outputs: reads the topics that a region writes, for its next incarnation.

It finds the position to read from, and the published results that the barrier drops from a replay. Releases of batches
use it for the last records of a home in their topics.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from falkirk.errors import LogError
from falkirk.errors.conditions.spark import (
    SINK_AHEAD,
    SINK_EXPIRED,
    SINK_TRUNCATED,
)
from falkirk.kafka_client.header import stamp_of
from falkirk.kafka_client.ranges import LogRecord, read_range
from falkirk.kafka_client.signing import Foreign, ForeignTally, RejectedHeader, VerifiedHeader, Verifier, explained_by
from falkirk.kafka_client.tail import OwnRecord, OwnRecords, Tail, tail_of
from falkirk.plan.region import RegionLogs
from falkirk.plan.topics import refuse_compacted
from falkirk.platform.traced import step
from falkirk.recovery.decision_store import TailRecord
from falkirk.runtime.spark.context import Context, Storage
from falkirk.runtime.spark.lanes import fenced_incarnations, has_lanes, of_jobs, of_letters
from falkirk.runtime.spark.rows import Barrier, OutputTopic
from falkirk.runtime.spark.settling import settled_ends
from falkirk.theory.ids import BatchId, Incarnation, LogId, Offset, Offsets, Positions
from falkirk.theory.offsets import PartitionRange, merged_ranges, offsets_from_json, offsets_to_json, within
from falkirk.theory.positions import TailPosition, choose_position
from falkirk.theory.stamp import Stamp

log = logging.getLogger("falkirk")

#: The largest number of records of a partition to read at once, when searching for the last record of this home.
_BACK_MAX = 10_000
#: The largest number, when all records of a part are wanted.
_RUN_MAX = 100_000


def last_records(place: Storage, topic: str, ends: Offsets) -> Iterator[tuple[int, Stamp]]:
    """Yield the partition and stamp of this home's last record in each partition of a sink.

    Partitions without a record of this home are omitted. Records of others after it are ignored. The end of the sink at
    this home's first look is a decision: all records before it were written by others.
    Raises: LogError: `FOREIGN_WRITER`, `SINK_TRUNCATED`.
    """
    begin = _beginning(place, topic, ends)
    found, foreign = last_own(place, topic, begin, ends, committed=has_lanes(place, of_jobs(topic)))
    place.note_foreign(topic, foreign)
    for partition, (_, header) in found.items():
        yield partition, stamp_of(header.numbers)
    if isinstance(place, Context):  # a place without a Spark session writes nothing
        place.sign_from(topic, ends)


def _beginning(place: Storage, topic: str, ends: Mapping[int, Offset]) -> Offsets:
    """Return the positions from which a sink may have records of this home. Raises: LogError: `SINK_TRUNCATED`."""
    store, begun = place.home.store, f"beginning of {topic}"
    if store.decision("sink", begun, 0) is None:
        store.record_decision("sink", begun, 0, offsets_to_json(ends))
    decided = store.decision("sink", begun, 0)
    assert decided is not None
    begin = offsets_from_json(decided.content)
    seen = [begin, store.ends_after_release(topic)]
    try:
        refuse_truncated(topic, seen, ends, topic)
    except LogError:  # a command has read `ends` before the running application published more and recorded that
        refuse_truncated(topic, seen, place.topics.end_positions(topic), topic)
    oldest = place.topics.first_positions(topic)
    return within(begin, oldest, ends)


def own_back_to(
    place: Storage, topic: str, ends: Mapping[int, Offset], is_older: Callable[[int, Stamp], bool]
) -> dict[int, list[Stamp]]:
    """Return the stamps of this home's last records in each partition of a sink, in order, after the last older record.

    The last record alone is not enough, because a producer may have given up a record before it.

    Args: is_older: says of a partition and a stamp whether the record is older than the wanted ones.
    """
    verifier, begin, last, step = place.verifier(topic), _beginning(place, topic, ends), dict(ends), 10
    found: dict[int, list[Stamp]] = {p: [] for p in ends}
    committed = has_lanes(place, of_jobs(topic))
    while any(last[p] > begin[p] for p in last):
        first = {p: Offset(max(begin[p], o - step)) for p, o in last.items()}
        behind: dict[int, list[Stamp]] = {p: [] for p in ends}
        reached = set()
        for record in read_range(place.connection, topic, first, last, committed=committed):
            what = verifier.verify_record(record)
            if isinstance(what, RejectedHeader):
                continue
            stamp = stamp_of(what.numbers)
            if is_older(record.partition, stamp):
                reached.add(record.partition)
                behind[record.partition].clear()
            else:
                behind[record.partition].append(stamp)
        found = {p: behind[p] + stamps for p, stamps in found.items()}
        last = {p: begin[p] if p in reached else o for p, o in first.items()}
        step = min(step * 10, _RUN_MAX)
    return found


def last_own(
    place: Storage,
    topic: str,
    begin: Mapping[int, Offset],
    ends: Mapping[int, Offset],
    reach: int | None = None,
    *,
    committed: bool = False,
) -> tuple[dict[int, tuple[LogRecord, VerifiedHeader]], ForeignTally]:
    """Return this home's last record in [begin, ends) of each partition, if any, and later records of others.

    It reads backwards, in growing steps. So a topic without records of others costs one record per partition.
    Args: reach: read no more records per partition than this, or ten times as many; None: all. committed: omit records
        of aborted transactions; `ends` must then be readable.
    """
    verifier = place.verifier(topic)
    found: dict[int, tuple[LogRecord, VerifiedHeader]] = {}
    foreign = ForeignTally()
    last, step, looked = dict(ends), 2 if committed else 1, 0  # the end of a transaction takes an offset
    while any(last[p] > begin[p] for p in last) and (reach is None or looked < reach):
        first = {p: Offset(max(begin[p], o - step)) for p, o in last.items()}
        behind: list[Foreign] = []
        for record in read_range(place.connection, topic, first, last, committed=committed):
            what = verifier.verify_record(record)
            if isinstance(what, RejectedHeader):
                behind.append(Foreign(partition=record.partition, offset=record.offset, reason=what))
            else:
                found[record.partition] = (record, what)
        for each in behind:
            if each.partition not in found or each.offset > found[each.partition][0].offset:
                foreign.add(each)
        last = {p: begin[p] if p in found else o for p, o in first.items()}
        looked, step = looked + step, min(step * 10, _BACK_MAX)
    return found, foreign


def refuse_truncated(
    topic: str, seen: Sequence[Mapping[int, Offset]], ends: Mapping[int, Offset], where: object
) -> None:
    """Check that an output still has all records that it was seen to have.

    Args: seen: positions up to which it had records, per partition. ends: its present ends.
    Raises: LogError: `SINK_TRUNCATED`.
    """
    reached = {p: max((positions.get(p, 0) for positions in seen), default=0) for p in ends}
    lost = {p: (position, ends[p]) for p, position in sorted(reached.items()) if position > ends[p]}
    if lost:
        (partition, (position, end)), *_ = lost.items()
        raise SINK_TRUNCATED.error(
            where=where, topic=topic, truncated=lost, partition=partition, end=end, position=position
        )


def newest_serving(tails: Iterable[TailRecord], restored: BatchId) -> TailRecord:
    """Return the newest recorded position from which a restore of this checkpoint can read. Raises: as `choose`."""
    by_commit = {t.valid_from_commit: t for t in tails}
    return by_commit[
        choose_position([TailPosition(valid_from_commit=v) for v in by_commit], restored).valid_from_commit
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingTail:
    """The results that remain in a topic if a recovery takes others back, as read before.

    Args: restored, ends: of the read. void: the void ranges of the topic once the recovery is recorded.
    """

    restored: BatchId
    ends: Offsets
    void: tuple[PartitionRange, ...]
    tail: Tail


class Outputs:
    """The output topic and the dead letters of one region."""

    def __init__(self, region: RegionLogs, place: Storage) -> None:
        self._region, self._place, self._store = region, place, place.home.store
        self.names = (region.output, region.dead_letters)
        #: By topic, from the decision of a recovery or a comparison until the next incarnation starts.
        self._remaining: dict[LogId, RemainingTail] = {}

    def transactional(self, topic: LogId) -> frozenset[Incarnation]:
        """Return the incarnations that may have written one of them in transactions."""
        found = fenced_incarnations(self._store, self._region.name)
        is_dead = topic == self._region.dead_letters
        return found | fenced_incarnations(self._store, of_letters(self._region.name)) if is_dead else found

    def is_transactional(self, topic: LogId) -> bool:
        """Return whether an incarnation may have written one of them so. Then only committed records count."""
        return bool(self.transactional(topic))

    def topics(self) -> tuple[OutputTopic, OutputTopic]:
        """Return the facts about both topics.

        Raises: LogError: `SINK_COMPACTED`.
        """
        found = []
        for name in self.names:
            facts = self._place.topics.facts(name)
            refuse_compacted(facts, self._region.where)
            found.append(OutputTopic(name=name, partitions=facts.partitions, size_limit_bytes=facts.max_message_bytes))
        return found[0], found[1]

    def settled_ends(self) -> Positions:
        """Return the outputs' ends once they don't move: the position of the fence.

        Raises: LogError: as `settled_ends`, and `SINK_TRUNCATED`: an output ends before a position seen earlier.
        """
        is_any = any(map(self.is_transactional, self.names))
        ends = settled_ends(self._place, self.names, self._region.where, transactional=is_any)
        topic = self._region.output  # people may delete dead letters
        seen = [tail.positions.get(topic, {}) for tail in self._store.tails(self._region.name)]
        seen += [positions for _, positions in self._store.fences(topic)]
        refuse_truncated(topic, seen, ends[topic], self._region.where)
        return ends

    def position(self, restored: BatchId) -> TailRecord:
        """Return the newest recorded position before all results that were sent after a checkpoint."""
        return newest_serving(self._store.tails(self._region.name), restored)

    def tail(self, topic: LogId, ends: Positions, restored: BatchId, *, keep: bool = False) -> Tail:
        """Return the results that were published after a checkpoint, up to `ends`.

        Records of others are ignored.

        Args: keep: do not read them again for the next call.
        Raises: LogError: `SINK_EXPIRED`, `FOREIGN_WRITER`. HomeError: `SINK_AHEAD`: records expired, and those that are
            left show the cause: a newer home has deleted them.
        """
        first = self.position(restored).positions.get(topic, {})
        earliest = self._place.topics.first_positions(topic)
        expired = {p: (o, earliest[p]) for p, o in first.items() if earliest.get(p, 0) > o and ends[topic][p] > o}
        if expired and not self._region.repeats:
            for name in self.names:
                left = self.later_records(name, ends, restored)
                self._refuse_newer(name, max((header.incarnation for _, _, header in left), default=0))
            raise SINK_EXPIRED.error(where=self._region.where, topic=topic, expired=expired)
        known = self._remaining.pop(topic, None)
        # If other ranges are void, the recovery was not carried out.
        present = restored, ends[topic], self._store.voided_ranges(topic)
        if known is None or (known.restored, known.ends, known.void) != present:
            with step("tail", topic=topic):
                tail = tail_of(self.own_records(topic, first, ends[topic]))
            known = RemainingTail(restored=restored, ends=ends[topic], void=present[2], tail=tail)
        if keep:
            self._remaining[topic] = known
        return known.tail

    def later_records(self, topic: LogId, ends: Positions, restored: BatchId) -> Iterator[OwnRecord]:
        """Yield the valid records up to `ends`, at least those after a checkpoint. Raises: as `own_records`."""
        first = self.position(restored).positions.get(topic, {})
        return self.own_records(
            topic, within(first, self._place.topics.first_positions(topic), ends[topic]), ends[topic]
        )

    def split_tail(
        self, topic: LogId, ends: Positions, restored: BatchId, is_beyond: Callable[[VerifiedHeader], bool]
    ) -> list[PartitionRange]:
        """Return the places of the results after a checkpoint that a recovery would take back.

        Keep the other ones for the next incarnation, so that `tail` does not read and verify all records again.

        Args: is_beyond: whether a recovery takes a result back. Raises: LogError: as `own_records`.
        """
        found: list[PartitionRange] = []

        def remaining() -> Iterator[OwnRecord]:
            for partition, offset, header in self.later_records(topic, ends, restored):
                if is_beyond(header):
                    found.append(PartitionRange(partition, offset, Offset(offset + 1)))
                else:
                    yield partition, offset, header

        before = self._store.voided_ranges(topic)
        tail, merged = tail_of(remaining()), merged_ranges(found)
        void = tuple(merged_ranges([*before, *merged]))
        self._remaining[topic] = RemainingTail(restored=restored, ends=ends[topic], void=void, tail=tail)
        return merged

    def own_records(self, topic: LogId, first: Offsets, last: Offsets) -> Iterator[OwnRecord]:
        """Yield this region's valid records in [first, last) of each partition, and note the records of others.

        Raises: LogError: as `read_range`, `FOREIGN_WRITER`.
        """
        own = OwnRecords(self.verifier(topic), self._place.void(topic))
        yield from own.read(self._place.connection, topic, first, last, committed=self.is_transactional(topic))
        self._place.note_foreign(topic, own.foreign)

    def verifier(self, topic: str) -> Verifier:
        """Return the verifier that recognizes this region's records in one of its topics."""
        record, source = self._store.region(self._region.name), self._region.source
        if record is None:
            return self._place.verifier(topic)
        states = record.fingerprint.get("state partitions", "none")
        depth = record.fingerprint["stamp"].count("sub") if "stamp" in record.fingerprint else None
        ends = partial(self._place.topics.end_positions, source)
        return self._place.verifier(topic, explained_by(ends, int(states) if states.isdigit() else 1, depth))

    def refuse_ahead(self, *tails: Tail) -> None:
        """Check that the outputs have no record of an incarnation that this home does not know.

        Raises: HomeError: `SINK_AHEAD`: the home is an older copy. It lacks the void ranges, checkpoints and fences
            recorded since, so Falkirk can't tell which of these records are valid.
        """
        for topic, tail in zip(self.names, tails, strict=True):
            self._refuse_newer(topic, max(tail.incarnations, default=0))

    def _refuse_newer(self, topic: LogId, newest: int) -> None:
        """Check that the home knows the newest incarnation of an output. Raises: HomeError: `SINK_AHEAD`."""
        known = max((row.incarnation for row in self._store.incarnations(self._region.name)), default=0)
        if newest > known:
            raise SINK_AHEAD.error(
                where=self._place.home.path, sink=topic, seen=newest, there=known, region=self._region.name
            )

    def barrier(self, main: Tail, dead: Tail, restored: BatchId) -> Barrier:
        """Return the results that are dropped from a replay after a checkpoint.

        If results do not leave in the order of their stamps, the greatest stamp of a channel does not tell which of
        them are published.
        """
        unsafe = self._store.is_unsafe_since(self._region.name, self.position(restored).incarnation)
        unsafe = unsafe or self._region.reorders
        for tail in (main, dead):
            if tail.regression_count and not unsafe:
                log.warning(
                    "%s: the output has %d repeated stamps, the first is %s",
                    self._region.name, tail.regression_count, tail.regression,
                )  # fmt: skip
        return Barrier(
            main=main.released,
            dead=dead.released,
            unsafe_main=_texts(main) if unsafe else None,
            unsafe_dead=_texts(dead) if unsafe else None,
        )


def _texts(tail: Tail) -> frozenset[str]:
    return frozenset(f"{stamp.encode()}.{channel.state_partition}" for channel, stamp in tail.released_set)
