"""Part: what the parts of the store have in common, a database and a clock."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import sqlalchemy as sql

from falkirk.coordinator.store.engine import Database


class Part:
    """Base of the parts that make up a Store."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database, self._clock = database, clock

    def _reading(self) -> AbstractContextManager[sql.Connection]:
        """Begin a transaction that only reads."""
        return self._database.transaction(writes=False)

    def _writing(self) -> AbstractContextManager[sql.Connection]:
        """Begin a transaction that is alone until it ends."""
        return self._database.transaction(writes=True)
