"""Checkpoints for rollbacks on request: an idle application keeps older ones, with all data that they need."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from falkirk.recovery.protocol import kept
from falkirk.recovery.protocol.recovery import RecoveryProtocol
from falkirk.theory import history as rule
from falkirk.theory.history import History
from tests.simulation.run import LEVELS
from tests.simulation.test_lost_checkpoints import Bench
from tests.simulation.world import NeededRecordGone

TEN = History(checkpoints=10)


class Idle(Bench):
    """The regions drawn and counted of `Bench`, which save a checkpoint every second, with input or without."""

    def __init__(self, folder: Path, history: History) -> None:
        self._history = history
        super().__init__(folder)

    def coordinator(self) -> RecoveryProtocol:
        self._options["history"] = self._history
        return super().coordinator()

    def work(self, rounds: int) -> None:
        """Let both regions save after new input, a number of times."""
        for _ in range(rounds):
            self.world.now_s += 1
            self.round()

    def idle(self, seconds: int) -> None:
        """Let both regions save without new input."""
        for _ in range(seconds):
            self.world.now_s += 1
            self.save(*self.world.regions)

    def numbers(self, name: str) -> list[int]:
        return [p.number for p in self.recovery.checkpoints[name]]

    def go_back(self, name: str, number: int) -> Mapping[str, int]:
        return self.recovery.recover(frozenset(), "asked", asked={name: number}, force=True).goes


def test_equal_points_of_an_idle_application_push_out_no_others(tmp_path: Path) -> None:
    """Ten equal points in ten seconds made the point before them unreachable."""
    bench = Idle(tmp_path, TEN)
    bench.work(5)
    before = bench.numbers("counted")[-2]
    bench.idle(30)
    assert before in bench.numbers("counted")
    assert len(bench.numbers("counted")) < 15
    assert bench.go_back("counted", before) == {"counted": before}
    bench.work(2)
    out = bench.released
    bench.idle(3)
    assert bench.released >= out > 0


def test_with_points_counted_one_by_one_the_older_ones_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mechanism is off: nothing is merged."""
    monkeypatch.setattr(rule, "moment_groups", lambda moments: tuple(range(i, i + 1) for i in range(len(moments))))
    bench = Idle(tmp_path, TEN)
    bench.work(5)
    before = bench.numbers("counted")[-2]
    bench.idle(30)
    assert before not in bench.numbers("counted")


def test_a_time_keeps_old_points_thinned_with_the_records_that_they_need(tmp_path: Path) -> None:
    """No record that a kept point needs is deleted, and the records before the oldest one are."""
    bench = Idle(tmp_path, History(span_s=100.0, levels=LEVELS))
    bench.work(60)
    numbers = bench.numbers("drawn")
    assert numbers[0] < 2
    assert len(numbers) < 25
    assert not bench.world.logs[next(iter(bench.world.layout.sequences("hop")))].first
    bench.work(100)
    assert bench.world.logs[next(iter(bench.world.layout.sequences("hop")))].first > 0
    oldest = bench.numbers("counted")[0]
    assert bench.go_back("counted", oldest)["counted"] == oldest
    bench.work(3)


def _without_history(patch: pytest.MonkeyPatch) -> None:
    of = kept.RetainedCheckpoints.of
    patch.setattr(
        RecoveryProtocol,
        "kept",
        lambda self, name: of(self._kept, name, self.checkpoints[name], _watermark(self, name))[-1],
    )


def _watermark(recovery: RecoveryProtocol, name: str) -> Any:
    return recovery.watermarks.retained.low_watermark(name)


def test_deleting_records_that_a_kept_point_needs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: hops and sources are kept for failures alone, and not for the history."""
    _without_history(monkeypatch)
    bench = Idle(tmp_path, History(span_s=100.0, levels=LEVELS))
    bench.work(60)
    oldest = bench.numbers("counted")[0]
    with pytest.raises(NeededRecordGone):
        _go_back_and_work(bench, oldest)


def _go_back_and_work(bench: Idle, number: int) -> None:
    bench.go_back("counted", number)
    bench.work(3)
