"""A reader of a topic whose client returns messages and an error in one batch."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from falkirk.errors import LogError
from falkirk.kafka_client import reader as module
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.reader import Reader


class Message:
    """A message, or an error. Args: code: of the error."""

    def __init__(self, offset: int, code: int | None = None) -> None:
        self._offset, self._error = offset, None if code is None else KafkaError(code)

    def error(self) -> KafkaError | None:
        return self._error

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset


MISSING = KafkaError.UNKNOWN_TOPIC_OR_PART


def reader_of(monkeypatch: pytest.MonkeyPatch, *batches: list[Message]) -> Reader:
    """Return a reader at position 7 whose client returns these batches."""
    left = [*batches]
    batch: list[Message] = []

    def poll(timeout_s: float) -> Message | None:
        batch[:] = left.pop(0) if left else []
        return batch[0] if batch else None

    consumer = SimpleNamespace(poll=poll, consume=lambda count, timeout_s: batch[1:], assign=lambda places: None)
    monkeypatch.setattr(module, "_consumer", lambda *_: consumer)
    return Reader(Connection.of("127.0.0.1:1"), "claims", {0: 7})  # type: ignore[dict-item]


def offsets(reader: Reader) -> list[Any]:
    return [message.offset() for message in reader.poll(0)]


def test_messages_that_come_with_an_error_are_returned_and_the_next_call_raises_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else nobody sees them: the positions have passed them, and a claim among them would be lost."""
    reader = reader_of(monkeypatch, [Message(7), Message(-1, MISSING), Message(8)], [Message(9)])
    assert offsets(reader) == [7, 8]
    assert reader.positions == {0: 9}
    with pytest.raises(LogError) as refused:
        reader.poll(0)
    assert refused.value.condition == "TOPIC_MISSING"
    assert offsets(reader) == [9]
    assert offsets(reader) == []


def test_an_error_alone_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of(monkeypatch, [Message(-1, MISSING), Message(7, KafkaError._PARTITION_EOF)], [Message(7)])
    with pytest.raises(LogError):
        reader.poll(0)
    assert offsets(reader) == [7]


def test_a_broker_that_is_away_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of(monkeypatch, [Message(-1, KafkaError._TRANSPORT), Message(7)])
    assert (offsets(reader), offsets(reader)) == ([7], [])
