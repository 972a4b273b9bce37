"""Cuts: when an epoch is complete, and which part of the input belongs to it.

The place of a cut depends on the moment at which Falkirk reads the ends of the input. So each cut is a decision that is
recorded before it is used.
Source: Falkirk Wheel, §3.3 (from sequence numbers to epochs).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from falkirk.theory.ids import EpochNumber, LogId, Offset, Positions

#: The column with the number of a row's slice of time; files of sorted rows are divided by it.
SLICE = "__falkirk_slice"
#: The largest number of records in an epoch without another limit. A long backlog becomes several epochs, so that no
#: epoch needs much more memory or time for a retry than others.
RECORDS_MAX = 1_000_000
_BEGAN = datetime.fromtimestamp(0, UTC)
#: A cut by event time accepts times in [EARLIEST, LATEST). With `SPAN_S_MAX` around them, every epoch starts and ends
#: at a time that Python's `datetime` can represent.
EARLIEST, LATEST = datetime(1000, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
#: The longest `every`, `late`, `over` and `ahead`: 500 years.
SPAN_S_MAX = 500 * 365 * 86_400.0
#: How far ahead of the clock an event time may be by default.
AHEAD_S = 60.0


class Cut(Protocol):
    """Decides when the next epoch is complete."""

    def may_be_due(self, *, now_s: float, last_at_s: float) -> bool:
        """Return whether the epoch may be complete, so that reading the ends of the input is worthwhile."""

    def end_of_epoch(self, first: Positions, ends: Positions, *, now_s: float, last_at_s: float) -> Positions | None:
        """Return the end of the epoch that begins at `first`, or None if it is not complete.

        Args: ends: the present ends of the input. now_s: the time. last_at_s: the time of the previous cut, or of the
            application's first start.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ByClock:
    """Complete at each multiple of `every_s` since 1970, if any record has arrived.

    A clock that is set back, even by a long time, causes one early epoch.

    Args: records_max: the limit of one epoch; further records go to epochs that follow at once.
    """

    every_s: float
    records_max: int = RECORDS_MAX

    def __str__(self) -> str:
        return f"every {self.every_s:g} s, by the clock"

    def may_be_due(self, *, now_s: float, last_at_s: float) -> bool:
        """See `Cut`."""
        return math.floor(now_s / self.every_s) != math.floor(last_at_s / self.every_s)

    def end_of_epoch(self, first: Positions, ends: Positions, *, now_s: float, last_at_s: float) -> Positions | None:
        """See `Cut`."""
        is_due = self.may_be_due(now_s=now_s, last_at_s=last_at_s) and records_between(first, ends)
        return at_most(self.records_max, first, ends) if is_due else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ByRows:
    """Complete at this number of records; each log contributes in proportion to its waiting records."""

    rows: int

    def __str__(self) -> str:
        return f"with {self.rows:,} records"

    def may_be_due(self, *, now_s: float, last_at_s: float) -> bool:
        """See `Cut`."""
        return True

    def end_of_epoch(self, first: Positions, ends: Positions, *, now_s: float, last_at_s: float) -> Positions | None:
        """See `Cut`."""
        return at_most(self.rows, first, ends) if records_between(first, ends) >= self.rows else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnArrival:
    """Complete as soon as any record has arrived.

    Args: records_max: as for `ByClock`.
    """

    records_max: int = RECORDS_MAX

    def __str__(self) -> str:
        return "as soon as a record arrives"

    def may_be_due(self, *, now_s: float, last_at_s: float) -> bool:
        """See `Cut`."""
        return True

    def end_of_epoch(self, first: Positions, ends: Positions, *, now_s: float, last_at_s: float) -> Positions | None:
        """See `Cut`."""
        return at_most(self.records_max, first, ends) if records_between(first, ends) else None


def at_most(records: int, first: Positions, ends: Positions) -> Positions:
    """Return positions that cover `records` records, or all if there are fewer.

    Each log and partition contributes in proportion to its waiting records, so that none falls behind. Each that has
    records contributes at least one: without any it could count as idle (`steps/batch/idle.py`). If there are more of
    them than `records`, they take turns.
    """
    left = records_between(first, ends)
    if left <= records:
        return ends
    waiting = {
        (log, partition): end - first[log].get(partition, 0)
        for log, partitions in sorted(ends.items())
        for partition, end in sorted(partitions.items())
    }
    turns = [place for place, mine in waiting.items() if mine > 0]
    if records < len(turns):
        # Each of these epochs takes this many records, so the sum of all positions moves by as many, around the circle
        # of all partitions. A circle of only those that have records would be another one each time, and some of them
        # might never have a turn.
        circle = list(waiting)
        begin = sum(first[log].get(partition, 0) for log, partition in circle) % len(circle)
        turns = [place for place in (*circle[begin:], *circle[:begin]) if waiting[place] > 0][:records]
    certain = set(turns)
    left, records = left - len(certain), records - len(certain)
    taken: Positions = {log: {} for log in sorted(ends)}
    for (log, partition), mine in waiting.items():
        least = int((log, partition) in certain)
        more = mine - least
        share = -(-records * more // left) if left else 0  # rounded up, so the last gets exactly the rest
        taken[log][partition] = Offset(first[log].get(partition, 0) + least + share)
        left, records = left - more, records - share
    return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class ByTime:
    """Complete when event time has passed its end.

    The times of the rows decide, not their number. So rows are first sorted into slices of time (steps/batch/times.py).

    Args:
        column: a TIMESTAMP column of every input. every_us: the length of a slice, in microseconds.
        late_us: how late a row may arrive. over: how many slices one epoch reads.
        ahead_us: how far a row's time may be ahead of the clock. The cut's text, which the home records, omits it, so
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
        """Return the start and the end of the time that an epoch covers. Args: last: the epoch's last slice."""
        ends = _BEGAN + timedelta(microseconds=(last + 1) * self.every_us)
        return ends - timedelta(microseconds=self.over * self.every_us), ends

    def next_slice(
        self,
        present: Mapping[LogId, Mapping[EpochNumber, frozenset[int]]],
        complete: Mapping[LogId, int | None],
        before: int | None,
        *,
        keeps: bool = False,
    ) -> tuple[int, dict[LogId, EpochNumber]] | None:
        """Return the next epoch's last slice and, for each log, the first epoch needed later; None if none is complete.

        An epoch without rows is skipped. There is one exception: a batch with state (`keeps`) may wait only for time,
        so it gets the newest empty epoch.

        Args:
            present: for each log and each of its epochs, the slices with rows. complete: for each log, the time up to
                which slices are complete. before: the last slice of the previous epoch.
        """
        if any(upto is None for upto in complete.values()):
            return None
        # The first incomplete slice.
        upto = min(upto for upto in complete.values() if upto is not None) // self.every_us
        slices = {s for epochs in present.values() for found in epochs.values() for s in found}
        ends = {s + more for s in slices for more in range(self.over)}
        due = min((end for end in ends if end < upto and (before is None or end > before)), default=None)
        if due is None and keeps and before is not None and upto - 1 > before:
            due = upto - 1
        if due is None:
            return None
        needed = due - self.over + 2  # the oldest slice that the following epoch may read
        then = {
            log: min((n for n, found in epochs.items() if any(s >= needed for s in found)), default=EpochNumber(-1))
            for log, epochs in present.items()
        }
        return due, then


def records_between(first: Positions, ends: Positions) -> int:
    """Return the number of records between two positions."""
    return sum(end - first[log].get(p, 0) for log, partitions in ends.items() for p, end in partitions.items())
