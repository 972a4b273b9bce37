"""The number of dead letters of a home, in a topic to which other homes and programs write too."""

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.errors import LogError
from falkirk.kafka_client import reader
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.reader import Reader
from falkirk.kafka_client.signing import SigningKey, Verifier, tag_of
from falkirk.recovery.decision_store.values import CountedLetters
from falkirk.runtime.spark import dead_letters
from falkirk.runtime.spark.dead_letters import DeadLetters
from falkirk.runtime.spark.live import region as region_module
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.runtime.supervision.failures import Failures
from falkirk.runtime.supervision.host import Host
from falkirk.runtime.supervision.supervised import Supervision, count_all_letters
from falkirk.runtime.supervision.supervised_batch import SupervisedBatch
from falkirk.theory.ids import Offset

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

    @property
    def positions(self) -> dict[int, int]:
        return {0: self.position}

    def close(self) -> None:
        self.position = 0


def header(identity: str, key: SigningKey, number: int) -> bytes:
    text = f"{identity}/1/0.0.{number}/0/".encode()
    return text + tag_of(key.of("dead", "1"), text, 0, None, b"v").encode()


def ours(number: int) -> bytes:
    return header("deadbeef", OURS, number)


def letters(topic: Topic, first: int = 0, **given: Any) -> DeadLetters:
    verifier = Verifier("dead", "deadbeef", OURS)
    connection, ends = Connection.of("broker:1"), {0: Offset(first)}
    return DeadLetters(connection, "dead", ends, verifier, new_reader=topic.reader, **given)


def counted(letters: DeadLetters, end: int) -> int:
    """Return the number once all letters below the end are read."""
    for _ in range(100):
        count = letters.count({0: Offset(end)})
        if letters.is_complete:
            assert count is not None
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


def test_later_letters_are_added() -> None:
    topic = Topic(ours(1), ours(2), ours(3))
    count = letters(topic)
    assert [counted(count, 1), counted(count, 3)] == [2, 3]
    assert topic.readers == 1


def test_the_number_is_unknown_until_the_letters_from_before_the_start_are_read() -> None:
    """A number that climbs over them would look like new dead letters, to an alert."""
    topic = Topic(*(ours(n) for n in range(5)))
    count = letters(topic)
    ends = {0: Offset(5)}
    assert [count.count(ends) for _ in range(3)] == [None, None, 5]
    topic.records.append(Message(5, ours(5)))
    topic.records += [Message(n, ours(n)) for n in range(6, 9)]
    assert [count.count({0: Offset(9)}) for _ in range(3)] == [7, 9, 9], "these are new"


def test_a_region_that_has_never_run_has_none() -> None:
    topic = Topic(*(ours(n) for n in range(5)))
    count = letters(topic, number=0)
    assert count.number == 0
    assert [count.count({0: Offset(5)}) for _ in range(2)] == [0, 0]


def test_a_later_process_reads_on_where_the_count_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "RECORD_EVERY", 3)
    topic, recorded = Topic(*(ours(n) for n in range(7))), list[CountedLetters]()
    assert counted(letters(topic, record=recorded.append), 7) == 7
    assert [(each.count, each.positions) for each in recorded] == [(4, {0: 4}), (7, {0: 7})]
    topic.records[:4] = [Message(n, None) for n in range(4)]
    again = letters(topic, known=recorded[0])
    assert again.count({0: Offset(7)}) is None
    assert topic.position == 6, "it began at 4"
    assert counted(again, 7) == 7
    other = CountedLetters(topic="former", count=4, positions={0: Offset(4)})
    assert counted(letters(topic, known=other), 7) == 3, "the count is of another topic"


def test_a_topic_that_is_shorter_than_before_is_read_from_its_beginning() -> None:
    """People may delete the topic of dead letters. The number does not fall."""
    topic = Topic(ours(8), ours(9))
    known = CountedLetters(topic="dead", count=4, positions={0: Offset(4)})
    assert counted(letters(topic, known=known), 2) == 6


