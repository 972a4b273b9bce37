"""Files: a folder as a log of one partition whose records are its files, numbered as they are found.

Which file has which number is nobody's law, so it is a decision: recorded before anything of the file is read, with its
size and the time of its last change. Epochs are cut by these numbers, so a replay reads the same files; one that is no
longer what it was is told, and never read instead.

Nobody can tell a file that is being written from one that is whole. So whoever writes one gives it a name that begins
with `_` or `.` until then, and renames it, which a file system does at once or not at all. Two kinds that can be told
are left for later too: those without content, and Parquet files that lack their end.

Whoever may write the folder must not be able to read by it what Falkirk's user can read, or stop the application. So a
symbolic link is no file, neither when it is found nor when it is read, and what can't be read is skipped and reported.
A file that proves unreadable after it got its number is *refused*: the store has that before an epoch is computed
without the file (`falkirk/runtime/epochs/unreadable.py`). A file that was changed or removed is waited for: `is_lost`.
"""

import logging
import os
import shlex
import stat
import threading
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from falkirk.declare.endpoints import Files
from falkirk.errors import DefinitionError, LogError, StoreError
from falkirk.store import Store
from falkirk.system.terminal import one_line

log = logging.getLogger("falkirk")

_KIND, _REFUSED = "files", "refused file"
#: A folder is not listed more often than this; a replay does not depend on it.
LOOK_S = 0.5
_PARQUET = b"PAR1"
#: A line of the status names so many files.
NAMED_MAX = 3
_STRANGE = frozenset(":*?[]{}\\")
#: What has to be put back before its reader resumes. A topic has the second condition, too.
_LOST = ("INPUT_CHANGED", "INPUT_EXPIRED", "FOLDER_MISSING")
_REASON_MAX = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedFile:
    """A file that is a record: its number from 0, and what it was when it got it: bytes, and nanoseconds since 1970."""

    number: int
    name: str
    size: int
    changed_at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedFile:
    """A file that has a number, and is left out of every epoch that is not complete yet."""

    name: str
    reason: str


