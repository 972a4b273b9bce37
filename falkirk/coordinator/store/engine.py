"""Engine: transactions on a store's database, and what its failures mean.

Every method of the store is one transaction. One that writes is alone from its first statement on (SQLite's BEGIN
IMMEDIATE, a lock per application in PostgreSQL), so what it reads is still so when it writes, and no statement needs
a dialect's own upsert. An error before the commit was sent says that nothing happened; after it, that it maybe did.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import sqlalchemy as sql

from falkirk.coordinator.store.values import DamagedValue
from falkirk.errors import Certainty, StoreError


class Database(ABC):
    """A database that holds, or will hold, the store of one application.

    Attributes: engine: SQLAlchemy's. where: what to call the database in errors; never holds a password.
    """

    engine: sql.Engine
    where: object

    @abstractmethod
    def make(self, build: Callable[[sql.Connection], None], *, must_exist: bool) -> None:
        """Make the store, whole or not at all, if none is there; `build` makes the tables of a new one.

        Raises: StoreError: `STORE_UNREADABLE`: none can be there, or `must_exist` and none is.
        """

    @abstractmethod
    def check(self, connection: sql.Connection) -> None:
        """Refuse a damaged database, as far as the database can tell.

        Raises: StoreError: `STORE_UNREADABLE`.
        """

    @abstractmethod
    def prepare_migration(self, connection: sql.Connection) -> None:
        """Let unqualified table names mean the store's, until the transaction ends."""

    @abstractmethod
    def _begin(self, connection: sql.Connection, *, writes: bool) -> None:
        """Begin the transaction; as the only writer, if it writes."""

    @abstractmethod
    def _is_away(self, error: sql.exc.DBAPIError) -> bool:
        """Tell whether the database could not be reached or is busy, rather than damaged."""

    @property
    @abstractmethod
    def _advice(self) -> tuple[str, str]:
        """What to do when the database is away, and when it is damaged."""

    def _reason(self, error: sql.exc.DBAPIError) -> str:
        return " ".join(str(error.orig).split()).rstrip(".")

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[sql.Connection]:
        """Yield a connection in a transaction that ends with the block.

        Raises: StoreError: `STORE_AWAY`, `STORE_UNREADABLE`, `DECISION_CONTRADICTED`; see above on certainty.
        """
        certainty: Certainty = "definitely"
        try:
            with self.engine.connect() as connection, connection.begin():
                self._begin(connection, writes=writes)
                yield connection
                if writes:
                    certainty = "maybe"  # from here on only the commit itself can fail
        except sql.exc.IntegrityError as error:
            raise StoreError(
                "DECISION_CONTRADICTED",
                f"the store holds something else under the same key already: {self._reason(error)}.",
                where=self.where,
                hint="Do two coordinators run for one home?",
            ) from error
        except sql.exc.DBAPIError as error:
            if self._is_away(error):
                raise self.away(self._reason(error), certainty) from error
            raise self.unreadable(self._reason(error), certainty) from error
        except sql.exc.TimeoutError as error:  # SQLAlchemy's own: every connection of the pool is in use
            raise self.away("all of this process's connections are in use", certainty) from error
        except DamagedValue as error:
            raise self.unreadable(f"a value in it is damaged: {error}") from error
        except UnicodeDecodeError as error:  # SQLite quotes damaged bytes in its complaint, and Python can't read it
            raise self.unreadable("a text in it is damaged", certainty) from error

    def away(self, reason: str, certainty: Certainty) -> StoreError:
        """Return the error of a database that can't be reached."""
        return StoreError(
            "STORE_AWAY",
            f"the store of decisions does not answer: {reason}.",
            certainty=certainty,
            where=self.where,
            hint=self._advice[0],
        )

    def unreadable(self, reason: str, certainty: Certainty = "definitely") -> StoreError:
        """Return the error of a store that is torn."""
        return StoreError(
            "STORE_UNREADABLE",
            f"the store of decisions can't be used: {reason}.",
            certainty=certainty,
            where=self.where,
            hint=self._advice[1],
        )


def driver_missing(command: str, error: ImportError) -> StoreError:
    """Return the error of a database whose Python driver is not installed."""
    return StoreError(
        "STORE_DRIVER_MISSING",
        f"the driver of the store's database is not installed: {error}.",
        hint=f"Install it: {command}",
        command=command,
    )
