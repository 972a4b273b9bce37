"""A model of windows of event time in plain Python: it reads each partition's records in their order."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.duplicates import DELAY_S, HOSTILE

#: So small that records, which are up to 13 s late, can be late for all their windows.
SIZE_S, SLIDE_S, GAP_S = 6, 4, 2
#: The kinds of windows by name: the size, and the slide. A session has no slide, and its size is the gap.
KINDS = {"tumbling": (SIZE_S, SIZE_S), "sliding": (SIZE_S, SLIDE_S), "session": (GAP_S, 0)}

#: A result: the key, the window's start and end in seconds, the number of records and the sum of their numbers.
Result = tuple[str, int, int, int, int]


@dataclass(kw_only=True)
class Windowed:
    """The expected results. Args: final: results when windows close. updates: results of each record. letters: the
    reasons of dead letters, by the number of the record."""

    final: list[Result] = field(default_factory=list)
    updates: list[Result] = field(default_factory=list)
    letters: dict[int, str] = field(default_factory=dict)


def expected(partitions: Mapping[int, Iterable[Mapping[str, Any]]], kind: str) -> Windowed:
    """Return the results of the records of each partition. A record with a number that 7 divides moves time, and
    is left out after that."""
    found = Windowed()
    for records in partitions.values():
        _of_partition(records, kind, found)
    return found


def _of_partition(records: Iterable[Mapping[str, Any]], kind: str, found: Windowed) -> None:
    size, slide = KINDS[kind]
    watermark = None
    greatest: datetime | None = None
    windows: dict[tuple[str, int, int], tuple[int, int]] = {}
    for record in records:
        n, at, name = record["n"], record["at"], record["id"]
        if at is None or at in HOSTILE:
            found.letters[n] = "column at is null" if at is None else "column at is not between the years 1000 and 9000"
            continue
        moment = datetime.fromisoformat(at)
        greatest = moment if greatest is None else max(greatest, moment)
        watermark = int((greatest - timedelta(seconds=DELAY_S)).timestamp())
        for key in sorted(key for key in windows if key[2] <= watermark):
            found.final.append((*key, *windows.pop(key)))
        if n % 7 == 0:
            continue
        time, mine = int(moment.timestamp()), []
        if slide:
            last = time - time % slide
            starts = [start for start in sorted(range(last, time - size, -slide)) if start + size > watermark]
            mine = [((name, start, start + size), (1, n)) for start in starts]
        elif time + size > watermark:
            joined = [k for k in windows if k[0] == name and k[1] <= time + size and time <= k[2]]
            parts = [(1, n), *(windows.pop(key) for key in joined)]
            bounds = (min([time, *(k[1] for k in joined)]), max([time + size, *(k[2] for k in joined)]))
            mine = [((name, *bounds), (sum(p[0] for p in parts), sum(p[1] for p in parts)))]
        if not mine:
            found.letters[n] = "late"
        for key, (count, total) in mine:
            before = windows.get(key, (0, 0))
            windows[key] = (before[0] + count, before[1] + total)
            found.updates.append((*key, *windows[key]))


def results(rows: Iterable[Mapping[str, Any]]) -> list[Result]:
    """Return the results in the values of a topic, with their repetitions, sorted."""
    return sorted(
        (row["id"], *(_seconds(row["window"][side]) for side in ("start", "end")), row["count"], row["total"])
        for row in rows
    )


def _seconds(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp())
