"""Folders of rows: decides which files below a folder are read, and which are passed over.

A file is read, or passed over by the convention that all readers of such folders follow, or excluded by the user. If
there is any other file, nothing is read: a file that nobody has read can hide a duplicate.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote

from falkirk.errors.conditions.checker import ROWS_UNREAD

#: The names of a folder's log of files, each with the system that wrote it. Only that log says which files are valid.
_LOGS = {"_delta_log": "Delta Lake", "_spark_metadata": "Spark's streaming file sink", ".hoodie": "Hudi"}
_NULL = "__HIVE_DEFAULT_PARTITION__"
_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFile:
    """A file of rows: its path, its name below the folder, and the columns in the names of its folders."""

    path: Path
    name: str
    columns: Mapping[str, str | None]


@dataclass(slots=True, kw_only=True)
class Listing:
    """The content of a folder."""

    files: list[RowFile] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    #: Entries that may hold rows and can't be read, each with the reason.
    unread: dict[str, str] = field(default_factory=dict)


def files_below(folder: Path, reads: Callable[[str], bool], skipped: tuple[str, ...] = ()) -> Listing:
    """Return the content of `folder`, in the order of names.

    Args:
        reads: whether files of a name are read. skipped: patterns that the user excludes. They match a name, or a path
            below the folder.
    Raises: LogError: `ROWS_UNREAD`: a file can't be read and may hold rows. OSError: a folder can't be read.
    """
    found = Listing()
    _look(folder, Path(), {}, found, reads, skipped, frozenset([_identity(folder.stat())]))
    if found.unread:
        names = ", ".join(f"{name} ({why})" for name, why in list(found.unread.items())[:_SHOWN_MAX])
        raise ROWS_UNREAD.error(where=folder, unread=found.unread, count=len(found.unread), names=names)
    return found


def _look(
    folder: Path,
    below: Path,
    columns: Mapping[str, str | None],
    found: Listing,
    reads: Callable[[str], bool],
    skipped: tuple[str, ...],
    above: frozenset[tuple[int, int]],
) -> None:
    for name in sorted(os.listdir(folder)):
        path, relative = folder / name, str(below / name)
        if any(fnmatchcase(name, pattern) or fnmatchcase(relative, pattern) for pattern in skipped):
            found.passed_over.append(f"{relative} (as asked)")
        elif name in _LOGS:
            found.unread[relative] = f"by {_LOGS[name]}: only its log says which files are valid"
        elif _is_hidden(name):
            found.passed_over.append(f"{relative} (hidden)")
        else:
            try:
                status = path.stat()
            except OSError as error:
                found.unread[relative] = f"a broken link: {error.strerror}" if path.is_symlink() else str(error)
                continue
            if stat.S_ISDIR(status.st_mode):
                if _identity(status) in above:
                    found.unread[relative] = "a link to a folder above it"
                    continue
                inside = {**columns, **dict(_column_of(name))}
                _look(path, below / name, inside, found, reads, skipped, above | {_identity(status)})
            elif not stat.S_ISREG(status.st_mode):
                found.unread[relative] = "not a file"
            elif reads(name):
                found.files.append(RowFile(path=path, name=relative, columns=columns))
            elif not status.st_size:
                found.passed_over.append(f"{relative} (empty)")
            else:
                found.unread[relative] = "of an unknown type"


def _is_hidden(name: str) -> bool:
    """Whether readers of such folders ignore the name. Source: Spark's HadoopFSUtils.shouldFilterOutPathName."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def _column_of(folder: str) -> Iterator[tuple[str, str | None]]:
    """Yield the column in the name of a folder such as ``day=2024-01-02``, if there is one."""
    name, equals, value = folder.partition("=")
    if equals and name:
        yield unquote(name), None if value == _NULL else unquote(value)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
