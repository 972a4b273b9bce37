"""Silence: who makes no progress while this process looks hangs, but not while this process stands still."""

from falkirk.platform.silence import LOOK_MAX_S, Silence
from tests.clock import MovedClock

HUNG_AFTER_S = 30.0


class World:
    """A region that makes progress when the test says so, and a process that looks at it."""

    def __init__(self) -> None:
        self.clock, self.progressed_at_s = MovedClock(), 1000.0
        self.silence = Silence(self.clock.monotonic)

    def hangs(self, seconds: int) -> bool:
        """Look each second, for so many seconds; return whether it hangs at the end."""
        found = False
        for _ in range(seconds):
            self.clock.advance(1.0)
            found = self.silence.since(self.progressed_at_s) > HUNG_AFTER_S
        return found


def test_a_region_that_makes_no_progress_hangs() -> None:
    world = World()
    assert not world.hangs(30)
    assert world.hangs(1)


def test_a_region_that_was_paused_with_this_process_does_not_hang() -> None:
    world = World()
    assert not world.hangs(10)
    for _ in range(2):
        world.clock.advance(3600.0)
        assert not world.hangs(1)
        world.progressed_at_s = world.clock.now_s
    assert not world.hangs(30)
    assert world.hangs(1)


def test_pauses_before_its_last_progress_are_no_excuse() -> None:
    world = World()
    world.clock.advance(3600.0)
    world.progressed_at_s = world.clock.now_s - 1.0
    assert not world.hangs(28)
    assert world.hangs(3)


def test_on_a_slow_machine_a_region_that_hangs_is_found_too() -> None:
    """Each turn takes a minute there."""
    world, turns = World(), 0
    while not world.hangs(1):
        world.clock.advance(60.0)
        turns += 1
    assert turns == HUNG_AFTER_S / LOOK_MAX_S
