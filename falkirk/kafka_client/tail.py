"""Reads a part of an output topic as this home sees it: without void records and without the records of others.

Falkirk's readers skip these records too. A new incarnation reads the tail for its barrier, and a recovery reads the
results that it cancels (runtime/spark/live/at_rest.py).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.header import header_value, stamp_of
from falkirk.kafka_client.ranges import read_messages
from falkirk.kafka_client.signing import Foreign, ForeignTally, RejectedHeader, VerifiedHeader, Verifier
from falkirk.kafka_client.void import Void
from falkirk.theory.channel import Channel, Regression, ReleasedTail
from falkirk.theory.ids import Incarnation, Offset
from falkirk.theory.stamp import Stamp

OwnRecord = tuple[int, Offset, VerifiedHeader]
"""A record of this home: its partition, its offset, and its verified header."""

#: A channel: source, source partition, state partition as text, output partition.
_Route = tuple[int, int, str, int]
#: A stamp: source, partition, offset, sub-indexes.
_Numbers = tuple[int, ...]


class OwnRecords:
    """Selects the valid records of this home among those of a topic.

    Args: verifier: of the home and the topic. Attributes: foreign: the records so far that this home did not write.
    """

    def __init__(self, verifier: Verifier, void: Void) -> None:
        self._verifier, self._void = verifier, void
        self.foreign = ForeignTally()

    def header(
        self, partition: int, offset: Offset, header: bytes | None, key: bytes | None = None, value: bytes | None = None
    ) -> VerifiedHeader | None:
        """Return the verified header of a record; None: the record is void, or somebody else wrote it."""
        found = self._verifier.verify(partition, offset, header, key, value)
        if self._void.has(partition, offset, None if isinstance(found, RejectedHeader) else found.incarnation):
            return None
        if isinstance(found, RejectedHeader):
            self.foreign.add(Foreign(partition=partition, offset=offset, reason=found))
            return None
        return found

    def read(
        self, connection: Connection | str, topic: str, first: Mapping[int, Offset], last: Mapping[int, Offset], *,
        committed: bool = False, stall_s: float = 30.0,
    ) -> Iterator[OwnRecord]:  # fmt: skip
        """Yield the selected records in [first, last) of each partition.

        Args: committed: omit records of aborted transactions, as readers do. Raises: LogError: as `read_range`.
        """
        for message in read_messages(connection, topic, first, last, stall_s=stall_s, committed=committed):
            partition, offset = message.partition(), message.offset()
            found = self.header(partition, offset, header_value(message.headers()), message.key(), message.value())
            if found is not None:
                yield partition, offset, found


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The published results in a range of an output topic.

    Args:
        released: the greatest published stamp of each channel.
        released_set: each published stamp once, with its channel.
        incarnations: the number of records that each incarnation published.
        regression_count, regression: the number of stamps that are not above an earlier stamp of their channel, and
            the first of them.
    """

    released: ReleasedTail
    released_set: tuple[tuple[Channel, Stamp], ...]
    incarnations: Mapping[Incarnation, int]
    regression_count: int
    regression: Regression | None


def tail_of(records: Iterable[OwnRecord]) -> Tail:
    """Return the tail of records in log order. It uses plain numbers, because a tail may have millions of records."""
    greatest: dict[_Route, _Numbers] = {}
    published: dict[_Route, dict[_Numbers, None]] = {}
    incarnations: Counter[Incarnation] = Counter()
    count, first = 0, None
    for partition, _, (incarnation, numbers, state, _) in records:
        incarnations[incarnation] += 1
        route = (numbers[0], numbers[1], state, partition)
        published.setdefault(route, {})[numbers] = None
        before = greatest.get(route)
        if before is None or before < numbers:
            greatest[route] = numbers
        else:
            count, first = count + 1, first or (route, before, numbers)
    channels = {route: _channel(route) for route in greatest}
    regression = None
    if first is not None:
        route, before, after = first
        regression = Regression(channel=channels[route], earlier=stamp_of(before), later=stamp_of(after))
    return Tail(
        released=ReleasedTail(greatest={channels[r]: stamp_of(n) for r, n in greatest.items()}),
        released_set=tuple((channels[r], stamp_of(n)) for r, numbers in published.items() for n in numbers),
        incarnations=dict(incarnations),
        regression_count=count,
        regression=regression,
    )


def _channel(route: _Route) -> Channel:
    source, source_partition, state, output_partition = route
    return Channel(
        source=source,
        source_partition=source_partition,
        state_partition=int(state),
        output_partition=output_partition,
    )
