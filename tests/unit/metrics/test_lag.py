"""The lag of a live region between two checkpoints: the records of its sources that its query has not read."""

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
        self.asked, self.now_s, self.is_away = 0, 50.0, False
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
        if self.is_away:
            raise TOPIC_REPLACED.error(where="there", topic=topic, before="a", now="b")
        return self.ends[topic]

    def later(self) -> dict[LogId, int]:
        self.now_s += LAG_LOOK_S
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
    for _ in range(20):
        found = region.lag.update()
    assert (region.asked, found) == (2, {ORDERS: 70, WEIGHTS: 9})
    region.ends["weights"] = {0: Offset(11)}
    region.now_s += LAG_LOOK_S - 1
    assert region.lag.update()[WEIGHTS] == 9
    assert region.later()[WEIGHTS] == 11


def test_nobody_knows_the_lag_without_a_query_on_a_cluster_or_without_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    region = Region(monkeypatch, master="spark://there:7077")
    assert region.later() == {}
    region = Region(monkeypatch)
    region.is_away = True
    assert region.later() == {}
    region.is_away, region.live.opening = False, None
    assert region.later() == {}
