"""Health: distinguishes a live region that hangs from one that is slow."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.plan.python_steps import longest_call_s
from falkirk.platform.silence import LOOK_MAX_S, Silence
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.runtime.spark.live.region import OVERDUE_AT_START_S, OVERDUE_S, SLOWER, LiveRegion
from falkirk.steps.live.python_command import START_S
from falkirk.steps.live.python_udfs import TIMEOUT_S
from falkirk.theory.frontier import EMPTY
from tests.clock import MovedClock

CALLS = (("map_rows", "10 seconds"), ("stateful", "5 minutes"))


def region(*checkpoints: int) -> LiveRegion:
    """A region that resumed from checkpoint 3, and has these checkpoints."""
    made = LiveRegion.__new__(LiveRegion)
    made.region = cast(Any, SimpleNamespace(interval_s=5.0, longest_call_s=0.0))
    made.query, made.opening = cast(Any, object()), cast(Any, SimpleNamespace(restored_batch=3))
    made._checkpoints = tuple(Checkpoint(number=n, read=EMPTY, sent=EMPTY, made_at_s=0.0) for n in checkpoints)
    made.progressed_at_s = made.ready_at_s = made._delay_s = 0.0
    made._silence = Silence(MovedClock(0.0).monotonic)
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


def silent_s(made: LiveRegion, clock: MovedClock) -> float:
    """Look at a region each second for 20 s; return for how long it has been silent, as the protocol computes it."""
    for _ in range(20):
        clock.advance(1.0)
        found = clock.now_s - made.health().progressed_at_s
    return found


def test_a_process_that_was_paused_takes_no_region_for_one_that_hangs() -> None:
    """Without this, all live regions restarted after `docker pause` for a minute."""
    made, clock = region(2, 3, 4), MovedClock(0.0)
    made._silence = Silence(clock.monotonic)
    assert silent_s(made, clock) == 20.0
    clock.advance(3600.0)
    assert silent_s(made, clock) == 20.0 + LOOK_MAX_S + 19.0
    made.progressed_at_s = clock.now_s
    assert silent_s(made, clock) == 20.0
