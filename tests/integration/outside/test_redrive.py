"""Dead letters that are sent again: each input once and unchanged, after any interruption; without the notes, twice."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import falkirk as fk
from falkirk.errors import DefinitionError, InternalError, LogError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.ranges import read_messages
from falkirk.kafka_client.signing import tag_of
from falkirk.plan.region import BatchLogs
from falkirk.plan.shape import Shape
from falkirk.recovery.ownership.folder import Home, open_home
from falkirk.recovery.protocol.layout import Layout
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.rows import RAW_BYTES_MAX
from falkirk.spark_setup.broker import Broker
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import LogId, Offset
from falkirk.user_tools.commands.redrive import refusals, send_again
from falkirk.user_tools.redrive.letters import read_letters
from falkirk.user_tools.redrive.sending import ORIGIN_HEADER, Notes, RedriveSender
from tests.integration.live import Wire
from tests.support import wait_until

Sent = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@dataclass
class Stage:
    """An application at rest with dead letters of two batches that read one topic."""

    wire: Wire
    home: Home
    limit: int = 1_000_000
    events: str = field(init=False)

    def __post_init__(self) -> None:
        self.events = self.wire.topic("events", max_message_bytes=str(self.limit))
        self.app = fk.App("again")
        self.app.source("events", fk.Kafka(self.events, schema="id LONG"))
        self.app.source("theirs", fk.Kafka(self.events, schema="id LONG", kafka="east:1"))
        self.dead = {name: self.wire.topic(f"{name}-dead", partitions=1) for name in ("left", "right")}
        logs = [
            BatchLogs(name=n, log=f"epochs:{n}", topics=(self.events,), sinks=(), dead_letters=t)
            for n, t in self.dead.items()
        ]
        self.shape = Shape(
            layout=Layout(stages={}, partitions={}, held={}),
            regions=(),
            batches=tuple(logs),
            processors={n: (n,) for n in self.dead},
        )

    def put(self, partition: int, value: bytes | None, key: bytes | None = None) -> int:
        """Send an input; return its offset."""
        offset = self.wire.topics.end_positions(self.events)[partition]
        producer = self.wire.producer
        producer.produce(self.events, partition=partition, key=key, value=value, headers=[("trace", b"\xff")])
        assert producer.flush(30) == 0
        return offset

    def bury(self, batch: str, partition: int, offset: int, **content: Any) -> None:
        told = {"reason": "does not fit the schema", "region": batch, "topic": self.events}
        letter = told | {"partition": partition, "offset": offset} | content
        value = json.dumps({k: v for k, v in letter.items() if v is not None}).encode()
        topic, text = self.dead[batch], f"{self.home.identity}/1/0.0.0.0/0/".encode()
        self.last_header = text + tag_of(self.home.store.signing_key().of(topic, 1), text, 0, None, value).encode()
        self.forge(batch, value, self.last_header)

    def forge(self, batch: str, value: bytes, header: bytes | None) -> None:
        """Put a record into the dead letters."""
        headers: list[tuple[str, str | bytes | None]] = [] if header is None else [("falkirk", header)]
        self.wire.producer.produce(self.dead[batch], value, partition=0, headers=headers)
        assert self.wire.producer.flush(30) == 0

    def again(self, **options: Any) -> dict[str, int]:
        connection = Connection.of(self.wire.bootstrap)
        return send_again(self.app, self.home, self.shape, connection, **options)

    def inputs(self) -> Counter[Sent]:
        """Return the records that a reader of committed records finds in the topic, without notes of their origin."""
        topics = self.wire.topics
        # A transaction's end reaches its partitions a moment after its producer gets the answer.
        wait_until(
            lambda: topics.readable_positions(self.events) == topics.end_positions(self.events),
            30,
            "ended transactions",
        )
        first, last = topics.first_positions(self.events), topics.readable_positions(self.events)
        found = read_messages(self.wire.bootstrap, self.events, first, last, committed=True)
        return Counter(
            (m.partition(), m.key(), m.value(), tuple(h for h in m.headers() or [] if h[0] != ORIGIN_HEADER))
            for m in found
        )


@pytest.fixture
def stage(broker: Broker, home: Path, tag: str) -> Any:
    with open_home(home, "again") as opened:
        yield Stage(Wire(bootstrap=broker.bootstrap, tag=tag), opened)


def _bury_some(stage: Stage) -> Counter[Sent]:
    """Bury inputs in both dead letters, some in both; return the input topic's records after they are sent again."""
    for i in range(12):
        partition, value = i % 2, None if i == 3 else b"\xff bytes, no text %d" % i
        offset = stage.put(partition, value, key=None if i % 3 else b"\xffkey %d" % i)
        for batch in ("left", "right") if i % 2 else ("left",):
            stage.bury(batch, partition, offset, value="\ufffd")
        if i % 4 == 0:
            stage.bury("left", partition, offset)  # a region that was restored tells it again
    stage.put(0, b'{"id": 1}')
    return stage.inputs()


