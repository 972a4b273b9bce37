"""The rights in docs/how-to/security.md: they are enough, and those of users other than the application are all needed.

All tests share one broker, which requires TLS and SASL and has access control lists. Each user is new, so no right of
another test is left. Rights in PostgreSQL: tests/unit/home/test_least_rights.py.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from falkirk.checker import bounds_now, read_topic
from falkirk.errors import LogError
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark import settling
from falkirk.runtime.spark.context import Storage
from falkirk.theory.ids import CheckpointNumber, EpochNumber
from falkirk.user_tools.commands.history.application import recorded_shape
from falkirk.user_tools.commands.origins import Origins
from falkirk.user_tools.commands.records import EpochPlace, TopicRecords
from falkirk.user_tools.commands.redrive import send_again
from tests.cluster.past import BATCHES, Past
from tests.cluster.rights import (
    CREATE,
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONS,
    WRITE,
    Right,
    login,
    rights,
)
from tests.cluster.secured import Secured
from tests.integration.live import Wire
from tests.integration.outside.test_redrive import Stage

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, which makes the certificates")


@pytest.fixture
def stage(guarded: Secured, home: Path, tag: str) -> Iterator[Stage]:
    """An application at rest, with dead letters."""
    with open_home(home, "again") as opened:
        yield Stage(Wire(bootstrap=guarded.open.bootstrap, tag=tag), opened)


@pytest.fixture
def past(guarded: Secured, home: Path, tag: str) -> Iterator[Past]:
    """An application at rest, with live regions that it can roll back."""
    with open_home(home, "again") as opened:
        yield Past(Wire(bootstrap=guarded.open.bootstrap, tag=tag), opened)


def refusals(
    broker: Secured,
    tag: str,
    given: list[Right],
    do: Callable[[Connection], object],
    monkeypatch: pytest.MonkeyPatch,
    *,
    always: Sequence[Right] = (),
) -> list[str]:
    """Do something with all rights, then without each of `given` in turn; return the conditions of the refusals."""
    do(login(broker, f"all-{tag}", [*always, *given], monkeypatch))
    found = []
    for number, missing in enumerate(given):
        left = [*always, *(right for right in given if right is not missing)]
        connection = login(broker, f"without{number}-{tag}", left, monkeypatch)
        with pytest.raises(LogError) as error:
            do(connection)
        found.append(error.value.condition)
    return found


def test_redrive(guarded: Secured, stage: Stage, monkeypatch: pytest.MonkeyPatch, tag: str) -> None:
    """Each call has a new letter to send."""
    given = [
        *rights(TOPIC, stage.dead["left"], READ),
        *rights(TOPIC, stage.dead["right"], READ),
        *rights(TOPIC, stage.events, READ, WRITE),
        *rights(TOPIC, "falkirk.again.", CREATE, READ, WRITE, is_prefix=True),
        *rights(GROUP, "falkirk", READ, is_prefix=True),
        *rights(TRANSACTIONS, f"falkirk-redrive-{stage.home.identity}", WRITE),
    ]

    def again(connection: Connection) -> None:
        stage.bury("left", 0, stage.put(0, b"no JSON"), value="no JSON")
        assert send_again(stage.app, stage.home, stage.shape, connection)["sent"] >= 1

    assert {*refusals(guarded, tag, given, again, monkeypatch)} == {"ACCESS_REFUSED"}


def test_disown(guarded: Secured, stage: Stage, monkeypatch: pytest.MonkeyPatch, tag: str) -> None:
    def disown(connection: Connection) -> None:
        Storage(home=stage.home, connection=connection).disown(stage.events)

    given = rights(TOPIC, stage.events, DESCRIBE)
    assert refusals(guarded, tag, given, disown, monkeypatch) == ["ACCESS_REFUSED"]


def test_the_checker(guarded: Secured, stage: Stage, monkeypatch: pytest.MonkeyPatch, tag: str) -> None:
    """Before, a topic that a user may not read did "not exist"."""
    stage.put(0, b"{}")

    def read(connection: Connection) -> None:
        bounds_now(connection.client_options(), stage.events)
        assert len(list(read_topic(connection.client_options(), stage.events))) == 1

    given = [*rights(TOPIC, stage.events, READ), *rights(GROUP, "falkirk-check-", READ, is_prefix=True)]
    assert refusals(guarded, tag, given, read, monkeypatch) == ["TOPIC_UNREADABLE"] * 2


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at a topic's end twice within a short time: nobody writes."""
    monkeypatch.setattr(settling, "SETTLE_S", 0.02)


def to_look_back(past: Past) -> list[Right]:
    """Return the rights of the user of `falkirk history` while the application runs."""
    return [
        *rights(TOPIC, past.events, DESCRIBE),
        *rights(TOPIC, past.counts, DESCRIBE),
        *(right for topic in (past.snaps, past.totals, past.dead["batch"]) for right in rights(TOPIC, topic, READ)),
        *rights(TOPIC, "falkirk.again.", DESCRIBE, is_prefix=True),
        *rights(GROUP, "falkirk", READ, is_prefix=True),
    ]


