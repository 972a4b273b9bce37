"""A recovery reads a region's own results once: for those that it takes back, and for the barrier of the next start."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.kafka_client import tail
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.header import HEADER_KEY
from falkirk.kafka_client.signing import tag_of
from falkirk.plan.region import RegionLogs
from falkirk.recovery.decision_store import RegionRecord
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.outputs import Outputs
from falkirk.theory.ids import BatchId, CheckpointNumber, LogId, Offset, Positions

SENT, DEAD = LogId("sent"), LogId("dead")
RESTORED = BatchId(-1)
#: The results of input from here on are taken back.
COVERED = 6


class World:
    """A region whose output has ten results. Attributes: reads: the reads of its output so far."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = open_home(folder, "shop")
        self.reads = 0
        store, ends = self.home.store, {SENT: {0: Offset(0)}, DEAD: {0: Offset(0)}}
        record = RegionRecord(fingerprint={}, start_offsets={LogId("orders"): {0: Offset(0)}}, partitions={})
        store.create_region("counts", record, ends)
        store.open_incarnation("counts", CheckpointNumber(-1))
        self.logs = RegionLogs(name="counts", source=LogId("orders"), output=SENT, dead_letters=DEAD, repeats=False)
        topics = SimpleNamespace(first_positions=lambda topic: {0: Offset(0)}, end_positions=lambda topic: {0: 10})
        self.place = Storage(home=self.home, connection=Connection.of("nowhere:1"))
        object.__setattr__(self.place, "topics", topics)
        self.outputs = self.outputs_of_a_new_process()
        self.ends: Positions = {SENT: {0: Offset(10)}, DEAD: {0: Offset(0)}}
        monkeypatch.setattr(tail, "read_messages", self.messages)

    def outputs_of_a_new_process(self) -> Outputs:
        return Outputs(self.logs, self.place)

    def messages(
        self, connection: object, topic: str, first: Mapping[int, int], last: Mapping[int, int], **more: object
    ) -> Iterator[Any]:
        self.reads += 1
        return (self.message(topic, Offset(offset)) for offset in range(first[0], last[0]))

    def message(self, topic: str, offset: Offset) -> Any:
        text = f"{self.home.identity}/1/0.0.{offset}/0/".encode()
        header = text + tag_of(self.home.store.signing_key().of(topic, "1"), text, 0, None, b"v").encode()
        return SimpleNamespace(
            partition=lambda: 0, offset=lambda: offset, key=lambda: None, value=lambda: b"v",
            headers=lambda: [(HEADER_KEY, header)],
        )  # fmt: skip

    def decide(self, ends: Positions | None = None) -> list[tuple[int, int, int]]:
        """Return the ranges that a recovery takes back."""
        ranges = self.outputs.split_tail(SENT, ends or self.ends, RESTORED, lambda h: h.numbers[2] >= COVERED)
        return [(r.partition, r.first, r.last_exclusive) for r in ranges]

    def record(self, ranges: list[tuple[int, int, int]]) -> None:
        voids = [(SENT, partition, Offset(first), Offset(last)) for partition, first, last in ranges]
        self.home.store.advance_recovery(self.home.store.open_recovery("test", {}, voids=voids), "done")

    def tail(self, restored: BatchId = RESTORED) -> list[int]:
        """Return the input of the results that the barrier of the next incarnation is made from."""
        found = self.outputs.tail(SENT, self.ends, restored)
        again = self.outputs_of_a_new_process()
        reads = self.reads
        assert found == again.tail(SENT, self.ends, restored), "it is what a new process reads"
        self.reads = reads
        return [int(stamp.offset) for _, stamp in found.released_set]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path / "home", monkeypatch)
    yield made
    made.home.close()


def test_a_recovery_that_takes_results_back_reads_them_once(world: World) -> None:
    ranges = world.decide()
    assert ranges == [(0, COVERED, 10)]
    world.record(ranges)
    assert world.tail() == list(range(COVERED))
    assert world.reads == 1


def test_a_recovery_that_takes_nothing_back_reads_once_as_well(world: World) -> None:
    assert world.tail() == list(range(10))
    assert world.reads == 1


def test_a_comparison_keeps_what_the_start_reads(world: World) -> None:
    """A region that waits for a view is compared first, and started later. A long tail takes minutes to verify."""
    world.record(world.decide())
    for _ in range(2):
        assert len(list(world.outputs.tail(SENT, world.ends, RESTORED, keep=True).released_set)) == COVERED
    assert world.tail() == list(range(COVERED))
    assert world.reads == 1
    assert world.tail() == list(range(COVERED))
    assert world.reads == 2, "a start takes it: later ones read what was published since"


def test_a_recovery_that_was_not_carried_out_leaves_all_results(world: World) -> None:
    """It was refused, because it would have taken published results back. Without them, the barrier has a hole."""
    world.decide()
    assert world.tail() == list(range(10))
    assert world.reads == 2


def test_results_that_another_recovery_has_taken_back_as_well_are_read_again(world: World) -> None:
    ranges = world.decide()
    world.record([*ranges, (0, 2, 3)])
    assert world.tail() == [0, 1, 3, 4, 5]
    assert world.reads == 2


def test_another_fence_or_another_checkpoint_reads_again(world: World) -> None:
    world.record(world.decide({**world.ends, SENT: {0: Offset(9)}}))
    assert world.tail() == [0, 1, 2, 3, 4, 5, 9]
    assert world.reads == 2
    world.decide()
    assert world.tail(cast(BatchId, 0)) == [0, 1, 2, 3, 4, 5, 9]
    assert world.reads == 4


def test_each_start_has_its_own_read(world: World) -> None:
    """The next incarnation may start much later, and the results take memory."""
    world.record(world.decide())
    assert world.tail() == world.tail() == list(range(COVERED))
    assert world.reads == 2
