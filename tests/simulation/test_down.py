"""Regions that fail for good: the others continue, and a corrected program gives the results of one without faults."""

import hashlib
import itertools
import os
import random

import pytest

from falkirk.errors import DefinitionError
from falkirk.recovery.protocol import down
from falkirk.recovery.protocol.layout import Layout, Stage
from falkirk.recovery.protocol.recovery import RecoveryProtocol
from tests.simulation.elements import Element
from tests.simulation.memory import MemoryStore
from tests.simulation.region import HUNG_AFTER_S, SimRegion
from tests.simulation.run import Outcome, Run
from tests.simulation.world import World

#: `FALKIRK_SCHEDULES` runs more of them.
SCHEDULES = 60 if "FALKIRK_SCHEDULES" in os.environ else 25
#: A planted bug must show within so many schedules.
PATIENCE = 60
#: Nothing is left that can make progress.
RARE = (15,)


def _failure(name: str) -> DefinitionError:
    return DefinitionError("EXPRESSION_FAILED", f"region {name!r} fails on an element")


class FailingRun(Run):
    """A schedule in which the programs of one or two regions fail on some elements.

    Attributes: beside: how many regions finished their input while another was down. ends: how often the application
        ended because nothing was left that could make progress. again: how many regions a rollback has started again.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._harm_share, self._spare = 0.0, 0
        chosen = random.Random(seed + 4_000_000)
        names = chosen.sample(sorted(self.world.regions), k=min(len(self.world.regions), chosen.choice([1, 1, 2])))

        def fails(stage: str, element: Element) -> bool:
            text = f"{seed} {stage} {element.path} {element.digest}"
            return stage in names and hashlib.sha256(text.encode()).digest()[0] < 32

        self.world.fails = fails
        self.beside = self.ends = self.again = 0
        self._is_seen_first = chosen.random() < 0.5

    def _on_failure(self, name: str, reason: str) -> None:
        if self.world.regions[name].failed:
            raise _failure(name)

    def _see_failures(self, recovery: RecoveryProtocol) -> None:
        """Report the regions that ended, as a host does that looks at its queries before each turn."""
        for name, region in self.world.regions.items():
            if region.failed and name not in recovery.down:
                recovery.keep_down(name, _failure(name))

    def _coordinate(self, *, crash: bool, ask: dict[str, int] | None = None) -> None:
        before = set() if self._recovery is None else set(self._recovery.down.errors)
        try:
            if self._is_seen_first and self._recovery is not None:
                self._see_failures(self._recovery)
            super()._coordinate(crash=crash, ask=ask)
        except DefinitionError as error:
            if error.condition != "EXPRESSION_FAILED":
                raise
            self._say("the application ends")
            assert not any(self._works(name) for name in self.world.regions), "what could run on has ended"
            self._recovery = None
            self.ends += 1
        if self._recovery is not None:
            self.again += len(before - set(self._recovery.down.errors))

    def _works(self, name: str) -> bool:
        """Return whether neither a region nor any that it depends on has failed."""
        stage = self.world.layout.stages[name]
        writer = self.world.layout.writer(stage.inputs[0])
        return not self.world.regions[name].failed and (writer is None or self._works(writer.name))

    def _settle(self) -> None:
        self._run_on()
        self._judge(complete=False)
        self._say("the program is corrected, and started again")
        self.world.fails = lambda stage, element: False
        self._recovery = None
        super()._settle()

    def _run_on(self) -> None:
        """Finish all regions that can finish: these must be all that do not depend on a region that is down."""
        self.world.lag, self.world.backoff, idle = 0.0, None, 0
        for region in self.world.regions.values():
            if isinstance(region, SimRegion):
                region.ready_at_s = 0.0
        while idle < 3:
            self.world.now_s += 1 + HUNG_AFTER_S * any(r.stuck for r in self.world.regions.values())
            busy = False
            for region in self.world.regions.values():
                self._come_late(region, len(region.late))
                while region.running is not None and not region.stuck and region.step(region.running):
                    busy = True
                if region.running is not None and not region.stuck:
                    region.checkpoint(region.running)
            self._coordinate(crash=False)
            if self._recovery is None:
                return
            idle = 0 if busy or not all(r.running or r.failed for r in self.world.regions.values()) else idle + 1
        assert any(self._works(name) for name in self.world.regions), "it runs although nothing can make progress"
        for name, region in self.world.regions.items():
            if self._works(name):
                assert region.running is not None
                assert region.has_read_all(region.running), f"{name} waits"
                self.beside += any(r.failed for r in self.world.regions.values())


def run(seed: int) -> tuple[FailingRun, Outcome]:
    schedule = FailingRun(seed)
    try:
        return schedule, schedule.go()
    except Exception as error:
        trace = "\n".join(schedule.outcome.trace[-40:])
        raise AssertionError(f"seed {seed}: {error}\n{trace}") from error


def test_the_rest_runs_on_and_a_corrected_program_resumes() -> None:
    found = [run(seed) for seed in range(SCHEDULES)]
    assert sum(schedule.beside for schedule, _ in found) > SCHEDULES / 2, "hardly anything ran beside what was down"
    assert sum(schedule.ends for schedule, _ in found) > SCHEDULES / 5, "hardly an application had nothing left"
    assert sum(schedule.again for schedule, _ in found) > SCHEDULES / 20, "hardly a rollback has moved what was down"
    assert sum(outcome.outputs for _, outcome in found) > 10 * SCHEDULES


def test_a_region_that_may_not_start_stays_down_beside_others() -> None:
    """As one whose input was found not to be partitioned by its key: a replay would not notice it."""
    stages = {name: Stage(name=name, inputs=("in",), output=f"out-{name}") for name in ("split", "whole")}
    layout = Layout(stages=stages, partitions=dict.fromkeys(("in", "out-split", "out-whole"), 1), held={})
    world = World(layout, random.Random(7))
    world.store = MemoryStore()
    error = DefinitionError("NOT_CO_PARTITIONED", "a key came from two partitions")

    def coordinator(refused: tuple[str, ...]) -> RecoveryProtocol:
        def before_start(name: str) -> bool:
            if name in refused:
                raise error
            return True

        return RecoveryProtocol(layout, world.regions, world, world.store, world.clock, before_start=before_start)  # type: ignore[arg-type]

    recovery = coordinator(("split",))
    recovery.open()
    for _ in range(2):
        assert [name for name, region in world.regions.items() if region.running] == ["whole"]
        assert recovery.down.errors == {"split": error}
        recovery.turn()
    recovery.recover(frozenset(), "asked", asked={"split": -1})  # it may not start after a rollback either
    assert [name for name, region in world.regions.items() if region.running] == ["whole"]
    with pytest.raises(DefinitionError):
        coordinator(("split", "whole")).open()
    coordinator(()).open()
    assert all(region.running for region in world.regions.values())


@pytest.mark.parametrize("waits_for_all", [False, True])
def test_a_region_that_may_not_start_yet_delays_no_other(
    *, waits_for_all: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a failed region waited until all failed ones could start: with the mechanism off it does."""
    stages = {name: Stage(name=name, inputs=("in",), output=f"out-{name}") for name in ("often", "once")}
    layout = Layout(stages=stages, partitions=dict.fromkeys(("in", "out-often", "out-once"), 1), held={})
    world = World(layout, random.Random(7))
    world.store = MemoryStore()
    recovery = RecoveryProtocol(layout, world.regions, world, world.store, world.clock)  # type: ignore[arg-type]
    if waits_for_all:
        failure = recovery._failure

        def wait_for_all(name: str) -> str | None:
            ready = all(r.health().ready_at_s <= world.now_s for r in world.regions.values())
            return failure(name) if ready else None

        monkeypatch.setattr(recovery, "_failure", wait_for_all)
    recovery.open()
    for region in world.regions.values():
        region.die()
    often = world.regions["often"]
    assert isinstance(often, SimRegion)
    often.ready_at_s = world.now_s + 10
    recovery.turn()
    there = [] if waits_for_all else ["once"]
    assert [name for name, region in world.regions.items() if region.running] == there
    world.now_s += 11
    recovery.turn()
    assert all(region.running for region in world.regions.values())


