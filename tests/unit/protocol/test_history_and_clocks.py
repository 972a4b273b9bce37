"""The history of a region whose clock somebody sets. A time in the future must not make all other checkpoints old."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.recovery.protocol.kept import STEP_MAX_S, RetainedCheckpoints
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.theory.history import History

MINUTE_S, DAY_S = 60.0, 86_400.0


class Region:
    """A region with a history of two days. Args: interval_s: the time between two checkpoints. Attributes: ahead_s: by
    how much the clock of its machine is ahead."""

    def __init__(self, span_s: float = 2 * DAY_S, interval_s: float = MINUTE_S) -> None:
        metadata = SimpleNamespace(frontier=0)
        layout = SimpleNamespace(metadata=lambda name, checkpoint: metadata)
        self._kept = RetainedCheckpoints(
            cast(Any, layout), History(span_s=span_s), frozenset(), lambda: self.now_s - 1e9
        )
        self._interval_s = interval_s
        self.now_s, self.ahead_s, self._count, self._watermark = 1e9, 0.0, 0, 0
        start = Checkpoint(number=cast(Any, -1), read=cast(Any, 0), sent=cast(Any, 0), made_at_s=None)
        self.checkpoints = self._kept.of("r", (start,), cast(Any, 0))

    def run(self, checkpoints: int) -> None:
        for _ in range(checkpoints):
            self.now_s += self._interval_s / 2
            self._watermark += 1  # other regions move it between two checkpoints
            self.checkpoints = self._kept.of("r", self.checkpoints, cast(Any, self._watermark))
            self.now_s += self._interval_s / 2
            self._count += 1
            made = Checkpoint(
                number=cast(Any, self._count), read=cast(Any, self._count), sent=cast(Any, 0),
                made_at_s=self.now_s + self.ahead_s,
            )  # fmt: skip
            self.checkpoints = self._kept.of("r", (*self.checkpoints, made), cast(Any, self._watermark))

    @property
    def age_s(self) -> float:
        """The age of the oldest checkpoint after the initial state."""
        return self.now_s - next(p.made_at_s for p in self.checkpoints if p.made_at_s is not None)


def test_a_clock_that_is_ahead_for_one_checkpoint_deletes_no_history() -> None:
    region = Region()
    region.run(24 * 60)
    before = set(region.checkpoints)
    region.ahead_s = 30 * DAY_S
    region.run(1)
    region.ahead_s = 0.0
    region.run(1)
    assert region.age_s > 0.95 * DAY_S
    gone = before - set(region.checkpoints)
    assert len(gone) <= STEP_MAX_S / MINUTE_S + 2, "the history is older by a step, and thinned for it"


def test_a_clock_that_stays_ahead_ages_the_history_by_the_time_that_passes() -> None:
    region = Region(span_s=0.5 * DAY_S)
    region.run(12 * 60)
    region.ahead_s = 30 * DAY_S
    region.run(6 * 60)
    first_ahead = next(p for p in region.checkpoints if (p.made_at_s or 0.0) > region.now_s)
    assert region.now_s + region.ahead_s - (first_ahead.made_at_s or 0.0) > 0.9 * 0.25 * DAY_S
    assert region.age_s > 0.45 * DAY_S
    assert len(region.checkpoints) < 200, "thinned as before"
    region.run(12 * 60)
    assert all((p.made_at_s or 0.0) > region.now_s for p in region.checkpoints), "the older ones are older than that"
    assert len(region.checkpoints) < 200


def test_a_clock_that_is_set_back_changes_nothing() -> None:
    region = Region()
    region.run(24 * 60)
    region.ahead_s = -DAY_S / 4
    before = len(region.checkpoints)
    region.run(60)
    assert region.age_s > 0.95 * DAY_S
    assert len(region.checkpoints) <= before + 60 + 5


@pytest.mark.parametrize("interval_s", [3600.0, 6 * 3600.0])
def test_a_region_with_rare_checkpoints_keeps_no_more_than_its_history(interval_s: float) -> None:
    region = Region(span_s=DAY_S, interval_s=interval_s)
    region.run(round(DAY_S / interval_s))
    ages_s = []
    for _ in range(round(4 * DAY_S / interval_s)):
        region.run(1)
        ages_s.append(region.age_s)
    assert DAY_S - interval_s <= min(ages_s) <= max(ages_s) <= DAY_S + 2 * interval_s


def test_a_clock_that_is_ahead_deletes_no_history_of_a_region_with_rare_checkpoints() -> None:
    region = Region(interval_s=3600.0)
    region.run(24)
    region.ahead_s = 30 * DAY_S
    region.run(1)
    region.ahead_s = 0.0
    region.run(1)
    assert region.age_s > 0.95 * DAY_S
