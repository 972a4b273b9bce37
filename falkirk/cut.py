"""Cuts: when an epoch is complete, and how much of the input belongs to it.

Where a cut falls depends on when somebody looked, so each is a decision that is recorded before it is used.
Source: Falkirk Wheel, §3.3 (from sequence numbers to epochs).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

#: The column with the number of a row's slice of time, by which the files of rows that are sorted so are divided.
SLICE = "__falkirk_slice"
#: Records of an epoch at most, where nothing else says how many: what has waited for long becomes several epochs, so
#: that none needs much more memory, or takes longer to be done again, than others.
RECORDS_MAX = 1_000_000
_BEGAN = datetime.fromtimestamp(0, UTC)
#: Event times that a cut by event time takes: [EARLIEST, LATEST). With `SPAN_S_MAX` around them, every epoch begins and
#: ends at a time that Python's `datetime` can hold.
EARLIEST, LATEST = datetime(1000, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
#: The longest `every`, `late`, `over` and `ahead`: 500 years.
SPAN_S_MAX = 500 * 365 * 86_400.0
#: How far ahead of the clock an event time may be, unless the user says otherwise.
AHEAD_S = 60.0

Positions = dict[str, dict[int, int]]
"""Of each log that is read, per partition, the offset of the next record."""


class Cut(Protocol):
    """When the next epoch is complete."""

    def may_be_due(self, *, now_s: float, last_at_s: float) -> bool:
        """Tell whether it is worth asking what there is to read."""

    def take(self, first: Positions, ends: Positions, *, now_s: float, last_at_s: float) -> Positions | None:
        """Return where the epoch that begins at `first` ends, or None while it is not complete.

        Args: ends: what there is to read now. now_s: the time. last_at_s: when the epoch before it was cut, or when the
            application first began.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ByClock:
    """Complete at each multiple of `every_s` since 1970, if anything has come. A clock that is set back, a long time
    too, makes one that is early.

    Args: records_max: what has come beyond that is cut off for epochs that follow at once.
    """

    every_s: float
    records_max: int = RECORDS_MAX

    def __str__(self) -> str:
        return f"every {self.every_s:g} s, by the clock"

    def may_be_due(self, *, now_s: float, last_at_s: float) -> bool:
        """See `Cut`."""
        return math.floor(now_s / self.every_s) != math.floor(last_at_s / self.every_s)

    def take(self, first: Positions, ends: Positions, *, now_s: float, last_at_s: float) -> Positions | None:
        """See `Cut`."""
        is_due = self.may_be_due(now_s=now_s, last_at_s=last_at_s) and waiting(first, ends)
        return at_most(self.records_max, first, ends) if is_due else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ByRows:
    """Complete with this many records: of each log as large a share as it has of what waits."""

    rows: int

    def __str__(self) -> str:
        return f"with {self.rows:,} records"

    def may_be_due(self, *, now_s: float, last_at_s: float) -> bool:
        """See `Cut`."""
        return True

    def take(self, first: Positions, ends: Positions, *, now_s: float, last_at_s: float) -> Positions | None:
        """See `Cut`."""
        return at_most(self.rows, first, ends) if waiting(first, ends) >= self.rows else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnArrival:
    """Complete as soon as anything has come.

    Args: records_max: as of `ByClock`.
    """

    records_max: int = RECORDS_MAX

    def __str__(self) -> str:
        return "as soon as a record arrives"

    def may_be_due(self, *, now_s: float, last_at_s: float) -> bool:
        """See `Cut`."""
        return True

    def take(self, first: Positions, ends: Positions, *, now_s: float, last_at_s: float) -> Positions | None:
        """See `Cut`."""
        return at_most(self.records_max, first, ends) if waiting(first, ends) else None


def at_most(records: int, first: Positions, ends: Positions) -> Positions:
    """Return positions with so many records, or all that there are: of each log, and partition, as large a share as it
    has of what waits, so that none is left behind the others."""
    left = waiting(first, ends)
    if left <= records:
        return ends
    taken: Positions = {}
    for log, partitions in sorted(ends.items()):
        taken[log] = {}
        for partition, end in sorted(partitions.items()):
            begin = first[log].get(partition, 0)
            mine = end - begin
            share = -(-records * mine // left) if left else 0  # rounded up: the last one gets exactly what is left
            taken[log][partition] = begin + share
            left, records = left - mine, records - share
    return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class ByTime:
    """Complete when event time has passed its end: not how much there is decides, but what is in it, so that rows are
    sorted into slices of time first (operators/times.py).

    Args:
        column: of type TIMESTAMP, that all has which is read. every_us: the length of a slice, in microseconds.
        late_us: how late a row may come. over: so many slices are read at once.
        ahead_us: how far a row's time may be ahead of the clock. It is not in the text, which a home's record holds, so
            it may change between two runs.
    """

    column: str
    every_us: int
    late_us: int = 0
    over: int = 1
    ahead_us: int = round(AHEAD_S * 1_000_000)

    def __str__(self) -> str:
        over = f", over {self.over * self.every_us / 1e6:g} s" if self.over > 1 else ""
        late = f", rows {self.late_us / 1e6:g} s late at most" if self.late_us else ""
        return f"when {self.column} has passed each {self.every_us / 1e6:g} s{over}{late}"

    def bounds(self, last: int) -> tuple[datetime, datetime]:
        """Return when the time begins that an epoch covers, and when it ends. Args: last: its last slice."""
        ends = _BEGAN + timedelta(microseconds=(last + 1) * self.every_us)
        return ends - timedelta(microseconds=self.over * self.every_us), ends

    def next_slice(
        self,
        present: Mapping[str, Mapping[int, frozenset[int]]],
        complete: Mapping[str, int | None],
        before: int | None,
        *,
        keeps: bool = False,
    ) -> "tuple[int, dict[str, int]] | None":
        """Return the slice with which the next epoch ends, and of each log the first of its epochs that those after it
        may need; None while none is complete. An epoch that would have no rows is passed over; of a batch that keeps a
        state (`keeps`), which may wait for time alone, the newest such is not.

        Args:
            present: of each log, by the number of its epochs, the slices that they have rows of. complete: of each log,
            up to which time slices are. before: the slice with which the epoch before ended.
        """
        if any(upto is None for upto in complete.values()):
            return None
        upto = min(upto for upto in complete.values() if upto is not None) // self.every_us  # the first that is not
        slices = {s for epochs in present.values() for found in epochs.values() for s in found}
        ends = {s + more for s in slices for more in range(self.over)}
        due = min((end for end in ends if end < upto and (before is None or end > before)), default=None)
        if due is None and keeps and before is not None and upto - 1 > before:
            due = upto - 1
        if due is None:
            return None
        needed = due - self.over + 2  # the oldest slice that the epoch after it may read
        then = {
            log: min((n for n, found in epochs.items() if any(s >= needed for s in found)), default=-1)
            for log, epochs in present.items()
        }
        return due, then


def waiting(first: Positions, ends: Positions) -> int:
    """Return how many records lie between."""
    return sum(end - first[log].get(p, 0) for log, partitions in ends.items() for p, end in partitions.items())


def positions_of(content: Mapping[str, Mapping[str, int]]) -> Positions:
    """Return positions as they come back from JSON, whose keys are texts."""
    return {log: {int(p): int(o) for p, o in partitions.items()} for log, partitions in content.items()}
