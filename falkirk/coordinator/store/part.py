"""Part: what the parts of the store have in common: a database, a clock, and the owner for whom they write."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import sqlalchemy as sql

from falkirk.coordinator.store import generation
from falkirk.coordinator.store.engine import Database


class Part:
    """Base of the parts that make up a Store.

    Attributes: generation: that of the owner who writes; None: of a visitor, whose writes nobody compares.
    """

    def __init__(self, database: Database, clock: Callable[[], float], generation: int | None = None) -> None:
        self._database, self._clock, self.generation = database, clock, generation

    def _reading(self) -> AbstractContextManager[sql.Connection]:
        """Begin a transaction that only reads."""
        return self._database.transaction(writes=False)

    @contextmanager
    def _writing(self) -> Iterator[sql.Connection]:
        """Begin a transaction that is alone until it ends.

        Raises: StoreError: `HOME_TAKEN_OVER`: a newer owner has taken charge; nothing was written.
        """
        with self._database.transaction(writes=True) as db:
            if self.generation is not None:
                generation.require(db, self.generation, self._database.where)
            yield db

    def take_charge(self, holder: str) -> int:
        """Become the owner, and refuse all writes of former ones from now on; return the new generation.

        Args: holder: who that is, for the error of those that are refused.
        Raises: StoreError: `HOME_TAKEN_OVER`: this owner was replaced itself.
        """
        with self._writing() as db:
            number = generation.take_next(db, holder)
        self.generation = number
        return number

    def require_charge(self) -> None:
        """Refuse an owner that was replaced. A visitor passes.

        Raises: StoreError: `HOME_TAKEN_OVER`.
        """
        if self.generation is not None:
            with self._reading() as db:
                generation.require(db, self.generation, self._database.where)
