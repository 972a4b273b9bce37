"""Store: the decisions of an application, recorded before they are used, in SQLite inside its home or in PostgreSQL.

The store does not repeat Spark's own records (offsets, commits, state). It has the other data that recovery needs:
incarnations and their fences, positions from which an output's tail may be read, skipped input, void ranges, decisions,
and checkpoints that Spark does not record. It also has recoveries, releases, and requests to a running application.
"""

import time
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sql

from falkirk.errors import StoreError
from falkirk.errors.conditions.decision_store import STORE_URL_INVALID
from falkirk.recovery.decision_store.checkpoint_copies import CheckpointCopy, CheckpointCopyStore, StateFile
from falkirk.recovery.decision_store.decisions import DecisionStore
from falkirk.recovery.decision_store.engine import Database
from falkirk.recovery.decision_store.leases import Lease, LeaseStore, Waiting
from falkirk.recovery.decision_store.logs import LogStore
from falkirk.recovery.decision_store.migrate import open_store
from falkirk.recovery.decision_store.postgres import PostgresDatabase
from falkirk.recovery.decision_store.recoveries import RecoveryStore
from falkirk.recovery.decision_store.regions import RegionStore
from falkirk.recovery.decision_store.requests import RequestStore
from falkirk.recovery.decision_store.sqlite import SqliteDatabase
from falkirk.recovery.decision_store.tables import SCHEMA_VERSION
from falkirk.recovery.decision_store.values import (
    CheckpointRecord,
    Decision,
    ForgottenEpochs,
    Recovery,
    RecoveryState,
    RegionRecord,
    Release,
    Request,
    RequestState,
    TailRecord,
)

__all__ = [
    "SCHEMA_VERSION",
    "CheckpointCopy",
    "CheckpointRecord",
    "Decision",
    "ForgottenEpochs",
    "Lease",
    "Recovery",
    "RecoveryState",
    "RegionRecord",
    "Release",
    "Request",
    "RequestState",
    "StateFile",
    "Store",
    "TailRecord",
    "Waiting",
]


class Store(RegionStore, CheckpointCopyStore, LogStore, DecisionStore, RecoveryStore, RequestStore, LeaseStore):
    """The decisions of one application. Every method is one transaction; safe from several threads and processes.

    Every method raises StoreError: `STORE_AWAY` (the database is unreachable or busy) or `STORE_UNREADABLE`. Their
    certainty is "maybe" only if the commit was in progress. Then each later read of this process, and of the owner's
    next process, sees all of it, or nothing of it will ever be there.
    Every method that writes also raises `HOME_TAKEN_OVER` and `STORE_FELL_BACK`, before it writes anything: see
    generation.py and own_writes.py.

    Args:
        place: a file, or the URL of a database: `sqlite:///…` or `postgresql://user:password@host/database`.
        identity: the home's identity; names the application's schema in PostgreSQL.
        clock: returns the present time, in seconds since 1970.
        timeout_s: how long to wait for other writers, or for a server, until it counts as unreachable.
        must_exist: refuse to make a new store, because there was one: with an empty one, regions would start over.
        generation: the generation of this process's owner; None: `take_charge` follows, or a visitor writes.
    Raises: StoreError: as above, and `STORE_VERSION`, `STORE_DRIVER_MISSING`, `STORE_URL_INVALID`. An older version is
        migrated.
    """

    def __init__(
        self,
        place: Path | str,
        *,
        identity: str | None = None,
        clock: Callable[[], float] = time.time,
        timeout_s: float = 30.0,
        must_exist: bool = False,
        generation: int | None = None,
    ) -> None:
        super().__init__(_database(place, identity, timeout_s), clock, generation)
        try:
            open_store(self._database, must_exist=must_exist)
        except BaseException:
            self.close()
            raise
        if generation is not None:  # this owner's process before this one may have died during a commit
            self._database.note_uncertain()

    def close(self) -> None:
        """Close the connections to the database."""
        self._database.close()


def _database(place: Path | str, identity: str | None, timeout_s: float) -> Database:
    if isinstance(place, Path) or "://" not in place:
        return SqliteDatabase(Path(place), timeout_s=timeout_s)
    try:
        url = sql.make_url(place)
    except (sql.exc.ArgumentError, ValueError):
        raise _invalid("it can't be read") from None  # the cause may quote the URL with its password
    if url.drivername.split("+")[0] == "sqlite":
        if not url.database or url.database.startswith((":", "file:")) or url.query:
            raise _invalid("it names no file")
        return SqliteDatabase(Path(url.database), timeout_s=timeout_s)
    if url.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        if place.count("@") > 1:  # the text after the first would count as the host, and errors would show it
            raise _invalid("it has more than one @")
        return PostgresDatabase(url, identity=identity, timeout_s=timeout_s)
    raise _invalid(f"{url.drivername!r} is no kind of store")


def _invalid(reason: str) -> StoreError:
    return STORE_URL_INVALID.error(reason=reason)
