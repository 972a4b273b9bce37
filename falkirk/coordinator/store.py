"""Store: the decisions of an application, written before they are used, in SQLite inside its home.

What Spark records itself (offsets, commits, state) is not repeated here. Here is what recovery needs beyond it:
incarnations and their fences, positions from which an output's tail may be read, skipped input, voided records, and
what each region's checkpoint rests on.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sql
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from falkirk.errors import StoreError

#: Version of the tables below. A home with another one is refused.
SCHEMA_VERSION = 1

_tables = sql.MetaData()
_meta = sql.Table("meta", _tables, sql.Column("name", sql.String, primary_key=True), sql.Column("value", sql.String))
_regions = sql.Table(
    "regions",
    _tables,
    sql.Column("region", sql.String, primary_key=True),
    sql.Column("fingerprint", sql.String, nullable=False),
    sql.Column("start_offsets", sql.String, nullable=False),
    sql.Column("partitions", sql.String, nullable=False),
)
_incarnations = sql.Table(
    "incarnations",
    _tables,
    sql.Column("region", sql.String, primary_key=True),
    sql.Column("incarnation", sql.Integer, primary_key=True),
    sql.Column("opened_at_s", sql.Float, nullable=False),
    sql.Column("restored_batch", sql.Integer, nullable=False),
    sql.Column("fence", sql.String),
    sql.Column("replayed_from", sql.String),
    sql.Column("suppressible", sql.Integer, nullable=False, default=0),
    sql.Column("unsafe", sql.Boolean, nullable=False, default=False),
    sql.Column("ended", sql.String),
)
_tails = sql.Table(
    "tail_positions",
    _tables,
    sql.Column("region", sql.String, primary_key=True),
    sql.Column("valid_from_commit", sql.Integer, primary_key=True),
    sql.Column("incarnation", sql.Integer, nullable=False),
    sql.Column("positions", sql.String, nullable=False),
)
_skips = sql.Table(
    "skipped_input",
    _tables,
    sql.Column("region", sql.String, primary_key=True),
    sql.Column("partition", sql.Integer, primary_key=True),
    sql.Column("first", sql.Integer, primary_key=True),
    sql.Column("last_exclusive", sql.Integer, nullable=False),
)
_voids = sql.Table(
    "voided",
    _tables,
    sql.Column("topic", sql.String, primary_key=True),
    sql.Column("partition", sql.Integer, primary_key=True),
    sql.Column("offset", sql.Integer, primary_key=True),
)

Positions = dict[str, dict[int, int]]
"""End positions per topic and partition: the offset that the next record will get."""


def _dump(positions: Mapping[str, Mapping[int, int]]) -> str:
    return json.dumps({topic: {str(p): o for p, o in sorted(ps.items())} for topic, ps in sorted(positions.items())})


def _load(text: str) -> Positions:
    return {topic: {int(p): o for p, o in ps.items()} for topic, ps in json.loads(text).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionRecord:
    """What a region's checkpoint rests on: its fingerprint, where it began to read, and its topics' partition
    counts."""

    fingerprint: dict[str, str]
    start_offsets: Positions
    partitions: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRecord:
    """Output positions observed by an incarnation no later than the start of any batch after `valid_from_commit`."""

    valid_from_commit: int
    incarnation: int
    positions: Positions


class Store:
    """The decisions of one application. Every method is one transaction; safe from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._engine = sql.create_engine(f"sqlite:///{path}", connect_args={"timeout": 30})
        sql.event.listen(self._engine, "connect", _durable)
        sql.event.listen(self._engine, "begin", _exclusive)
        with self._transaction() as db:
            _tables.create_all(db)
            found = db.execute(sql.select(_meta.c.value).where(_meta.c.name == "schema")).scalar()
            if found is None:
                db.execute(_meta.insert().values(name="schema", value=str(SCHEMA_VERSION)))
            elif found != str(SCHEMA_VERSION):
                raise StoreError(
                    "STORE_VERSION",
                    f"the store has version {found}, this Falkirk reads {SCHEMA_VERSION}.",
                    where=path,
                    hint="Use the Falkirk that wrote it, or a new home.",
                    found=found,
                    expected=str(SCHEMA_VERSION),
                )

    @contextmanager
    def _transaction(self) -> Iterator[sql.Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except sql.exc.DatabaseError as error:
            raise StoreError(
                "STORE_UNREADABLE",
                f"the store of decisions can't be used: {error.orig}.",
                certainty="maybe",
                where=self._path,
                hint="Is the disk full, or the file damaged? Restore it from a backup, or use a new home.",
            ) from error

    def close(self) -> None:
        """Release the database file."""
        self._engine.dispose()

    def region(self, name: str) -> RegionRecord | None:
        """Return what is recorded of a region, or None when it never ran."""
        with self._transaction() as db:
            row = db.execute(sql.select(_regions).where(_regions.c.region == name)).one_or_none()
        if row is None:
            return None
        return RegionRecord(
            fingerprint=json.loads(row.fingerprint),
            start_offsets=_load(row.start_offsets),
            partitions=json.loads(row.partitions),
        )

    def region_names(self) -> tuple[str, ...]:
        """Return the regions that have ever run in this home."""
        with self._transaction() as db:
            return tuple(db.execute(sql.select(_regions.c.region).order_by(_regions.c.region)).scalars())

    def create_region(self, name: str, record: RegionRecord, tail: Positions) -> None:
        """Record a region before its first start, with the output positions that precede everything it writes."""
        with self._transaction() as db:
            db.execute(
                _regions.insert().values(
                    region=name,
                    fingerprint=json.dumps(record.fingerprint),
                    start_offsets=_dump(record.start_offsets),
                    partitions=json.dumps(record.partitions),
                )
            )
            db.execute(_tails.insert().values(region=name, valid_from_commit=-1, incarnation=0, positions=_dump(tail)))

    def open_incarnation(self, region: str, restored_batch: int) -> int:
        """Record a new incarnation of a region, before anything of it runs; return its number, from 1."""
        with self._transaction() as db:
            last = db.execute(
                sql.select(sql.func.max(_incarnations.c.incarnation)).where(_incarnations.c.region == region)
            ).scalar()
            number = int(last or 0) + 1
            db.execute(
                _incarnations.insert().values(
                    region=region, incarnation=number, opened_at_s=time.time(), restored_batch=restored_batch
                )
            )
        return number

    def record_fence(
        self, region: str, incarnation: int, *, fence: Positions, replayed_from: Positions, suppressible: int
    ) -> None:
        """Record where the tail of an incarnation's outputs ends, from where it was read, and how many records it
        had."""
        with self._transaction() as db:
            db.execute(
                _incarnations.update()
                .where(_incarnations.c.region == region, _incarnations.c.incarnation == incarnation)
                .values(fence=_dump(fence), replayed_from=_dump(replayed_from), suppressible=suppressible)
            )

    def end_incarnation(self, region: str, incarnation: int, *, ended: str, unsafe: bool) -> None:
        """Record why an incarnation ended, and whether its producer reported an error (then its tail is unsafe)."""
        with self._transaction() as db:
            db.execute(
                _incarnations.update()
                .where(_incarnations.c.region == region, _incarnations.c.incarnation == incarnation)
                .values(ended=ended, unsafe=unsafe)
            )

    def is_unsafe_since(self, region: str, incarnation: int) -> bool:
        """Tell whether this incarnation or a later one of the region ended with a producer error."""
        with self._transaction() as db:
            found = sql.select(_incarnations.c.incarnation).where(
                _incarnations.c.region == region, _incarnations.c.incarnation >= incarnation, _incarnations.c.unsafe
            )
            return db.execute(found.limit(1)).first() is not None

    def incarnations(self, region: str) -> tuple[sql.Row[tuple[object, ...]], ...]:
        """Return all incarnations of a region, oldest first."""
        with self._transaction() as db:
            query = sql.select(_incarnations).where(_incarnations.c.region == region)
            return tuple(db.execute(query.order_by(_incarnations.c.incarnation)).all())

    def observe_tail(self, region: str, record: TailRecord, *, keep: int = 100) -> None:
        """Record output positions; a later observation for the same commit replaces the earlier one."""
        match = (_tails.c.region == region) & (_tails.c.valid_from_commit == record.valid_from_commit)
        old = (
            (_tails.c.region == region)
            & (_tails.c.valid_from_commit >= 0)
            & (_tails.c.valid_from_commit < record.valid_from_commit - keep)
        )
        with self._transaction() as db:
            db.execute(_tails.delete().where(match | old))
            db.execute(
                _tails.insert().values(
                    region=region,
                    valid_from_commit=record.valid_from_commit,
                    incarnation=record.incarnation,
                    positions=_dump(record.positions),
                )
            )

    def forget_tails_after(self, region: str, restored_batch: int) -> None:
        """Drop the positions that no longer hold once an incarnation goes on from this batch.

        Its replay may end batches earlier than they ended before, and then a later position would overlook some
        outputs.
        """
        with self._transaction() as db:
            db.execute(_tails.delete().where(_tails.c.region == region, _tails.c.valid_from_commit > restored_batch))

    def tails(self, region: str) -> tuple[TailRecord, ...]:
        """Return the recorded output positions of a region, oldest first."""
        with self._transaction() as db:
            query = sql.select(_tails).where(_tails.c.region == region).order_by(_tails.c.valid_from_commit)
            return tuple(
                TailRecord(
                    valid_from_commit=row.valid_from_commit,
                    incarnation=row.incarnation,
                    positions=_load(row.positions),
                )
                for row in db.execute(query)
            )

    def skip_input(self, region: str, ranges: "tuple[tuple[int, int, int], ...]") -> None:
        """Record input that is not processed at all, as (partition, first, last exclusive).

        A range that begins where a recorded one does extends it: a run that was killed before it released anything
        finds the same input waiting.
        """
        with self._transaction() as db:
            for partition, first, last in ranges:
                row = sqlite_insert(_skips).values(region=region, partition=partition, first=first, last_exclusive=last)
                longer = sql.func.max(_skips.c.last_exclusive, row.excluded.last_exclusive)
                db.execute(
                    row.on_conflict_do_update(index_elements=_skips.primary_key, set_={"last_exclusive": longer})
                )

    def skipped_input(self, region: str) -> tuple[tuple[int, int, int], ...]:
        """Return the input ranges that a region skips, as (partition, first, last exclusive)."""
        with self._transaction() as db:
            query = sql.select(_skips.c.partition, _skips.c.first, _skips.c.last_exclusive)
            rows = db.execute(query.where(_skips.c.region == region).order_by(_skips.c.partition, _skips.c.first))
            return tuple((int(r[0]), int(r[1]), int(r[2])) for r in rows)

    def void(self, topic: str, records: "tuple[tuple[int, int], ...]") -> None:
        """Record that records of a topic, as (partition, offset), were written by a fenced incarnation and count as
        nothing."""
        with self._transaction() as db:
            known = set(
                db.execute(sql.select(_voids.c.partition, _voids.c.offset).where(_voids.c.topic == topic)).tuples()
            )
            for partition, offset in sorted(set(records) - known):
                db.execute(_voids.insert().values(topic=topic, partition=partition, offset=offset))

    def voided(self, topic: str) -> tuple[tuple[int, int], ...]:
        """Return the voided records of a topic, as (partition, offset)."""
        with self._transaction() as db:
            query = sql.select(_voids.c.partition, _voids.c.offset).where(_voids.c.topic == topic)
            rows = db.execute(query.order_by(_voids.c.partition, _voids.c.offset))
            return tuple((int(r[0]), int(r[1])) for r in rows)


def _durable(connection: object, _record: object) -> None:
    cursor = connection.cursor()  # type: ignore[attr-defined]
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()
    connection.isolation_level = None  # type: ignore[attr-defined]  # transactions begin below, not at the first write


def _exclusive(connection: sql.Connection) -> None:
    """Begin a transaction as a writer's, so that what it reads is still so when it writes."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")
