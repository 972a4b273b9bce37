"""Random schedules of three processes with one lease: none starts while another one works, and some process may start.

Clocks and the store are simulated. `LeaseWatch` and `LeaseKeeper` decide. Processes stand still, lose the store, and
die at any moment. Each has its own clock, which began at another time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falkirk.errors import StoreError
from falkirk.recovery.decision_store import Lease
from falkirk.recovery.ownership.lease import MARGIN_S, RENEW_S, LeaseKeeper, LeaseWatch
from tests.strategies import examples

LASTS_S, STEP_S = 6.0, 0.5
#: Within this time some process takes over: the rest of one lease, and another one after a store that was away.
TAKES_S = 2 * LASTS_S + 3 * STEP_S
FAULTS = st.sampled_from(["", "", "", "", "suspend", "resume", "cut", "heal", "kill", "die while taking over"])


@dataclass
class World:
    """The true time, the store, and the processes."""

    now_s: float = 0.0
    lease: Lease | None = None
    processes: list["Process"] = field(default_factory=list)

    def owners(self) -> list["Process"]:
        """Return the processes that work."""
        return [each for each in self.processes if each.keeper is not None and not each.suspended and not each.ended]


class Process:
    """A process that waits, owns the home, or has ended."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.suspended = self.cut = self.ended = self.dies = False
        self.keeper: LeaseKeeper | None = None
        self.generation, self._renewed_s = 0, 0.0
        self._watch = LeaseWatch(self.clock)

    def clock(self) -> float:
        """Return the time of this process."""
        return self.world.now_s + 1_000.0 * self.number

    def renew_lease(self, clock: Callable[[], float]) -> float:
        """Stand for the store's method."""
        if self.cut:
            raise StoreError("STORE_AWAY", "the store is away")
        assert self.world.lease is not None
        if self.world.lease.generation != self.generation:
            raise StoreError("HOME_TAKEN_OVER", "another owner")
        self.world.lease = replace(self.world.lease, beat=self.world.lease.beat + 1)
        return clock()

    def turn(self) -> None:
        """Do what a process does in half a second."""
        if self.suspended or self.ended:
            return
        if self.keeper is None:
            self._wait()
            return
        self.keeper.check()
        if not self.ended and self.clock() - self._renewed_s >= RENEW_S:
            self._renewed_s = self.clock()
            self.keeper.renew()

    def _wait(self) -> None:
        if self.cut:
            self._watch.restart_wait()
        elif self._watch.is_free(self.world.lease):
            assert not self.world.owners(), "another process works"
            self.generation = 1 if self.world.lease is None else self.world.lease.generation + 1
            self.world.lease = Lease(
                generation=self.generation, holder=str(self.number), beat=0, lasts_s=LASTS_S
            )  # fmt: skip
            if self.dies:
                self.ended = True
                return
            home: Any = SimpleNamespace(store=self, leased_s=self.clock(), path="home", name_owner=lambda: None)
            self.keeper = LeaseKeeper(home, LASTS_S, lambda text: None, end=self._end, clock=self.clock)
            self._renewed_s = self.clock()

    def _end(self, code: int, last: Callable[[], None]) -> None:
        self.ended = True

    def suffer(self, fault: str) -> None:
        """Let a fault happen."""
        match fault:
            case "suspend" | "resume":
                self.suspended = fault == "suspend"
                if self.keeper is not None and not self.suspended:
                    self.keeper.check()  # it does so ten times a second, and each step is half of one
            case "cut" | "heal":
                self.cut = fault == "cut"
            case "kill":
                self.ended = True
            case "die while taking over":
                self.dies = True


def play(schedule: list[tuple[int, str]]) -> None:
    """Play a schedule: a fault of a process at each step. A process that has ended is started again."""
    world = World()
    world.processes = [Process(world, number) for number in range(3)]
    idle_s = 0.0
    for victim, fault in schedule:
        world.now_s += STEP_S
        world.processes[victim].suffer(fault)
        for place, process in enumerate(world.processes):
            process.turn()
            if process.ended:
                world.processes[place] = Process(world, process.number + 3)
        able = [p for p in world.processes if not (p.suspended or p.cut or p.dies)]
        is_quiet = not fault and len(able) == len(world.processes)
        idle_s = idle_s + STEP_S if is_quiet and not world.owners() else 0.0
        assert idle_s <= TAKES_S, "nobody takes over"


schedules = st.lists(st.tuples(st.integers(0, 2), FAULTS), min_size=60, max_size=150)


@given(schedule=schedules)
@settings(max_examples=examples(80))
def test_no_process_starts_while_another_one_works(schedule: list[tuple[int, str]]) -> None:
    play(schedule)


def test_an_owner_that_does_not_check_its_lease_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut from the store, and works on."""
    assert MARGIN_S > STEP_S
    cut = [(0, ""), (0, "cut"), *[(0, "")] * 20]
    play(cut)
    monkeypatch.setattr(LeaseKeeper, "check", lambda self: None)
    with pytest.raises(AssertionError, match="another process works"):
        play(cut)
