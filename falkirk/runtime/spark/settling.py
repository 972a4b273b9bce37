"""Settling: finds where topics end, once no record of a former writer can still arrive there."""

from collections.abc import Iterable, Mapping

from falkirk.errors import LogError
from falkirk.errors.conditions.spark import (
    BROKER_AWAY_REPLICAS_LAG,
    SINK_UNSETTLED_ARRIVING,
    SINK_UNSETTLED_TRANSACTION,
)
from falkirk.kafka_client.ranges import read_range
from falkirk.kafka_client.signing import Foreign, ForeignTally, RejectedHeader
from falkirk.runtime.spark.context import Storage
from falkirk.theory.ids import LogId, Offset, Positions
from falkirk.theory.offsets import within

#: The ends must not move for this long before they become the fence.
SETTLE_S = 0.3
#: No record of this home takes longer to arrive. If the ends still move, others write, and a broker may be slow.
SETTLE_MAX_S = 30.0
#: A later attempt with the same topics takes this long.
AGAIN_S = 1.0
#: If a broker takes longer than this to return the ends, it has not recovered yet.
PROMPT_S = 1.0


def look_first(place: Storage, names: Iterable[LogId]) -> None:
    """Note where topics end now, so that all settle during the same `SETTLE_S` instead of one after the other.

    Called once no process of a former run can write to them, and before this process does. A topic that was written in
    transactions has to be fenced first, so `settled_ends` ignores this look at it.
    """
    for name in names:
        try:
            ends = place.topics.end_positions(name)
        except LogError:  # the fence reports it, for the processors that need this topic
            return
        place.first_looks[name] = place.clock.monotonic(), ends


def settled_ends(place: Storage, names: tuple[LogId, ...], where: object, *, transactional: bool = False) -> Positions:
    """Return topics' ends once they don't move, the broker answers promptly, and every leader's log ends there.

    A broker that hung has requests of a killed writer in its sockets, and appends their records when it resumes. A
    leader with a lagging follower holds records of a killed writer, which become visible once the follower has them or
    is dropped. Records of others may keep arriving.

    Args: transactional: this home writes the topics in transactions, and has fenced its writers. Then the ends are
        settled once readers of committed records can read up to them.
    Raises: LogError: `SINK_UNSETTLED`: records of this home keep arriving, or records of others keep arriving in a
        topic with followers, where they hide the end of a leader's log, or a transaction stays open. The next attempt
        takes a second, since no record of this home can be on its way for so long. `BROKER_AWAY` (maybe): replicas lag.
    """
    began_s = place.unsettled.setdefault(names, place.clock.monotonic())
    ends = _settled(place, names, where, transactional=transactional, patient_until_s=_patient_until_s(place, began_s))
    del place.unsettled[names]
    return ends


def _patient_until_s(place: Storage, began_s: float) -> float:
    return max(began_s + SETTLE_MAX_S, place.clock.monotonic() + AGAIN_S)


def _settled(
    place: Storage, names: tuple[LogId, ...], where: object, *, transactional: bool, patient_until_s: float
) -> Positions:
    topics = place.topics
    lagging: frozenset[tuple[LogId, int]] = frozenset()
    looks = {name: place.first_looks.pop(name) for name in names if name in place.first_looks}
    before: Positions = {}
    if looks.keys() == {*names} and not transactional:
        before = {name: ends for name, (_, ends) in looks.items()}
        place.clock.sleep(max(0.0, max(at_s for at_s, _ in looks.values()) + SETTLE_S - place.clock.monotonic()))
    while True:
        asked_at_s = place.clock.monotonic()
        ends = {name: topics.end_positions(name) for name in names}
        patient = asked_at_s < patient_until_s
        if ends == before and (place.clock.monotonic() - asked_at_s < PROMPT_S or not patient):
            lagging = topics.unreplicated(ends)
            hidden = _hidden(place, ends) if transactional else {}
            if not lagging and not hidden:
                return ends
            if not patient and not lagging:
                raise _transaction_open(hidden)
        if not patient:
            lagging = lagging or topics.unreplicated({t: o for t, o in ends.items() if o == before.get(t)})
            if lagging:
                raise _replicas_lag(lagging, ends)
            _refuse_own_moving(place, before, ends, where)
            return ends
        before = ends
        place.clock.sleep(SETTLE_S)


def _refuse_own_moving(place: Storage, before: Positions, ends: Positions, where: object) -> None:
    """Check that others write the arriving records, and that these hide none of this home.

    Raises: LogError: `SINK_UNSETTLED`.
    """
    for topic in (t for t in ends if ends[t] != before.get(t)):
        verifier, oldest = place.verifier(topic), place.topics.first_positions(topic)
        foreign, first = ForeignTally(), within(before.get(topic, {}), oldest, ends[topic])
        for record in read_range(place.connection, topic, first, ends[topic]):
            found = verifier.verify_record(record)
            if not isinstance(found, RejectedHeader):
                raise _moving(topic, record.partition, record.offset, "a record of this home", where)
            foreign.add(Foreign(partition=record.partition, offset=record.offset, reason=found))
        place.note_foreign(topic, foreign)
        if foreign.first is not None and place.topics.has_followers(topic):
            raise _moving(topic, foreign.first.partition, foreign.first.offset, foreign.first.reason.text, where)


def _moving(topic: LogId, partition: int, offset: Offset, reason: str, where: object) -> LogError:
    return SINK_UNSETTLED_ARRIVING.error(where=where, topic=topic, partition=partition, offset=offset, reason=reason)


def _hidden(place: Storage, ends: Positions) -> Positions:
    """Return where open transactions hide records from readers of committed ones, by topic and partition."""
    readable = {topic: place.topics.readable_positions(topic) for topic in ends}
    return {
        topic: hidden
        for topic, found in readable.items()
        if (hidden := {p: o for p, o in found.items() if o < ends[topic].get(p, 0)})
    }


def _transaction_open(hidden: Mapping[LogId, Mapping[int, Offset]]) -> LogError:
    topic = min(hidden)
    partition, position = min(hidden[topic].items())
    return SINK_UNSETTLED_TRANSACTION.error(
        where=f"topic {topic}", topic=topic, code="TRANSACTION_OPEN", position=position, partition=partition
    )


def _replicas_lag(lagging: frozenset[tuple[LogId, int]], ends: Positions) -> LogError:
    topic, _ = min(lagging)
    behind = {p: ends[topic][p] for name, p in sorted(lagging) if name == topic}
    places = ", ".join(f"{p} at {end}" for p, end in behind.items())
    return BROKER_AWAY_REPLICAS_LAG.error(
        where=f"topic {topic}", topic=topic, code="REPLICAS_LAG", behind=behind, places=places
    )
