"""Event time: recomputes `dropDuplicates` and windows in plain Python, from the rows of each source partition in order.

The time of a source partition is the greatest time of its records so far, and its watermark is that time less a delay.
Each row carries the watermark that holds from it on. So a model needs the rows of one partition at a time, and it
shares no code with the operators that it judges.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

Place = tuple[int, ...]
"""The place of a row: its source, partition, offset and sub-indexes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRow:
    """A row of a step with event time. All times are in microseconds.

    Args: time: its event time; None: a record that the step does not get, and which only moves the watermark. key: as
        text. watermark: of its partition, the row included.
    """

    place: Place
    watermark: int
    time: int | None = None
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """A row that is late."""

    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """A row that is the first of its key within the delay."""

    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """A result of a window.

    Args: cause: the place of the record that gave it, with the number of the result among those of the record.
        members: the places of the window's rows, in the order in which an aggregate gets them.
    """

    cause: Place
    start: int
    end: int
    members: tuple[Place, ...]


def first_rows(rows: Iterable[TimedRow]) -> Iterator[First | Late]:
    """Yield the first row of each key within the delay, and the late ones. A key is known until a copy of its first row
    would be late.

    Args: rows: in the order of their places. A key is in one partition.
    """
    for _, mine in groupby(rows, key=_partition):
        known: dict[str, int] = {}
        for row in mine:
            if row.time is None:
                continue
            if row.time < row.watermark:
                yield Late(place=row.place)
            elif row.key not in known or known[row.key] < row.watermark:
                known[row.key] = row.time
                yield First(place=row.place)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowShape:
    """The windows of a step, in microseconds.

    Args: size: of a window, or the gap of a session. slide: 0 for sessions. offset: windows start at it, and at whole
        slides before and after it. updates: a record gives a result for each of its windows. Otherwise a window gives
        one when the watermark has reached its end.
    """

    size: int
    slide: int
    offset: int = 0
    updates: bool = False

    def starts(self, time: int) -> range:
        """Return the starts of the windows with a time."""
        last = time - (time - self.offset) % self.slide
        count = (self.size - 1 - (time - last)) // self.slide + 1
        return range(last - (count - 1) * self.slide, last + 1, self.slide)


def window_results(rows: Iterable[TimedRow], shape: WindowShape) -> Iterator[WindowResult | Late]:
    """Yield the results of windows in the order of their causes, and the late rows.

    A row is late if all its windows have closed: their ends are not after the watermark.

    Args: rows: in the order of their places. A key is in one partition.
    """
    for _, mine in groupby(rows, key=_partition):
        yield from _Windows(shape).read(mine)


def _partition(row: TimedRow) -> Place:
    return row.place[:2]


@dataclass(slots=True, kw_only=True, eq=False)
class _Window:
    start: int
    end: int
    members: list[Place] = field(default_factory=list)


class _Windows:
    """The open windows of a partition."""

    def __init__(self, shape: WindowShape) -> None:
        self._shape = shape
        self._open: dict[str, list[_Window]] = defaultdict(list)
        #: The ends of windows with their keys. A session that has grown has several, and the last one is right.
        self._ends: list[tuple[int, str]] = []
        self._cause: Place = ()
        self._count = 0

    def read(self, rows: Iterable[TimedRow]) -> Iterator[WindowResult | Late]:
        for row in rows:
            closed = self._close(row.watermark)
            if not self._shape.updates:
                yield from (self._result(row, each) for each in closed)
            if row.time is None:
                continue
            found = self._with(row, row.time)
            if not found:
                yield Late(place=row.place)
            elif self._shape.updates:
                yield from (self._result(row, each) for each in found)

    def _close(self, watermark: int) -> list[_Window]:
        found = []
        while self._ends and self._ends[0][0] <= watermark:
            end, key = heapq.heappop(self._ends)
            mine = self._open.pop(key, [])
            found += [each for each in mine if each.end == end]
            if still := [each for each in mine if each.end != end]:
                self._open[key] = still
        return found

    def _with(self, row: TimedRow, time: int) -> list[_Window]:
        """Return the windows of a row that are open, with the row added."""
        mine = self._open[row.key]
        if self._shape.slide:
            spans = [(start, start + self._shape.size) for start in self._shape.starts(time)]
            found = [self._known(row.key, *span) for span in spans if span[1] > row.watermark]
        elif time + self._shape.size > row.watermark:
            end = time + self._shape.size
            met = sorted((w for w in mine if w.start <= end and time <= w.end), key=lambda each: each.start)
            session = _Window(start=min([time, *(w.start for w in met)]), end=max([end, *(w.end for w in met)]))
            session.members = [member for each in met for member in each.members]
            self._open[row.key] = [each for each in mine if each not in met] + [session]
            heapq.heappush(self._ends, (session.end, row.key))
            found = [session]
        else:
            found = []
        for each in found:
            each.members.append(row.place)
        return found

    def _known(self, key: str, start: int, end: int) -> _Window:
        for each in self._open[key]:
            if each.start == start:
                return each
        made = _Window(start=start, end=end)
        self._open[key].append(made)
        heapq.heappush(self._ends, (end, key))
        return made

    def _result(self, row: TimedRow, window: _Window) -> WindowResult:
        record = row.place[:3]
        self._count = self._count + 1 if record == self._cause else 0
        self._cause = record
        return WindowResult(
            cause=(*record, self._count), start=window.start, end=window.end, members=tuple(window.members)
        )  # fmt: skip
