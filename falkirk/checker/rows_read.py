"""Sight: records the rows that were read at each place, so that a verdict names its subject.

If a place changes during the reading, the rows are neither its old content nor its new one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from falkirk.checker.verdict import PlaceRead
from falkirk.errors.conditions.checker import ROWS_CHANGED

_SHOWN_MAX = 20


@dataclass(slots=True, kw_only=True)
class PlaceSeen:
    """The part of one place that was read so far."""

    where: str
    logs: int = 0
    rows: int = 0
    passed_over: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)

    def as_read(self) -> PlaceRead:
        return PlaceRead(
            where=self.where,
            logs=self.logs,
            rows=self.rows,
            passed_over=tuple(self.passed_over[:_SHOWN_MAX]),
            passed_over_count=len(self.passed_over),
            notes=tuple(self.notes),
        )


@dataclass(slots=True)
class RowsRead:
    """The rows read so far, place by place, and functions that detect later changes."""

    seen: dict[str, PlaceSeen] = field(default_factory=dict)
    _looks: list[Callable[[], str | None]] = field(default_factory=list)

    def begin(self, where: str) -> PlaceSeen:
        """Begin to read a place."""
        self.seen[where] = PlaceSeen(where=where)
        return self.seen[where]

    def read(self) -> tuple[PlaceRead, ...]:
        return tuple(each.as_read() for each in self.seen.values())

    def watch(self, look: Callable[[], str | None]) -> None:
        """Call `look` again before the verdict. It returns the change, or None."""
        self._looks.append(look)

    def watch_file(self, path: Path, name: str) -> Callable[[], str | None]:
        """Watch a file from now on; return a function that returns the change, or None."""
        before = _state(path)

        def look() -> str | None:
            return None if _state(path) == before else f"{name} was written or moved"

        self.watch(look)
        return look

    def check(self) -> None:
        """Raises: LogError: `ROWS_CHANGED`: a place has changed since it was read."""
        for look in self._looks:
            raise_changed(look())


def raise_changed(what: str | None) -> None:
    """Raise if there is a change. Raises: LogError: `ROWS_CHANGED`."""
    if what is not None:
        raise ROWS_CHANGED.error(changed=what)


def _state(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
