"""The coordinator over simulated regions: thousands of schedules, and planted bugs that they must find."""

from pathlib import Path

import pytest

from falkirk.errors import FalkirkError
from tests.simulation.bugs import BUGS
from tests.simulation.run import Outcome, Run

#: `make soak` runs seeds beyond these.
BLOCKS, BLOCK = 40, 50
#: A planted bug must show within so many schedules.
PATIENCE = 150


def run(seed: int, folder: Path) -> Outcome:
    schedule = Run(seed, folder)
    try:
        return schedule.go()
    except Exception as error:
        trace = "\n".join(schedule.outcome.trace[-40:])
        raise AssertionError(f"{error}\n{trace}\nAgain: make simulate SEED={seed}") from error


@pytest.mark.parametrize("block", range(BLOCKS))
def test_outputs_are_those_of_a_run_without_failures(block: int, tmp_path: Path) -> None:
    outcomes = [run(block * BLOCK + i, tmp_path) for i in range(BLOCK)]
    assert sum(o.outputs for o in outcomes) > 10 * BLOCK
    assert sum(o.crashes for o in outcomes) > BLOCK, "hardly a coordinator died"
    assert sum(o.recoveries for o in outcomes) > 2 * BLOCK
    assert sum(o.voided for o in outcomes) > BLOCK, "hardly anything was ever taken back"
    assert sum(o.collected for o in outcomes) > BLOCK, "hardly anything was ever collected"


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    for seed in range(PATIENCE):
        try:
            Run(seed, tmp_path).go()
        except (AssertionError, FalkirkError, KeyError) as error:
            print(f"{bug}: seed {seed}: {type(error).__name__}: {str(error)[:200]}")
            return
    pytest.fail(f"{PATIENCE} schedules did not show that {(BUGS[bug].__doc__ or bug).lower()}")


def test_a_seed_gives_the_same_run_again(tmp_path: Path) -> None:
    for name in ("first", "again"):
        (tmp_path / name).mkdir()
    for seed in range(3):
        assert run(seed, tmp_path / "first") == run(seed, tmp_path / "again")
