"""Positions that a region with twins records while its newest checkpoint is not in the object store yet."""

from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.runtime.spark.live import checkpoint
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.theory.ids import BatchId, LogId, Offset, Positions

IN, OUT = LogId("events"), LogId("out")


def region_of(saved: BatchId, recorded: list[Any]) -> LiveRegion:
    """Return a region with twins whose checkpoint n covers 10 (n + 1) records, and which has recorded `saved`."""
    region: Any = LiveRegion.__new__(LiveRegion)

    def end_offsets(number: BatchId, topic: LogId) -> dict[int, Offset]:
        if number > saved:
            raise FileNotFoundError(f"checkpoint {number}")
        return {0: Offset(10 * (number + 1))}

    def proven(ends: Positions, covered: dict[tuple[int, int], Offset]) -> Positions:
        return {OUT: {0: covered[0, 0]}}

    region.opening = SimpleNamespace(incarnation=1)
    region.region, region.logs = SimpleNamespace(name="counts", dead_letter_topic=OUT), SimpleNamespace(sources=(IN,))
    region._context = SimpleNamespace(topics=SimpleNamespace(end_positions=lambda name: {0: Offset(99)}))
    region._outputs, region.letters = SimpleNamespace(names=(OUT,)), SimpleNamespace(count=lambda ends: 0)
    region.files = SimpleNamespace(save=lambda last: saved, end_offsets=end_offsets)
    region._checkpoint, region._reached, region._unsaved = None, {}, BatchId(9)
    region._take_in = lambda last: None
    region.twin = SimpleNamespace(proven=proven, update=lambda last: None)
    region._store = SimpleNamespace(observe_tail=lambda name, record: recorded.append(record))
    return region  # type: ignore[no-any-return]


@pytest.mark.parametrize("last", [5, 6, 7])
def test_a_position_serves_a_checkpoint_that_is_recorded(last: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's newest commit may never be recorded, and its end is not known before."""
    monkeypatch.setattr(checkpoint, "last_committed_batch", lambda folder: BatchId(last))
    recorded = list[Any]()
    region = region_of(BatchId(5), recorded)
    assert region.observe() == 5
    assert [(record.valid_from_commit, record.positions) for record in recorded] == [(5, {OUT: {0: 60}})]
