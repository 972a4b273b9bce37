"""The coordinator over simulated regions: thousands of schedules, and planted bugs that they must find."""

import itertools
import os
from pathlib import Path

import pytest

from falkirk.errors import FalkirkError
from tests.simulation.bugs import BUGS
from tests.simulation.run import Outcome, Run

#: `FALKIRK_SCHEDULES=1000` runs more of them, and `make soak` seeds far beyond these.
BLOCK = 100
BLOCKS = int(os.environ.get("FALKIRK_SCHEDULES", "200")) // BLOCK
#: A planted bug must show within so many schedules.
PATIENCE = 150
#: Schedules with rare events.
RARE = {
    "the_sink_is_not_asked": (108,), "marks_are_forgotten": (995,), "a_newer_checkpoint_counts_as_left": (1391,),
    "what_was_drawn_counts_as_fixed": (118,), "cut_off_recovery_is_forgotten": (49,),
    "released_by_a_checkpoint_that_may_be_lost": (51,), "readers_start_first": (11,),
    "recorded_before_it_is_released": (19,), "everybody_goes_back": (19,), "acknowledged_without_the_history": (13,),
}  # fmt: skip
#: The number of schedules that run with a real store, too.
STORED = 5


def run(seed: int, folder: Path | None = None) -> Outcome:
    schedule = Run(seed, folder)
    try:
        return schedule.go()
    except Exception as error:
        trace = "\n".join(schedule.outcome.trace[-40:])
        raise AssertionError(f"{error}\n{trace}\nAgain: make simulate SEED={seed}") from error


@pytest.mark.parametrize("block", range(BLOCKS))
def test_outputs_are_those_of_a_run_without_failures(block: int) -> None:
    outcomes = [run(block * BLOCK + i) for i in range(BLOCK)]
    assert sum(o.outputs for o in outcomes) > 10 * BLOCK
    assert sum(o.crashes for o in outcomes) > BLOCK, "hardly a coordinator died"
    assert sum(o.recoveries for o in outcomes) > 2 * BLOCK
    assert sum(o.voided for o in outcomes) > BLOCK, "hardly anything was ever taken back"
    assert sum(o.stayed for o in outcomes) > 0, "no epoch stayed behind a checkpoint"
    assert sum(o.late for o in outcomes) > BLOCK, "hardly anything ever came late"
    assert sum(o.collected for o in outcomes) > BLOCK, "hardly anything was ever collected"
    assert sum(o.damaged for o in outcomes) > BLOCK, "hardly a checkpoint was damaged"
    assert sum(o.damaged > 0 and not o.refused for o in outcomes) > 5, "hardly a run has outlived that"


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    for seed in itertools.chain(RARE.get(bug, ()), range(PATIENCE)):
        try:
            Run(seed).go()
        except (AssertionError, FalkirkError, KeyError) as error:
            print(f"{bug}: seed {seed}: {type(error).__name__}: {str(error)[:200]}")
            return
    pytest.fail(f"{PATIENCE} schedules did not show that {(BUGS[bug].__doc__ or bug).lower()}")


def test_a_seed_gives_the_same_run_again_and_with_a_real_store(tmp_path: Path) -> None:
    for seed in range(STORED):
        assert run(seed) == run(seed) == run(seed, tmp_path)
