"""Files: a folder as a log of one partition whose records are its files, numbered as they are found.

The number of a file is arbitrary, so it is a decision. Falkirk records it with the file's size and the time of its last
change before it reads the file. Epochs are cut by these numbers, so a replay reads the same files. Falkirk reports a
file that has changed since, and never reads it.

A file that is still being written looks like a complete one. So a writer must give it a name that begins with `_` or
`.`, and rename it when it is complete, which is atomic. Two kinds of incomplete files can be recognised and are left
for later too: empty files, and Parquet files without their end.

A user who may write the folder must not be able to read files of Falkirk's user through it, or to stop the application.
So a symbolic link never counts as a file, and files that can't be read are skipped and reported. A file that proves
unreadable after it got its number is *refused*: the store records that before an epoch is computed without the file
(`falkirk/runtime/spark/epochs/unreadable.py`). If a file was changed or removed, the reader waits: `is_lost`.
"""

import logging
import math
import os
import shlex
import stat
import threading
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from falkirk.declare.endpoints import Files
from falkirk.errors import LogError, StoreError
from falkirk.errors.conditions.spark import (
    FILE_NAME_INVALID,
    FILE_UNKNOWN_UNREAD,
    FOLDER_MISSING,
    FOLDER_MISSING_UNLISTED,
    INPUT_CHANGED,
    INPUT_CHANGED_PERMISSION,
    INPUT_EXPIRED_FILE,
)
from falkirk.platform.terminal import one_line
from falkirk.recovery.decision_store import Store
from falkirk.theory.ids import Offset

log = logging.getLogger("falkirk")

_KIND, _REFUSED = "files", "refused file"
#: A folder is not listed more often than this; a replay does not depend on it.
LISTED_S = 0.5
_PARQUET = b"PAR1"
#: A line of the status names at most this many files.
NAMED_MAX = 3
_STRANGE = frozenset(":*?[]{}\\")
#: Conditions in which a file or folder must be put back before its reader resumes. Topics use the second one too.
_LOST = ("INPUT_CHANGED", "INPUT_EXPIRED", "FOLDER_MISSING")
_REASON_MAX = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedFile:
    """A file that is a record: its number from 0, and its size in bytes and time of change in ns since 1970 by then."""

    number: Offset
    name: str
    size: int
    changed_at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedFile:
    """A numbered file that every incomplete epoch leaves out."""

    name: str
    reason: str


