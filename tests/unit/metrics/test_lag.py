"""The lag of a live region between two checkpoints: the records of its sources that its query has not read."""

import threading
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.errors.conditions.kafka_client import TOPIC_REPLACED
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.runtime.supervision import lag
from falkirk.runtime.supervision.lag import LAG_LOOK_S, SourceLag
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.ids import CheckpointNumber, LogId, Offset, Offsets

ORDERS, WEIGHTS = LogId("orders"), LogId("weights")
NAME = "sales"


class Region:
    """A region that reads two topics, and its broker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, master: str = "local[2]") -> None:
        self.ends: dict[str, Offsets] = {"orders": {0: Offset(100), 1: Offset(40)}, "weights": {0: Offset(9)}}
        self.read: dict[tuple[int, int], Offset] = {}
        self.asked, self.now_s, self.answers = 0, 50.0, Event()
        self.error: Exception | None = None
        self.answers.set()
        monkeypatch.setattr(lag, "read_ends", lambda context, region: self.read if region == NAME else None)
        sources = [SimpleNamespace(topic=SimpleNamespace(topic=str(log), log=log)) for log in (ORDERS, WEIGHTS)]
        start = {ORDERS: {0: Offset(60), 1: Offset(10)}, WEIGHTS: {0: Offset(0)}}
        self.covered = EMPTY
        self.live: Any = SimpleNamespace(
            region=SimpleNamespace(name=NAME, sources=sources), opening=SimpleNamespace(start=start),
            checkpoints=lambda: (Checkpoint(number=CheckpointNumber(3), read=self.covered, sent=EMPTY),),
        )  # fmt: skip
        context: Any = SimpleNamespace(
            session=SimpleNamespace(sparkContext=SimpleNamespace(master=master)),
            clock=SimpleNamespace(monotonic=lambda: self.now_s), topics=SimpleNamespace(end_positions=self._end),
        )  # fmt: skip
        self.lag = SourceLag(self.live, context)

    def _end(self, topic: str) -> Offsets:
        self.asked += 1
        self.answers.wait()
        if self.error is not None:
            raise self.error
        return self.ends[topic]

    def later(self) -> dict[LogId, int]:
        """Return what a look finds that begins now."""
        self.now_s += LAG_LOOK_S
        self.lag.update()
        if (look := self.lag._looks._look) is not None:
            assert look.wait(30.0)
        return dict(self.lag.update())


def test_a_look_counts_from_the_start_the_checkpoint_or_the_newest_record_that_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    region = Region(monkeypatch)
    assert region.later() == {ORDERS: 40 + 30, WEIGHTS: 9}  # nothing was read since the start
    region.read = {(0, 0): Offset(95), (1, 0): Offset(4)}
    assert region.later() == {ORDERS: 5 + 30, WEIGHTS: 5}
    region.covered = OffsetFrontier.before({ORDERS: {0: Offset(90), 1: Offset(40)}})  # records that were filtered out
    assert region.later() == {ORDERS: 5, WEIGHTS: 5}
    region.read = {(0, 0): Offset(120)}  # read after the end was asked for
    assert region.later() == {ORDERS: 0, WEIGHTS: 9}


def test_kafka_is_asked_every_few_seconds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    region = Region(monkeypatch)
    found = region.later()
    for _ in range(20):
        assert region.lag.update() == found
    assert (region.asked, found) == (2, {ORDERS: 70, WEIGHTS: 9})
    region.ends["weights"] = {0: Offset(11)}
    region.now_s += LAG_LOOK_S - 1
    assert region.lag.update()[WEIGHTS] == 9
    assert region.later()[WEIGHTS] == 11


def test_nobody_knows_the_lag_without_a_query_on_a_cluster_or_without_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    region = Region(monkeypatch, master="spark://there:7077")
    assert region.later() == {}
    region = Region(monkeypatch)
    assert region.later() != {}
    region.error = TOPIC_REPLACED.error(where="there", topic="orders", before="a", now="b")
    assert region.later() == {}
    region.error, region.live.opening = None, None
    assert region.later() == {}


def test_an_error_of_a_look_ends_no_region(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    region = Region(monkeypatch)
    region.error = KeyError("a fault of ours")
    assert [region.later(), region.later()] == [{}, {}]
    assert len(caplog.records) == 1
    region.error = None
    assert region.later() != {}


def test_the_host_does_not_wait_for_a_broker_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One partition without a leader: each look takes 10 s, and a host that shows nothing for 40 s is replaced."""
    region, answers = Region(monkeypatch), Event()
    region.answers = answers
    hung = threading.Timer(5.0, answers.set)
    hung.start()
    assert region.lag.update() == {}
    assert not answers.is_set(), "the host has waited for the broker"
    region.now_s += LAG_LOOK_S
    assert region.lag.update() == {}
    answers.set()
    hung.cancel()
    assert region.later() == {ORDERS: 70, WEIGHTS: 9}
    assert region.asked == 4, "only one look runs at a time"
