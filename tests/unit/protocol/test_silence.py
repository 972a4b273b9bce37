"""Silence: a region hangs if it makes no progress while this process looks, not while this process stands still."""

from types import SimpleNamespace
from typing import Any

from falkirk.protocol.ports import Health
from falkirk.protocol.recovery import RecoveryProtocol
from falkirk.protocol.silence import LOOK_MAX_S, Silence
from tests.clock import MovedClock

HUNG_AFTER_S = 30.0


class World:
    """One region, which makes progress when the test says so, and the protocol that looks at it."""

    def __init__(self) -> None:
        self.clock, self.progressed_at_s = MovedClock(), 1000.0
        recovery: Any = RecoveryProtocol.__new__(RecoveryProtocol)
        recovery._regions, recovery.down = {"counts": SimpleNamespace(health=self._health)}, ()
        recovery._clock, recovery._silence = self.clock.monotonic, Silence(self.clock.monotonic)
        self.recovery = recovery

    def _health(self) -> Health:
        return Health(runs=True, progressed_at_s=self.progressed_at_s, hung_after_s=HUNG_AFTER_S)

    def looks(self, seconds: int) -> str | None:
        """Look each second, for so many seconds. Returns: the last answer."""
        found = None
        for _ in range(seconds):
            self.clock.advance(1.0)
            found = self.recovery._failure("counts")
        return found


def test_a_region_that_makes_no_progress_hangs() -> None:
    world = World()
    assert world.looks(30) is None
    assert world.looks(1) == "hangs: it has not got on for 31 s"


def test_a_process_that_was_paused_takes_no_region_for_one_that_hangs() -> None:
    """Without this, all live regions restarted after `docker pause` for a minute."""
    world = World()
    assert world.looks(10) is None
    for _ in range(2):
        world.clock.advance(3600.0)
        assert world.looks(1) is None
        world.progressed_at_s = world.clock.now_s
    assert world.looks(30) is None
    assert world.looks(1) is not None


def test_pauses_before_its_last_progress_are_no_excuse() -> None:
    world = World()
    world.clock.advance(3600.0)
    world.progressed_at_s = world.clock.now_s - 1.0
    assert world.looks(28) is None
    assert world.looks(3) is not None


def test_on_a_slow_machine_a_region_that_hangs_is_found_too() -> None:
    """Each turn takes a minute there."""
    world = World()
    turns = 0
    while world.looks(1) is None:
        world.clock.advance(60.0)
        turns += 1
    assert turns == HUNG_AFTER_S / LOOK_MAX_S