def test_each_input_is_sent_once_as_it_was(stage: Stage) -> None:
    before = _bury_some(stage)
    stage.bury("left", 0, 0, reason="too large: 9 bytes, 8 fit")
    stage.bury("left", 0, 0, topic="files:orders")
    stage.bury("left", 0, 1, topic=f"{stage.events}@east:1")
    stage.wire.send(stage.dead["right"], [b"no letter"])
    assert stage.again(dry_run=True)["waiting"] == 12
    assert stage.inputs() == before
    report = stage.again(named="right")
    assert (report["sent"], report["foreign"], report["results"]) == (6, 1, 0)
    report = stage.again()
    assert (report["sent"], report["results"], report["rows_of_files"]) == (6, 1, 1)
    assert report["elsewhere"] == 1, "a record of another cluster is not sent to the topic of its name here"
    assert [error.condition for error in refusals(report)] == ["REDRIVE_REFUSED"]
    once_more = before + Counter({sent: n for sent, n in before.items() if sent[2] != b'{"id": 1}'})
    assert stage.inputs() == once_more
    assert stage.again()["sent"] == 0
    assert stage.inputs() == once_more
    with pytest.raises(DefinitionError) as unknown:
        stage.again(named="middle")
    assert unknown.value.condition == "REGION_UNKNOWN"
    # One that does not fit again is another input.
    stage.bury("left", 0, stage.wire.topics.readable_positions(stage.events)[0] - 2)
    assert stage.again()["sent"] == 1


def test_forged_letters_and_notes_are_named_and_change_nothing(stage: Stage) -> None:
    """An attacker who can read and write the dead letters sends nothing again, and prevents nothing from being sent."""
    for i in range(3):
        stage.put(0, b"%d" % i)
    stage.bury("left", 0, 0)
    told = {"reason": "does not fit the schema", "topic": stage.events, "partition": 0, "offset": 1}
    places = [{}, {"offset": 10**9}, {"partition": -5}, {"offset": -1}, {"offset": True}, {"source": ["x"]}]
    letters = [json.dumps(told | place).encode() for place in places]
    hostile = [b'{"offset": ' + b"9" * 5_000 + b"}", b"[" * 100_000, b"\xff"]
    unsigned = f"{stage.home.identity}/1/0.0.1/0".encode()
    for header in (None, unsigned, b"\xff", unsigned + b"9" * 5_000, stage.last_header):
        for letter in (*letters, *hostile):
            stage.forge("left", letter, header)
    stage.bury("left", 0, 10**6)  # for a source that was truncated since
    notes = Notes(Storage(home=stage.home, connection=Connection.of(stage.wire.bootstrap)))
    notes.prepare()
    note = json.dumps([[stage.events, 0, 0]]).encode()
    for value in (note, *hostile):
        stage.wire.send(notes.topic, [value])
    before, forged = stage.inputs(), 5 * 9 + 1 + 4
    report = stage.again(dry_run=True)
    assert (report["waiting"], report["foreign"]) == (1, forged)
    report = stage.again()
    assert (report["sent"], report["foreign"], report["unknown"]) == (1, forged, 0)
    assert (stage.inputs() - before).total() == 1
    assert stage.again()["sent"] == 0, "its own note is believed"


def _kinds(stage: Stage, covered: Callable[[], OffsetFrontier]) -> list[str]:
    place = Storage(home=stage.home, connection=Connection.of(stage.wire.bootstrap))
    topics = {"events": LogId(stage.events)}
    return [
        each.kind for each in read_letters(place, stage.dead["left"], "left", topics, stamped=False, covered=covered)
    ]


def test_a_letter_that_a_replay_may_contradict_waits_for_a_checkpoint(stage: Stage) -> None:
    for i in range(4):
        stage.put(0, b"%d" % i)
        stage.bury("left", 0, i, reason="the function failed: ValueError: no", resend="once_covered" if i else "safe")
    assert (stage.again()["sent"], stage.again()["uncovered"]) == (1, 3), "a batch has no checkpoints"
    two = OffsetFrontier.before({LogId(stage.events): {0: Offset(2)}})
    assert _kinds(stage, lambda: two) == ["input", "input", "uncovered", "uncovered"]


