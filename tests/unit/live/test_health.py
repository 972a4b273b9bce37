"""Health: distinguishes a live region that hangs from one that is slow."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.protocol.ports import Point
from falkirk.runtime.live.region import OVERDUE_AT_START_S, OVERDUE_S, SLOWER, LiveRegion
from falkirk.theory.frontier import EMPTY


def region(*points: int) -> LiveRegion:
    """A region that resumed from checkpoint 3, and has these checkpoints."""
    made = LiveRegion.__new__(LiveRegion)
    made.region = cast(Any, SimpleNamespace(interval_s=5.0))
    made.query, made.opening = cast(Any, object()), cast(Any, SimpleNamespace(restored_batch=3))
    made._points = tuple(Point(number=n, read=EMPTY, sent=EMPTY, made_at_s=0.0) for n in points)
    made.progressed_at_s = made.ready_at_s = made._delay_s = 0.0
    return made


def test_until_its_first_commit_a_region_may_still_load_what_it_needs() -> None:
    """On a busy machine, loading takes longer than any commit; a restart would only begin it again."""
    assert OVERDUE_AT_START_S > OVERDUE_S
    assert region(2, 3).health().hung_after_s == 5.0 + OVERDUE_AT_START_S
    assert region(2, 3, 4).health().hung_after_s == 5.0 + OVERDUE_S


@pytest.mark.parametrize(
    ("delays_s", "overdue_s"),
    [
        ((0.5, 2.0), OVERDUE_S),
        ((2.0, 20.0, 1.0), SLOWER * 20.0),  # the machine is slow, and a restart would make it slower still
        ((100.0,), OVERDUE_AT_START_S),
    ],
)
def test_a_region_whose_commits_are_late_anyway_hangs_later(delays_s: tuple[float, ...], overdue_s: float) -> None:
    made = region(2, 3, 4)
    for delay_s in delays_s:
        made._note_commit(made.progressed_at_s + 5.0 + delay_s)
    assert made.health().hung_after_s == pytest.approx(5.0 + overdue_s)
