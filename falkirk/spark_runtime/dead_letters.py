"""Counts the dead letters of a live region or a batch."""

from collections.abc import Callable, Mapping

from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.reader import Reader
from falkirk.kafka_client.signing import RejectedHeader, Verifier
from falkirk.theory.ids import Offset


class DeadLetters:
    """The number of dead letters in a topic that this home has written since it was made.

    Other homes may write the same topic, and offsets also count markers of transactions. So the records are read, and
    the signature of each shows whether it counts. Records that the topic has deleted are not counted.

    Args: first: the ends of the topic when the home was made. verifier: of the home, for this topic. new_reader: makes
        the reader of the topic.
    """

    def __init__(
        self, connection: Connection, topic: str, first: Mapping[int, Offset], verifier: Verifier,
        new_reader: Callable[[Connection, str, Mapping[int, Offset]], Reader] = Reader,
    ) -> None:  # fmt: skip
        self._connection, self._topic, self._first, self._verifier = connection, topic, dict(first), verifier
        self._new_reader = new_reader
        self._reader: Reader | None = None
        self._own = 0

    def count(self, ends: Mapping[int, Offset]) -> int:
        """Return the number of those that have been read so far, given the present ends. Each call reads some."""
        if self._reader is None:
            start = {partition: self._first.get(partition, Offset(0)) for partition in ends}
            if start == dict(ends):
                return 0
            self._reader = self._new_reader(self._connection, self._topic, start)
        if not self._reader.is_at(ends):
            found = (self._verifier.verify_message(message) for message in self._reader.poll(0))
            self._own += sum(not isinstance(header, RejectedHeader) for header in found)
        return self._own

    def has_read(self, ends: Mapping[int, Offset]) -> bool:
        """Return whether the number that `count` returned was that of all dead letters."""
        return self._reader is None or self._reader.is_at(ends)

    def close(self) -> None:
        """Close the reader."""
        if self._reader is not None:
            self._reader.close()
            self._reader, self._own = None, 0
