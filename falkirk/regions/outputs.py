"""Outputs: what is in the topics that a region writes, as the next incarnation needs to know it.

Where they end once nothing of a former incarnation can still arrive, from where they must be read, and what of them the
barrier keeps back.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence

from falkirk.coordinator.store import Positions, TailRecord
from falkirk.errors import LogError
from falkirk.logs.ranges import read_range
from falkirk.logs.tail import Tail, read_tail
from falkirk.logs.topics import Topics
from falkirk.plan.region import RegionLogs
from falkirk.plan.topics import refuse_compacted
from falkirk.regions.context import Place
from falkirk.regions.rows import Barrier, OutputTopic
from falkirk.theory.positions import TailPosition, choose
from falkirk.theory.stamp import Stamp

log = logging.getLogger("falkirk")

#: The ends must stand still for this long before they count as the fence.
SETTLE_S = 0.3
#: Nothing of ours takes longer to arrive: what still moves the ends is somebody else's, and a broker is slow by nature.
SETTLE_MAX_S = 30.0
#: A broker that takes longer than this to tell them is not yet itself again.
PROMPT_S = 1.0


def settled_ends(topics: Topics, names: tuple[str, ...], where: object) -> Positions:
    """Return topics' ends once they stand still and the broker answers at once.

    A broker that hung has requests of a killed writer in its sockets and appends them when it goes on.

    Raises: LogError: `FOREIGN_WRITER`: they don't stand still.
    """
    before: Positions = {}
    began_s = time.monotonic()
    while True:
        asked_at_s = time.monotonic()
        ends = {name: topics.end_positions(name) for name in names}
        patient = asked_at_s - began_s < SETTLE_MAX_S
        if ends == before and (time.monotonic() - asked_at_s < PROMPT_S or not patient):
            return ends
        if not patient:
            moving = [name for name in names if ends[name] != before.get(name)]
            raise LogError(
                "FOREIGN_WRITER",
                f"records keep arriving in {', '.join(moving)} although this home has no writer left.",
                where=where,
                hint="An output topic has one writer: give the sink its own topic.",
                topic=moving[0],
            )
        before = ends
        time.sleep(SETTLE_S)


def last_records(place: Place, topic: str, ends: dict[int, int]) -> Iterator[tuple[int, Stamp]]:
    """Yield the partition and stamp of the last record of each partition of a sink that something is copied to, if this
    home has written there.

    Where the sink ended when the home first looked at it is a decision: what lies before is somebody else's.
    Raises: LogError: `FOREIGN_WRITER`.
    """
    store, begun = place.home.store, f"beginning of {topic}"
    if store.decision("sink", begun, 0) is None:
        store.record_decision("sink", begun, 0, {str(p): o for p, o in ends.items()})
    decided = store.decision("sink", begun, 0)
    assert decided is not None
    oldest = place.topics.first_positions(topic)
    first = {p: max(o - 1, oldest[p], int(decided.content.get(str(p), 0))) for p, o in ends.items()}
    first = {p: min(o, ends[p]) for p, o in first.items()}
    for record in read_range(place.connection, topic, first, ends):
        if record.header is None or record.header.application != place.home.identity:
            raise foreign_writer(topic, topic, [(record.partition, record.offset)])
        yield record.partition, record.header.stamp


def foreign_writer(topic: str, where: object, places: Sequence[tuple[int, int]], count: int = 1) -> LogError:
    """Return the error that records of an output, at (partition, offset), are somebody else's."""
    return LogError(
        "FOREIGN_WRITER",
        f"{count} records of {topic!r} were not written by this home.",
        where=where,
        hint="An output topic has one writer: give the sink its own topic, or use the home that wrote this.",
        topic=topic,
        positions=tuple(places),
    )


def newest_serving(tails: Iterable[TailRecord], restored: int) -> TailRecord:
    """Return the newest recorded position that serves a restore to this checkpoint. Raises: as `choose`."""
    by_commit = {t.valid_from_commit: t for t in tails}
    return by_commit[choose([TailPosition(valid_from_commit=v) for v in by_commit], restored).valid_from_commit]


class Outputs:
    """The output topic and the dead letters of one region."""

    def __init__(self, region: RegionLogs, place: Place) -> None:
        self._region, self._place, self._store = region, place, place.home.store
        self.names = (region.output, region.dead_letters)

    def topics(self) -> tuple[OutputTopic, OutputTopic]:
        """Return the facts of both topics.

        Raises: LogError: `OUTPUT_COMPACTED`.
        """
        found = []
        for name in self.names:
            facts = self._place.topics.facts(name)
            refuse_compacted(facts, self._region.where)
            found.append(OutputTopic(name=name, partitions=facts.partitions, size_limit_bytes=facts.max_message_bytes))
        return found[0], found[1]

    def settled_ends(self) -> Positions:
        """Return the outputs' ends once they stand still: the fence's position. Raises: as `settled_ends`."""
        return settled_ends(self._place.topics, self.names, self._region.where)

    def position(self, restored: int) -> TailRecord:
        """Return the newest position from which all is read that was sent since a checkpoint."""
        return newest_serving(self._store.tails(self._region.name), restored)

    def tail(self, topic: str, ends: Positions, restored: int) -> Tail:
        """Return what was released since a checkpoint, up to `ends`.

        Raises: LogError: `OUTPUT_EXPIRED`, `FOREIGN_WRITER`.
        """
        first = self.position(restored).positions.get(topic, {})
        earliest = self._place.topics.first_positions(topic)
        expired = {p: (o, earliest[p]) for p, o in first.items() if earliest.get(p, 0) > o and ends[topic][p] > o}
        if expired and not self._region.repeats:
            raise LogError(
                "OUTPUT_EXPIRED",
                f"records of {topic!r} released since the checkpoint have expired, so what is out can't be known.",
                where=self._region.where,
                hint="Retention must outlast the checkpoint interval and any downtime. Begin with a new home.",
                topic=topic,
                expired=expired,
            )
        void = [(v.partition, v.first, v.last_exclusive) for v in self._store.voided_ranges(topic)]
        tail = read_tail(
            self._place.connection, topic, first, ends[topic], self._place.home.identity,
            keep_set=True, void=void,
        )  # fmt: skip
        if tail.foreign and not self._region.repeats:
            raise foreign_writer(topic, self._region.where, tail.foreign, tail.foreign_count)
        return tail

    def barrier(self, main: Tail, dead: Tail, restored: int) -> Barrier:
        """Return what is kept back of a replay from a checkpoint on."""
        unsafe = self._store.is_unsafe_since(self._region.name, self.position(restored).incarnation)
        for tail in (main, dead):
            if tail.regressions and not unsafe:
                log.warning("%s: the output holds a repeated stamp: %s", self._region.name, tail.regressions[0])
        return Barrier(
            main=main.released,
            dead=dead.released,
            unsafe_main=_texts(main) if unsafe else None,
            unsafe_dead=_texts(dead) if unsafe else None,
        )


def _texts(tail: Tail) -> frozenset[str]:
    return frozenset(f"{stamp.encode()}.{channel.state_partition}" for channel, stamp in tail.released_set or ())
