"""Health: distinguishes a live region that hangs from one that is slow."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.frames.python_command import START_S
from falkirk.frames.python_udfs import TIMEOUT_S
from falkirk.plan.python_steps import longest_call_s
from falkirk.protocol.ports import Checkpoint
from falkirk.runtime.live.region import OVERDUE_AT_START_S, OVERDUE_S, SLOWER, LiveRegion
from falkirk.theory.frontier import EMPTY

CALLS = (("map_rows", "10 seconds"), ("stateful", "5 minutes"))


def region(*checkpoints: int) -> LiveRegion:
    """A region that resumed from checkpoint 3, and has these checkpoints."""
    made = LiveRegion.__new__(LiveRegion)
    made.region = cast(Any, SimpleNamespace(interval_s=5.0, longest_call_s=0.0))
    made.query, made.opening = cast(Any, object()), cast(Any, SimpleNamespace(restored_batch=3))
    made._checkpoints = tuple(Checkpoint(number=n, read=EMPTY, sent=EMPTY, made_at_s=0.0) for n in checkpoints)
    made.progressed_at_s = made.ready_at_s = made._delay_s = 0.0
    return made


def test_until_its_first_commit_a_region_may_still_load_what_it_needs() -> None:
    """On a busy machine, loading takes longer than any commit; a restart would only begin it again."""
    assert OVERDUE_AT_START_S > OVERDUE_S
    assert region(2, 3).health().hung_after_s == 5.0 + OVERDUE_AT_START_S
    assert region(2, 3, 4).health().hung_after_s == 5.0 + OVERDUE_S


def test_a_region_that_calls_python_may_wait_for_a_call_and_its_repetition() -> None:
    """Before, a call of more than 30 s restarted the region. On a busy machine, a new process needed more."""
    calls = [SimpleNamespace(operation=name, arguments=(None, {"timeout": limit})) for name, limit in CALLS]
    plain = SimpleNamespace(operation="where", arguments=())
    longest_s = longest_call_s([plain, *calls], calls_udfs=True)  # type: ignore[list-item]
    assert longest_s == 2 * 300.0 + START_S
    assert longest_call_s([plain], calls_udfs=True) == 2 * TIMEOUT_S + START_S  # type: ignore[list-item]
    assert longest_call_s([plain], calls_udfs=False) == 0.0  # type: ignore[list-item]
    made = region(2, 3, 4)
    made.region = cast(Any, SimpleNamespace(interval_s=5.0, longest_call_s=longest_s))
    assert made.health().hung_after_s == 5.0 + longest_s + OVERDUE_S


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
