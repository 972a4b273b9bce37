"""Files: a folder as a log of one partition whose records are its files, numbered as they are found.

Which file has which number is nobody's law, so it is a decision: recorded before anything of the file is read, with its
size and the time of its last change. Epochs are cut by these numbers, so a replay reads the same files; one that is no
longer what it was is told, and never read instead.

Nobody can tell a file that is being written from one that is whole. So whoever writes one gives it a name that begins
with `_` or `.` until then, and renames it, which a file system does at once or not at all. Two kinds that can be told
are left for later too: those without content, and Parquet files that lack their end.
"""

import logging
import os
import stat
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from falkirk.coordinator.store import Store
from falkirk.endpoints import Files
from falkirk.errors import LogError, StoreError

log = logging.getLogger("falkirk")

_KIND = "files"
#: A folder is not listed more often than this; a replay does not depend on it.
LOOK_S = 0.5
_PARQUET = b"PAR1"
_STRANGE = frozenset(":*?[]{}\\")


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedFile:
    """A file that is a record: its number from 0, and what it was when it got it: bytes, and nanoseconds since 1970."""

    number: int
    name: str
    size: int
    changed_at_ns: int


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
        #: What was listed has not been compared with what has a number.
        self._unseen = False

    def require(self) -> None:
        """See that the folder is there. Raises: LogError: `FOLDER_MISSING`."""
        if not self.folder.is_dir():
            raise self._missing()

    def end(self) -> int:
        """Number what is new; return the number that the next file will get.

        Raises: LogError: `FILE_NAME_INVALID`. StoreError.
        """
        with self._lock:
            numbered = self._known()
            self._list()
            if self._unseen:
                self._number(numbered)
            return len(numbered)

    def there_from(self) -> int:
        """Return the number from which on all files are still there; while the folder can't be listed, 0."""
        with self._lock:
            numbered = self._known()
            self._list()
            if self._names is None:
                return 0
            missing = (file.number + 1 for file in reversed(numbered) if file.name not in self._names)
            return next(missing, 0)

    def paths(self, first: int, last: int) -> dict[Path, int]:
        """Return where the files [first, last) are, with their numbers, if they still are what they were.

        Raises: LogError: `INPUT_EXPIRED`, `INPUT_CHANGED`, `FOLDER_MISSING`.
        """
        with self._lock:
            wanted = self._known()[first:last]
        found: dict[Path, int] = {}
        for file in wanted:
            path = self.folder / file.name
            try:
                now = path.stat()
            except OSError as error:
                self.require()
                raise LogError(
                    "INPUT_EXPIRED",
                    f"file {file.name!r} of {self._source!r} is still needed and is gone: {error.strerror}.",
                    where=path,
                    hint="Put it back as it was, with the time of its last change, or begin with a new home.",
                    source=self._source,
                    file=file.name,
                    number=file.number,
                ) from error
            if (now.st_size, now.st_mtime_ns) != (file.size, file.changed_at_ns):
                raise LogError(
                    "INPUT_CHANGED",
                    f"file {file.name!r} of {self._source!r} was changed after it had been taken for whole.",
                    where=path,
                    hint="Write under a name that begins with '_' or '.', and rename it then. Put this one back as it "
                    f"was ({file.size} bytes, touch -d @{file.changed_at_ns / 1e9:.9f}), or begin with a new home.",
                    source=self._source,
                    file=file.name,
                    number=file.number,
                )
            found[path] = file.number
        return found

    def _known(self) -> list[NumberedFile]:
        if self._numbered is None:
            decided = self._store.decisions(_KIND, self._source)
            self._numbered = [
                NumberedFile(number=d.number + i, name=name, size=size, changed_at_ns=changed)
                for d in decided
                for i, (name, size, changed) in enumerate(d.content)
            ]
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
        self._unseen, new = False, []
        for name in self._names - {file.name for file in numbered}:
            found = self._whole(self.folder / name)
            if found is not None:
                self._check(self.folder / name)
                new.append((found.st_mtime_ns, name, found.st_size))
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

    def _check(self, path: Path) -> None:
        """See that Spark reads what is meant: its paths are URIs and patterns, and one that looks like a pattern was
        seen to be read twice."""
        if not str(path).isprintable() or not _STRANGE.isdisjoint(str(path)):
            raise LogError(
                "FILE_NAME_INVALID",
                f"Spark can't read {str(path)!a}, which {self._source!r} has found.",
                where=self._declared.where,
                hint=f"Rename it: printable characters without {' '.join(sorted(_STRANGE))}. It was not read yet.",
                source=self._source,
                file=path.name,
            )

    def _whole(self, path: Path) -> os.stat_result | None:
        """Return what a file is, or None when it is no file, or plainly not written to its end."""
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode) or found.st_size == 0:
                return None
            if self._declared.format == "parquet" and not _ends_as_parquet(path):
                return None
        except OSError:  # gone again, or not ours to read yet
            return None
        return found

    def _missing(self) -> LogError:
        return LogError(
            "FOLDER_MISSING",
            f"the folder that {self._source!r} reads is not there.",
            where=self._declared.where,
            hint=f"Make {self.folder}, or correct its name.",
            source=self._source,
            folder=str(self.folder),
        )


def _ends_as_parquet(path: Path) -> bool:
    with open(path, "rb") as file:
        if file.read(len(_PARQUET)) != _PARQUET:
            return False
        file.seek(-len(_PARQUET), os.SEEK_END)
        return file.read() == _PARQUET
