"""Engine: runs transactions on a store's database, and translates its failures.

Every method of the store is one transaction. A transaction that writes is the only writer from its first statement on
(SQLite's BEGIN IMMEDIATE, a lock per application in PostgreSQL). So the values that it has read do not change before it
writes, and no statement needs the upsert of a dialect. An error before the commit was sent means that nothing was
written. An error after it means that all or nothing was written.

A server may get such a commit later, when this process has already lost the connection. Until then, its transaction is
still the only writer. So after such an error, the next read waits for earlier writers, too: it sees the commit, or the
commit can't happen any more. Else a caller that repeats its work would decide anew, and contradict the late commit. A
new process of an owner waits at its first read, because the process before it may have died during a commit.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import sqlalchemy as sql

from falkirk.errors import Certainty, StoreError
from falkirk.errors.conditions.decision_store import DECISION_CONTRADICTED_KEY, STORE_DRIVER_MISSING
from falkirk.recovery.decision_store.values import DamagedValue


class Database(ABC):
    """A database that holds, or will hold, the store of one application.

    Attributes: engine: SQLAlchemy's. where: the database's name in errors; it never contains a password. before_commit:
        called before each commit that writes. If it raises, nothing was written.
    """

    engine: sql.Engine
    where: object
    before_commit: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self) -> None:
        #: The number of commits whose outcome nobody knew, and how many of them are decided since.
        self._uncertain = self._decided = 0
        self._counting = threading.Lock()

    def note_uncertain(self) -> None:
        """Say that a commit may still arrive at the database: the next transaction waits for its outcome."""
        with self._counting:
            self._uncertain += 1

    @abstractmethod
    def make(self, build: Callable[[sql.Connection], None], *, must_exist: bool) -> None:
        """Make the store, whole or not at all, if there is none; `build` makes the tables of a new one.

        Raises: StoreError: `STORE_UNREADABLE`: none can be made, or `must_exist` and there is none.
        """

    @abstractmethod
    def check(self, connection: sql.Connection) -> None:
        """Refuse a damaged database, as far as the database can tell.

        Raises: StoreError: `STORE_UNREADABLE`.
        """

    @abstractmethod
    def prepare_migration(self, connection: sql.Connection) -> None:
        """Make unqualified table names refer to the store's tables, until the transaction ends."""

    def version(self) -> object:
        """Return a value that differs after each commit, of any process; None: the database has no quick answer."""
        return None

    def close(self) -> None:
        """Close the connections to the database."""
        self.engine.dispose()

    @property
    def _for_reads(self) -> sql.Engine:
        """The engine of transactions that only read, and wait for nobody."""
        return self.engine

    @abstractmethod
    def _begin(self, connection: sql.Connection, *, writes: bool) -> None:
        """Begin the transaction. If it writes, it is the only writer."""

    def _guarded(self, connection: sql.Connection, *, writes: bool) -> AbstractContextManager[object]:
        """Return a context in which no call waits without end."""
        return nullcontext()

    @abstractmethod
    def _is_away(self, error: sql.exc.DBAPIError) -> bool:
        """Return whether the database is unreachable or busy, rather than damaged."""

    @property
    @abstractmethod
    def _advice(self) -> tuple[str, str]:
        """The hints for an unreachable and for a damaged database."""

    def _reason(self, error: sql.exc.DBAPIError) -> str:
        return " ".join(str(error.orig).split()).rstrip(".")

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[sql.Connection]:
        """Yield a connection in a transaction that ends with the block.

        It also waits for earlier writers if it only reads, but the outcome of an earlier commit is unknown.

        Raises: StoreError: `STORE_AWAY`, `STORE_UNREADABLE`, `DECISION_CONTRADICTED`; for the certainty see above.
        """
        certainty: Certainty = "definitely"
        uncertain = self._uncertain
        waits = writes or uncertain > self._decided
        try:
            with (
                (self.engine if waits else self._for_reads).connect() as connection,
                self._guarded(connection, writes=waits),
                connection.begin(),
            ):
                self._begin(connection, writes=waits)
                with self._counting:
                    self._decided = max(self._decided, uncertain)
                yield connection
                if writes:
                    self.before_commit()
                    certainty = "maybe"  # from here on, only the commit itself can fail
            certainty = "definitely"
        except sql.exc.IntegrityError as error:
            raise DECISION_CONTRADICTED_KEY.error(where=self.where, reason=self._reason(error)) from error
        except sql.exc.DBAPIError as error:
            if self._is_away(error):
                raise self.away(self._reason(error), certainty) from error
            raise self.unreadable(self._reason(error), certainty) from error
        except sql.exc.TimeoutError as error:  # SQLAlchemy's own: all connections of the pool are in use
            raise self.away("all of this process's connections are in use", certainty) from error
        except DamagedValue as error:
            raise self.unreadable(f"a value in it is damaged: {error}") from error
        except UnicodeDecodeError as error:  # SQLite quotes damaged bytes in its error, which Python can't decode
            raise self.unreadable("a text in it is damaged", certainty) from error
        finally:
            if certainty == "maybe":
                self.note_uncertain()

    def away(self, reason: str, certainty: Certainty) -> StoreError:
        """Return the error for a database that can't be reached."""
        return StoreError(
            "STORE_AWAY",
            f"the store of decisions does not answer: {reason}.",
            certainty=certainty,
            where=self.where,
            hint=self._advice[0],
        )

    def unreadable(self, reason: str, certainty: Certainty = "definitely") -> StoreError:
        """Return the error for a damaged store."""
        return StoreError(
            "STORE_UNREADABLE",
            f"the store of decisions can't be used: {reason}.",
            certainty=certainty,
            where=self.where,
            hint=self._advice[1],
        )


def driver_missing(command: str, error: ImportError) -> StoreError:
    """Return the error for a database whose Python driver is not installed."""
    return STORE_DRIVER_MISSING.error(command=command, reason=error)
