"""Failures of a query after which the accepted records need not be a prefix of the sent ones, and the broker's word."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.recovery.decision_store import Store, TailRecord
from falkirk.runtime.spark import lanes, producers
from falkirk.runtime.spark.lanes import fenced_incarnations
from falkirk.runtime.spark.live.region import UNSEEN, LiveRegion
from falkirk.runtime.spark.producers import is_error
from tests.stores import RECORD

COMMON, CLIENTS = "org.apache.kafka.common.errors", "org.apache.kafka.clients"


@pytest.mark.parametrize(
    ("text", "unsafe"),
    [
        (f"Job aborted: {COMMON}.OutOfOrderSequenceException: out of order", True),
        (f"{COMMON}.TimeoutException: Expiring 3 record(s) for counts-0: 120000 ms has passed", True),
        ("org.apache.kafka.common.KafkaException: cannot perform send because at least one previous one failed", True),
        (f"{COMMON}.SomethingOfALaterReleaseException: who knows", True),
        (f"{CLIENTS}.consumer.OffsetOutOfRangeException: Fetch position is out of range", False),
        (f"{COMMON}.UnknownTopicOrPartitionException: This server does not host this topic-partition", False),
        ("[USER_RAISED_EXCEPTION] FALKIRK_CO_PARTITIONING|0|1|{}", False),
        ("ExecutorLostFailure (executor 1 exited)", False),
        (f"{COMMON}.WakeupException; {COMMON}.CorruptRecordException", True),
    ],
)
def test_any_error_of_kafkas_but_a_readers_is_taken_for_the_producers(text: str, unsafe: bool) -> None:
    assert is_error(text) is unsafe


def _region(store: Store) -> LiveRegion:
    """Return a region with three incarnations, of which the last two have written after the recorded position.

    The store tells which of them were fenced, as it does for the real outputs.
    """
    live = LiveRegion.__new__(LiveRegion)
    live.region = cast(Any, SimpleNamespace(name="counts", repeats=False))
    live._store = store
    live._context = cast(Any, SimpleNamespace(session=None, kafka_options=dict))
    position = TailRecord(valid_from_commit=4, incarnation=2, positions={"out": {0: 5, 1: 5}})
    live._outputs = cast(Any, SimpleNamespace(
        names=("out", "dead"), position=lambda number: position,
        transactional=lambda topic: fenced_incarnations(store, "counts"),
    ))  # fmt: skip
    store.create_region("counts", RECORD, {})
    for number in (1, 2, 3):
        assert store.open_incarnation("counts", 4) == number
    return live


@pytest.mark.parametrize("fenced", [(2, 3), (3,), (1, 2)])
def test_of_records_in_transactions_readers_see_a_prefix(
    store: Store, monkeypatch: pytest.MonkeyPatch, fenced: tuple[int, ...]
) -> None:
    """So the broker is asked only if an incarnation that wrote was not fenced."""
    live, asked = _region(store), list[object]()
    for number in fenced:
        store.record_decision(lanes.LANES, "counts", number, {"lanes": 2})
    monkeypatch.setattr(producers, "_epochs", lambda session, options, wanted: asked.append(wanted) or [[1]])
    live._judge_last_end(4, {"out": {0: 5, 1: 7}, "dead": {0: 1}})
    assert bool(asked) == (fenced != (2, 3))
    assert store.is_unsafe_since("counts", 2) == bool(asked)


@pytest.mark.parametrize(
    ("word", "seen", "unsafe"),
    [
        (True, True, False),
        (True, False, False),
        (False, True, True),  # it failed while it was being stopped
        (False, False, True),
        (None, True, False),
        (None, False, True),  # a broker that does not know, or has forgotten
    ],
)
def test_the_last_end_is_judged_by_what_was_seen_and_what_the_broker_knows(
    store: Store, monkeypatch: pytest.MonkeyPatch, word: bool | None, seen: bool, unsafe: bool
) -> None:
    live = _region(store)
    store.end_incarnation("counts", 2, ended="stopped", unsafe=False)
    if seen:
        store.end_incarnation("counts", 3, ended="stopped", unsafe=False)
    asked: list[object] = []
    monkeypatch.setattr(producers, "are_whole", lambda session, options, places: asked.append(places) or word)
    live._judge_last_end(4, {"out": {0: 5, 1: 7}, "dead": {0: 1}})
    assert asked == [{"out": {1: 7}, "dead": {0: 1}}]
    before, _, last = store.incarnations("counts")
    assert before.ended is None, "it wrote nothing that is still asked for"
    assert (last.ended, last.unsafe) == ("stopped" if seen else UNSEEN, unsafe)
    assert store.is_unsafe_since("counts", 2) is unsafe
    if unsafe:
        live._judge_last_end(4, {"out": {0: 5, 1: 9}, "dead": {0: 1}})
        assert len(asked) == 1, "it is known"