class FileLog:
    """The files of one source, for all that read it in this process.

    Args: source: its name in the application. files: where they are.
    """

    def __init__(self, source: str, files: Files, store: Store) -> None:
        self.folder = Path(files.path).absolute()
        self._source, self._declared, self._store = source, files, store
        self._lock = threading.Lock()
        self._numbered: list[NumberedFile] | None = None
        self._names: frozenset[str] | None = None
        self._listed_at_s = -LOOK_S
        #: Why files were passed over, by name, as of the last look.
        self._skipped: dict[str, str] = {}
        #: The files that were refused, by number, when the store was last asked.
        self._refused: dict[int, RefusedFile] = {}
        #: Device, inode and change time of files as they were when this process last asked for them.
        self._identities: dict[str, tuple[int, int, int]] = {}
        #: What was listed has not been compared with what has a number.
        self._unseen = False

    def require(self) -> None:
        """See that the folder is there. Raises: LogError: `FOLDER_MISSING`, `FILE_NAME_INVALID`."""
        if not self.folder.is_dir():
            raise self._missing()
        if not _is_readable_name(str(self.folder)):
            raise LogError(
                "FILE_NAME_INVALID",
                f"Spark can't read files in {str(self.folder)!a}.",
                where=self._declared.where,
                hint=f"Rename the folder: use printable characters without {' '.join(sorted(_STRANGE))}.",
                source=self._source,
                file=str(self.folder),
            )

    @property
    def skipped(self) -> dict[str, str]:
        """The files that were passed over at the last look, by name, and why."""
        return dict(self._skipped)

    def report(self) -> str:
        """Return in one line which files of the folder were skipped or refused; nothing, if there are none."""
        there = self._names or frozenset()
        refused = {file.name: file.reason for file in self._refused.values() if file.name in there}
        parts = (self._named("skipped", self.skipped), self._named("refused", refused))
        return "; ".join(part for part in parts if part)

    def _named(self, what: str, files: dict[str, str]) -> str:
        named = ", ".join(f"{name!a} ({why})" for name, why in sorted(files.items())[:NAMED_MAX])
        more = f" and {len(files) - NAMED_MAX} more" if len(files) > NAMED_MAX else ""
        return f"{what} in {self._source!r}: {named}{more}" if files else ""

    def end(self) -> int:
        """Number what is new; return the number that the next file will get. Raises: StoreError."""
        with self._lock:
            numbered = self._known()
            self._list()
            if self._unseen:
                self._number(numbered)
            return len(numbered)

    def there_from(self) -> int:
        """Return the number from which on all files are still there, but for refused ones; while the folder can't be
        listed, 0."""
        with self._lock:
            numbered = self._known()
            self._list()
            if self._names is None:
                return 0
            needed = (file for file in reversed(numbered) if file.number not in self._refused)
            return next((file.number + 1 for file in needed if file.name not in self._names), 0)

    def refused(self) -> dict[int, RefusedFile]:
        """Return the refused files by number, as the store has them now. Raises: StoreError."""
        with self._lock:
            return self._ask_refused()

    def refuse(self, number: int, reason: str) -> None:
        """Record that epochs which are not complete yet do without a file. Complete ones keep its rows.

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
        """Refuse a file because the operator says so. Raises: DefinitionError: `FILE_UNKNOWN`. StoreError."""
        number = next((file.number for file in self._known() if file.name == name), None)
        if number is None:
            raise DefinitionError(
                "FILE_UNKNOWN",
                f"{self._source!r} has not taken in a file {name!r}.",
                where=self.folder,
                hint="Name a file that a status or an error names, as SOURCE/FILE.",
                source=self._source,
                file=name,
            )
        self.refuse(number, "disowned by the operator")

    def _ask_refused(self) -> dict[int, RefusedFile]:
        decided = self._store.decisions(_REFUSED, self._source)
        self._refused = {d.number: RefusedFile(name=d.content["file"], reason=d.content["reason"]) for d in decided}
        return dict(self._refused)

    def paths(self, first: int, last: int, *, without: Container[int] = ()) -> dict[Path, int]:
        """Return where the files [first, last) are, with their numbers, if they still are what they were.

        Args: without: numbers of files that are left out.
        Raises: LogError: `INPUT_EXPIRED`, `INPUT_CHANGED`, `FOLDER_MISSING`.
        """
        with self._lock:
            wanted = [file for file in self._known()[first:last] if file.number not in without]
        found: dict[Path, int] = {}
        for file in wanted:
            path = self.folder / file.name
            try:
                now = path.lstat()
            except OSError as error:
                self.require()
                raise LogError(
                    "INPUT_EXPIRED",
                    f"file {file.name!r} of {self._source!r} is still needed and is gone: {error.strerror}.",
                    where=path,
                    hint=f"Put it back as it was, with the time of its last change. {self._or_disown(file)}",
                    source=self._source,
                    file=file.name,
                    number=file.number,
                ) from error
            # Whoever puts a link in its place for a moment changes the one or the other. So a reader asks twice: before
            # it reads, and before what it has read counts.
            identity = (now.st_dev, now.st_ino, now.st_ctime_ns)
            same = self._identities.pop(file.name, identity) == identity and stat.S_ISREG(now.st_mode)
            if not same or (now.st_size, now.st_mtime_ns) != (file.size, file.changed_at_ns):
                raise LogError(
                    "INPUT_CHANGED",
                    f"file {file.name!r} of {self._source!r} was changed after it had been taken for whole.",
                    where=path,
                    hint="Write under a name that begins with '_' or '.', and rename it then. Put this one back as it "
                    f"was ({file.size} bytes, touch -d @{file.changed_at_ns / 1e9:.9f}). {self._or_disown(file)}",
                    source=self._source,
                    file=file.name,
                    number=file.number,
                )
            self._identities[file.name] = identity  # forgotten if it has changed: a change of rights costs one retry
            if not os.access(path, os.R_OK):
                raise LogError(
                    "INPUT_CHANGED",
                    f"file {file.name!r} of {self._source!r} is still needed, and its rights keep Falkirk's user out.",
                    where=path,
                    hint=f"Give the right to read it. {self._or_disown(file)}",
                    source=self._source,
                    file=file.name,
                    number=file.number,
                )
            found[path] = file.number
        return found

    def _or_disown(self, file: NumberedFile) -> str:
        name = shlex.quote(f"{self._source}/{file.name}")
        return f"If you can't: `falkirk disown FILE {name}` leaves it out of all epochs that are not complete."

    def _known(self) -> list[NumberedFile]:
        if self._numbered is None:
            decided = self._store.decisions(_KIND, self._source)
            self._numbered = [
                NumberedFile(number=d.number + i, name=name, size=size, changed_at_ns=changed)
                for d in decided
                for i, (name, size, changed) in enumerate(d.content)
            ]
            self._ask_refused()
        return self._numbered

    def _list(self) -> None:
        """Look which files there are, if it is time to."""
        if time.monotonic() - self._listed_at_s < LOOK_S:
            return
        try:
            self._names = frozenset(n for n in os.listdir(self.folder) if not n.startswith(("_", ".")))
        except OSError as error:
            if self._names is not None:
                log.warning("the files of %r can't be listed: %s", self._source, error)
            self._names, self._unseen = None, False
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
            except OSError:  # it is gone again
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
            self._numbered = None  # it may be recorded, and nobody was told
            raise
        numbered += [
            NumberedFile(number=first + i, name=name, size=size, changed_at_ns=changed)
            for i, (changed, name, size) in enumerate(sorted(new))
        ]

    def _examine(self, name: str) -> tuple[int, str, int] | None:
        """Return when a file was last changed, its name and its size; None while it is plainly not whole.

        Raises: _Skipped: it is never read, as it is. OSError: it is gone.
        """
        path = self.folder / name
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            raise _Skipped("a symbolic link")
        if not stat.S_ISREG(found.st_mode) or found.st_size == 0:
            return None
        # Spark's paths are URIs and patterns, and one that looks like a pattern was seen to be read twice.
        if not _is_readable_name(name):
            raise _Skipped("Spark can't read such a name")
        if not os.access(path, os.R_OK):
            raise _Skipped("no right to read it")
        if self._declared.format == "parquet" and not _ends_as_parquet(path):
            return None
        return found.st_mtime_ns, name, found.st_size

    def _tell(self, skipped: dict[str, str]) -> None:
        """Take note of what was passed over; say it once of each."""
        for name in sorted(skipped.keys() - self._skipped.keys()):
            log.warning("%s: skipped file %a: %s", self._source, name, skipped[name])
        self._skipped = skipped

    def _missing(self) -> LogError:
        return LogError(
            "FOLDER_MISSING",
            f"the folder that {self._source!r} reads is not there.",
            where=self._declared.where,
            hint=f"Make {self.folder}, or correct its name.",
            source=self._source,
            folder=str(self.folder),
        )


class _Skipped(Exception):
    """A file that is never read as it is; the text says why."""


def is_lost(error: BaseException) -> bool:
    """Tell whether an error is that a file, or its folder, has to be put back: who reads it waits for that."""
    if not isinstance(error, LogError) or error.condition not in _LOST:
        return False
    return "file" in error.parameters or "folder" in error.parameters


def _is_readable_name(name: str) -> bool:
    return name.isprintable() and _STRANGE.isdisjoint(name)


def _ends_as_parquet(path: Path) -> bool:
    # What has taken its place meanwhile may be a pipe, whose opening would wait, or a link.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        if file.read(len(_PARQUET)) != _PARQUET:
            return False
        file.seek(-len(_PARQUET), os.SEEK_END)
        return file.read() == _PARQUET
