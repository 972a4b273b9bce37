"""SQLite: keeps the store in a SQLite file, the default. It needs no setup, and nothing outside the home.

A new file is built under another name and renamed. So an existing file is a whole store or a torn one, and an empty
file is never mistaken for a new store. With write-ahead logging, readers continue beside a writer. Every commit is on
the disk (synchronous=FULL) before a method returns.

An open file that somebody replaces by renaming another one has no name any more, and nobody would read its commits
again. So each transaction compares the file at the path with the one that was opened, at its beginning and after its
commit. The write-ahead log keeps its name, and SQLite would apply it to the new file. So a small file notes which log
belongs to which file, and a start refuses the log of another one.
"""

import contextlib
import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sql

from falkirk.errors.conditions.decision_store import STORE_LOG_FOREIGN, STORE_REPLACED
from falkirk.platform import private
from falkirk.recovery.decision_store.engine import Database

_PAGE_MIN = 512
_Identity = tuple[int, int]
#: The errors that pass: another writer, a full disk.
_AWAY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL}


class SqliteDatabase(Database):
    """The store in a SQLite file."""

    def __init__(self, path: Path, *, timeout_s: float) -> None:
        super().__init__()
        self._path, self._timeout_s = path.absolute(), timeout_s
        self.where = path
        self.engine = self._open(self._path, "rw")
        #: A connection that only looks for commits of others, and never writes.
        self._watching: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        #: The device and the number of the file, and of its write-ahead log, once they are known.
        self._file: _Identity | None = None
        self._log: _Identity | None = None

    @property
    def _advice(self) -> tuple[str, str]:
        return (
            "Free disk space if the disk is full. Otherwise find a stopped process that has not finished its write.",
            "Restore the file from a backup, or use a new home.",
        )

    def _open(self, path: Path, mode: str) -> sql.Engine:
        url = sql.URL.create("sqlite", database=_uri(path), query={"mode": mode, "uri": "true"})
        engine = sql.create_engine(url, connect_args={"timeout": self._timeout_s})
        sql.event.listen(engine, "connect", _durable)
        return engine

    def make(self, build: Callable[[sql.Connection], None], *, must_exist: bool) -> None:
        """Make the file, whole or not at all, if there is none."""
        try:
            if self._path.exists():
                found = private.require_ours(self._path)
                if found.st_size < _PAGE_MIN:  # SQLite would make a new database in it
                    raise self.unreadable("the file is empty or truncated")
                if found.st_mode & 0o077 and found.st_uid == os.geteuid():
                    self._path.chmod(0o600)
                self._require_own_log()
                self._file = _identity(self._path)
                return
            if must_exist:
                raise self.unreadable("there is no file")
            with _locked(self._path.parent):
                if not self._path.exists():
                    self._make(build)
            self._file = _identity(self._path)
        except OSError as error:
            raise self.unreadable(f"no file can be there: {error.strerror}") from error

    def _make(self, build: Callable[[sql.Connection], None]) -> None:
        if self._path.with_name(f"{self._path.name}-wal").exists():
            # SQLite would replay this log into the new file.
            raise self.unreadable("its write-ahead log exists, but the file itself is missing")
        fresh = self._path.with_name(f".{self._path.name}.new")
        for left_over in ("", "-wal", "-shm", "-journal"):  # left by a killed process; this one holds the lock
            fresh.with_name(f"{fresh.name}{left_over}").unlink(missing_ok=True)
        os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # its other files get the same rights
        present, self.engine = self.engine, self._open(fresh, "rwc")
        try:
            with self.transaction(writes=True) as db:
                build(db)
        finally:
            self.engine.dispose()  # the last connection copies the write-ahead log into the file
            self.engine = present
        os.replace(fresh, self._path)
        _synchronise(self._path.parent)

    def check(self, connection: sql.Connection) -> None:
        """Read every page."""
        found = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
        if found != "ok":
            raise self.unreadable(f"SQLite finds: {found}")

    def prepare_migration(self, connection: sql.Connection) -> None:
        """Do nothing: a file has only one set of tables."""

    def version(self) -> object:
        """Return a number that SQLite changes when another connection commits, in this process or in another one."""
        with self._lock:
            try:
                if self._watching is None:
                    self._watching = sqlite3.connect(
                        f"{_uri(self._path)}?mode=rw", uri=True, timeout=self._timeout_s, check_same_thread=False
                    )
                return self._watching.execute("PRAGMA data_version").fetchone()[0]
            except sqlite3.Error:  # the read that follows says why
                return None

    def close(self) -> None:
        """Close the connections to the file."""
        super().close()
        with self._lock:
            if self._watching is not None:
                self._watching.close()
                self._watching = None

    @contextlib.contextmanager
    def transaction(self, *, writes: bool) -> Iterator[sql.Connection]:
        """See Database. Raises, too: StoreError: `STORE_REPLACED`: the next start may not know what was written."""
        self._require_same_file()
        with super().transaction(writes=writes) as connection:
            yield connection
        if writes:
            self._require_same_file()

    def _require_same_file(self) -> None:
        """Refuse a file that is not the opened one. Raises: StoreError: `STORE_REPLACED`."""
        if self._file is not None and (present := _identity(self._path)) != self._file:
            raise STORE_REPLACED.error(
                where=self.where, how="deleted" if present is None else "replaced by another one"
            )

    def _require_own_log(self) -> None:
        """Refuse the write-ahead log of another file. Raises: StoreError: `STORE_LOG_FOREIGN`."""
        try:
            noted = json.loads(self._note.read_text())
            of_file, of_log = tuple(noted["file"]), tuple(noted["log"])
        except (OSError, ValueError, KeyError, TypeError):
            return  # nothing was noted, or only half of it before a loss of power
        log = self._beside("-wal")
        if of_log == _identity(log) and of_file != _identity(self._path) and log.stat().st_size:
            raise STORE_LOG_FOREIGN.error(where=self.where, log=log.name)

    def _note_log(self) -> None:
        """Note which file the write-ahead log belongs to, before anything is written to it."""
        log = None if self._file is None else _identity(self._beside("-wal"))
        if log is None or log == self._log:
            return
        fresh = self._note.with_name(f"{self._note.name}.{os.getpid()}")
        with contextlib.suppress(OSError):  # without the note, a start compares nothing
            with open(fresh, "w", opener=_private) as file:
                json.dump({"file": self._file, "log": log}, file)
            os.replace(fresh, self._note)
            self._log = log

    @property
    def _note(self) -> Path:
        return self._beside("-log-of")

    def _beside(self, ending: str) -> Path:
        return self._path.with_name(f"{self._path.name}{ending}")

    def _begin(self, connection: sql.Connection, *, writes: bool) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
        if writes:
            self._note_log()

    def _is_away(self, error: sql.exc.DBAPIError) -> bool:
        return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _AWAY


def _identity(path: Path) -> _Identity | None:
    """Return the device and the number of a file; None: there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _uri(path: Path) -> str:
    return f"file:{quote(str(path))}"


def _durable(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin with `_begin`, not with the first write
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder. It leaves no file behind."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _synchronise(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
