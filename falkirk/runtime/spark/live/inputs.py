"""Inputs: finds the newest records of topics, such as those that former incarnations of a live join can have read.

Spark commits the offset after the last record that it has read. The end of a partition can be later: the marker of a
transaction has an offset there, and each record of an aborted one too. No commit covers these alone.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.ranges import read_messages
from falkirk.kafka_client.topics import Topics
from falkirk.theory.delivery import SourcePartition
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import LogId, Offset, Offsets, Positions
from falkirk.theory.offsets import within
from falkirk.theory.times import TopicPartition

#: The largest number of offsets of a partition to read at once.
_BACK_MAX = 10_000

Read = Callable[[Mapping[int, Offset], Mapping[int, Offset]], Iterable[tuple[int, Offset]]]
"""Reads the records [first, last) of each partition, as (partition, offset)."""


def read_before(topics: Topics, connection: Connection, start: Positions) -> dict[SourcePartition, Offset]:
    """Return for each source partition the newest record that former incarnations can have read.

    In a join, a record without a partner is a result once the other source has moved on. In a `stateful(order=)`, a
    record has results once the slowest partition has. So a commit that covers the record need not cover the result.
    Only a commit that covers all input from before the opening covers all results from before it.

    Args: start: where the restored checkpoint resumes, by source, in the order of their numbers. Partitions without a
        record after that are omitted, because the checkpoint covers them.
    Raises: LogError.
    """
    found: dict[SourcePartition, Offset] = {}
    for number, (topic, covered) in enumerate(start.items()):
        ends, oldest = topics.readable_positions(topic), topics.first_positions(topic)
        begin = within(covered, oldest, ends)
        newest = last_offsets(partial(_committed, connection, topic), begin, ends)
        found |= {(number, partition): offset for partition, offset in newest.items()}
    return found


def has_records(topics: Topics, connection: Connection, read: OffsetFrontier, partitions: Positions) -> bool:
    """Return whether there is a readable record that a frontier does not cover.

    Args: partitions: of the topics, with any offsets. Raises: LogError.
    """
    start: Positions = {}
    for topic, offsets in partitions.items():
        lengths = {p: read.length_of(topic, p) for p in offsets}
        start[topic] = {p: Offset(int(length)) for p, length in lengths.items()}
    return bool(read_before(topics, connection, start))


def due(topics: Topics, connection: Connection, start: Positions) -> dict[TopicPartition, Offset]:
    """Return the positions from which a live region resumed, of the partitions that have had records after them.

    Args: start: as of `read_before`. Raises: LogError.
    """
    names = list(start)
    places = read_before(topics, connection, start)
    return {TopicPartition(topic=names[n], partition=p): start[names[n]].get(p, Offset(0)) for n, p in places}


def end_of_records(topics: Topics, connection: Connection, topic: LogId) -> Offsets:
    """Return the offset after the last readable record of each partition; 0 if a partition has none.

    The end of the partition can be later (see above), and no commit gets there. Raises: LogError.
    """
    ends, oldest = topics.readable_positions(topic), topics.first_positions(topic)
    begin = within({}, oldest, ends)
    newest = last_offsets(partial(_committed, connection, topic), begin, ends)
    return {p: Offset(newest[p] + 1) if p in newest else Offset(0) for p in ends}


def last_offsets(read: Read, begin: Mapping[int, Offset], ends: Mapping[int, Offset]) -> Offsets:
    """Return the offset of the last record in [begin, ends) of each partition that has one.

    It reads backwards, in growing steps.
    """
    found: Offsets = {}
    last, step = dict(ends), 2  # the end of a transaction takes an offset
    while any(last[p] > begin[p] for p in last):
        first = {p: Offset(max(begin[p], o - step)) for p, o in last.items()}
        for partition, offset in read(first, last):
            found[partition] = max(offset, found.get(partition, offset))
        last = {p: begin[p] if p in found else o for p, o in first.items()}
        step = min(step * 10, _BACK_MAX)
    return found


def _committed(
    connection: Connection, topic: str, first: Mapping[int, Offset], last: Mapping[int, Offset]
) -> Iterable[tuple[int, Offset]]:
    for message in read_messages(connection, topic, first, last, committed=True):
        yield message.partition(), message.offset()
