"""The fence while others keep writing: their records delay a start, and do not prevent it."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.errors import LogError
from falkirk.kafka_client.ranges import LogRecord
from falkirk.kafka_client.signing import ForeignTally, SigningKey, Verifier, tag_of
from falkirk.plan.region import RegionLogs
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark import lanes, outputs, settling
from falkirk.runtime.spark.context import Context, Storage
from falkirk.runtime.spark.live.at_rest import RegionAtRest
from falkirk.runtime.spark.settling import settled_ends
from falkirk.runtime.spark.sinks import writing
from falkirk.theory.ids import LogId
from tests.clock import MovedClock

KEY = SigningKey(secret=bytes(32), since_birth=True)
TEXT = b"deadbeef/1/0.0.7/0/"
SIGNED = TEXT + tag_of(KEY.of("out", 1), TEXT, 0, None, b"v").encode()


class Moving:
    """A place whose topic has one record more at each query of its end."""

    def __init__(self, header: bytes | None, *, followers: bool) -> None:
        self.topics, self.connection, self.tallies = self, None, list[ForeignTally]()
        self.clock = MovedClock()
        self.unsettled: dict[tuple[str, ...], float] = {}
        self.first_looks: dict[str, tuple[float, dict[int, int]]] = {}
        self._end, self._header, self._followers = 10, header, followers

    def end_positions(self, topic: str) -> dict[int, int]:
        self._end += 1
        return {0: self._end}

    def first_positions(self, topic: str) -> dict[int, int]:
        return {0: 0}

    def has_followers(self, topic: str) -> bool:
        return self._followers

    def unreplicated(self, ends: dict[str, dict[int, int]]) -> frozenset[tuple[str, int]]:
        assert not ends, "the end of a moving topic can't be confirmed"
        return frozenset()

    def verifier(self, topic: str) -> Verifier:
        return Verifier(topic, "deadbeef", KEY)

    def note_foreign(self, topic: str, found: ForeignTally) -> None:
        self.tallies.append(found)

    def read_range(self, connection: None, topic: str, first: dict[int, int], last: dict[int, int]) -> list[LogRecord]:
        record = {"timestamp_ms": 0, "key": None, "value": b"v", "raw_header": self._header}
        return [LogRecord(partition=0, offset=o, **cast(Any, record)) for o in range(first[0], last[0])]


def settled(monkeypatch: pytest.MonkeyPatch, place: Moving) -> dict[str, dict[int, int]]:
    monkeypatch.setattr(settling, "read_range", place.read_range)
    return settled_ends(cast(Storage, cast(Any, place)), ("out",), "here")


@pytest.mark.parametrize("header", [None, TEXT[:-1], TEXT + b"0" * 24])
def test_a_foreign_writer_delays_a_start_and_is_named(header: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Moving(header, followers=False)
    ends = settled(monkeypatch, place)
    assert ends["out"][0] > 11
    assert [tally.count for tally in place.tallies] == [1]


@pytest.mark.parametrize(("header", "followers"), [(SIGNED, False), (None, True)])
def test_what_may_hide_a_record_of_this_home_is_refused(
    header: bytes | None, followers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LogError) as refused:
        settled(monkeypatch, Moving(header, followers=followers))
    assert refused.value.condition == "SINK_UNSETTLED"
    assert (refused.value.parameters["topic"], refused.value.parameters["partition"]) == ("out", 0)


def test_the_next_attempt_takes_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile other regions run, in the same thread. No record of this home can be on its way for so long."""
    place = Moving(SIGNED, followers=False)
    clock = place.clock
    monkeypatch.setattr(settling, "read_range", place.read_range)
    for longest_s in (settling.SETTLE_MAX_S, settling.AGAIN_S):
        began_s = clock.now_s
        with pytest.raises(LogError):
            settled_ends(cast(Storage, cast(Any, place)), ("out",), "here")
        assert longest_s <= clock.now_s - began_s < longest_s + 2 * settling.SETTLE_S
    place.end_positions = lambda topic: {0: 20}  # type: ignore[method-assign]
    place.unreplicated = lambda ends: frozenset()  # type: ignore[method-assign]
    assert settled_ends(cast(Storage, cast(Any, place)), ("out",), "here") == {"out": {0: 20}}
    assert place.unsettled == {}


class Still(Moving):
    """A place whose topic no longer grows. Its last records are hidden from readers, or their followers lack them, for
    the first looks."""

    def __init__(self, *, hidden: int = 0, lagging: int = 0) -> None:
        super().__init__(None, followers=True)
        self._hidden, self._lagging = hidden, lagging

    def end_positions(self, topic: str) -> dict[int, int]:
        return {0: 20}

    def readable_positions(self, topic: str) -> dict[int, int]:
        self._hidden -= 1
        return {0: 15 if self._hidden >= 0 else 20}

    def unreplicated(self, ends: dict[str, dict[int, int]]) -> frozenset[tuple[str, int]]:
        self._lagging -= 1
        return frozenset({("out", 0)} if self._lagging >= 0 else ())


