"""A topic by epochs without a broker: its notes, its waits, and when it asks the broker."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from pyspark.sql.types import StructType

import falkirk as fk
from falkirk.errors import HomeError, SparkError
from falkirk.errors.conditions.kafka_client import TOPIC_MISSING
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.sinks import asking, epoch_notes, epoch_topic, release
from falkirk.runtime.spark.sinks.epoch_notes import EpochNote, EpochNotes
from falkirk.runtime.spark.sinks.epoch_topic import EpochTopicTarget
from falkirk.runtime.spark.sinks.release import EpochReleaser
from falkirk.theory.ids import EpochNumber
from tests.clock import MovedClock
from tests.support import wait_until
from tests.unit.epochs.test_backpressure import session

CLUSTER = Connection.of("localhost:1")


def note(epoch: int, topic: str = "id of out") -> EpochNote:
    return EpochNote(epoch=EpochNumber(epoch), topic=topic, partitions=1, limit_bytes=1000, is_compacted=False)


class Cluster:
    """The topics of a cluster, each with one partition, and the transactional ids that were taken."""

    def __init__(self) -> None:
        self.values: dict[str, list[bytes | None]] = {"out": []}
        self.taken: list[str] = []

    def exists(self, topic: str) -> bool:
        return topic in self.values

    def identity(self, topic: str) -> str:
        if topic not in self.values:
            raise TOPIC_MISSING.error(where="", topic=topic, similar=(), advice="")
        return f"id of {topic}"

    def create(self, topic: str, *_: object) -> None:
        self.values.setdefault(topic, [])

    def names(self) -> list[str]:
        return sorted(self.values)

    def facts(self, topic: str) -> Any:
        return SimpleNamespace(partitions=1, max_message_bytes=1000, cleanup_policy="delete")

    def first_positions(self, topic: str) -> dict[int, int]:
        return {0: 0}

    def readable_positions(self, topic: str) -> dict[int, int]:
        return {0: len(self.values[topic])}

    def read(
        self, _: object, topic: str, first: Mapping[int, int], last: Mapping[int, int], *, committed: bool
    ) -> list[Any]:
        assert committed
        return [
            SimpleNamespace(key=epoch_notes.NOTE_KEY, value=value, offset=offset)
            for offset, value in enumerate(self.values[topic][first[0] : last[0]], first[0])
        ]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(epoch_topic, "Topics", lambda connection: made)
    monkeypatch.setattr(epoch_notes, "read_range", made.read)
    monkeypatch.setattr(epoch_topic, "take_ids", lambda connection, ids: made.taken.extend(ids))
    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "decisions.db")
    yield made
    made.close()


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
def out(cluster: Cluster, store: Store, clock: MovedClock) -> EpochTopicTarget:
    home = SimpleNamespace(store=store, application="shop", identity="deadbeef")
    place = cast(Any, SimpleNamespace(home=home, connection=CLUSTER, clock=clock))
    return EpochTopicTarget(fk.EpochTopic("out"), place, "out")


@pytest.fixture
def notes(out: EpochTopicTarget, cluster: Cluster) -> EpochNotes:
    """The notes of the target, in which it has none yet."""
    out._notes.create()
    return out._notes


def failure(call: Callable[..., object], *arguments: Any) -> str:
    """Return the condition of the error."""
    with pytest.raises((HomeError, SparkError)) as error:
        call(*arguments)
    return error.value.condition


def test_each_look_fences_those_who_may_have_begun_since(
    out: EpochTopicTarget, notes: EpochNotes, cluster: Cluster
) -> None:
    """A command looks, waits for the user, becomes the owner and looks again. Another owner ran meanwhile."""
    for looks in (1, 2):
        assert out.visible() == 0
        assert cluster.taken == [notes.topic] * looks


def test_an_open_producer_answers_from_memory(out: EpochTopicTarget, notes: EpochNotes, cluster: Cluster) -> None:
    """The release asks before each epoch, and a distant broker would take longer than that epoch."""
    cluster.values[notes.topic].append(note(0).value())
    assert out.delivered() == 1
    out._opened, out._note = cast(Any, object()), note(1)
    cluster.values.clear()
    assert out.delivered() == 2
    assert cluster.taken == [notes.topic]


def test_an_epoch_that_was_committed_is_visible_before_readers_see_its_note(
    out: EpochTopicTarget, notes: EpochNotes, cluster: Cluster
) -> None:
    """A broker answers a commit before it has written all marks. A rollback in between must not cancel that epoch."""
    cluster.values[notes.topic].append(note(0).value())
    out._note = note(1)
    assert (out.visible(), out.delivered()) == (2, 2)


def test_malformed_notes_are_left_out_and_other_fields_do_not_matter(notes: EpochNotes, cluster: Cluster) -> None:
    other = "falkirk.shop.0a1b.epochs.ffffffff"
    wrong = [b"{}", None, b"[]", b"\xff", b'{"epoch": "a", "topic": 1, "partitions": 1}', b"[" * 100_000]
    whole = b'{"epoch": %b, "topic": "t", "partitions": 1, "limit_bytes": 9, "is_compacted": true, "spans": %b}'
    assert EpochNote.of(whole % (b"1", b'{"0": [3, 5, 2]}')) is not None
    wrong += [whole % (b"1e999", b"null"), whole % (b"1", b'{"0": [1e999, 2, 1]}'), whole % (b"1", b'{"0": "123"}')]
    wrong += [whole % (b"1", b'{"0": [%b]}' % each) for each in (b"5, 3, 1", b"3, 5, 4", b"3, 5, 0", b"-1, 0, 1")]
    cluster.values[other] = list(wrong)
    notes.refuse_others("id of out")
    cluster.values[other] += [json.dumps({**json.loads(note(3).value()), "later": 1}).encode(), *wrong]
    assert failure(notes.refuse_others, "id of out") == "TOPIC_OF_ANOTHER"
    cluster.values[notes.topic] = list(cluster.values[other])
    assert failure(notes.newest) == "NOTES_LOST", "the newest one may be about a later epoch"
    cluster.values[notes.topic].append(note(4).value())
    assert notes.newest() == note(4)


def test_a_topic_whose_notes_were_deleted_is_not_taken_for_a_new_one(notes: EpochNotes, cluster: Cluster) -> None:
    """Its topic is still there: an operator has deleted the records, or written another one with the same key."""
    assert notes.newest() is None
    cluster.values[notes.topic].append(note(0).value())
    assert notes.newest() == note(0)
    notes.remember()
    for left in ([], [b"forged"]):
        cluster.values[notes.topic] = list(left)
        assert failure(notes.newest) == "NOTES_LOST"


class Full(Producer):
    """A producer in whose queue there is never a place. It waits by the clock of the test."""

    def __init__(self, clock: MovedClock) -> None:
        super().__init__({"bootstrap.servers": "localhost:1", "log_level": 0})
        self.clock = clock

    def produce(self, *_: Any, **__: Any) -> None:
        if self.clock.now_s > 1_000_000:
            pytest.fail("it waits without an end")
        raise BufferError

    def poll(self, timeout: float = 0) -> int:
        self.clock.advance(1 + timeout)
        return 0


def test_an_epoch_that_can_not_be_sent_fails_after_the_time_of_its_transaction(
    out: EpochTopicTarget, clock: MovedClock
) -> None:
    out._until_s = clock.now_s + 300
    assert failure(out._produce, Full(clock), "out", 0, None, b"{}") == "RELEASE_FAILED"
    assert 300 < clock.now_s - 1000 < 310


@pytest.mark.parametrize("fails", [False, True])
def test_a_stop_ends_a_request_that_hangs(fails: bool, out: EpochTopicTarget, clock: MovedClock) -> None:
    """`init_transactions` and `commit_transaction` wait in steps, because nothing else could end them."""
    waits = list[float]()

    def hangs(timeout_s: float) -> None:
        waits.append(timeout_s)
        clock.advance(timeout_s)
        if len(waits) == 3 and not fails:
            out.stop()
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))

    if fails:  # without a stop, it ends after its patience
        with pytest.raises(KafkaException):
            out._request(hangs)
        assert sum(waits) == pytest.approx(31)
        return
    assert failure(out._request, hangs) == "RELEASE_FAILED"
    assert waits == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("call", ["init_transactions", "commit_transaction"])
def test_both_long_requests_wait_in_steps(call: str, out: EpochTopicTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = list[float]()
    names = ("init_transactions", "begin_transaction", "commit_transaction", "abort_transaction", "purge", "poll")
    made = SimpleNamespace(**dict.fromkeys((*names, "produce"), lambda *_, **__: None), flush=lambda _: 0)
    setattr(made, call, waits.append)
    monkeypatch.setattr(epoch_topic, "Producer", lambda options: made)
    producer = out._producer(1000)
    if call == "commit_transaction":
        monkeypatch.setattr(epoch_topic, "F", FakeColumns())
        monkeypatch.setattr(epoch_topic, "sorted_by_place", lambda rows, few: FakeColumns())
        opened = epoch_topic._Opened(producer=producer, identity="id of out", partitions=1, batch_bytes=1000)
        assert not out._send(opened, note(0), cast(Any, FakeColumns()), cast(Any, FakeColumns()), few=True)
    assert waits == [epoch_topic._REQUEST_S]


class FakeColumns:
    """Columns, and rows of which there are none."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_, **__: iter(()) if name == "toLocalIterator" else self


