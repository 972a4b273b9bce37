"""The moments of a twin's checkpoints: when it is begun, and when it is begun again for being too close."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.runtime.spark.live import twin as twins
from falkirk.runtime.spark.live.twin import FOLDER, Twin
from falkirk.theory.ids import BatchId
from tests.clock import MovedClock

#: In seconds. The checkpoints of the two queries must be at least 1 s apart.
INTERVAL_S = 6.0


class Query:
    """A running query, which only counts its stops."""

    isActive = True

    def __init__(self) -> None:
        self.stops = 0

    def exception(self) -> None:
        return None

    def stop(self) -> None:
        self.stops += 1


CLOCK = MovedClock()


def commit(checkpoint: Path, batch: int, ago_s: float) -> None:
    """Write a checkpoint as of some seconds ago."""
    file = checkpoint / "commits" / str(batch)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    os.utime(file, (CLOCK.time() - ago_s,) * 2)


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Query]:
    """The queries that the twin has begun."""

    def copied(first: Path, folder: Path, last: BatchId, *_: object) -> bool:
        commit(folder, last, 0.0)
        return True

    monkeypatch.setattr(twins, "copy_checkpoint", copied)
    return []


@pytest.fixture
def twin(tmp_path: Path, begun: list[Query]) -> Twin:
    def start(_: Path) -> Any:
        begun.append(Query())
        return begun[-1]

    region = SimpleNamespace(name="counts", interval_s=INTERVAL_S, reads=())
    return Twin(start, tmp_path, cast(Any, region), cast(Any, SimpleNamespace(clock=CLOCK)))


def test_it_is_begun_in_the_middle_of_an_interval(twin: Twin, tmp_path: Path, begun: list[Query]) -> None:
    """Its start takes `LEAD_S` at first, so it begins 1.5 s after a checkpoint, or up to a second later."""
    for ago_s, starts in ((0.5, 0), (1.4, 0), (2.6, 0), (5.0, 0), (2.5, 1)):
        commit(tmp_path, 3, ago_s)
        twin.update(BatchId(3))
        assert len(begun) == starts, f"{ago_s} s after a checkpoint"


@pytest.mark.parametrize(("later_s", "is_close"), [(0.5, True), (1.5, False), (3.0, False), (4.5, False), (5.5, True)])
def test_one_that_comes_too_close_is_stopped_and_begun_again(
    twin: Twin, tmp_path: Path, begun: list[Query], later_s: float, is_close: bool
) -> None:
    """Args: later_s: how long after the first query's checkpoint the twin writes its own."""
    commit(tmp_path, 3, 2.0)
    twin.update(BatchId(3))
    commit(tmp_path, 4, later_s + 0.2)
    commit(tmp_path / FOLDER, 4, 0.2)
    twin.update(BatchId(4))
    assert (twin.query is None) is is_close
    assert begun[0].stops == is_close
    if is_close:
        commit(tmp_path, 5, max(0.0, INTERVAL_S / 2 - twin._lead_s) + 0.3)
        twin.update(BatchId(5))
        assert twin.begun == 2, "its first checkpoint has shown how long a start takes"


def test_no_moment_is_too_close_if_nothing_is_compared(
    twin: Twin, tmp_path: Path, begun: list[Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mechanism switched off."""
    monkeypatch.setattr(twins, "APART", 0.0)
    commit(tmp_path, 3, 2.0)
    twin.update(BatchId(3))
    commit(tmp_path, 4, 0.7)
    commit(tmp_path / FOLDER, 4, 0.2)
    twin.update(BatchId(4))
    assert twin.query is not None


def test_one_that_has_failed_is_begun_after_a_pause(twin: Twin, tmp_path: Path, begun: list[Query]) -> None:
    """Its moment is one of the first query's interval, so it waits for the next one."""
    commit(tmp_path, 3, 2.0)
    twin.update(BatchId(3))
    begun[0].isActive = False
    twin.update(BatchId(3))
    assert twin.query is None
    for pause_s, starts in ((0.99, 1), (0.01, 2)):
        CLOCK.advance(pause_s)
        commit(tmp_path, 3, 2.0)
        twin.update(BatchId(3))
        assert len(begun) == starts
