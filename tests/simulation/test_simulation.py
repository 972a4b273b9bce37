"""The coordinator over simulated regions: thousands of schedules, and planted bugs that they must find."""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from falkirk.errors import FalkirkError
from tests.simulation.bugs import BUGS
from tests.simulation.run import Outcome, Run

#: A planted bug must show within so many schedules.
PATIENCE = 150
#: Schedules with rare events, and the first ones that show a bug, where it takes long to run all before them.
RARE = {
    "an_epoch_counts_in_part": (17,), "cuts_are_not_taken_in": (12,), "one_checkpoint_is_kept": (8,),
    "epochs_are_numbered_from_one_in_their_log": (7,),
    "the_sink_is_not_asked": (108,), "marks_are_forgotten": (995,), "a_newer_checkpoint_counts_as_left": (1391,),
    "what_was_drawn_counts_as_fixed": (118,), "cut_off_recovery_is_forgotten": (49,),
    "released_by_a_checkpoint_that_may_be_lost": (51,), "readers_start_first": (11,),
    "recorded_before_it_is_released": (19,), "everybody_goes_back": (19,), "acknowledged_without_the_history": (13,),
}  # fmt: skip
#: The number of schedules that run with a real store, too.
STORED = 5
FIRST = 60
#: The schedules of each test. Each planted bug shows in one of those that run by default. `FALKIRK_SCHEDULES=1000` runs
#: more of them, and `make soak` seeds far beyond these.
BLOCKS = (
    [range(first, first + 100) for first in range(0, int(os.environ["FALKIRK_SCHEDULES"]), 100)]
    if "FALKIRK_SCHEDULES" in os.environ
    else [sorted({*range(FIRST), *itertools.chain.from_iterable(RARE.values())})]
)


def run(seed: int, folder: Path | None = None) -> Outcome:
    schedule = Run(seed, folder)
    try:
        return schedule.go()
    except Exception as error:
        trace = "\n".join(schedule.outcome.trace[-40:])
        raise AssertionError(f"{error}\n{trace}\nAgain: make simulate SEED={seed}") from error


@pytest.mark.parametrize("seeds", BLOCKS, ids=lambda seeds: f"{seeds[0]} to {seeds[-1]}")
def test_outputs_are_those_of_a_run_without_failures(seeds: Sequence[int]) -> None:
    outcomes, count = [run(seed) for seed in seeds], len(seeds)
    assert sum(o.outputs for o in outcomes) > 10 * count
    assert sum(o.crashes for o in outcomes) > count, "hardly a coordinator died"
    assert sum(o.recoveries for o in outcomes) > 2 * count
    assert sum(o.voided for o in outcomes) > count, "hardly anything was ever taken back"
    assert sum(o.stayed for o in outcomes) > 0, "no epoch stayed behind a checkpoint"
    assert sum(o.late for o in outcomes) > count, "hardly anything ever came late"
    assert sum(o.collected for o in outcomes) > count, "hardly anything was ever collected"
    assert sum(o.damaged for o in outcomes) > count, "hardly a checkpoint was damaged"
    assert sum(o.damaged > 0 and not o.refused for o in outcomes) > 5, "hardly a run has outlived that"


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    for seed in itertools.chain(RARE.get(bug, ()), range(PATIENCE)):
        try:
            Run(seed).go()
        except (AssertionError, FalkirkError, KeyError) as error:
            print(f"{bug}: seed {seed}: {type(error).__name__}: {str(error)[:200]}")
            assert any(seed in seeds for seeds in BLOCKS), "the tests without this bug have another schedule"
            return
    pytest.fail(f"{PATIENCE} schedules did not show that {(BUGS[bug].__doc__ or bug).lower()}")


def test_a_seed_gives_the_same_run_again_and_with_a_real_store(tmp_path: Path) -> None:
    for seed in range(STORED):
        assert run(seed) == run(seed) == run(seed, tmp_path)
