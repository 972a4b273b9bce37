"""Owners: which process runs an application with a lease, when it last renewed it, and which processes wait."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from falkirk.declare.application import Application
from falkirk.errors import FalkirkError
from falkirk.platform import locks
from falkirk.recovery.decision_store import Lease, Waiting
from falkirk.recovery.ownership.folder import LEASED, Home, attach_home
from falkirk.recovery.ownership.identity import IDENTITY_FILE
from falkirk.recovery.ownership.lease import NOTE_S, has_run

#: A process that waits is shown until it has not said so for this time, by the clocks of both machines.
WAITING_SHOWN_S = 3 * NOTE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """The owner of a home and the processes that wait for it, as the store has them.

    Args: now_s: the present time on this machine. The times of others are of their clocks. error: why the store can't
        be read; "": it was read.
    """

    lease: Lease | None
    waiting: tuple[Waiting, ...]
    now_s: float
    error: str = ""

    @property
    def is_renewed(self) -> bool:
        """Whether an owner has renewed its lease lately, by the clocks of both machines."""
        lease = self.lease
        return lease is not None and lease.is_kept and self._age_s(lease.at_s) < lease.lasts_s

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values: `owner` (None: nobody has run it yet, or the store can't be read), and others."""
        lease = self.lease
        owner = None if lease is None else {
            "process": lease.holder,
            "generation": lease.generation,
            "lease_s": lease.lasts_s if lease.is_kept else None,
            "renewed_s_ago": self._age_s(lease.at_s) if lease.is_kept else None,
        }  # fmt: skip
        waiting = [{"process": each.holder, "seen_s_ago": self._age_s(each.at_s)} for each in self.waiting]
        return {"owner": owner, "waiting": waiting, "owner_unknown": self.error or None}

    def lines(self) -> Iterator[str]:
        """Yield the same as lines for people."""
        if self.error:
            yield f"owner unknown: {self.error}"
        lease = self.lease
        if lease is not None and lease.is_kept:
            age = f"renewed {self._age_s(lease.at_s):.1f} s ago"
            yield f"owner: {lease.holder}, generation {lease.generation}, lease of {lease.lasts_s:.0f} s {age}"
        elif lease is not None and lease.beat >= 0:
            yield f"no owner: {lease.holder} has released the lease"
        elif lease is not None:
            yield f"owner: {lease.holder}, generation {lease.generation}, without a lease"
        for each in self.waiting:
            yield f"waiting: {each.holder}, seen {self._age_s(each.at_s):.0f} s ago"

    def _age_s(self, at_s: float) -> float:
        return round(max(0.0, self.now_s - at_s), 1)


class OwnerReader:
    """Reads the owners of an application's home again and again; a context manager that closes the store."""

    def __init__(self, app: Application, path: Path) -> None:
        self._app, self._path = app, path
        self._home: Home | None = None

    def read(self) -> Owners | None:
        """Return the owners; None: the application has never run with a lease here, so the store is not asked.

        A home in an object store may have an owner on another machine, even if it has never run on this one.
        """
        app = self._app
        if app.data is None and not all((self._path / name).exists() for name in (LEASED, IDENTITY_FILE, locks.OWNER)):
            return None
        try:
            if self._home is None and not has_run(self._path, app.name, app.store, app.data):
                return None
            if self._home is None:
                self._home = attach_home(self._path, self._app.name, self._app.store, self._app.data)
            lease, waiting, now_s = self._home.store.lease(), self._home.store.waiting(), time.time()
        except (FalkirkError, OSError) as error:
            self.close()
            return Owners(lease=None, waiting=(), now_s=time.time(), error=str(error))
        shown = tuple(each for each in waiting if now_s - each.at_s < WAITING_SHOWN_S)
        return Owners(lease=lease, waiting=shown, now_s=now_s)

    def close(self) -> None:
        """Close the store."""
        home, self._home = self._home, None
        if home is not None:
            home.close()

    def __enter__(self) -> "OwnerReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