def to_fence(past: Past) -> list[Right]:
    """Return the right to end former writers, before anybody looks where their results end."""
    return rights(TRANSACTIONS, "falkirk.again.", WRITE, is_prefix=True)


@pytest.mark.usefixtures("quickly")
def test_history(guarded: Secured, past: Past, monkeypatch: pytest.MonkeyPatch, tag: str) -> None:
    """Before a rollback of a running application, the command looks in the same way, and the application does it."""

    def look(connection: Connection, *, runs: bool) -> None:
        visit = past.visit(connection, runs=runs)
        assert len(visit.past_cuts()) == 3 * BATCHES + 1
        assert visit.preview({"held": CheckpointNumber(1)}).moves
        assert len(visit.history()) == 3 * (BATCHES + 1)

    running, at_rest = partial(look, runs=True), partial(look, runs=False)
    given = to_look_back(past)
    assert {*refusals(guarded, tag, given, running, monkeypatch)} == {"ACCESS_REFUSED"}
    at_rest(login(guarded, f"at-rest-{tag}", [*given, *to_fence(past)], monkeypatch))
    with pytest.raises(LogError, match="transactional id"):
        at_rest(login(guarded, f"fenceless-{tag}", given, monkeypatch))


@pytest.mark.usefixtures("quickly")
def test_rollback(guarded: Secured, past: Past, monkeypatch: pytest.MonkeyPatch, tag: str) -> None:
    """It looks at everything as `falkirk history` does, and needs these rights besides."""

    def go_back(connection: Connection) -> None:
        past.visit(connection).roll_back({"plain": CheckpointNumber(1), "held": CheckpointNumber(1)}, force=True)

    given = [
        *rights(TOPIC, past.counts, READ),
        *rights(TOPIC, past.dead["plain"], READ),
        *rights(TOPIC, "falkirk.again.", READ, is_prefix=True),
    ]
    always = [*to_look_back(past), *to_fence(past), *rights(TOPIC, past.dead["held"], READ)]
    assert {*refusals(guarded, tag, given, go_back, monkeypatch, always=always)} == {"ACCESS_REFUSED"}
    assert not past.home.store.unfinished_recovery()


def test_gc(guarded: Secured, past: Past, monkeypatch: pytest.MonkeyPatch, tag: str) -> None:
    """With two more rights, it commits how far the application has read. Nothing depends on that."""

    def collect(connection: Connection) -> None:
        visit = past.visit(connection)
        visit.garbage()
        visit.recovery.collect()

    given = [*rights(TOPIC, past.events, DESCRIBE), *rights(TOPIC, "falkirk.again.", DELETE, is_prefix=True)]
    assert past.wire.topics.first_positions(past.held) == {0: 0}
    assert {*refusals(guarded, tag, given, collect, monkeypatch)} == {"ACCESS_REFUSED"}
    assert past.wire.topics.first_positions(past.held) == {0: 1}, "what it deletes: it was released"


def test_producers_and_consumers(guarded: Secured, stage: Stage, monkeypatch: pytest.MonkeyPatch, tag: str) -> None:
    """These are plain clients of Kafka, so the errors are Kafka's."""

    def may_produce(connection: Connection) -> bool:
        failed: list[object] = []
        producer = Producer({**connection.client_options(), "message.timeout.ms": 30_000})
        producer.produce(stage.events, b"{}", on_delivery=lambda error, message: failed.append(error))
        producer.flush(40)
        (error,) = failed
        return error is None

    def may_consume(connection: Connection) -> bool:
        group = {"group.id": f"readers-{tag}", "auto.offset.reset": "earliest"}
        consumer = Consumer({**connection.client_options(), **group})
        try:
            consumer.subscribe([stage.events])
            message = consumer.poll(60)
            assert message is not None
            return message.error() is None
        finally:
            consumer.close()

    read, group = rights(TOPIC, stage.events, READ), rights(GROUP, f"readers-{tag}", READ)
    assert may_produce(login(guarded, f"producer-{tag}", rights(TOPIC, stage.events, WRITE), monkeypatch))
    assert not may_produce(login(guarded, f"reader-{tag}", read, monkeypatch))
    assert may_consume(login(guarded, f"consumer-{tag}", [*read, *group], monkeypatch))
    assert not may_consume(login(guarded, f"groupless-{tag}", read, monkeypatch))
    assert not may_consume(login(guarded, f"blind-{tag}", group, monkeypatch))


def test_peek_and_why(guarded: Secured, past: Past, monkeypatch: pytest.MonkeyPatch, tag: str) -> None:
    def look(connection: Connection) -> None:
        place = Storage(home=past.home, connection=connection)
        records = TopicRecords(place)
        assert len(records.last(past.counts, 2)) == 2
        origins = Origins(past.app, recorded_shape(past.home.path), place, records, limit=5, look=5)
        (read,) = origins.explain(EpochPlace(batch="batch", epoch=EpochNumber(1)))["origin"]["reads"]
        assert read["records"], "input records"

    given = [
        *rights(TOPIC, past.counts, READ),
        *rights(TOPIC, past.events, READ),
        *rights(GROUP, "falkirk", READ, is_prefix=True),
    ]
    assert {*refusals(guarded, tag, given, look, monkeypatch)} == {"ACCESS_REFUSED"}
