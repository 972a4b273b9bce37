"""Counts the dead letters of a live region or a batch."""

import time
from collections.abc import Callable, Mapping
from functools import partial

from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.reader import Reader
from falkirk.kafka_client.signing import RejectedHeader, Verifier
from falkirk.platform.deadline import left_s
from falkirk.recovery.decision_store.values import CountedLetters
from falkirk.runtime.spark.context import Context
from falkirk.theory.ids import LogId, Offset

#: The count is recorded again after this many offsets. The next process reads about as many again.
RECORD_EVERY = 1_000
#: A call of `DeadLetters.count` waits this long for each answer of the broker, if it may wait at all.
_POLL_S = 0.2
#: The reader keeps this many KiB in memory that were not counted yet.
_BUFFER_KIB = 1_024
_SMALL_READER = partial(Reader, buffer_kib=_BUFFER_KIB)


class DeadLetters:
    """The number of dead letters in a topic that this home has written since it was made.

    Other homes may write the same topic, and offsets also count markers of transactions. So the records are read, and
    the signature of each shows whether it counts. A record that the topic deletes before it is read is not counted.

    Args: first: the ends of the topic when the home was made. verifier: of the home, for this topic. known: the
        record of an earlier process; without it, all letters are read. record: records the count, at intervals.
        number: before the first call of `count`. new_reader: makes the reader of the topic.
    Attributes: number: at the last call of `count`. None: not all that were there at the first call were read yet. A
        smaller number would later seem to grow, although all letters are old. is_complete: whether all were read.
    """

    def __init__(
        self, connection: Connection, topic: str, first: Mapping[int, Offset], verifier: Verifier, *,
        known: CountedLetters | None = None, record: Callable[[CountedLetters], None] = lambda counted: None,
        number: int | None = None,
        new_reader: Callable[[Connection, str, Mapping[int, Offset]], Reader] = _SMALL_READER,
    ) -> None:  # fmt: skip
        self.topic, self.number, self.is_complete = topic, number, False
        self._connection, self._verifier = connection, verifier
        self._new_reader, self._record = new_reader, record
        self._reader: Reader | None = None
        if known is not None and known.topic != topic:
            known = None
        self._own = 0 if known is None else known.count
        self._recorded: dict[int, Offset] = dict(first if known is None else known.positions)
        #: The ends at the first call of `count`, until these are read.
        self._goal: dict[int, Offset] | None = None
        self._is_known = False

    def count(self, ends: Mapping[int, Offset], within_s: float = 0.0) -> int | None:
        """Read some, count those of this home, and return `number`.

        Args: ends: the present ends of the topic. within_s: the call may wait this long until all are read.
        Raises: LogError. StoreError: the count is kept.
        """
        if self._goal is None:
            self._goal = dict(ends)
        until_s, wait_s = time.monotonic() + within_s, 0.0
        while not self._has_read(ends):
            self._read_some(ends, wait_s)
            if (wait_s := left_s(_POLL_S, until_s)) <= 0:
                break
        self.is_complete = self._has_read(ends)
        self._is_known = self._is_known or self._has_read(self._goal)
        if self._is_known:
            self.number = self._own
        return self.number

    def _read_some(self, ends: Mapping[int, Offset], wait_s: float) -> None:
        if self._reader is None:
            self._recorded = self._start(ends)
            self._reader = self._new_reader(self._connection, self.topic, self._recorded)
        found = (self._verifier.verify_message(message) for message in self._reader.poll(wait_s))
        self._own += sum(not isinstance(header, RejectedHeader) for header in found)
        now = dict(self._reader.positions)
        if sum(now.values()) - sum(self._recorded.values()) >= RECORD_EVERY:
            self._record(CountedLetters(topic=self.topic, count=self._own, positions=now))
            self._recorded = now

    def _start(self, ends: Mapping[int, Offset]) -> dict[int, Offset]:
        """Return where to begin. A topic that is shorter than before is a new one, and all of it is read."""
        known = {partition: self._recorded.get(partition, Offset(0)) for partition in ends}
        return {partition: first if first <= ends[partition] else Offset(0) for partition, first in known.items()}

    def _has_read(self, ends: Mapping[int, Offset]) -> bool:
        return self._start(ends) == dict(ends) if self._reader is None else self._reader.is_at(ends)

    def close(self) -> None:
        """Close the reader. The object is of no use after that."""
        if self._reader is not None:
            self._reader.close()


def letters_of(region: str, topic: LogId, context: Context) -> DeadLetters:
    """Return the dead letters of a region or a batch with a record in the home. Raises: StoreError.

    If it was never started, the number is known: 0.
    """
    store = context.home.store
    first = min(store.tails(region), key=lambda tail: tail.valid_from_commit).positions.get(topic, {})
    return DeadLetters(
        context.connection, topic, first, context.verifier(topic), known=store.counted_letters(region),
        record=partial(store.record_counted_letters, region), number=None if store.incarnations(region) else 0,
    )  # fmt: skip
