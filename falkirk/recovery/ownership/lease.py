"""Lease of a home: a process waits until the owner has died or ended, and then becomes the owner.

The owner renews its lease each second. It ends itself before a waiting process may take over: see `LeaseKeeper`.
"""

import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from falkirk.errors import FalkirkError, HomeError, StoreError
from falkirk.errors.conditions.ownership import LEASE_INVALID, LEASE_LOST
from falkirk.errors.conditions.platform import HOME_IN_USE
from falkirk.platform import locks
from falkirk.platform.times import seconds_since_boot
from falkirk.recovery.decision_store import Store
from falkirk.recovery.decision_store.leases import Lease
from falkirk.recovery.ownership import guard
from falkirk.recovery.ownership.folder import Home, data_folder, open_home, this_process, waiting_home
from falkirk.recovery.ownership.identity import IDENTITY_FILE

#: A lease lasts this long by default, and an option must be between the other values.
LASTS_S, LASTS_MIN_S, LASTS_MAX_S = 10.0, 4.0, 3_600.0
#: The time between two renewals, and between two looks at the lease of another process.
RENEW_S, _POLL_S = 1.0, 0.5
#: The owner ends itself so long before a waiting process may take over.
MARGIN_S = 2.0
#: The time between two notes of a process that waits. `falkirk status` shows it for three times as long.
NOTE_S = 5.0


def lease_s(*, wait: bool, lease: float) -> float | None:
    """Return the length of the lease that a run with these options holds; None: none.

    Raises: DefinitionError: `LEASE_INVALID`.
    """
    if isinstance(lease, bool) or not isinstance(lease, int | float) or not LASTS_MIN_S <= lease <= LASTS_MAX_S:
        raise LEASE_INVALID.error(lease=lease, least_s=LASTS_MIN_S, most_s=LASTS_MAX_S)
    return float(lease) if wait else None


class LeaseWatch:
    """Decides from the lease as read, and from one monotonic clock, whether the owner has died.

    Args: clock: returns seconds; only this process reads it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._since_s = clock, clock()
        self._seen: Lease | None = None

    def is_free(self, lease: Lease | None) -> bool:
        """Return whether the home may be taken over, if this is its lease now."""
        if lease != self._seen:
            self._seen, self._since_s = lease, self._clock()
        return lease is None or self._clock() - self._since_s > lease.lasts_s or lease.lasts_s == 0.0

    def restart_wait(self) -> None:
        """Start anew: the lease can't be read, so nobody knows whether the owner renews it."""
        self._seen, self._since_s = None, self._clock()


def has_run(path: Path, application: str, store: str | None, data: str | None) -> bool:
    """Return whether an application has run with a home. A machine that lacks the folder of a shared home gets it.

    Args, raises: as `waiting_home`.
    """
    if (path / IDENTITY_FILE).exists() and (data is None or (path / locks.OWNER).exists()):
        return True
    if data is None or not (data_folder(path, data) / IDENTITY_FILE).exists():
        return False
    waiting_home(path, application, store, data).close()
    return True


def is_renewed(store: Store) -> bool:
    """Return whether an owner renews its lease now, perhaps on a machine whose locks can't be seen here.

    If there is a lease that nobody renews, this takes three times as long as the time between two renewals.

    Raises: StoreError.
    """
    first, until_s = store.lease(), time.monotonic() + 3 * RENEW_S
    if first is None or not first.is_kept:
        return False
    while time.monotonic() < until_s:
        if (now := store.lease()) != first:
            return now is not None and now.is_kept
        time.sleep(RENEW_S / 5)
    return False


def refuse_leased(path: Path, application: str, store: str | None, data: str) -> None:
    """Refuse to become the owner of a home in an object store without a lease, while another process has one.

    Raises: HomeError: `HOME_IN_USE`. Others: as `waiting_home`.
    """
    with waiting_home(path, application, store, data) as home:
        if is_renewed(home.store):
            lease = home.store.lease()
            raise HOME_IN_USE.error(where=data, holder="" if lease is None else f": {lease.holder}")