def test_letters_that_wait_to_be_counted_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[dict[str, Any]]()

    def consumer(settings: dict[str, Any]) -> Any:
        made.append(settings)
        return SimpleNamespace(assign=lambda partitions: None, poll=lambda timeout_s: None)

    monkeypatch.setattr(reader, "Consumer", consumer)
    verifier = Verifier("dead", "deadbeef", OURS)
    DeadLetters(Connection.of("broker:1"), "dead", {}, verifier).count({0: Offset(1)})
    assert [settings["queued.max.messages.kbytes"] for settings in made] == [1024]


def test_a_call_may_wait_until_all_are_read() -> None:
    topic = Topic(*(ours(n) for n in range(9)))
    assert letters(topic).count({0: Offset(9)}, within_s=60.0) == 9
    began_s = time.monotonic()
    assert letters(topic).count({0: Offset(10)}, within_s=0.05) is None
    assert time.monotonic() - began_s < 30, "the time is limited"


@pytest.mark.parametrize("is_over", [False, True])
def test_the_last_turn_of_a_run_with_once_counts_to_the_end(*, is_over: bool) -> None:
    """There is no later turn, and the first count of a topic reads a part at best."""
    topic = Topic(*(ours(n) for n in range(9)))
    region: Any = SimpleNamespace(batch=SimpleNamespace(name="a", where=None), letters=letters(topic))
    context: Any = SimpleNamespace(topics=SimpleNamespace(end_positions=lambda name: {0: Offset(9)}))
    unit: Any = SupervisedBatch(region, Supervision(context=context, failures=Failures(), say=lambda line: None))
    unit.poll = unit.count_letters
    host: Any = Host.__new__(Host)
    host._units, host._regions, host._releases_failed, host._acceptance = {"a": unit}, {}, 0, None
    host._failures = SimpleNamespace(next_trial=lambda down: None)
    host._rollbacks = SimpleNamespace(are_there=lambda: False)
    host._views = SimpleNamespace(update=lambda settled, regions: False)
    host._batches = SimpleNamespace(sweep=lambda regions, down, home: None)
    host._clocks = SimpleNamespace(update=lambda recovery: None)
    host._context = SimpleNamespace(home=None)
    host._recovery = SimpleNamespace(
        turn=lambda: None, down=SimpleNamespace(errors={}), watermarks=SimpleNamespace(settled_epochs=None)
    )
    host._once = SimpleNamespace(update=lambda recovery: None, status=SimpleNamespace(is_over=is_over))
    host._check_units()
    assert unit.status.dead_letters == (9 if is_over else None)


def test_a_broker_that_is_away_delays_no_end() -> None:
    def away(name: str) -> dict[int, Offset]:
        raise LogError("BROKER_AWAY", "it is away", hint="wait")

    region: Any = SimpleNamespace(batch=SimpleNamespace(name="a", where=None), letters=letters(Topic(ours(1))))
    context: Any = SimpleNamespace(topics=SimpleNamespace(end_positions=away))
    unit = SupervisedBatch(region, Supervision(context=context, failures=Failures(), say=lambda line: None))
    count_all_letters([unit])
    assert unit.status.dead_letters is None


def test_a_region_keeps_its_count_when_it_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each start reads and verifies all letters again."""
    region: Any = LiveRegion.__new__(LiveRegion)
    topic, made = Topic(ours(1), ours(2)), list[DeadLetters]()

    def letters_of(*_: Any) -> DeadLetters:
        made.append(letters(topic))
        return made[-1]

    for name in ("refuse_repeats", "refuse_forgetful"):
        monkeypatch.setattr(region_module, name, lambda *_: None)
    monkeypatch.setattr(region_module, "region_record", lambda *_: SimpleNamespace(start_offsets={}))
    monkeypatch.setattr(region_module, "letters_of", letters_of)
    region.letters, region.query, region.opening = None, None, None
    region._context = SimpleNamespace(session=None, hold=lambda topics: None)
    region._outputs, region._checkpoint = SimpleNamespace(topics=tuple), None
    region.logs = SimpleNamespace(sources=())
    region.region = SimpleNamespace(
        name="a", released_to=None, sources=(), output=SimpleNamespace(topic="out"), dead_letter_topic="dead"
    )
    for _ in range(3):
        region.prepare()
        assert counted(region.letters, 2) == 2
        region.end("failed")
    assert (len(made), topic.readers) == (1, 1)
