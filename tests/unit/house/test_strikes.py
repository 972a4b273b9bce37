"""Tests under `chaos/` kill an application only while published results follow its newest checkpoints."""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.chaos.harness import MOMENTS_MAX, Application, strike
from tests.support import wait_until


class Waiting(Application):
    """A process that does nothing, in place of an application with the checkpoint 3 of one region."""

    def __init__(self, home: Path) -> None:
        super().__init__(Path("app.py"), None, home, {})
        self._command = [sys.executable, "-c", "import threading; threading.Event().wait()"]
        (home / "regions" / "counts" / "commits").mkdir(parents=True)
        self.save(3)

    def save(self, checkpoint: int) -> None:
        (self.home / "regions" / "counts" / "commits" / str(checkpoint)).touch()

    def wait_committed(self, batches: int) -> None:
        assert self.runs()

    def suppressed(self) -> Counter[str]:
        return Counter(counts=20)

    def is_stopped(self) -> bool:
        return self.processes()[0].status() == psutil.STATUS_STOPPED


@pytest.fixture
def application(home: Path) -> Iterator[Waiting]:
    with Waiting(home) as started:
        yield started
        started.kill()


def test_all_stand_still_unless_another_checkpoint_was_written(application: Waiting) -> None:
    assert application.stand_still({"counts": 3}) == application.processes()
    assert application.is_stopped()
    application.save(4)
    assert application.stand_still({"counts": 3}) == []
    wait_until(lambda: not application.is_stopped(), 5, "it to go on")


def test_a_kill_waits_for_another_moment_if_a_checkpoint_came_before_it(application: Waiting) -> None:
    before, seen = application.processes(), [2, 2, 3]
    found = strike(
        application, lambda: {"counts": seen.pop(0)}, application.kill_everything_behind, lambda dropped: True, again=1
    )
    assert (found, seen) == ({"counts": 20}, [])
    assert application.processes() != before


def test_a_kill_whose_moment_never_comes_fails(application: Waiting) -> None:
    looks = [{"counts": 2}] * (MOMENTS_MAX + 1)
    with pytest.raises(AssertionError, match="a checkpoint came before the kill"):
        strike(application, looks.pop, application.kill_everything_behind, lambda dropped: True, again=1)
    assert len(looks) == 1


def test_a_kill_without_work_for_a_mechanism_fails(application: Waiting) -> None:
    with pytest.raises(AssertionError, match="Counter"):
        strike(application, lambda: {"counts": 3}, application.kill_everything_behind, lambda dropped: False, again=1)