def await_home(
    path: Path, application: str, store: str | None, *, lasts_s: float, pause: Callable[[float], bool],
    say: Callable[[str], None], watch: LeaseWatch | None = None, data: str | None = None,
) -> Home | None:  # fmt: skip
    """Wait until the home has no living owner, and become its owner; return the home, or None if asked to stop.

    Args: pause: waits for so many seconds; returns True if this process is to stop.
    Raises: as `open_home`, without `HOME_IN_USE` and `STORE_AWAY`.
    """
    watch, said = LeaseWatch() if watch is None else watch, ""
    home: Home | None = None
    key, noted_s = secrets.token_hex(8), -NOTE_S
    try:
        while True:
            try:
                home = waiting_home(path, application, store, data) if home is None else home
                lease = home.store.lease()
                if watch.is_free(lease) and home.take_lease(lease, lasts_s, key):
                    owned, home = home, None
                    return owned
                if time.monotonic() - noted_s >= NOTE_S:
                    _note_waiting(home.store, key)
                    noted_s = time.monotonic()
                state = "" if lease is None else f"waiting: {lease.holder} runs this application"
            except StoreError as error:
                if error.condition not in ("DATA_AWAY", "STORE_AWAY"):
                    raise
                watch.restart_wait()
                away = "the store does not answer" if error.condition == "STORE_AWAY" else error.message.rstrip(".")
                state = f"waiting: {away}, so nobody can see whether the application runs elsewhere"
            if state not in ("", said):
                say(state)
                said = state
            if pause(_POLL_S):
                return None
    finally:
        if home is not None:
            with contextlib.suppress(StoreError):  # then people see it for a while
                home.store.forget_waiting(key)
            home.close()


def _note_waiting(store: Store, key: str) -> None:
    """Say that this process waits, if the store can be written. The owner may be suspended within a write.

    Only people depend on the note. The lease could be read, so the wait continues in any case.
    """
    try:
        store.note_waiting(key, this_process())
    except StoreError as error:
        if error.condition != "STORE_AWAY":
            raise


class LeaseKeeper:
    """Renews the lease of this process, and ends the process if it can't. A context manager that releases the lease.

    One thread renews, and may wait for the store. Another one checks the time, so a store that does not answer can't
    delay it. The time counts from the last renewal that succeeded, or from the takeover: from the moment at which no
    other writer was before it. A waiting process saw it later, so this process ends `MARGIN_S` before the other one may
    start.

    Args: end: ends this process and all that it started, at once.
    """

    def __init__(
        self, home: Home, lasts_s: float, say: Callable[[str], None], *,
        end: Callable[[int, Callable[[], None]], object] = guard.end_at_once,
        clock: Callable[[], float] = seconds_since_boot,
    ) -> None:  # fmt: skip
        self._home, self._lasts_s, self._say, self._end, self._clock = home, lasts_s, say, end, clock
        self._renewed_s = clock() if home.leased_s is None else home.leased_s
        self._over = threading.Event()

    def renew(self) -> None:
        """Renew the lease once. End the process if the home has another owner, or an older store."""
        try:
            renewed_s = self._home.store.renew_lease(self._clock)
        except FalkirkError as error:
            # An older store may let another process take over, which sees no renewal.
            is_lost = guard.is_replaced(error) or error.condition in ("STORE_FELL_BACK", "STORE_REPLACED")
            if is_lost and not self._over.is_set():
                self._end_with(error)
            return
        self._renewed_s = renewed_s
        self._home.name_owner()

    def check(self) -> None:
        """End the process if its lease may soon be over."""
        silent_s = self._clock() - self._renewed_s
        if silent_s > self._lasts_s - MARGIN_S:
            self._end_with(LEASE_LOST.error(where=self._home.path, silent_s=silent_s, lasts_s=self._lasts_s))

    def _end_with(self, error: FalkirkError) -> None:
        """End all children first, since each of them may publish; then say why, and end."""
        self._end(guard.EXIT_FATAL, lambda: self._say(f"{error.condition} {error}"))

    def __enter__(self) -> "LeaseKeeper":
        for step, pause_s in ((self.renew, RENEW_S), (self.check, 0.1)):
            threading.Thread(target=self._repeat, args=(step, pause_s), name="falkirk-lease", daemon=True).start()
        return self

    def _repeat(self, step: Callable[[], None], pause_s: float) -> None:
        while not self._over.wait(pause_s):
            step()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                # A JVM may have outlived its host. The processes that the home names are of this owner, or it says so.
                self._home.store.require_charge()
                self._home.kill_leftovers()
            self._over.set()
            self._home.store.release_lease()
        except (HomeError, StoreError) as failed:  # the next owner waits until the lease is over
            self._over.set()
            self._say(f"the lease was not released: {failed}")


def opened_or_awaited(
    path: Path, application: str, store: str | None, lasts_s: float | None, *, pause: Callable[[float], bool],
    say: Callable[[str], None], data: str | None = None,
) -> Home | None:  # fmt: skip
    """Become the owner at once, or with a lease after the present owner. None: as of `await_home`."""
    if lasts_s is None:
        return open_home(path, application, store, data=data)
    home = await_home(path, application, store, lasts_s=lasts_s, pause=pause, say=say, data=data)
    if home is not None:
        say("this process runs the application now")
    return home


def kept_lease(
    home: Home, lasts_s: float | None, say: Callable[[str], None]
) -> contextlib.AbstractContextManager[object]:
    """Return the keeper of the lease, if there is one."""
    return contextlib.nullcontext() if lasts_s is None else LeaseKeeper(home, lasts_s, say)
