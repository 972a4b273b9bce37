"""Stores for tests: their places, a filled store, the contents of a store, and a file with version 1 of the tables."""

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from falkirk.recovery.decision_store import RegionRecord, Store, TailRecord
from falkirk.recovery.decision_store.checkpoint_copies import CheckpointCopy, StateFile
from falkirk.recovery.decision_store.logs import record_void
from falkirk.theory.ids import BatchId, CheckpointNumber, LogId, Offset

RECORD = RegionRecord(
    fingerprint={"reads": "events", "keyed step": "count(word)"},
    start_offsets={"events": {0: 5, 1: 0, 10: 7}},
    partitions={"events": 11, "counts": 2},
)
#: Version 1 of the tables, as the Falkirk of that time made it. Never edit it.
VERSION_1 = """
CREATE TABLE meta (name VARCHAR NOT NULL, value VARCHAR, PRIMARY KEY (name));
CREATE TABLE regions (region VARCHAR NOT NULL, fingerprint VARCHAR NOT NULL, start_offsets VARCHAR NOT NULL,
    partitions VARCHAR NOT NULL, PRIMARY KEY (region));
CREATE TABLE incarnations (region VARCHAR NOT NULL, incarnation INTEGER NOT NULL, opened_at_s FLOAT NOT NULL,
    restored_batch INTEGER NOT NULL, fence VARCHAR, replayed_from VARCHAR, suppressible INTEGER NOT NULL,
    unsafe BOOLEAN NOT NULL, ended VARCHAR, PRIMARY KEY (region, incarnation));
CREATE TABLE tail_positions (region VARCHAR NOT NULL, valid_from_commit INTEGER NOT NULL, incarnation INTEGER NOT NULL,
    positions VARCHAR NOT NULL, PRIMARY KEY (region, valid_from_commit));
CREATE TABLE skipped_input (region VARCHAR NOT NULL, partition INTEGER NOT NULL, first INTEGER NOT NULL,
    last_exclusive INTEGER NOT NULL, PRIMARY KEY (region, partition, first));
CREATE TABLE voided (topic VARCHAR NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL,
    PRIMARY KEY (topic, partition, "offset"));
INSERT INTO meta VALUES ('schema', '1');
INSERT INTO regions VALUES ('counts', '{"reads": "events", "keyed step": "count(word)"}',
    '{"events": {"0": 5, "1": 0, "10": 7}}', '{"events": 11, "counts": 2}');
INSERT INTO tail_positions VALUES ('counts', -1, 0, '{"counts": {"0": 3}}');
INSERT INTO tail_positions VALUES ('counts', 7, 2, '{"counts": {"0": 9223372036854775807, "11": 4}}');
INSERT INTO incarnations VALUES ('counts', 1, 1795000000.25, -1, NULL, NULL, 0, false, NULL);
INSERT INTO incarnations VALUES ('counts', 2, 1795000001.5, 6, '{"counts": {"0": 9}}', '{"counts": {"0": 3}}', 6, true,
    'a producer error');
INSERT INTO skipped_input VALUES ('counts', 0, 10, 20);
INSERT INTO skipped_input VALUES ('counts', 1, 9000000000, 9000000005);
INSERT INTO voided VALUES ('hop', 0, 3);
INSERT INTO voided VALUES ('hop', 0, 4);
INSERT INTO voided VALUES ('hop', 0, 6);
INSERT INTO voided VALUES ('hop', 1, 9000000000);
INSERT INTO voided VALUES ('other', 0, 0);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a store: a file, or the URL of a database with the home's identity.

    It can be sent to other processes.
    """

    where: str
    identity: str

    @property
    def is_file(self) -> bool:
        """Whether the store is a SQLite file and not in PostgreSQL."""
        return "://" not in self.where

    def open(self, **options: Any) -> Store:
        """Open the store."""
        return Store(self.where, identity=self.identity, **options)

    def another(self, suffix: str) -> "Place":
        """Return another place of the same kind."""
        if self.is_file:
            return replace(self, where=f"{self.where}.{suffix}")
        return replace(self, identity=f"{self.identity}_{suffix}")

    def execute(self, script: str) -> list[tuple[Any, ...]]:
        """Run statements directly on the database; return the rows of the last one."""
        with self._connection() as connection:
            rows: list[tuple[Any, ...]] = []
            for statement in filter(str.strip, script.split(";")):
                result = connection.exec_driver_sql(statement)
                rows = [tuple(row) for row in result] if result.returns_rows else []
            return rows

    def columns(self) -> dict[str, dict[str, tuple[str, bool, bool]]]:
        """Return the database's description of the tables: the type, nullability and key of each column."""
        with self._connection() as connection:
            inspector = sql.inspect(connection)
            schema = None if self.is_file else f"falkirk_{self.identity}"
            return {
                table: {
                    column["name"]: (
                        str(column["type"]),
                        bool(column["nullable"]),
                        column["name"] in inspector.get_pk_constraint(table, schema)["constrained_columns"],
                    )
                    for column in inspector.get_columns(table, schema)
                }
                for table in inspector.get_table_names(schema)
            }

    def make_version_1(self) -> None:
        """Make the store of an older Falkirk at this place."""
        if self.is_file:
            self.execute(VERSION_1)
        else:  # a hypothetical one: version 1 did not support PostgreSQL
            schema = f"falkirk_{self.identity}"
            self.execute(f"CREATE SCHEMA {schema};" + VERSION_1.replace("INTEGER", "BIGINT"))

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sql.Connection]:
        if self.is_file:
            engine = sql.create_engine(f"sqlite:///{self.where}")
        else:
            url = sql.make_url(self.where).set(drivername="postgresql+psycopg")
            path = {"options": f"-csearch_path=falkirk_{self.identity}"}
            engine = sql.create_engine(url.update_query_dict(path), poolclass=sql.NullPool)
        with engine.begin() as connection:
            yield connection
        engine.dispose()


