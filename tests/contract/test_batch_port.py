"""Contract of a batch's port, for the simulated batch and for the epochs that a real one leaves in its home."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from falkirk.kafka_client.connection import Connection
from falkirk.plan.region import BatchLogs
from falkirk.recovery.decision_store import Store
from falkirk.recovery.ownership.folder import open_home
from falkirk.recovery.protocol.layout import Layout, Stage, TimeDomain
from falkirk.recovery.protocol.ports import RegionPort
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.epochs.at_rest import BatchAtRest, epoch_log_of
from falkirk.theory.frontier import Frontier, OffsetFrontier
from falkirk.theory.times import TopicPartition
from tests.simulation.batch import Epoch, SimBatch
from tests.simulation.world import World

LOG, SOURCE = "epochs:b", TopicPartition(topic="in", partition=0)
STAGE = Stage(name="b", inputs=("in",), output=LOG, times=TimeDomain.EPOCHS)


class Rig(Protocol):
    """A batch that does not run, whose epochs are given."""

    region: RegionPort
    store: Store

    def decide(self, first: int, last: int) -> int:
        """Record the cut of the next epoch; return its number."""

    def complete(self, number: int, *, saved: bool) -> None:
        """Record that an epoch is complete, with or without its state."""


class Simulated:
    def __init__(self, folder: Path) -> None:
        self.store = Store(folder / "decisions.db")
        layout = Layout(stages={"b": STAGE}, partitions={"in": 1, LOG: 1, "out": 1}, held={LOG: "out"})
        world = World(layout, random.Random(0))
        world.store = self.store
        self.batch: SimBatch = world.regions["b"]
        self.region: RegionPort = self.batch
        self._epochs = world.epochs[LOG]

    def decide(self, first: int, last: int) -> int:
        self._epochs.append(Epoch(len(self._epochs), {SOURCE: first}, {SOURCE: last}))
        return len(self._epochs) - 1

    def complete(self, number: int, *, saved: bool) -> None:
        self._epochs[number].results, self._epochs[number].saved = [], saved


class Real:
    def __init__(self, place: Storage) -> None:
        logs = BatchLogs(name="b", log=LOG, topics=(), sinks=("out",), dead_letters=None)
        self.store = place.home.store
        self.batch = BatchAtRest(logs, place, epoch_log_of(logs, place), {})
        self.region: RegionPort = self.batch

    def decide(self, first: int, last: int) -> int:
        return self.batch.epochs.decide({"in": {0: first}}, {"in": {0: last}}, {}, 0.0)

    def complete(self, number: int, *, saved: bool) -> None:
        epochs = self.batch.epochs
        folder = epochs.new_folder(number)
        epochs.path(folder).make()
        epochs.record(number, folder=folder, rows=0, dead=0, state=folder if saved else None, saved=saved)


@pytest.fixture(params=["simulated", "real"])
def rig(request: pytest.FixtureRequest, tmp_path: Path, home: Path) -> Iterator[Rig]:
    if request.param == "simulated":
        yield Simulated(tmp_path)
        return
    with open_home(home, "app") as opened:
        yield Real(Storage(home=opened, connection=Connection.of("127.0.0.1:1")))


def cuts(rig: Rig, after: int = -1) -> dict[int, float]:
    return {number: end.length(SOURCE) for number, end in rig.region.cuts(after)}


def beyond(rig: Rig, number: int, upto: Frontier) -> list[int]:
    return [n for _, _, first, last in rig.region.beyond(number, upto) for n in range(first, last)]


def test_epochs_from_the_first_cut_to_a_rollback(rig: Rig) -> None:
    assert [p.number for p in rig.region.checkpoints()] == [-1]
    assert cuts(rig) == {}
    ends = {rig.decide(10 * n, 10 * n + 10): 10 * n + 10 for n in range(5)}
    for number, saved in ((0, True), (1, False), (3, True)):
        rig.complete(number, saved=saved)

    # Checkpoints: epochs with a state, while all epochs before them are complete. Cuts: all epochs that are decided.
    checkpoints = rig.region.checkpoints()
    assert [p.number for p in checkpoints] == [-1, 0]
    assert checkpoints[-1].read == OffsetFrontier.of({SOURCE: 10})
    assert checkpoints[-1].sent == OffsetFrontier.of({TopicPartition(topic=LOG, partition=0): 1})
    assert cuts(rig) == ends
    assert cuts(rig, after=2) == {3: 40, 4: 50}

    # Beyond a frontier are the epochs after it, complete or not, for every checkpoint to which the batch returns.
    assert beyond(rig, 0, STAGE.through(3)) == [4]
    assert beyond(rig, 0, STAGE.through(0)) == [1, 2, 3, 4]
    assert beyond(rig, -1, STAGE.through(-1)) == [0, 1, 2, 3, 4]
    assert beyond(rig, 0, STAGE.through(7)) == []

    # Void epochs were deleted, and their numbers are not used again.
    number = rig.store.open_recovery("asked", {"b": 0}, voids=[(LOG, 0, 3, 5)])
    rig.region.fence()
    rig.region.rewind(0)
    rig.store.advance_recovery(number, "done")
    assert cuts(rig) == {0: 10, 1: 20, 2: 30}
    assert beyond(rig, 0, STAGE.through(1)) == [2]
    assert rig.decide(30, 45) == 5
    assert cuts(rig) == {0: 10, 1: 20, 2: 30, 5: 45}

    # Epochs that are not kept are no points. The cut of the oldest point that is kept stays known.
    rig.complete(2, saved=True)
    rig.complete(5, saved=True)
    rig.region.keep_only((2,))
    assert [p.number for p in rig.region.checkpoints()] == [2, 5]
    assert {2: 30, 5: 45}.items() <= cuts(rig).items()
