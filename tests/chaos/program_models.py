"""Models of the operators of random programs in plain Python. They read the records of a partition in their order.

A step with a state gets the watermark of the partition before each record, and then the rows that the record became.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import Row as SparkRow

#: The topic, the partition and the offset of a record.
Place = tuple[str, int, int]
#: Why a record could not be used, and its place.
Letter = tuple[str, Place]
#: The last records move the times of all partitions there. Rows that wait for later times have no results.
END = datetime(2026, 3, 2, tzinfo=UTC)


class Row(NamedTuple):
    """A row of each step. Args: place: of the record that it comes from."""

    id: str
    at: datetime | None
    n: int
    place: Place

    @property
    def time(self) -> datetime:
        """The event time, which a row has behind `withWatermark`."""
        assert self.at is not None
        return self.at


class FailedError(Exception):
    """The row is a dead letter. Its text is the kind."""


#: The model of a step without a state: it returns the results of a row.
RowModel = Callable[[Row], Iterable[Row]]


class Operator(ABC):
    """A step with a state, for the keys of one partition."""

    def move(self, watermark: datetime) -> Iterable[Row]:
        """Take the watermark of the partition, which is that after the next record. Returns: results."""
        return ()

    @abstractmethod
    def take(self, row: Row) -> Iterable[Row]:
        """Take a row. Returns: results. Raises: FailedError."""


@dataclass
class First(Operator):
    """`dropDuplicates` by the id and another part of the key."""

    part: Callable[[Row], int]
    watermark: datetime | None = None
    known: dict[tuple[str, int], datetime] = field(default_factory=dict)

    def move(self, watermark: datetime) -> Iterable[Row]:
        self.watermark = watermark
        return ()

    def take(self, row: Row) -> Iterable[Row]:
        assert self.watermark is not None
        if row.time < self.watermark:
            raise FailedError("late")
        key = row.id, self.part(row)
        if key in self.known and self.known[key] >= self.watermark:
            return ()
        self.known[key] = row.time
        return (row,)


@dataclass
class Windows(Operator):
    """The sums of windows, in microseconds. Args: slide_s: 0 for sessions, whose gap is `size_s`. is_final: one result
    per window."""

    size_s: int
    slide_s: int
    is_final: bool
    watermark_us: int = 0
    #: The sums of open windows, by id, start and end.
    open: dict[tuple[str, int, int], int] = field(default_factory=dict)

    def move(self, watermark: datetime) -> Iterable[Row]:
        self.watermark_us = _us(watermark)
        closed = sorted((key for key in self.open if key[2] <= self.watermark_us), key=lambda key: (key[2], key[0]))
        found = [_windowed(key, self.open.pop(key)) for key in closed]
        return found if self.is_final else ()

    def take(self, row: Row) -> Iterable[Row]:
        keys = self._keys(row, _us(row.time))
        if not keys:
            raise FailedError("late")
        for key in keys:
            self.open[key] = self.open.get(key, 0) + row.n
        return () if self.is_final else [_windowed(key, self.open[key])._replace(place=row.place) for key in keys]

    def _keys(self, row: Row, time: int) -> list[tuple[str, int, int]]:
        size, slide = self.size_s * 1_000_000, self.slide_s * 1_000_000
        if slide:
            last = time // slide * slide
            starts = sorted(range(last, time - size, -slide))
            return [(row.id, start, start + size) for start in starts if start + size > self.watermark_us]
        if time + size <= self.watermark_us:
            return []
        joined = [k for k in self.open if k[0] == row.id and k[1] <= time + size and time <= k[2]]
        total = sum(self.open.pop(key) for key in joined)
        key = row.id, min([time, *(k[1] for k in joined)]), max([time + size, *(k[2] for k in joined)])
        self.open[key] = total
        return [key]


def _us(time: datetime) -> int:
    return round(time.timestamp() * 1e6)


def _windowed(key: tuple[str, int, int], total: int) -> Row:
    """Return the result of a window. Its record is the one that closes it."""
    return Row(key[0], datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=key[1]), total, ("", 0, 0))


@dataclass
class Totals(Operator):
    """`groupBy("id").agg(...)`: the total, the number and the newest one of all numbers of an id, in one number."""

    known: dict[str, tuple[int, int, datetime | None]] = field(default_factory=dict)

    def take(self, row: Row) -> Iterable[Row]:
        total, seen, at = self.known.get(row.id, (0, 0, None))
        times = [each for each in (at, row.at) if each is not None]
        total, seen, at = total + row.n, seen + 1, max(times, default=None)
        self.known[row.id] = total, seen, at
        return (Row(row.id, at, total % 100_003 + seen * 7 + row.n, row.place),)


@dataclass
class Held:
    """The state of a key, the time of its newest record, and its timer."""

    state: SparkRow
    newest: datetime | None
    timer: datetime | None = None


@dataclass
class States(Operator):
    """`stateful`. Args: expires_s: None: its states never expire."""

    function: Callable[..., tuple[Any, ...]]
    on_timer: Callable[..., tuple[Any, ...]] | None = None
    expires_s: int | None = None
    watermark: datetime | None = None
    held: dict[str, Held] = field(default_factory=dict)
    place: Place = ("", 0, 0)

    @property
    def is_timed(self) -> bool:
        """Whether it has an event time, so that late rows are refused."""
        return self.on_timer is not None or self.expires_s is not None

    def move(self, watermark: datetime) -> Iterable[Row]:
        self.watermark = watermark
        return [*self._pass()]

    def _pass(self) -> Iterator[Row]:
        """Let timers fire and states expire, in the order of their times and keys."""
        while self.is_timed and self.watermark is not None:
            due = sorted((when, key) for key, each in self.held.items() if (when := self._due(each)) is not None)
            if not due or due[0][0] > self.watermark:
                return
            when, key = due[0]
            if self.held[key].timer is None:
                del self.held[key]
                continue
            self.held[key].timer = None
            assert self.on_timer is not None
            result, after = self.on_timer(SparkRow("id")(key), when, self.held[key].state)
            self.held[key].state = SparkRow("seen")(after["seen"])
            yield Row(key, result["at"], result["n"], self.place)

    def _due(self, each: Held) -> datetime | None:
        if each.timer is not None or self.expires_s is None:
            return each.timer
        assert each.newest is not None
        return each.newest + timedelta(seconds=self.expires_s)

    def take(self, row: Row) -> Iterable[Row]:
        if self.is_timed and self.watermark is not None and row.time < self.watermark:
            raise FailedError("late")
        before = self.held.get(row.id)
        given = SparkRow("id", "at", "n")(row.id, row.at, row.n)
        result, after, *timer = self.function(given, None if before is None else before.state)
        newest, known = (None, None) if before is None else (before.newest, before.timer)
        times = [each for each in (row.at, newest) if each is not None]
        held = Held(SparkRow("seen")(after["seen"]), max(times, default=None), timer[0] if timer else known)
        self.held[row.id] = held
        return [Row(row.id, result["at"], result["n"], row.place), *self._pass()]


@dataclass
class Timed:
    """`withWatermark` in a chain. Args: delay_s: the delay."""

    delay_s: int


@dataclass
class Outcome:
    """The expected results and dead letters of a processor."""

    rows: list[Row] = field(default_factory=list)
    letters: Counter[Letter] = field(default_factory=Counter)


def parsed(records: Mapping[int, Sequence[Any]], topic: str, found: Outcome) -> dict[int, list[Row]]:
    """Return the rows of a topic, by partition. A record without an id does not fit. Args: records: by partition."""
    rows: dict[int, list[Row]] = {}
    for partition, mine in records.items():
        rows[partition] = []
        for offset, value in enumerate(mine):
            place = topic, partition, offset
            if value.get("id") is None:
                found.letters["unfit", place] += 1
                continue
            at = None if value["at"] is None else datetime.fromisoformat(value["at"])
            rows[partition].append(Row(value["id"], at, value["n"], place))
    return rows


class Chain:
    """A chain of links over one partition."""

    def __init__(self, links: Sequence[Any], found: Outcome) -> None:
        self._found, self._greatest = found, datetime.min.replace(tzinfo=UTC)
        self.watermark: datetime | None = None
        self._links = [link() if getattr(link, "is_operator", False) else link for link in links]

    def feed(self, row: Row) -> list[Row]:
        """Take a record's row; return its results."""
        return self._from(0, [row])

    def _from(self, number: int, rows: Iterable[Row]) -> list[Row]:
        results = list[Row]()
        for row in rows:
            results += self._one(number, row)
        return results

    def _one(self, number: int, row: Row) -> list[Row]:
        if number == len(self._links):
            return [row]
        link = self._links[number]
        try:
            if isinstance(link, Timed):
                return self._timed(number, link, row)
            rows = link.take(row) if isinstance(link, Operator) else link(row)
            return self._from(number + 1, [*rows])
        except FailedError as failure:
            self._found.letters[str(failure), row.place] += 1
            return []

    def _timed(self, number: int, link: Timed, row: Row) -> list[Row]:
        if row.at is None:
            raise FailedError("no time")
        self._greatest = max(self._greatest, row.at)
        self.watermark = self._greatest - timedelta(seconds=link.delay_s)
        results = list[Row]()
        for place in range(number + 1, len(self._links)):
            if isinstance(operator := self._links[place], Operator):
                moved = [each._replace(place=row.place) for each in operator.move(self.watermark)]
                results += self._from(place + 1, moved)
        return results + self._from(number + 1, [row])


def operator(make: Callable[[], Operator]) -> Callable[[], Operator]:
    """Mark a function that makes an operator: each partition has its own."""
    make.is_operator = True  # type: ignore[attr-defined]
    return make


def read(partitions: Mapping[int, list[Row]], links: Sequence[Any], found: Outcome) -> list[Row]:
    """Return the results of a chain of links."""
    results = list[Row]()
    for mine in partitions.values():
        chain = Chain(links, found)
        for row in mine:
            results += chain.feed(row)
    return results


def fitting(
    partitions: Mapping[int, list[Row]], links: Sequence[Any], found: Outcome
) -> tuple[list[tuple[tuple[int, int, int], Row]], datetime]:
    """Return the rows behind `withWatermark` that are not late, with their order, and the least watermark."""
    rows, least = [], END + timedelta(days=1)
    for partition, mine in partitions.items():
        chain = Chain(links, found)
        for row in mine:
            for sub, each in enumerate(chain.feed(row)):
                assert chain.watermark is not None
                if each.time < chain.watermark:
                    found.letters["late", each.place] += 1
                else:
                    rows.append(((partition, each.place[2], sub), each))
        if chain.watermark is not None:
            least = min(least, chain.watermark)
    return rows, least