def tail(commit: int, end: int, incarnation: int = 1) -> TailRecord:
    """Return an observation of the end of one partition."""
    return TailRecord(valid_from_commit=commit, incarnation=incarnation, positions={"counts": {0: end, 11: 0}})


def void_range(store: Store, topic: str, partition: int, first: int, last_exclusive: int) -> None:
    """Record a void range without a recovery."""
    with store._writing() as db:
        record_void(db, LogId(topic), partition, Offset(first), Offset(last_exclusive))


def fill(store: Store, count: int) -> None:
    """Write data into every table."""
    for n in range(count):
        name = f"region-{n}"
        store.create_region(name, RECORD, {"counts": {p: p * n for p in range(20)}})
        number = store.open_incarnation(name, n)
        store.record_fence(name, number, fence={"t": {0: n}})
        store.skip_input(name, ((0, n, n + 5), (1, n, n + 7)))
        void_range(store, "hop", 0, 3 * n, 3 * n + 1)
        text = hashlib.sha256(str(n).encode()).hexdigest()
        store.record_decision("epoch", "words", n, {"cut": {"0": n}, "hash": text})
        store.add_checkpoint("rank", n, {"delivered": [n, [1, 2]], "hash": text})
        store.record_release("answers", "held", n, n * 10)
        store.retain_from(name, CheckpointNumber(n))
        store.advance_recovery(store.open_recovery(f"region {n} failed", {name: n, "rank": None}), "done")
        store.post_request("rollback", {"to": f"weights@{n}"})


def contents(store: Store) -> dict[str, object]:
    """Return the whole contents of a store, through its methods."""
    names = store.region_names()
    requests = []
    while (request := store.request(len(requests) + 1)) is not None:
        requests.append(request)
    topics = ("hop", "other")
    return {
        "regions": {name: store.region(name) for name in names},
        "tails": {name: store.tails(name) for name in names},
        "incarnations": {name: [tuple(row) for row in store.incarnations(name)] for name in names},
        "skips": {name: store.skipped_input(name) for name in names},
        "voids": {topic: store.voided_ranges(topic) for topic in topics},
        "decisions": store.decisions("epoch", "words"),
        "checkpoints": store.checkpoints("rank"),
        "releases": store.releases("answers"),
        "retained": {name: store.retained_from(name) for name in names},
        "recovery": store.newest_recovery(),
        "requests": requests,
    }


def read(place: Place | Path) -> dict[str, object]:
    """Open a store and return its whole contents."""
    opened = Store(place) if isinstance(place, Path) else place.open()
    try:
        return contents(opened)
    finally:
        opened.close()


def copy_of(batch: int) -> CheckpointCopy:
    """Return a checkpoint in an object store."""
    return CheckpointCopy(batch=BatchId(batch), texts={f"commits/{batch}": "v1"}, made_at_s=1.0)


def state_file(first: int) -> StateFile:
    """Return a state file of such a checkpoint and later ones."""
    return StateFile(path=f"state/0/0/{first}.zip", folder=f"{first}", size=3, checksum=7, first=BatchId(first))
