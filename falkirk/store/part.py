"""Part: the base of the parts of the store, with a database, a clock, and the owner for whom they write."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import sqlalchemy as sql

from falkirk.store import generation
from falkirk.store.engine import Database


class Part:
    """Base of the parts that make up a Store.

    Attributes: generation: the generation of the owner who writes; None: a visitor writes, and nothing is compared.
    """

    def __init__(self, database: Database, clock: Callable[[], float], generation: int | None = None) -> None:
        self._database, self._clock, self.generation = database, clock, generation

    def _reading(self) -> AbstractContextManager[sql.Connection]:
        """Begin a transaction that only reads."""
        return self._database.transaction(writes=False)

    @contextmanager
    def _writing(self) -> Iterator[sql.Connection]:
        """Begin a transaction that is the only writer until it ends.

        Raises: StoreError: `HOME_TAKEN_OVER`: the home has a newer owner; nothing was written.
        """
        with self._database.transaction(writes=True) as db:
            if self.generation is not None:
                generation.require(db, self.generation, self._database.where)
            yield db

    def take_charge(self, holder: str) -> int:
        """Become the owner, and refuse all writes of former owners from now on; return the new generation.

        Args: holder: a description of this owner, for the error that former owners get.
        Raises: StoreError: `HOME_TAKEN_OVER`: this owner itself was replaced.
        """
        with self._writing() as db:
            number = generation.take_next(db, holder)
        self.generation = number
        return number

    def require_charge(self) -> None:
        """Refuse an owner that was replaced. A visitor is not refused.

        Raises: StoreError: `HOME_TAKEN_OVER`.
        """
        if self.generation is not None:
            with self._reading() as db:
                generation.require(db, self.generation, self._database.where)
