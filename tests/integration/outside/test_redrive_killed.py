"""A redrive that is killed in a transaction: those who read committed records wait for it, and not for long."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from falkirk.errors import LogError
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.decision_store import Store
from falkirk.recovery.ownership.folder import Home
from falkirk.runtime.spark.context import Storage
from falkirk.spark_setup.broker import Broker
from falkirk.user_tools.redrive import sending
from falkirk.user_tools.redrive.sending import TRANSACTION_S, Notes, RedriveSender
from tests.integration.live import Wire
from tests.support import wait_until

#: The broker looks each ten seconds which transactions have been open for too long.
LOOK_S = 10.0
#: Kafka's own timeout of a transaction. No transaction with this timeout ends earlier.
KAFKA_S = 60.0


@pytest.fixture
def wire(broker: Broker, tag: str) -> Wire:
    """Topics of the test's own."""
    return Wire(bootstrap=broker.bootstrap, tag=tag)


def _open_transaction(wire: Wire, home: Path, events: str) -> RedriveSender:
    """Leave a redrive as a kill does: records are in the topic, and nobody ends their transaction."""
    held = SimpleNamespace(application="again", identity=wire.tag, store=Store(home.with_name("decisions.db")))
    notes = Notes(Storage(home=cast(Home, held), connection=Connection.of(wire.bootstrap)))
    notes.prepare()
    sender = RedriveSender(Connection.of(wire.bootstrap), notes, wire.tag)
    sender._producer.begin_transaction()
    sender._began_s = time.monotonic()
    sender._producer.produce(events, partition=0, value=b"{}")
    assert sender._producer.flush(30) == 0
    assert wire.topics.readable_positions(events)[0] < wire.topics.end_positions(events)[0]
    return sender


def _is_readable(wire: Wire, events: str) -> bool:
    return wire.topics.readable_positions(events) == wire.topics.end_positions(events)


def test_readers_wait_for_a_killed_redrive_for_twenty_seconds_at_most(wire: Wire, home: Path) -> None:
    """With Kafka's own timeout of a minute they wait for a minute."""
    events = wire.topic("events", 1)
    sender = _open_transaction(wire, home, events)
    wait_until(lambda: _is_readable(wire, events), TRANSACTION_S + LOOK_S + 3.0, "the end of what was begun")
    # A wait has more patience than this on a busy machine, so its limit alone would accept Kafka's timeout.
    assert time.monotonic() - sender._began_s < KAFKA_S
    with pytest.raises(LogError) as told:
        sender._do(lambda: sender._producer.commit_transaction(10))
    assert told.value.condition == "REDRIVE_TIMED_OUT"


def test_the_next_redrive_lets_them_go_on_at_once(wire: Wire, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "TRANSACTION_S", 60.0)
    events = wire.topic("events", 1)
    killed = _open_transaction(wire, home, events)
    _open_transaction(wire, home, wire.topic("others", 1))
    wait_until(lambda: _is_readable(wire, events), 5.0, "the end of what was begun")
    with pytest.raises(LogError) as told:
        killed._do(lambda: killed._producer.commit_transaction(10))
    assert told.value.condition == "REDRIVE_TAKEN_OVER"
