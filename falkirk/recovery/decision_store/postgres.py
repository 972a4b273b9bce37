"""The store in PostgreSQL, for a coordinator that may move to another machine: one schema for each application.

Writers of one application take turns by an advisory lock that ends with the transaction, and those of different
applications don't meet. With any defaults of the server, a transaction sees everything that was committed when it got
the lock (READ COMMITTED), and its commit is in the server's log before a method returns.
"""

import hashlib
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import sqlalchemy as sql

from falkirk.errors.conditions.decision_store import STORE_WITHOUT_IDENTITY
from falkirk.recovery.decision_store.deadlines import DEADLINES
from falkirk.recovery.decision_store.engine import Database, driver_missing

INSTALL = "pip install 'falkirk[postgres]'"
#: The time that a server may take to accept a connection, or to receive the data that was sent. A call waits for both
#: at worst. It must end before a host counts as silent (runtime/supervision/coordinator.py).
SERVER_S = 10.0
#: A writer may stand still for this time within its transaction: a process that is suspended there keeps all others
#: from writing. Each transaction takes milliseconds, and one that the server ends is repeated.
WRITER_S = 5.0
#: Classes and codes of SQLSTATE that say that the server is away, full, busy, or does not let this user in.
_AWAY = ("08", "25006", "25P03", "28", "3D", "40", "53", "55P03", "57")


class PostgresDatabase(Database):
    """The store in a schema of a PostgreSQL database."""

    def __init__(self, url: sql.URL, *, identity: str | None, timeout_s: float) -> None:
        super().__init__()
        if not re.fullmatch("[0-9a-z_]{1,50}", identity or ""):
            raise STORE_WITHOUT_IDENTITY.error(identity=identity)
        self._schema, self._timeout_ms = f"falkirk_{identity}", round(timeout_s * 1000)
        host = url.host or url.query.get("host") or "localhost"
        port = f":{url.port}" if url.port else ""
        self.where = f"postgresql://{url.username or ''}@{host}{port}/{url.database or ''}, schema {self._schema}"
        digest = hashlib.sha256(self._schema.encode()).digest()
        self._lock = int.from_bytes(digest[:8], "big", signed=True)
        server_s = min(timeout_s, SERVER_S)
        #: A suspended server keeps its connections open, and its kernel confirms all received data. So libpq
        #: would wait without end. A writer may wait for others first.
        self._read_s, self._write_s = 2 * server_s, timeout_s + server_s / 2
        defaults = {
            "application_name": self._schema,
            "connect_timeout": max(2, round(server_s)),
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": round(server_s * 1000),
            "target_session_attrs": "read-write",  # of several hosts, the one that is no standby
        }
        arguments: dict[str, object] = {k: v for k, v in defaults.items() if k not in url.query}
        try:
            engine = sql.create_engine(
                url.set(drivername="postgresql+psycopg"),
                connect_args={**arguments, "prepare_threshold": None},  # a pool in between may change the server's side
                isolation_level="READ COMMITTED",
                pool_pre_ping=True,
            )
        except ImportError as error:
            raise driver_missing(INSTALL, error) from error
        self._ping = engine.dialect.do_ping
        engine.dialect.do_ping = self._guarded_ping  # type: ignore[assignment, method-assign]
        self.engine = engine.execution_options(schema_translate_map={None: self._schema})
        self._single = self.engine.execution_options(isolation_level="AUTOCOMMIT")

    @property
    def _for_reads(self) -> sql.Engine:
        """Each statement is a transaction of its own: with READ COMMITTED, each one sees another moment anyway.

        So a read takes two messages and their answers instead of four.
        """
        return self._single

    def _guarded_ping(self, connection: Any) -> bool:
        with DEADLINES.ending_after(self._read_s, connection.fileno()):
            return self._ping(connection)

    def _guarded(self, connection: sql.Connection, *, writes: bool) -> AbstractContextManager[object]:
        raw: Any = connection.connection.driver_connection
        return DEADLINES.ending_after(self._write_s if writes else self._read_s, raw.fileno())

    @property
    def _advice(self) -> tuple[str, str]:
        return (
            "Is it running, reachable from here, and may this user log in? Falkirk resumes once the database is back.",
            "Has this user the rights on the schema (for a new one: CREATE on the database)? If it is damaged, restore "
            "it from a backup, or use a new home.",
        )

    def make(self, build: Callable[[sql.Connection], None], *, must_exist: bool) -> None:
        """Make the schema and its tables in one transaction, if there is no schema."""
        with self.transaction(writes=False) as db:
            there = self._is_there(db)
        if there:
            return
        if must_exist:
            raise self.unreadable("there is no schema of this home")
        with self.transaction(writes=True) as db:
            if not self._is_there(db):  # another process may have made it meanwhile
                db.execute(sql.schema.CreateSchema(self._schema))
                build(db)

    def _is_there(self, connection: sql.Connection) -> bool:
        query = sql.text("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = :name")
        return connection.execute(query, {"name": self._schema}).first() is not None

    def check(self, connection: sql.Connection) -> None:
        """Trust the server: it checks its own pages."""

    def prepare_migration(self, connection: sql.Connection) -> None:
        """Make the schema the only one that names are looked up in."""
        connection.exec_driver_sql(f'SET LOCAL search_path TO "{self._schema}"')

    def _begin(self, connection: sql.Connection, *, writes: bool) -> None:
        if not writes:
            return
        # One round trip. The server reports a commit only after its log has it, and a writer that hangs (a
        # stopped process) loses its turn.
        connection.exec_driver_sql(
            f"SET LOCAL lock_timeout = {self._timeout_ms};"
            f"SET LOCAL idle_in_transaction_session_timeout = {min(self._timeout_ms * 2, round(WRITER_S * 1000))};"
            "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off';"
            f"SELECT pg_advisory_xact_lock({self._lock})"
        )

    def _is_away(self, error: sql.exc.DBAPIError) -> bool:
        state = getattr(error.orig, "sqlstate", None)
        if state is None:
            return error.connection_invalidated or isinstance(error, sql.exc.OperationalError | sql.exc.InterfaceError)
        return str(state).startswith(_AWAY)
