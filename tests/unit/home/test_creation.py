"""Two processes create a home at the same moment: one of them owns it, and both know it by the same identity.

One of them stops before each of its writes in turn, and the other one creates the whole home meanwhile. Both are
threads here: they share no descriptor, so locks and databases treat them as two processes.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from falkirk.errors import FalkirkError
from falkirk.recovery.decision_store.engine import Database
from falkirk.recovery.decision_store.sqlite import SqliteDatabase
from falkirk.recovery.ownership import identity as identities
from falkirk.recovery.ownership.folder import Home, open_home, waiting_home
from tests.postgres import Postgres

#: Far more writes than a creation has.
MANY = 60
PATIENCE_S = 60.0


class Stopping:
    """Runs a function in a thread, and stops it before one of its writes. Args: at: the write's number."""

    def __init__(self, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._at, self.writes = at, list[str]()
        self._stops, self._resumes = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        make = SqliteDatabase.make

        def made(database: SqliteDatabase, *given: Any, **named: Any) -> None:
            self._is_locked = threading.current_thread() is self._thread
            make(database, *given, **named)
            self._is_locked = False

        #: Within its own lock, in which the other one would wait for this one.
        self._is_locked = False
        monkeypatch.setattr(SqliteDatabase, "make", made)
        for owner, name, is_write in (
            (os, "mkdir", lambda *given, **named: True),
            (os, "link", lambda *given, **named: True),
            (os, "replace", lambda *given, **named: True),
            (os, "unlink", lambda *given, **named: True),
            (os, "ftruncate", lambda *given, **named: True),
            (os, "open", lambda path, flags, *rest: bool(flags & os.O_CREAT)),
            (Database, "transaction", lambda self, *, writes: writes),
        ):
            monkeypatch.setattr(owner, name, self._stopping(getattr(owner, name), name, is_write))

    def _stopping(self, call: Callable[..., Any], name: str, is_write: Callable[..., bool]) -> Callable[..., Any]:
        def do(*given: Any, **named: Any) -> Any:
            is_mine = threading.current_thread() is self._thread and not self._is_locked
            if is_mine and is_write(*given, **named):
                self.writes.append(name)
                if len(self.writes) == self._at + 1:
                    self._stops.set()
                    assert self._resumes.wait(PATIENCE_S)
            return call(*given, **named)

        return do

    def run_to_the_stop(self, do: Callable[[], None]) -> bool:
        """Run a function up to the write; return False if it ended before."""

        def run() -> None:
            try:
                do()
            finally:
                self._stops.set()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert self._stops.wait(PATIENCE_S)
        return len(self.writes) > self._at

    def finish(self) -> None:
        """Let it run to its end."""
        self._resumes.set()
        assert self._thread is not None
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


class Creating:
    """Creates a home. Args: waits: with a lease.

    Attributes: home: None if that failed, for the reason of `condition`. owns: whether this became its owner.
    """

    def __init__(self, path: Path, store: str | None, *, waits: bool) -> None:
        self._path, self._store, self._waits = path, store, waits
        self.home: Home | None = None
        self.owns, self.condition = False, ""

    def __call__(self) -> None:
        try:
            make = waiting_home if self._waits else open_home
            self.home = make(self._path, "shop", self._store)
            self.owns = not self._waits or self.home.take_lease(None, 10.0)
        except FalkirkError as error:
            self.condition = error.condition

    def keeps(self) -> bool:
        """Return whether it is still the owner."""
        with suppress(FalkirkError):
            if self.owns and self.home is not None:
                self.home.store.require_charge()
                return True
        return False

    def close(self) -> None:
        if self.home is not None:
            self.home.close()


@pytest.mark.parametrize("waits", [True, False], ids=["wait", "now"])
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_one_of_two_that_create_a_home_owns_it(
    database: str, waits: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = request.getfixturevalue("postgres").url() if database == "postgresql" else None
    for at in range(MANY):
        path = tmp_path / f"home-{at}"
        one, other = (Creating(path, store, waits=waits) for _ in range(2))
        with pytest.MonkeyPatch.context() as patch:
            stopping = Stopping(at, patch)
            was_stopped = stopping.run_to_the_stop(one)
            other()
            stopping.finish()
        where = f"write {at}: {stopping.writes[at:][:1]}"
        assert [one.keeps(), other.keeps()].count(True) == 1, (where, one.condition, other.condition)
        if one.home is not None and other.home is not None:
            assert one.home.identity == other.home.identity, where
        assert {one.condition, other.condition} <= {"", "HOME_IN_USE"}, where
        one.close()
        other.close()
        assert not [file.name for file in path.iterdir() if file.name.startswith(f".{identities.IDENTITY_FILE}")], where
        if not was_stopped:
            break
    assert 5 < at < MANY - 1, "each write was tried"


def test_two_machines_that_see_no_lock_of_each_other_have_one_owner(home: Path, postgres: Postgres) -> None:
    url = postgres.url()
    with waiting_home(home, "shop", url) as one, waiting_home(home, "shop", url) as two:
        assert one.identity == two.identity
        assert one.store.take_lease("one", None, 10.0)
        assert not two.store.take_lease("two", None, 10.0)


def test_a_file_system_without_links_gives_one_identity_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **named: object) -> None:
        raise OSError(identities._NO_LINKS[0], "no links")

    monkeypatch.setattr(os, "link", refuse)
    with waiting_home(home, "shop") as one, waiting_home(home, "shop") as two:
        assert one.identity == two.identity
    assert sorted(file.name for file in home.iterdir() if "falkirk" in file.name) == [identities.IDENTITY_FILE]


def test_a_home_that_is_made_between_two_looks_is_not_damaged(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process finds no identity. Another one makes it and the store. Then the first one finds the store."""
    exists, made = Path.exists, list[Home]()

    def late(path: Path) -> bool:
        found = exists(path)
        if path.name == identities.IDENTITY_FILE and not found and not made:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Path, "exists", exists)
                made.append(waiting_home(home, "shop"))
        return found

    monkeypatch.setattr(Path, "exists", late)
    with waiting_home(home, "shop") as opened:
        assert opened.identity == made[0].identity
    made[0].close()
