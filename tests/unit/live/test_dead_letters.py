"""The number of dead letters of a home, in a topic to which other homes and programs write too."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.reader import Reader
from falkirk.kafka_client.signing import SigningKey, Verifier, tag_of
from falkirk.spark_runtime.dead_letters import DeadLetters

OURS, OTHERS = SigningKey(secret=bytes(32), since_birth=True), SigningKey(secret=bytes(range(32)), since_birth=True)


class Message:
    """A record of partition 0 with the value `v`. Args: header: of Falkirk, or None."""

    def __init__(self, offset: int, header: bytes | None) -> None:
        self._offset, self._header = offset, header

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> list[tuple[str, bytes]]:
        return [] if self._header is None else [("falkirk", self._header)]


class Topic:
    """A topic of one partition and its reader, which returns two records at a time."""

    def __init__(self, *headers: bytes | None) -> None:
        self.records = [Message(offset, header) for offset, header in enumerate(headers)]
        self.position = self.readers = 0

    def reader(self, connection: Connection, topic: str, first: Mapping[int, int]) -> Reader:
        self.position, self.readers = first[0], self.readers + 1
        return cast(Reader, self)

    def poll(self, timeout_s: float) -> list[Any]:
        found = self.records[self.position : self.position + 2]
        self.position += len(found)
        return found

    def is_at(self, ends: Mapping[int, int]) -> bool:
        return self.position >= ends[0]

    def close(self) -> None:
        self.position = 0


def header(identity: str, key: SigningKey, number: int) -> bytes:
    text = f"{identity}/1/0.0.{number}/0/".encode()
    return text + tag_of(key.of("dead", "1"), text, 0, None, b"v").encode()


def ours(number: int) -> bytes:
    return header("deadbeef", OURS, number)


def letters(topic: Topic, first: int = 0) -> DeadLetters:
    verifier = Verifier("dead", "deadbeef", OURS)
    made: Any = DeadLetters(Connection.of("broker:1"), "dead", {0: first}, verifier, new_reader=topic.reader)  # type: ignore[dict-item]
    return cast(DeadLetters, made)


def counted(letters: DeadLetters, end: int) -> int:
    """Return the number once all letters below the end are read."""
    ends: Any = {0: end}
    for _ in range(100):
        count = letters.count(ends)
        if letters.has_read(ends):
            return count
    raise AssertionError("the letters are never read")


@pytest.mark.parametrize(
    "foreign",
    [
        header("cafecafe", OTHERS, 1),  # another home that has the same dead-letter topic
        header("deadbeef", OTHERS, 1),  # somebody who claims to be this home
        None,  # another program
    ],
)
def test_letters_of_others_do_not_count(foreign: bytes | None) -> None:
    topic = Topic(ours(1), foreign, foreign, ours(2), foreign, ours(3), foreign)
    assert counted(letters(topic), 7) == 3


def test_letters_from_before_the_home_do_not_count_and_no_reader_is_opened_for_them() -> None:
    topic = Topic(ours(1), ours(2), ours(3))
    assert counted(letters(topic, first=3), 3) == 0
    assert topic.readers == 0
    assert counted(letters(topic, first=2), 3) == 1


def test_later_letters_are_added_and_a_closed_count_begins_again() -> None:
    topic = Topic(ours(1), ours(2), ours(3))
    count = letters(topic)
    assert [counted(count, 1), counted(count, 3)] == [2, 3]
    count.close()
    assert counted(count, 3) == 3
    assert topic.readers == 2
