"""Piles: rows kept in order in files of a temporary folder, so that they may exceed memory.

Rows are added to many piles at once, and wait in memory until they are many. Then each pile appends its waiting rows to
its file. A small run never writes to disk.
"""

import pickle
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from falkirk.errors.conditions.checker import FOLDER_UNUSABLE

T = TypeVar("T")

#: Rows of a few short fields, with their content, take this many times as many bytes in memory as in a file.
EXPANSION = 14
#: The number of waiting rows before their size is known.
FIRST_ROWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The memory and folder that the checker may use. Rows beyond the memory go to the folder.

    Args:
        memory_bytes: approximate bound on the rows in memory. A single key is judged as a whole, however large it is.
        parts: the initial number of parts; a part that is still too large is divided again.
        linked_rows: how many rows of keys that share inputs are decided together (see `falkirk.checker.spanning`).
            Larger groups stay open. By default as many rows as fit into memory.
        folder: the parent of the temporary folder; by default the system's folder for temporary files.
    """

    memory_bytes: int = 1 << 30
    parts: int = 64
    linked_rows: int | None = None
    folder: Path | None = None

    @property
    def linked_rows_max(self) -> int:
        """`linked_rows`, or its default: a row, its result and the search for it take two kilobytes."""
        return self.memory_bytes >> 11 if self.linked_rows is None else self.linked_rows

    @property
    def part_bytes(self) -> int:
        """The bytes in files that are read and judged at once. One fourth of the memory stays free for waiting rows."""
        return max(1, self.memory_bytes * 3 // 4 // EXPANSION)


class SpillFiles:
    """The piles of one run. The end of the context removes their files."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._folder: Path | None = None
        self._all: list[SpilledRows[object]] = []
        #: The number of rows that may be added before all waiting rows are written. Until their size is known, a row is
        #: assumed to take at most one kilobyte, and waiting rows may take a fourth of the memory.
        self.room = min(FIRST_ROWS, max(1, space.memory_bytes >> 12))
        self._written_rows = 0
        self._written_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def several(self, count: int) -> "list[SpilledRows[T]]":
        """Return new empty piles."""
        made: list[SpilledRows[T]] = [SpilledRows(self, len(self._all) + each) for each in range(count)]
        self._all.extend(made)  # type: ignore[arg-type]
        return made

    @property
    def row_bytes(self) -> float:
        """The average size of a row in a file, so far."""
        return self._written_bytes / self._written_rows if self._written_rows else 0.0

    def write(self) -> None:
        """Write all waiting rows.

        Raises: MachineError: `FOLDER_UNUSABLE`.
        """
        try:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="falkirk-check-", dir=self._space.folder))
            for pile in self._all:
                if pile.waiting:
                    self._written_rows += len(pile.waiting)
                    self._written_bytes += pile.write(self._folder)
        except OSError as cause:
            raise FOLDER_UNUSABLE.error(
                where=self._folder or self._space.folder, error=str(cause), cause=cause
            ) from cause
        self.room = max(1, int(self._space.memory_bytes / 4 / max(1.0, self.row_bytes * EXPANSION)))


class SpilledRows(Generic[T]):
    """Rows in the order in which they were added. Once all are added, they can be read any number of times."""

    __slots__ = ("_file", "_number", "_piles", "_written_bytes", "_written_rows", "waiting")

    def __init__(self, piles: SpillFiles, number: int) -> None:
        self._piles = piles
        self._number = number
        self._file: Path | None = None
        self._written_bytes = 0
        self._written_rows = 0
        self.waiting: list[T] = []

    def add(self, row: T) -> None:
        self.waiting.append(row)
        self._piles.room -= 1
        if self._piles.room <= 0:
            self._piles.write()

    def extend(self, rows: Iterable[T]) -> None:
        for row in rows:
            self.add(row)

    def __iter__(self) -> Iterator[T]:
        # While this pile is read, other piles may be filled, and then all waiting rows are written.
        waiting, end = self.waiting, self._written_bytes
        if self._file is not None and end:
            with self._file.open("rb") as file:
                while file.tell() < end:
                    yield from pickle.load(file)
        yield from waiting

    @property
    def rows(self) -> int:
        return self._written_rows + len(self.waiting)

    @property
    def bytes(self) -> int:
        """The size of the rows in a file, as written or as estimated."""
        return self._written_bytes + int(len(self.waiting) * self._piles.row_bytes)

    def write(self, folder: Path) -> int:
        """Append the waiting rows to the file; return the number of bytes."""
        written = pickle.dumps(self.waiting, pickle.HIGHEST_PROTOCOL)
        self._file = folder / str(self._number)
        with self._file.open("ab") as file:
            file.write(written)
        self._written_bytes += len(written)
        self._written_rows += len(self.waiting)
        self.waiting = []
        return len(written)

    def drop(self) -> None:
        """Remove the rows after they were divided among other piles."""
        self._written_rows = self._written_bytes = 0
        self.waiting = []
        if self._file is not None:
            self._file.unlink()
            self._file = None