def end_everything(patch: pytest.MonkeyPatch) -> None:
    """Each failure of a processor counts as one of the whole application, as it did before."""
    patch.setattr(down, "concerns_one", lambda error: False)


def never_end(patch: pytest.MonkeyPatch) -> None:
    """The application runs although nothing is left that can make progress."""
    patch.setattr(down, "has_work", lambda layout, down: True)


def a_waiting_reader_needs_nothing(patch: pytest.MonkeyPatch) -> None:
    """Records are deleted if their only reader is down."""

    def needed(self: RecoveryProtocol, kept: object, topic: str) -> object:
        readers = (r.name for r in self.layout.readers(topic) if r.name not in self.down)
        return [kept[name].reads_from for name in readers]  # type: ignore[index]

    patch.setattr(RecoveryProtocol, "_needed", needed)


@pytest.mark.parametrize("bug", [end_everything, never_end, a_waiting_reader_needs_nothing])
def test_a_planted_bug_is_found(bug: object, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)  # type: ignore[operator]
    for seed in itertools.chain(RARE, range(PATIENCE)):
        try:
            run(seed)
        except AssertionError as error:
            print(f"{bug}: seed {seed}: {str(error)[:200]}")
            return
    pytest.fail(f"{PATIENCE} schedules did not show it")
