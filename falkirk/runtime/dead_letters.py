"""Counts the dead letters of a live region or a batch."""

from collections.abc import Mapping

from falkirk.kafka.connection import Connection
from falkirk.kafka.reader import Reader
from falkirk.theory.ids import Offset


class DeadLetters:
    """The number of dead letters in a topic since this home was made.

    Offsets count records, unless a writer used transactions: these leave markers and aborted records. Then a reader of
    committed records counts them.

    Args: first: the ends of the topic when the home was made. transactional: a writer may have used transactions.
    """

    def __init__(self, connection: Connection, topic: str, first: Mapping[int, Offset], *, transactional: bool) -> None:
        self._connection, self._topic, self._first, self._transactional = connection, topic, dict(first), transactional
        self._reader: Reader | None = None
        self._read = 0

    def count(self, ends: Mapping[int, Offset]) -> int:
        """Return their number, given the present ends; with transactions, those that the reader has seen so far."""
        written = sum(ends.values()) - sum(self._first.values())
        if not self._transactional or not written:
            return written
        if self._reader is None:
            self._reader = Reader(self._connection, self._topic, self._first)
        if not self._reader.is_at(ends):
            self._read += len(self._reader.poll(0))
        return self._read

    def has_read(self, ends: Mapping[int, Offset]) -> bool:
        """Return whether the number that `count` returned was that of all dead letters."""
        return self._reader is None or self._reader.is_at(ends)

    def close(self) -> None:
        """Close the reader."""
        if self._reader is not None:
            self._reader.close()
            self._reader, self._read = None, 0
