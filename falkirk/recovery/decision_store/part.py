"""Part: the base of the parts of the store, with a database, a clock, and the owner of the home."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import sqlalchemy as sql

from falkirk.recovery.decision_store import generation
from falkirk.recovery.decision_store.engine import Database
from falkirk.recovery.decision_store.own_writes import OwnWrites

_Value = TypeVar("_Value")


class Part:
    """Base of the parts that make up a Store.

    Attributes: generation: the generation of the owner who writes; None: a visitor writes, and nothing is compared.
    """

    def __init__(self, database: Database, clock: Callable[[], float], generation: int | None = None) -> None:
        self._database, self._clock, self.generation = database, clock, generation
        self._own = OwnWrites(database.where, "host")  # a coordinator gets another one when it takes charge
        #: A version of the database, and the rows that were read in it, by question.
        self._known: tuple[object, dict[Hashable, tuple[Any, ...]]] = (None, {})

    def _reading(self) -> AbstractContextManager[sql.Connection]:
        """Begin a transaction that only reads."""
        return self._database.transaction(writes=False)

    def _rows(
        self, question: Hashable, query: Callable[[], sql.Select[Any]], made: Callable[[Any], _Value]
    ) -> tuple[_Value, ...]:
        """Return the rows of a query as values, from memory if nobody has committed anything since it was last asked.

        Every batch asks the same questions many times a second, and almost always nothing has changed.

        Args: question: names the query with its arguments. made: makes a value of a row.
        """
        version = self._database.version()
        before, known = self._known
        if version is None or version != before:
            known = {}
            self._known = (version, known)
        rows = known.get(question)
        if rows is not None:
            return tuple(map(made, rows))
        with self._reading() as db:  # it may read a newer version; then the next question finds another version
            rows = tuple(db.execute(query()))
            found = tuple(map(made, rows))
        known[question] = rows
        return found

    @contextmanager
    def _writing(self) -> Iterator[sql.Connection]:
        """Begin a transaction that is the only writer until it ends.

        Raises: StoreError: `HOME_TAKEN_OVER`: the home has a newer owner; nothing was written. `STORE_FELL_BACK`: the
            database has lost earlier writes of this owner; nothing was written.
        """
        own, count = self._own, 0
        with self._database.transaction(writes=True) as db:
            if self.generation is not None:
                generation.check_generation(db, self.generation, self._database.where)
                count = own.count(db)
            yield db
        own.confirm(count)

    def await_writers(self) -> None:
        """Wait until no earlier write is under way: from now on, readers see one whose answer was lost, or never will.

        It writes nothing. Raises: StoreError.
        """
        with self._writing():
            pass

    def take_charge(self, holder: str) -> int:
        """Become the owner, and refuse all writes of former owners from now on; return the new generation.

        Args: holder: a description of this owner, for the error that former owners get.
        Raises: StoreError: `HOME_TAKEN_OVER`: this owner itself was replaced.
        """
        with self._writing() as db:
            number = generation.take_next(db, holder)
        self._own_from(number)
        return number

    def _own_from(self, number: int) -> None:
        self.generation, self._own = number, OwnWrites(self._database.where, "owner")

    def before_commits(self, call: Callable[[], None]) -> None:
        """Call a function before each commit that writes. If it raises, nothing was written. A test cuts off there."""
        self._database.before_commit = call

    def require_charge(self) -> None:
        """Refuse an owner that was replaced. A visitor is not refused.

        Raises: StoreError: `HOME_TAKEN_OVER`.
        """
        if self.generation is not None:
            with self._reading() as db:
                generation.check_generation(db, self.generation, self._database.where)
