"""Reads the tail: the published results in an output topic, read once at the start of an incarnation.

The barrier uses the tail. Void records (void.py) do not count, since Falkirk's readers skip them.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from falkirk.kafka.connection import Connection
from falkirk.kafka.header import header_value, stamp_of
from falkirk.kafka.ranges import read_messages
from falkirk.kafka.signing import Foreign, ForeignTally, RejectedHeader, Verifier
from falkirk.kafka.void import Void
from falkirk.theory.channel import Channel, Regression, ReleasedTail
from falkirk.theory.ids import Incarnation, Offset
from falkirk.theory.stamp import Stamp

_EXAMPLES = 5
#: A channel: source, source partition, state partition as text, output partition.
_Route = tuple[int, int, str, int]
#: A stamp: source, partition, offset, sub-indexes.
_Numbers = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The contents of a range of an output topic.

    Args:
        released: the greatest published stamp of each channel.
        released_set: each published stamp once, with its channel; None unless requested.
        records: the number of all records in the range.
        incarnations: the number of records that each incarnation published.
        void_count: the number of void records, which do not count as published.
        foreign: the records that this home did not write.
        regression_count, regressions: the number of stamps that are not above an earlier stamp of their channel, and
            the first few of them.
    """

    released: ReleasedTail
    released_set: tuple[tuple[Channel, Stamp], ...] | None
    records: int
    incarnations: Mapping[Incarnation, int]
    void_count: int
    foreign: ForeignTally
    regression_count: int
    regressions: tuple[Regression, ...]


def read_tail(
    connection: Connection | str,
    topic: str,
    first: Mapping[int, Offset],
    last: Mapping[int, Offset],
    verifier: Verifier,
    *,
    keep_set: bool = False,
    void: Void | None = None,
    committed: bool = False,
    stall_s: float = 30.0,
) -> Tail:
    """Return the results of a home in the records [first, last) of `topic`.

    Args:
        verifier: the verifier of the home and the topic.
        keep_set: keep every stamp, not only the greatest of each channel; uses memory in proportion to the records.
        void: the void records, which are skipped.
        committed: omit records of aborted transactions, as readers do.

    Raises: LogError: as `read_range`.
    """
    fold = TailFold(verifier, void or Void(), keep_set=keep_set)
    for message in read_messages(connection, topic, first, last, stall_s=stall_s, committed=committed):
        header = header_value(message.headers())
        fold.add(message.partition(), message.offset(), header, message.key(), message.value())
    return fold.tail()


class TailFold:
    """Collects a tail record by record: theory's `fold_tail` on plain numbers, for tails with millions of records."""

    def __init__(self, verifier: Verifier, void: Void, *, keep_set: bool) -> None:
        self._verifier, self._void, self._keep_set = verifier, void, keep_set
        self._greatest: dict[_Route, _Numbers] = {}
        self._all: dict[_Route, dict[_Numbers, None]] = {}
        self._incarnations: Counter[Incarnation] = Counter()
        self._records = self._void_count = self._regression_count = 0
        self._foreign = ForeignTally()
        self._regressions: list[tuple[_Route, _Numbers, _Numbers]] = []

    def add(
        self, partition: int, offset: Offset, header: bytes | None, key: bytes | None = None, value: bytes | None = None
    ) -> None:
        """Add the record at `offset` with this header."""
        self._records += 1
        found = self._verifier.verify(partition, offset, header, key, value)
        if self._void.has(partition, offset, None if isinstance(found, RejectedHeader) else found.incarnation):
            self._void_count += 1
            return
        if isinstance(found, RejectedHeader):
            self._foreign.add(Foreign(partition=partition, offset=offset, reason=found))
            return
        incarnation, numbers, state, _ = found
        self._incarnations[incarnation] += 1
        route = (numbers[0], numbers[1], state, partition)
        if self._keep_set:
            self._all.setdefault(route, {})[numbers] = None
        before = self._greatest.get(route)
        if before is None or before < numbers:
            self._greatest[route] = numbers
        else:
            self._regression_count += 1
            if len(self._regressions) < _EXAMPLES:
                self._regressions.append((route, before, numbers))

    def tail(self) -> Tail:
        """Return the collected tail."""
        channels = {route: _channel(route) for route in self._greatest}
        return Tail(
            released=ReleasedTail(greatest={channels[r]: stamp_of(n) for r, n in self._greatest.items()}),
            released_set=self._everything(channels) if self._keep_set else None,
            records=self._records,
            incarnations=dict(self._incarnations),
            void_count=self._void_count,
            foreign=self._foreign,
            regression_count=self._regression_count,
            regressions=tuple(
                Regression(channel=channels[route], earlier=stamp_of(earlier), later=stamp_of(later))
                for route, earlier, later in self._regressions
            ),
        )

    def _everything(self, channels: Mapping[_Route, Channel]) -> tuple[tuple[Channel, Stamp], ...]:
        return tuple((channels[r], stamp_of(n)) for r, numbers in self._all.items() for n in numbers)


def _channel(route: _Route) -> Channel:
    source, source_partition, state, output_partition = route
    return Channel(
        source=source,
        source_partition=source_partition,
        state_partition=int(state),
        output_partition=output_partition,
    )
