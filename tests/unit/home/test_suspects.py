"""Suspects: the progress of a processor that may kill executors, and its wait for its trial."""

import random
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.errors.location import SourceLocation
from falkirk.recovery.protocol.layout import Layout, Stage
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.recovery.protocol.recovery import RecoveryProtocol
from falkirk.runtime.spark.live import inputs
from falkirk.runtime.spark.status import RegionStatus
from falkirk.runtime.supervision.failures import IDLE_S, LOSSES_MAX, Failures
from falkirk.runtime.supervision.host import Host
from falkirk.runtime.supervision.supervised import Supervised, Supervision
from falkirk.runtime.supervision.supervised_batch import SupervisedBatch
from falkirk.runtime.supervision.supervised_region import SupervisedRegion
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import CheckpointNumber, LogId, Offset
from falkirk.theory.times import TopicPartition
from tests.clock import MovedClock
from tests.simulation.memory import MemoryStore
from tests.simulation.world import World

WHERE = SourceLocation(file="shop.py", line=3, text="")


@pytest.mark.parametrize(
    ("read", "ran_s", "was_lost", "left"),
    [
        ([7, 8], 9.0, False, 0),
        ([7, 8], 9.0, True, 3),  # nothing may have processed the input of the batch that lost its executor
        ([7, 7], 9.0, False, 3),  # an empty checkpoint
        ([7], IDLE_S + 1, False, 0),  # its checkpoint is due later, and it has read the value on which it died
        ([7], IDLE_S + 1, True, 3),
        ([7], IDLE_S - 1, False, 3),
    ],
)
def test_progress_of_a_live_region(
    read: list[int], ran_s: float, was_lost: bool, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = Failures({"a": {"losses": 3}})
    failures.begin("a", WHERE)
    partition = TopicPartition(topic=LogId("events"), partition=0)
    checkpoints = [
        Checkpoint(number=CheckpointNumber(n), read=OffsetFrontier.of({partition: upto}), sent=OffsetFrontier.of({}))
        for n, upto in enumerate(read)
    ]
    live: Any = SimpleNamespace(
        region=SimpleNamespace(name="a", where=WHERE),
        checkpoints=lambda: checkpoints,
        observations=SimpleNamespace(was_lost=lambda: was_lost),
    )
    context: Any = SimpleNamespace(topics=None, connection=None, clock=MovedClock(ran_s))
    watched = SupervisedRegion(live, Supervision(context=context, failures=failures, say=lambda line: None))
    monkeypatch.setattr(inputs, "due", lambda *arguments: {partition: Offset(7)})
    watched._started_at_s = 0.0
    watched._note_progress(cast(Any, SimpleNamespace(restored_batch=0, start={})))
    assert failures.of("a").losses == left
    failures.add_loss("a", "died")
    assert failures.of("a").losses == (left + 1 if left else 0), "progress holds until the next Spark application"


@pytest.mark.parametrize(("keeps", "left"), [(True, 0), (False, 3)])
def test_progress_of_a_batch(keeps: bool, left: int) -> None:
    """A batch that goes back to its last saved epoch completes the epochs since then at each start."""
    failures, epochs = Failures({"a": {"losses": 3}}), list[Any]()
    failures.begin("a", WHERE)
    region: Any = SimpleNamespace(
        batch=SimpleNamespace(name="a", where=WHERE, deterministic=keeps, is_stateful=True), failure=lambda: None,
        epochs=SimpleNamespace(epochs=lambda: tuple(epochs)), jobs=SimpleNamespace(detail=""), releaser=None,
        health=lambda: SimpleNamespace(runs=True), letters=None,
    )  # fmt: skip
    watched = SupervisedBatch(region, Supervision(context=cast(Any, None), failures=failures, say=lambda line: None))
    for number in range(2):
        epochs.append(SimpleNamespace(number=number, is_complete=False, saved=False, made_at_s=0.0, state=None))
        assert watched.has_input()
        epochs[-1].is_complete = True
        assert not watched.has_input()
        watched.poll()
    assert failures.of("a").losses == left
    epochs[-1].saved = True
    watched.poll()
    assert failures.of("a").losses == 0


def test_a_region_waits_for_its_trial_and_then_starts_without_a_failure() -> None:
    """The protocol is the real one, over simulated ports, and the host's part of it is the real one."""
    stages = {name: Stage(name=name, inputs=("in",), output=f"out-{name}") for name in ("first", "second", "other")}
    layout = Layout(stages=stages, partitions=dict.fromkeys(("in", *(f"out-{n}" for n in stages)), 1), held={})
    world = World(layout, random.Random(7))
    world.store = MemoryStore()
    failures = Failures({name: {"losses": LOSSES_MAX - 1, "reason": "died"} for name in ("first", "second")})
    counted: list[str] = []

    class Unit(SimpleNamespace):
        def count_failure(self, reason: str) -> None:
            counted.append(self.name)

        def waits_for_cluster(self, *, ask: bool) -> bool:
            return False

    units = {name: Unit(name=name, _failures=failures, where=WHERE, status=RegionStatus(name=name)) for name in stages}
    host: Any = SimpleNamespace(_units=units, _failures=failures, _admitted=None)
    recovery = RecoveryProtocol(
        layout, world.regions, world, world.store, world.clock,  # type: ignore[arg-type]
        on_failure=partial(Host._count_failure, host),
        before_start=lambda name: Supervised.before_start(cast(Any, units[name])),
        may_start=lambda name: not failures.waits(name),
    )  # fmt: skip

    def running() -> list[str]:
        recovery.turn()
        return [name for name, region in world.regions.items() if region.running]

    assert failures.line_up([*stages]) == "second"
    recovery.open()
    assert running() == ["first", "other"]
    assert units["second"].status.state == "waiting"
    assert failures.next_trial(()) is None
    failures.forget("first")
    host._admitted = failures.next_trial(())
    assert (host._admitted, running()) == ("second", ["first", "second", "other"])
    assert (counted, recovery.down.errors, host._admitted) == ([], {}, None)