class FileLog:
    """The files of one source, shared by all its readers in this process.

    Args: source: its name in the application. files: the declared folder. poll_s: how long a listing serves.
    """

    def __init__(self, source: str, files: Files, store: Store, poll_s: float = LISTED_S) -> None:
        self.poll_s = poll_s
        self.folder = Path(files.path).absolute()
        self._source, self._declared, self._store = source, files, store
        self._lock = threading.Lock()
        self._numbered: list[NumberedFile] | None = None
        self._names: frozenset[str] | None = None
        self._listed_at_s = -math.inf
        #: Why the last listing failed, if it did.
        self._unlisted = ""
        #: The files that the last listing skipped, by name, with the reasons.
        self._skipped: dict[str, str] = {}
        #: The refused files by number, as last read from the store.
        self._refused: dict[Offset, RefusedFile] = {}
        #: Device, inode and change time of files when a reader last asked for them, by reader and name.
        self._identities: dict[tuple[str, str], tuple[int, int, int]] = {}
        #: The last listing has not yet been compared with the numbered files.
        self._unseen = False

    def require(self) -> None:
        """Check that the folder exists. Raises: LogError: `FOLDER_MISSING`, `FILE_NAME_INVALID`."""
        if not self.folder.is_dir():
            raise self._missing()
        if not _is_readable_name(str(self.folder)):
            raise FILE_NAME_INVALID.error(
                where=self._declared.where,
                source=self._source,
                file=str(self.folder),
                strange=" ".join(sorted(_STRANGE)),
            )

    @property
    def skipped(self) -> dict[str, str]:
        """The files that the last listing skipped, by name, with the reasons."""
        return dict(self._skipped)

    def report(self) -> str:
        """Return in one line the skipped and refused files of the folder; an empty text if there are none."""
        there = self._names or frozenset()
        refused = {file.name: file.reason for file in self._refused.values() if file.name in there}
        parts = (self._named("skipped", self.skipped), self._named("refused", refused))
        return "; ".join(part for part in parts if part)

    def _named(self, what: str, files: dict[str, str]) -> str:
        named = ", ".join(f"{name!a} ({why})" for name, why in sorted(files.items())[:NAMED_MAX])
        more = f" and {len(files) - NAMED_MAX} more" if len(files) > NAMED_MAX else ""
        return f"{what} in {self._source!r}: {named}{more}" if files else ""

    def end(self) -> Offset:
        """Number the new files; return the number that the next file will get. Raises: StoreError."""
        with self._lock:
            numbered = self._known()
            self._list()
            if self._unseen:
                self._number(numbered)
            return Offset(len(numbered))

    def present_end(self) -> Offset:
        """Return the end as `end`, from a listing of its own. Raises: LogError: `FOLDER_MISSING`. StoreError."""
        with self._lock:
            self._listed_at_s = -math.inf
        end = self.end()
        if self._names is None:
            raise FOLDER_MISSING_UNLISTED.error(
                where=self._declared.where, source=self._source, folder=str(self.folder), reason=self._unlisted
            )
        return end

    def there_from(self) -> Offset:
        """Return the number from which on all files, except refused ones, still exist.

        Returns 0 while the folder can't be listed.
        """
        with self._lock:
            numbered = self._known()
            self._list()
            if self._names is None:
                return Offset(0)
            needed = (file for file in reversed(numbered) if file.number not in self._refused)
            return Offset(next((file.number + 1 for file in needed if file.name not in self._names), 0))

    def refused(self) -> dict[Offset, RefusedFile]:
        """Return the refused files by number, as the store has them now. Raises: StoreError."""
        with self._lock:
            return self._ask_refused()

    def refuse(self, number: Offset, reason: str) -> None:
        """Record that incomplete epochs leave out a file. Complete epochs keep its rows.

        Raises: StoreError.
        """
        with self._lock:
            if number in self._ask_refused():
                return
            name = self._known()[number].name
            content = {"file": name, "reason": one_line(reason)[:_REASON_MAX]}
            try:
                self._store.record_decision(_REFUSED, self._source, number, content)
            except StoreError as error:
                if error.condition != "DECISION_CONTRADICTED":  # refused by another process, for another reason
                    raise
            self._ask_refused()
        log.warning("%s: refused file %a: %s", self._source, name, content["reason"])

    def disown(self, name: str) -> None:
        """Refuse a file on the operator's request. Raises: DefinitionError: `FILE_UNKNOWN`. StoreError."""
        number = next((file.number for file in self._known() if file.name == name), None)
        if number is None:
            raise FILE_UNKNOWN_UNREAD.error(where=self.folder, source=self._source, file=name)
        self.refuse(number, "disowned by the operator")

    def _ask_refused(self) -> dict[Offset, RefusedFile]:
        decided = self._store.decisions(_REFUSED, self._source)
        self._refused = {
            Offset(d.number): RefusedFile(name=d.content["file"], reason=d.content["reason"]) for d in decided
        }
        return dict(self._refused)

    def numbered(self, first: Offset, last: Offset) -> tuple[NumberedFile, ...]:
        """Return the files [first, last), as recorded when they were numbered. They may be deleted by now."""
        with self._lock:
            return tuple(self._known()[first:last])

    def paths(
        self, first: Offset, last: Offset, *, without: Container[Offset] = (), reader: str = ""
    ) -> dict[Path, Offset]:
        """Return the paths of the files [first, last) with their numbers, if the files are unchanged.

        Args: without: numbers of files that are left out. reader: the name of the batch that reads them.
        Raises: LogError: `INPUT_EXPIRED`, `INPUT_CHANGED`, `FOLDER_MISSING`.
        """
        with self._lock:
            wanted = [file for file in self._known()[first:last] if file.number not in without]
        found: dict[Path, Offset] = {}
        for file in wanted:
            path = self.folder / file.name
            try:
                now = path.lstat()
            except OSError as error:
                self.require()
                raise INPUT_EXPIRED_FILE.error(
                    where=path,
                    source=self._source,
                    file=file.name,
                    number=file.number,
                    reason=error.strerror,
                    or_else=self._or_disown(file),
                ) from error
            # A link that replaces the file for a moment changes the inode or the change time. So a reader calls this
            # twice: before it reads, and before its rows count. The findings of another reader meanwhile prove nothing.
            identity, place = (now.st_dev, now.st_ino, now.st_ctime_ns), (reader, file.name)
            same = self._identities.pop(place, identity) == identity and stat.S_ISREG(now.st_mode)
            if not same or (now.st_size, now.st_mtime_ns) != (file.size, file.changed_at_ns):
                raise INPUT_CHANGED.error(
                    where=path,
                    source=self._source,
                    file=file.name,
                    number=file.number,
                    size=file.size,
                    changed_at_s=file.changed_at_ns / 1000000000.0,
                    or_else=self._or_disown(file),
                )
            self._identities[place] = identity  # removed after a change, so a change of permissions costs one retry
            if not os.access(path, os.R_OK):
                raise INPUT_CHANGED_PERMISSION.error(
                    where=path, source=self._source, file=file.name, number=file.number, or_else=self._or_disown(file)
                )
            found[path] = file.number
        return found

    def places(self, first: Offset, last: Offset) -> list[Path]:
        """Return the paths of the files [first, last), without a look at the folder."""
        with self._lock:
            return [self.folder / file.name for file in self._known()[first:last]]

    def _or_disown(self, file: NumberedFile) -> str:
        name = shlex.quote(f"{self._source}/{file.name}")
        return f"If you can't: `falkirk disown FILE {name}` leaves it out of all incomplete epochs."

    def _known(self) -> list[NumberedFile]:
        if self._numbered is None:
            decided = self._store.decisions(_KIND, self._source)
            self._numbered = [
                NumberedFile(number=Offset(d.number + i), name=name, size=size, changed_at_ns=changed)
                for d in decided
                for i, (name, size, changed) in enumerate(d.content)
            ]
            self._ask_refused()
        return self._numbered

    def _list(self) -> None:
        """List the folder, unless the last listing is recent."""
        if time.monotonic() - self._listed_at_s < self.poll_s:
            return
        try:
            self._names = frozenset(n for n in os.listdir(self.folder) if not n.startswith(("_", ".")))
        except OSError as error:
            if self._names is not None:
                log.warning("the files of %r can't be listed: %s", self._source, error)
            self._names, self._unseen, self._unlisted = None, False, str(error.strerror)
            return
        self._listed_at_s, self._unseen = time.monotonic(), True

    def _number(self, numbered: list[NumberedFile]) -> None:
        assert self._names is not None
        self._unseen = False
        found: list[tuple[int, str, int] | None] = []
        skipped: dict[str, str] = {}
        for name in self._names - {file.name for file in numbered}:
            try:
                found.append(self._examine(name))
            except _Skipped as reason:
                skipped[name] = str(reason)
            except OSError:  # it was removed meanwhile
                continue
        self._tell(skipped)
        new = [each for each in found if each is not None]
        if not new:
            return
        content = [[name, size, changed] for changed, name, size in sorted(new)]
        first = len(numbered)
        try:
            self._store.record_decision(_KIND, self._source, first, content)
        except StoreError:
            self._numbered = None  # read it again, because the store may have recorded it before the error
            raise
        numbered += [
            NumberedFile(number=Offset(first + i), name=name, size=size, changed_at_ns=changed)
            for i, (changed, name, size) in enumerate(sorted(new))
        ]

    def _examine(self, name: str) -> tuple[int, str, int] | None:
        """Return the time of a file's last change, its name and its size; None while it is clearly incomplete.

        Raises: _Skipped: the file is never read unless it changes. OSError: it was removed.
        """
        path = self.folder / name
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            raise _Skipped("a symbolic link")
        if not stat.S_ISREG(found.st_mode) or found.st_size == 0:
            return None
        # Spark's paths are URIs and patterns, and Spark may read a file twice whose name looks like a pattern.
        if not _is_readable_name(name):
            raise _Skipped("Spark can't read such a name")
        if not os.access(path, os.R_OK):
            raise _Skipped("no right to read it")
        if self._declared.format == "parquet" and not _ends_as_parquet(path):
            return None
        return found.st_mtime_ns, name, found.st_size

    def _tell(self, skipped: dict[str, str]) -> None:
        """Remember the skipped files, and log each of them once."""
        for name in sorted(skipped.keys() - self._skipped.keys()):
            log.warning("%s: skipped file %a: %s", self._source, name, skipped[name])
        self._skipped = skipped

    def _missing(self) -> LogError:
        return FOLDER_MISSING.error(where=self._declared.where, source=self._source, folder=str(self.folder))


class _Skipped(Exception):
    """A file that is never read unless it changes; the text gives the reason."""


def is_lost(error: BaseException) -> bool:
    """Return whether an error means that a file or its folder must be put back. Its reader waits for that."""
    if not isinstance(error, LogError) or error.condition not in _LOST:
        return False
    return "file" in error.parameters or "folder" in error.parameters


def _is_readable_name(name: str) -> bool:
    return name.isprintable() and _STRANGE.isdisjoint(name)


def _ends_as_parquet(path: Path) -> bool:
    # Meanwhile a pipe may have replaced the file, so that opening it would block, or a link.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        if file.read(len(_PARQUET)) != _PARQUET:
            return False
        file.seek(-len(_PARQUET), os.SEEK_END)
        return file.read() == _PARQUET