def test_a_stop_reaches_a_release_that_waits_for_its_broker_at_once(
    out: EpochTopicTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "_STOP_S", 600.0)
    hung, ended = threading.Event(), threading.Event()

    class Epochs:
        name = region = "b"

        def complete(self, *_: int) -> list[Any]:
            hung.set()
            assert out._stopping.wait(20)
            ended.set()
            return []

        def __getattr__(self, name: str) -> Callable[..., Any]:
            return lambda *_: 0

    releaser = EpochReleaser(cast(Any, Epochs()), {"out": out}, None, StructType())
    releaser._comparison.is_done = True
    monkeypatch.setattr(releaser._comparison, "refuse_behind", lambda done: None)
    releaser.release(session(), cast(Any, 0), cast(Any, 1))
    assert hung.wait(20)
    releaser.stop()
    assert ended.is_set()


@pytest.mark.parametrize("changes", [False, True])
def test_an_answer_that_came_too_late_is_used_if_nothing_has_changed(
    changes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise nothing would ever be released to a cluster that always takes longer to answer."""
    monkeypatch.setattr(asking, "ANSWER_S", 0.05)
    answers, asked, state = threading.Event(), list[int](), [0]

    def answer() -> int:
        asked.append(1)
        if len(asked) == 1:
            assert answers.wait(20)
        return len(asked)

    store = asking.Asking("out", "it", answer, lambda: list(state))
    with pytest.raises(asking.NoAnswer):
        store.ask()
    monkeypatch.setattr(asking, "ANSWER_S", 20.0)  # a busy machine needs more for the next ones
    answers.set()
    assert store._thread is not None
    store._thread.join(20)
    state[0] += changes
    assert store.ask() == (2 if changes else 1)
    assert store.ask() == len(asked) == (3 if changes else 2), "it counts once"


def test_a_new_owner_does_not_use_a_late_answer(out: EpochTopicTarget, store: Store) -> None:
    """A visitor asked. Then it became the owner, and another one may have sent an epoch meanwhile."""
    assert out._asking._state is not None
    before = out._asking._state()
    store.take_charge("me")
    assert out._asking._state() != before


def test_an_answer_from_before_a_send_does_not_count_after_it(
    out: EpochTopicTarget, notes: EpochNotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to its commit was lost, so the topic may have the epoch."""
    assert out._asking._state is not None
    before, producer = out._asking._state(), SimpleNamespace(begin_transaction=lambda: 1 / 0, purge=list)
    producer.abort_transaction = lambda *_: None
    monkeypatch.setattr(epoch_topic, "F", FakeColumns())
    monkeypatch.setattr(epoch_topic, "sorted_by_place", lambda *_, **__: None)
    with pytest.raises(ZeroDivisionError):
        out._send(cast(Any, SimpleNamespace(producer=producer)), note(0), *2 * [cast(Any, FakeColumns())], few=True)
    assert out._asking._state() != before


def test_a_late_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ANSWER_S", 0.05)
    fails = threading.Event()

    def answer() -> int:
        assert fails.wait(20)
        raise ZeroDivisionError

    store = asking.Asking("out", "it", answer, lambda: 0)
    with pytest.raises(asking.NoAnswer):
        store.ask()
    fails.set()
    wait_until(lambda: store._thread is not None and not store._thread.is_alive(), 20, "the late failure")
    with pytest.raises(ZeroDivisionError):
        store.ask()