@pytest.mark.parametrize("kind", ["hidden", "lagging"])
@pytest.mark.parametrize("looks", [0, 1, 3, 10**6])
def test_records_that_may_still_appear_behind_the_fence_delay_it(kind: str, looks: int) -> None:
    """Those of an open transaction, and those that the leader has and its followers lack."""
    place = Still(**{kind: looks})
    storage = cast(Storage, cast(Any, place))
    if looks < 10:
        assert settled_ends(storage, ("out",), "here", transactional=True) == {"out": {0: 20}}
        assert len(place.clock.waits) == 1 + looks
        return
    with pytest.raises(LogError) as refused:
        settled_ends(storage, ("out",), "here", transactional=True)
    found = refused.value.condition, refused.value.parameters["code"]
    assert found == {
        "hidden": ("SINK_UNSETTLED", "TRANSACTION_OPEN"), "lagging": ("BROKER_AWAY", "REPLICAS_LAG"),
    }[kind]  # fmt: skip


@pytest.mark.parametrize("late_s", [0.0, 0.1, 5.0])
def test_topics_settle_together(late_s: float) -> None:
    """Each has two looks that are `SETTLE_S` apart, but all share this time."""
    place = Still()
    clock = place.clock
    storage, names = cast(Storage, cast(Any, place)), [LogId(f"out-{n}") for n in range(8)]
    settling.look_first(storage, names)
    began_s = clock.now_s
    clock.advance(late_s)
    for name in names:
        assert settled_ends(storage, (name,), "here") == {name: {0: 20}}
    assert clock.now_s - began_s == pytest.approx(max(late_s, settling.SETTLE_S))
    assert place.first_looks == {}


def test_a_first_look_counts_once_and_not_for_transactions() -> None:
    """A writer of transactions may live until it is fenced, and this process may have written since an earlier use."""
    place, name = Still(), LogId("out")
    clock = place.clock
    storage = cast(Storage, cast(Any, place))
    for transactional in (True, False):
        settling.look_first(storage, [name])
        clock.advance(60)
        for waits_s in (settling.SETTLE_S if transactional else 0, settling.SETTLE_S):
            began_s = clock.now_s
            settled_ends(storage, (name,), "here", transactional=transactional)
            assert clock.now_s - began_s == pytest.approx(waits_s)


def test_a_record_that_arrives_after_the_first_look_delays_the_fence() -> None:
    place, name = Still(), LogId("out")
    clock = place.clock
    storage, ends = cast(Storage, cast(Any, place)), [{0: 19}, {0: 20}, {0: 20}]
    place.end_positions = lambda topic: ends.pop(0)  # type: ignore[method-assign]
    settling.look_first(storage, [name])
    clock.advance(60)
    began_s = clock.now_s
    assert settled_ends(storage, (name,), "here") == {name: {0: 20}}
    assert clock.now_s - began_s == pytest.approx(settling.SETTLE_S)


def _of_a_region(place: Storage) -> object:
    logs = RegionLogs(name="r", source="in", output=LogId("out"), dead_letters=LogId("dead"), repeats=False)
    RegionAtRest(logs, place).fence()
    return None


def _of_a_job(place: Storage) -> object:
    """The job copies a held log, or publishes an epoch."""
    return writing.settle(cast(Context, place), "out")


def _of_a_job_at_rest(place: Storage) -> object:
    return writing.settle_at_rest(place, "out")


@pytest.mark.parametrize("kind", ["hidden", "lagging"])
@pytest.mark.parametrize("fence", [_of_a_region, _of_a_job, _of_a_job_at_rest])
def test_each_fence_waits_for_records_that_may_still_appear(
    fence: Callable[[Storage], object], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fence at the end that the broker reports first has records of a killed writer behind it."""
    place = Still(**{kind: 2})
    store = Store(tmp_path / "decisions.db")
    home = SimpleNamespace(store=store, path=tmp_path, checkpoint=lambda name: tmp_path, is_shared=False)
    place.home = home  # type: ignore[attr-defined]
    for name in ("fence", "refuse_before", "close_lanes"):
        monkeypatch.setattr(lanes, name, lambda *arguments: None)
    monkeypatch.setattr(lanes, "are_used", lambda *arguments: False)
    monkeypatch.setattr(lanes, "has_lanes", lambda *arguments: True)
    monkeypatch.setattr(outputs, "fenced_incarnations", lambda *arguments: frozenset({1}))
    place.writers, place.failed_writers, place.transactional = {}, set(), False  # type: ignore[attr-defined]
    place.facts = lambda topic: SimpleNamespace(partitions=1)  # type: ignore[attr-defined]

    assert fence(cast(Storage, cast(Any, place))) in (None, {0: 20})
    assert len(place.clock.waits) > 1, "the same end at two looks is not enough"
    store.close()
