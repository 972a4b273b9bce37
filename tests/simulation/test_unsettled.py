"""Regions whose outputs never settle, since somebody else writes there: they wait, and nothing else does."""

import os
import random
from collections.abc import Callable

import pytest

from falkirk.errors import FalkirkError, LogError
from falkirk.recovery.protocol import recovery as module
from falkirk.recovery.protocol.down import RETRY_S
from falkirk.recovery.protocol.layout import Layout, Stage
from falkirk.recovery.protocol.recovery import RecoveryProtocol
from falkirk.theory.frontier import OffsetFrontier
from tests.simulation.memory import MemoryStore
from tests.simulation.region import SimRegion
from tests.simulation.run import Outcome, Run
from tests.simulation.world import World

#: `FALKIRK_SCHEDULES` runs more of them.
SCHEDULES = 60 if "FALKIRK_SCHEDULES" in os.environ else 25


class UnsettledRun(Run):
    """A schedule in which an attempt to fence a region fails now and then.

    Attributes: beside: how many regions ran while another one was down. again: how many came back by themselves.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._harm_share, self._spare = 0.0, 0
        self._chance, self._share, self._is_asked = random.Random(seed + 5_000_000), 0.3, False
        self.beside = self.again = 0
        self._was_down = set[str]()
        for region in self.world.regions.values():
            if isinstance(region, SimRegion):
                self._unsettle(region)
        self.world.copied = self._or_fail(self.world.copied)  # type: ignore[method-assign]
        self.world.copy = self._or_fail(self.world.copy)  # type: ignore[method-assign]

    def _or_fail(self, ask: Callable[..., OffsetFrontier]) -> Callable[..., OffsetFrontier]:
        def ask_or_fail(held: str, sink: str, *bounds: OffsetFrontier) -> OffsetFrontier:
            if self._chance.random() < self._share:
                raise LogError("SINK_UNSETTLED", f"somebody writes into {sink}")
            return ask(held, sink, *bounds)

        return ask_or_fail

    def _unsettle(self, region: SimRegion) -> None:
        fence, start, settled = region.fence, region.start, [False]

        def fence_or_fail() -> None:
            fence()
            if not settled[0] and not self._is_asked and self._chance.random() < self._share:
                raise LogError("SINK_UNSETTLED", f"somebody writes into {region.stage.output}")
            settled[0] = True

        def start_once(number: int) -> None:
            assert settled[0], f"{region.stage.name} starts, and nobody knows where its output ends"
            settled[0] = False
            start(number)

        region.fence, region.start = fence_or_fail, start_once  # type: ignore[method-assign]

    def _coordinate(self, *, crash: bool, ask: dict[str, int] | None = None) -> None:
        before = self._was_down = set() if self._recovery is None else set(self._recovery.down.errors)
        self._is_asked = ask is not None
        super()._coordinate(crash=crash, ask=ask)
        self._is_asked = False
        if self._recovery is not None:
            down = self._recovery.down.errors
            self.again += len(before - down.keys())
            self.beside += bool(down) * sum(r.running is not None for r in self.world.regions.values())
            for name in down:
                assert self.world.regions[name].running is None

    def _judge_turn(self, recovery: RecoveryProtocol, running: dict[str, int]) -> None:
        # Results wait that may be released, or readers have learnt the fence of a writer that started after them.
        if not recovery.sinks.waiting and not self._was_down and not recovery.down.errors:
            super()._judge_turn(recovery, running)

    def _settle(self) -> None:
        self._say("nobody else writes any more")
        self._share = 0.0
        self.world.now_s += RETRY_S
        super()._settle()


def run(seed: int) -> tuple[UnsettledRun, Outcome]:
    schedule = UnsettledRun(seed)
    try:
        return schedule, schedule.go()
    except Exception as error:
        trace = "\n".join(schedule.outcome.trace[-40:])
        raise AssertionError(f"seed {seed}: {error}\n{trace}") from error


def test_what_is_not_settled_waits_alone_and_comes_back_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    together = list[str]()
    real = module.related
    monkeypatch.setattr(module, "related", lambda layout, name: together.append(name) or real(layout, name))
    found = [run(seed) for seed in range(SCHEDULES)]
    assert len(together) > SCHEDULES / 5, "hardly anything had to wait for what it is connected to"
    assert sum(schedule.beside for schedule, _ in found) > SCHEDULES, "hardly anything ran beside what was down"
    assert sum(schedule.again for schedule, _ in found) > SCHEDULES, "hardly any region came back by itself"
    assert sum(outcome.outputs for _, outcome in found) > 10 * SCHEDULES


def coordinator(stages: tuple[Stage, ...]) -> tuple[World, RecoveryProtocol]:
    logs = {log for stage in stages for log in (*stage.inputs, stage.output)}
    layout = Layout(stages={s.name: s for s in stages}, partitions=dict.fromkeys(sorted(logs), 1), held={})
    world = World(layout, random.Random(7))
    world.store = MemoryStore()
    return world, RecoveryProtocol(layout, world.regions, world, world.store, world.clock)  # type: ignore[arg-type]


def fails(error: FalkirkError) -> Callable[[], None]:
    def fence() -> None:
        raise error

    return fence


def test_one_whose_output_is_not_settled_starts_later_and_the_others_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Stage(name="one", inputs=("in",), output="x"), Stage(name="other", inputs=("in",), output="y")
    world, recovery = coordinator((one, other))
    error = LogError("SINK_UNSETTLED", "somebody writes there")
    with monkeypatch.context() as patch:
        patch.setattr(world.regions["one"], "fence", fails(error))
        recovery.open()
        world.now_s += RETRY_S  # it is tried again, and waits again
        for _ in range(2):
            recovery.turn()
            assert [name for name, region in world.regions.items() if region.running] == ["other"]
            assert recovery.down.errors == {"one": error}
    recovery.turn()
    assert recovery.down.errors == {"one": error}, "it is not tried at each turn, since that takes a second"
    world.now_s += RETRY_S
    recovery.turn()
    assert all(region.running for region in world.regions.values())
    assert not recovery.down.errors


def test_an_application_of_which_nothing_is_settled_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    world, recovery = coordinator((Stage(name="one", inputs=("in",), output="x"),))
    with monkeypatch.context() as patch:
        patch.setattr(world.regions["one"], "fence", fails(LogError("SINK_UNSETTLED", "somebody writes there")))
        recovery.open()
        recovery.turn()
    world.now_s += RETRY_S
    recovery.turn()
    assert world.regions["one"].running


@pytest.mark.parametrize("condition", ["BROKER_AWAY", "FOREIGN_WRITER"])
def test_what_concerns_more_than_one_still_stops_all(condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Stage(name="one", inputs=("in",), output="x"), Stage(name="other", inputs=("in",), output="y")
    world, recovery = coordinator((one, other))
    monkeypatch.setattr(world.regions["one"], "fence", fails(LogError(condition, "away")))
    with pytest.raises(LogError) as told:
        recovery.open()
    assert told.value.condition == condition


def test_without_the_table_it_stops_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with the mechanism off: a program that can write one output then keeps everything from starting."""
    one, other = Stage(name="one", inputs=("in",), output="x"), Stage(name="other", inputs=("in",), output="y")
    world, recovery = coordinator((one, other))
    monkeypatch.setattr(world.regions["one"], "fence", fails(LogError("SINK_UNSETTLED", "somebody writes there")))
    monkeypatch.setattr("falkirk.recovery.protocol.down.concerns_one", lambda error: False)
    with pytest.raises(LogError):
        recovery.open()


def test_what_can_not_go_back_alone_waits_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer of a log draws, so its reader must go back with it. If the reader can't, the writer must wait."""
    writer = Stage(name="writer", inputs=("in",), output="log", deterministic=False)
    reader = Stage(name="reader", inputs=("log",), output="out", deterministic=False)
    beside = Stage(name="beside", inputs=("in",), output="y")
    world, recovery = coordinator((writer, reader, beside))
    recovery.open()
    for region in world.regions.values():
        region.die()
    monkeypatch.setattr(world.regions["reader"], "fence", fails(LogError("SINK_UNSETTLED", "somebody writes there")))
    recovery.turn()
    assert world.regions["beside"].running
    assert world.regions["reader"].running is None
    assert "reader" in recovery.down
