"""Visits: how the dashboard reads the home and the logs of an application. Its watch has them as a port.

The home stays open between two visits, because a page asks for several each second.
"""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from falkirk.declare.application import Application
from falkirk.errors.conditions.commands import NEVER_RAN
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.folder import attach_home
from falkirk.recovery.ownership.identity import identity_of
from falkirk.runtime.spark.context import Storage
from falkirk.user_tools.commands.history.application import OfflineApplication


class Visits(Protocol):
    """Visits to one application. Thread-safe."""

    @property
    def lock(self) -> contextlib.AbstractContextManager[object]:
        """The lock that is held while the home is used, because requests of pages come from other threads.

        The thread that holds it can take it again.
        """

    def visit(self) -> contextlib.AbstractContextManager[OfflineApplication]:
        """Return a visit, which holds the lock. It changes nothing. Raises: HomeError, StoreError, LogError."""

    def close(self, timeout_s: float) -> bool:
        """Close the home. Return False if a visit still holds the lock after this time."""


class HomeVisits:
    """Visits to an application in its home, which need no lock of the home. See `Visits`.

    Args: app: as declared. home: its folder.
    """

    def __init__(self, app: Application, home: Path, connection: Connection) -> None:
        self._app, self._path, self._connection = app, home, connection
        self.lock = threading.RLock()
        self._place: Storage | None = None

    @contextlib.contextmanager
    def visit(self) -> Iterator[OfflineApplication]:
        """See `Visits`."""
        with self.lock:
            place = self._opened()
            yield OfflineApplication(
                self._app, place.home, self._connection, runs=True, history=self._app.history, place=place
            )

    def close(self, timeout_s: float) -> bool:
        """See `Visits`."""
        if not self.lock.acquire(timeout=timeout_s):
            return False
        try:
            self._forget()
        finally:
            self.lock.release()
        return True

    def _opened(self) -> Storage:
        if not (self._path / "shape.json").exists():
            raise NEVER_RAN.error(where=self._path)
        try:
            identity = identity_of(self._path)
        except (OSError, ValueError, KeyError) as error:
            raise NEVER_RAN.error(where=self._path) from error
        if self._place is not None and self._place.home.identity != identity:  # the home was deleted and created anew
            self._forget()
        if self._place is None:
            home = attach_home(self._path, self._app.name, self._app.store, self._app.data)
            self._place = Storage(home=home, connection=self._connection)
        return self._place

    def _forget(self) -> None:
        if self._place is not None:
            self._place.home.close()
        self._place = None
