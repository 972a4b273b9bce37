"""Sight: what of the places that were named has been seen, so that a verdict says of what it is one.

A place that changes while it is read has been seen neither as it was nor as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from falkirk.check.verdict import PlaceRead
from falkirk.errors import LogError

SHOWN_MAX = 20


@dataclass(slots=True, kw_only=True)
class Seen:
    """What has been read of one place so far."""

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
            passed_over=tuple(self.passed_over[:SHOWN_MAX]),
            passed_over_count=len(self.passed_over),
            notes=tuple(self.notes),
        )


@dataclass(slots=True)
class Sight:
    """What has been read, place by place; and ways to look whether it is still the same."""

    seen: dict[str, Seen] = field(default_factory=dict)
    _looks: list[Callable[[], str | None]] = field(default_factory=list)

    def begin(self, where: str) -> Seen:
        """Begin to read a place."""
        self.seen[where] = Seen(where=where)
        return self.seen[where]

    def read(self) -> tuple[PlaceRead, ...]:
        return tuple(each.as_read() for each in self.seen.values())

    def watch(self, look: Callable[[], str | None]) -> None:
        """Look again before the verdict: `look` returns what has changed, if anything has.

        Raises: LogError: `ROWS_CHANGED`, where it has already.
        """
        self._looks.append(look)

    def watch_file(self, path: Path, name: str) -> Callable[[], str | None]:
        """Watch a file from now on; return what says whether it has changed."""
        before = _state(path)

        def look() -> str | None:
            return None if _state(path) == before else f"{name} was written or moved"

        self.watch(look)
        return look

    def check(self) -> None:
        """Raises: LogError: `ROWS_CHANGED`: what was read is not what is there now."""
        for look in self._looks:
            raise_changed(look())


def raise_changed(what: str | None) -> None:
    """Raise if something has changed."""
    if what is not None:
        raise LogError(
            "ROWS_CHANGED",
            f"{what} while the checker was reading.",
            hint="Run the checker when nothing is in flight.",
            changed=what,
        )


def _state(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