def test_letters_that_a_rollback_cancelled_are_not_sent(stage: Stage) -> None:
    """The record of such a letter is processed again, perhaps by other steps, so it would count twice."""
    for i in range(4):
        stage.put(0, b"%d" % i)
        stage.bury("left", 0, i, **({} if i < 3 else {"reason": "the function failed: no", "resend": "once_covered"}))
    dead, number = LogId(stage.dead["left"]), 0

    def cancel(first: int) -> None:
        nonlocal number
        number = stage.home.store.open_recovery("asked", {}, voids=[(dead, 0, Offset(first), Offset(first + 1))])
        stage.home.store.advance_recovery(number, "done")

    def covered() -> OffsetFrontier:
        cancel(3)  # by a region that has failed just now, and a later checkpoint covers the record
        return OffsetFrontier.before({LogId(stage.events): {0: Offset(4)}})

    cancel(1)
    assert _kinds(stage, covered) == ["input", "cancelled", "input", "cancelled"]
    report = stage.again()
    assert (report["sent"], report["cancelled"], report["foreign"]) == (2, 2, 0)


#: Between which calls of the producer a process is killed.
PLACES: dict[str, tuple[type, str, bool]] = {
    "fenced, nothing begun": (RedriveSender, "send", False),
    "sent, not committed": (Producer, "commit_transaction", False),
    "committed, not told": (RedriveSender, "send", True),
    "noted, not read": (Notes, "read", True),
}


def test_cut_off_anywhere_each_input_is_sent_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _bury_some(stage)
    monkeypatch.setattr("falkirk.user_tools.commands.redrive.AT_ONCE", 3)
    left_alive: list[RedriveSender] = []
    real_init = RedriveSender.__init__

    def init(self: RedriveSender, *arguments: Any) -> None:
        real_init(self, *arguments)
        left_alive.append(self)

    monkeypatch.setattr(RedriveSender, "__init__", init)
    for place in PLACES:
        with monkeypatch.context() as patch:
            _cut_off_at(place, patch)
            with pytest.raises(InternalError):
                stage.again()
    stage.again()
    assert stage.again()["sent"] == 0
    assert stage.inputs() == before + Counter({s: n for s, n in before.items() if s[2] != b'{"id": 1}'})
    for sender in left_alive[:-1]:  # requests of a dead process can't arrive, and a hung process can't resume
        with pytest.raises(LogError) as fenced:
            sender._do(lambda sender=sender: sender._producer.commit_transaction(10))  # type: ignore[misc]
        assert fenced.value.condition in ("REDRIVE_TAKEN_OVER", "KAFKA_REFUSED")
    assert stage.inputs() == before + Counter({s: n for s, n in before.items() if s[2] != b'{"id": 1}'})


def _cut_off_at(place: str, patch: pytest.MonkeyPatch) -> None:
    owner, name, behind = PLACES[place]
    if owner is Producer:  # a class of C's, which can't be patched
        owner, name = RedriveSender, "_do"
    real: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if name == "_do" and calls < 3:  # the fence, and what is sent
            return real(*arguments, **options)
        if behind:
            real(*arguments, **options)
        raise InternalError("CUT_OFF", place)

    patch.setattr(owner, name, call)


def test_without_the_notes_it_is_sent_twice(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _bury_some(stage)
    monkeypatch.setattr(Notes, "read", lambda self: frozenset())
    assert [stage.again()["sent"] for _ in range(2)] == [12, 12]
    assert stage.inputs().total() == before.total() + 24


def test_what_has_expired_is_sent_from_the_letter_if_that_holds_all_of_it(stage: Stage) -> None:
    for i in range(4):
        stage.put(0, b"x%d" % i, key=b"k")
    stage.wire.expire(stage.events)
    stage.bury("left", 0, 0, value="x0")
    stage.bury("left", 0, 1, value="x" * RAW_BYTES_MAX)
    stage.bury("left", 0, 2, value="x\ufffd")
    stage.bury("left", 0, 3, value=None, reason="the value is null")
    report = stage.again()
    assert (report["sent"], report["gone"]) == (2, 2)
    assert {s[2] for s in stage.inputs()} == {b"x0", None}
    assert stage.again()["sent"] == 0


def test_what_the_topic_does_not_take_any_more_holds_up_nothing_else(broker: Broker, home: Path, tag: str) -> None:
    with open_home(home, "again") as opened:
        stage = Stage(Wire(bootstrap=broker.bootstrap, tag=tag), opened, limit=2_000)
        for i in range(3):
            stage.put(0, b"x")
            stage.bury("left", 0, i, value="y" * (5_000 if i == 1 else 10))
        stage.wire.expire(stage.events)
        report = stage.again()
        assert (report["sent"], report["refused"]) == (2, 1)
        assert stage.inputs().total() == 2
