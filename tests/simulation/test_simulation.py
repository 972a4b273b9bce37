"""The coordinator over simulated regions: thousands of schedules, and planted bugs that they must find."""

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from falkirk.errors import FalkirkError
from tests.simulation.bugs import BUGS
from tests.simulation.run import Outcome, Run

#: `make soak` runs seeds beyond these.
BLOCKS, BLOCK = 6, 50
#: A planted bug must show within so many schedules.
PATIENCE = 150
#: Schedules that show what few do.
RARE = {"the_sink_is_not_asked": (261,)}
MEMORY = Path("/dev/shm")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where the machine has one: here coordinators die, and disks do not."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="falkirk-", dir=MEMORY) as made:
        yield Path(made)


def run(seed: int, folder: Path) -> Outcome:
    schedule = Run(seed, folder)
    try:
        return schedule.go()
    except Exception as error:
        trace = "\n".join(schedule.outcome.trace[-40:])
        raise AssertionError(f"{error}\n{trace}\nAgain: make simulate SEED={seed}") from error


@pytest.mark.parametrize("block", range(BLOCKS))
def test_outputs_are_those_of_a_run_without_failures(block: int, folder: Path) -> None:
    outcomes = [run(block * BLOCK + i, folder) for i in range(BLOCK)]
    assert sum(o.outputs for o in outcomes) > 10 * BLOCK
    assert sum(o.crashes for o in outcomes) > BLOCK, "hardly a coordinator died"
    assert sum(o.recoveries for o in outcomes) > 2 * BLOCK
    assert sum(o.voided for o in outcomes) > BLOCK, "hardly anything was ever taken back"
    assert sum(o.late for o in outcomes) > BLOCK, "hardly anything ever came late"
    assert sum(o.collected for o in outcomes) > BLOCK, "hardly anything was ever collected"
    assert sum(o.damaged for o in outcomes) > BLOCK, "hardly a checkpoint was damaged"
    assert sum(o.damaged > 0 and not o.refused for o in outcomes) > 5, "hardly a run has outlived that"


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    for seed in itertools.chain(RARE.get(bug, ()), range(PATIENCE)):
        try:
            Run(seed, folder).go()
        except (AssertionError, FalkirkError, KeyError) as error:
            print(f"{bug}: seed {seed}: {type(error).__name__}: {str(error)[:200]}")
            return
    pytest.fail(f"{PATIENCE} schedules did not show that {(BUGS[bug].__doc__ or bug).lower()}")


def test_a_seed_gives_the_same_run_again(folder: Path) -> None:
    for name in ("first", "again"):
        (folder / name).mkdir()
    for seed in range(3):
        assert run(seed, folder / "first") == run(seed, folder / "again")
