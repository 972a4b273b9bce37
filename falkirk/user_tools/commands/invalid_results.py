"""Invalid results: published results that a rollback with `--force`, and dead letters that a rollback, made invalid.

They stay in their topic, and the results since the rollback follow them. So a topic may have the same result twice
although nothing went wrong since. They are counted, and the others are judged.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from falkirk.checker import TopicRecord
from falkirk.declare.application import Application
from falkirk.errors import HomeError
from falkirk.theory.ids import LogId
from falkirk.theory.offsets import PartitionRange
from falkirk.user_tools.commands.running import home_to_read

#: Returns the ranges of a topic whose records a rollback made invalid, in order.
InvalidRanges = Callable[[str], tuple[PartitionRange, ...]]
#: At most this many ranges are shown in the text.
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidResults:
    """The records of one topic that a rollback made invalid. Args: count: those that are still there."""

    count: int
    ranges: tuple[PartitionRange, ...]

    def as_dict(self) -> dict[str, object]:
        """Return it with stable names."""
        named = [{"partition": r.partition, "first": r.first, "last": r.last_exclusive - 1} for r in self.ranges]
        return {"count": self.count, "offsets": named}

    def shown(self, what: str) -> Text:
        """Return it for people. Args: what: a word for the records."""
        places = [f"partition {r.partition}, offsets {r.first} to {r.last_exclusive - 1}" for r in self.ranges[:_SHOWN]]
        more = f", and {len(self.ranges) - _SHOWN} more ranges" if len(self.ranges) > _SHOWN else ""
        return Text(
            f"{self.count:,} {what} that a rollback made invalid are not judged: {'; '.join(places)}{more}",
            style="yellow",
        )


def merged(found: Iterable[InvalidResults | None]) -> InvalidResults | None:
    """Return the records of several topics as one; None: there are none."""
    known = [each for each in found if each is not None]
    if not known:
        return None
    return InvalidResults(count=sum(e.count for e in known), ranges=tuple(r for e in known for r in e.ranges))


class ValidRecords:
    """Passes the records of a topic on that no rollback made invalid, and counts the others."""

    def __init__(self, ranges: tuple[PartitionRange, ...]) -> None:
        self._ranges, self._count = ranges, 0
        self._starts: dict[int, list[PartitionRange]] = defaultdict(list)
        for each in sorted(ranges):
            self._starts[each.partition].append(each)

    def of(self, records: Iterable[TopicRecord]) -> Iterator[TopicRecord]:
        """Yield the valid records of the whole topic. Each call counts anew."""
        self._count = 0
        for record in records:
            if self._is_invalid(record.partition, record.place.offset):
                self._count += 1
            else:
                yield record

    def _is_invalid(self, partition: int, offset: int) -> bool:
        ranges = self._starts.get(partition, ())
        at = bisect_right(ranges, offset, key=lambda each: each.first) - 1
        return at >= 0 and ranges[at].covers(offset)

    @property
    def found(self) -> InvalidResults | None:
        """The invalid records of the last complete call; None: there are none."""
        return InvalidResults(count=self._count, ranges=self._ranges) if self._count else None


def none_invalid(topic: str) -> tuple[PartitionRange, ...]:
    """Return no range: nothing is known of a rollback."""
    return ()


def invalid_ranges(app: Application, home: Path | None) -> InvalidRanges:
    """Return the ranges that an application's home has recorded.

    Args: home: None: the application's. An application that has never run there has no invalid results.
    """

    def of(topic: str) -> tuple[PartitionRange, ...]:
        try:
            with home_to_read(app, home) as (held, _):
                return held.store.voided_ranges(LogId(topic))
        except HomeError as error:
            if error.condition != "NEVER_RAN":
                raise
            return ()

    return of
