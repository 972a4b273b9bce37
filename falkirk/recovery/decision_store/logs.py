"""Logs: stores which records of a topic are void, and how far a held log has been released."""

import sqlalchemy as sql

from falkirk.errors.conditions.decision_store import RANGE_MALFORMED, RELEASE_BACKWARDS
from falkirk.recovery.decision_store.part import Part
from falkirk.recovery.decision_store.tables import decisions, incarnations, releases, voids
from falkirk.recovery.decision_store.values import Release, dump_positions, load_positions
from falkirk.theory.ids import Incarnation, LogId, Offset, Offsets, Positions
from falkirk.theory.offsets import PartitionRange, merged_ranges

#: The kind of decision with the ends of a topic after the last release to it.
_END = "end"


class LogStore(Part):
    """The part of the store for the contents of Kafka."""

    def voided_ranges(self, topic: LogId) -> tuple[PartitionRange, ...]:
        """Return the void ranges of a topic, in order; ranges that overlap or touch are merged."""
        rows = self._rows(
            ("void", topic),
            lambda: sql.select(voids.c.partition, voids.c.first, voids.c.last_exclusive).where(voids.c.topic == topic),
            lambda row: PartitionRange(int(row[0]), Offset(row[1]), Offset(row[2])),
        )
        return tuple(merged_ranges(rows))

    def fences(self, topic: LogId) -> tuple[tuple[Incarnation, Offsets], ...]:
        """Return the ends of a topic at the start of each incarnation of its writer, oldest first."""
        with self._reading() as db:
            query = sql.select(incarnations.c.incarnation, incarnations.c.fence).where(incarnations.c.fence.isnot(None))
            found = [(Incarnation(row.incarnation), load_positions(row.fence)) for row in db.execute(query)]
        return tuple(sorted(((number, ends[topic]) for number, ends in found if topic in ends), key=lambda f: f[0]))

    def record_release(
        self, sink: str, topic: LogId, partition: int, released_exclusive: Offset, *, ends: Positions | None = None
    ) -> None:
        """Record that a held log has been copied to a sink up to this offset.

        Args: ends: the ends of the sink's topics after that: see `ends_after_release`.
        Raises: InternalError: `RELEASE_BACKWARDS`: more is already published, and readers may have seen it.
        """
        same = (releases.c.sink == sink) & (releases.c.topic == topic) & (releases.c.partition == partition)
        with self._writing() as db:
            known = db.execute(sql.select(releases.c.released_exclusive).where(same)).scalar()
            if known is None:
                db.execute(
                    releases.insert().values(
                        sink=sink, topic=topic, partition=partition, released_exclusive=released_exclusive
                    )
                )
            elif released_exclusive < known:
                raise RELEASE_BACKWARDS.error(
                    where=self._database.where,
                    known=known,
                    asked=released_exclusive,
                    sink=sink,
                    topic=topic,
                    partition=partition,
                )
            elif released_exclusive > known:
                db.execute(releases.update().where(same).values(released_exclusive=released_exclusive))
            for name, positions in sorted((ends or {}).items()):
                _record_end(db, name, positions, self._clock())

    def ends_after_release(self, topic: str) -> Offsets:
        """Return where a topic ended after the last release to it, per partition; nothing: not recorded."""
        found = self._rows(
            ("end", topic),
            lambda: sql.select(decisions.c.content).where(_end_of(topic)),
            lambda row: load_positions(row.content)[LogId(topic)],
        )
        return found[0] if found else {}

    def releases(self, sink: str) -> tuple[Release, ...]:
        """Return how far each held log of a sink has been copied to it."""
        with self._reading() as db:
            found = [
                Release(
                    topic=LogId(row.topic),
                    partition=row.partition,
                    released_exclusive=Offset(row.released_exclusive),
                )
                for row in db.execute(sql.select(releases).where(releases.c.sink == sink))
            ]
        return tuple(sorted(found, key=lambda release: (release.topic, release.partition)))


def _end_of(topic: str) -> sql.ColumnElement[bool]:
    return (decisions.c.kind == _END) & (decisions.c.name == topic)


def _record_end(db: sql.Connection, topic: LogId, ends: Offsets, now_s: float) -> None:
    text = dump_positions({topic: ends})
    if db.execute(sql.select(decisions.c.content).where(_end_of(topic))).scalar() != text:
        db.execute(decisions.delete().where(_end_of(topic)))
        db.execute(decisions.insert().values(kind=_END, name=topic, number=0, content=text, made_at_s=now_s))


def record_void(db: sql.Connection, topic: LogId, partition: int, first: Offset, last_exclusive: Offset) -> None:
    """Record a void range in an open transaction, unless it is empty or already recorded.

    Raises: InternalError: `RANGE_MALFORMED`.
    """
    if not 0 <= first <= last_exclusive or partition < 0:
        raise RANGE_MALFORMED.error(topic=topic, partition=partition, first=first, last_exclusive=last_exclusive)
    row = {"topic": topic, "partition": partition, "first": first, "last_exclusive": last_exclusive}
    same = sql.and_(*[voids.c[name] == value for name, value in row.items()])
    if first < last_exclusive and db.execute(sql.select(voids).where(same)).first() is None:
        db.execute(voids.insert().values(**row))
