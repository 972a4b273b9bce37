"""A backlog of old epochs, after a sink was away for long: the host deletes it in parts, and works meanwhile."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from falkirk.plan.region import BatchLogs
from falkirk.platform.data import Manifest
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import RegionRecord, Store
from falkirk.runtime.spark.application import batches
from falkirk.runtime.spark.epochs.allowance import DELETING_S, PERIOD_S
from falkirk.runtime.spark.epochs.at_rest import BatchAtRest
from falkirk.runtime.spark.epochs.log import DECISION, EpochLog
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import CheckpointNumber, LogId
from tests.clock import MovedClock

EPOCHS, FOLDER_S = 60, 0.5
#: One of them that a history keeps.
MIDDLE = 28
NAMES = (LogId("a"), LogId("b"))


class Slow(LocalData):
    """Folders as in an object store: each deletion takes requests, also that of a folder that is not there."""

    clock = MovedClock()
    dropped: ClassVar[list[str]] = []

    def __truediv__(self, name: str) -> "Slow":
        return Slow(self.local / name)

    def sync(self) -> Manifest:
        return {}

    def remove(self) -> None:
        Slow.clock.advance(FOLDER_S)
        Slow.dropped.append(str(self.local))


def logs_of(name: LogId) -> BatchLogs:
    return BatchLogs(name=name, log=name, topics=(), files=(), sinks=(), dead_letters=None)


class Process:
    """A host with two batches."""

    def __init__(self, store: Store, folder: Path) -> None:
        home = SimpleNamespace(store=store, data_of=lambda name: Slow(folder / name))
        context = cast(Any, SimpleNamespace(home=home, clock=Slow.clock, session=None))
        plan = [
            SimpleNamespace(name=n, log=n, inputs=(), is_held=False, logs=lambda n=n: logs_of(n), sinks=())
            for n in NAMES
        ]
        made = batches.batches_of(cast(Any, plan), context, *[cast(Any, None)] * 3)
        self.logs, self.epochs = made.logs, cast(dict[LogId, EpochLog], made.regions)
        self.ports = [BatchAtRest(logs_of(n), context, self.epochs[n], {}) for n in NAMES]

    def turn(self, *kept: int) -> float:
        """Delete what these checkpoints, and readers at the first one, do not need; return how long it took."""
        Slow.clock.advance(PERIOD_S)
        began_s = Slow.clock.monotonic()
        for port in self.ports:
            port.keep_only([CheckpointNumber(n) for n in kept])
        for name in NAMES:
            self.logs.delete_below(name, OffsetFrontier.prefix(name, kept[0]))
        return Slow.clock.monotonic() - began_s


@pytest.fixture
def folder(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data of two batches, each of whose epochs has results and a state."""
    monkeypatch.setattr(batches, "observing", lambda session: None)
    monkeypatch.setattr(batches, "BatchRegion", lambda batch, context, shared, releaser: shared.logs[batch.log])
    monkeypatch.setattr(Slow, "dropped", [])
    for name in NAMES:
        store.create_region(name, RegionRecord(fingerprint={}, start_offsets={}, partitions={}), {})
        log = EpochLog(name, name, Slow(tmp_path / name), store)
        for n in range(EPOCHS):
            log.record(log.decide({}, {}, {}, 0.0), folder=f"{n}-r", rows=1, dead=0, state=f"{n}-s", saved=True)
    return tmp_path


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_each_turn_deletes_a_part_and_another_process_continues(store: Store, folder: Path, dies: bool) -> None:
    """Before, one turn deleted all of it. The coordinator killed the host after 40 s, and the next one began again."""
    process, turns = Process(store, folder), 0
    while left := sum(len(store.decisions(DECISION, name)) - 1 for name in NAMES):
        took_s, turns = process.turn(EPOCHS - 1), turns + 1
        assert took_s <= DELETING_S + 2 * FOLDER_S
        assert sum(len(store.decisions(DECISION, name)) - 1 for name in NAMES) < left, "the next process need not do it"
        process = Process(store, folder) if dies else process
    folders = {str(folder / name / f"{n}-{what}") for name in NAMES for n in range(EPOCHS - 1) for what in "rs"}
    assert {*Slow.dropped} == folders
    assert turns <= 2 * len(folders) * FOLDER_S / DELETING_S


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_states_that_a_history_omits_are_deleted_in_parts_too(store: Store, folder: Path) -> None:
    kept, turns = (0, MIDDLE, EPOCHS - 1), 0
    while any(e.saved and e.number not in kept for n in NAMES for e in Process(store, folder).epochs[n].epochs()):
        took_s, turns = Process(store, folder).turn(*kept), turns + 1
        assert took_s <= DELETING_S + FOLDER_S
        assert turns < EPOCHS
    assert sorted(Slow.dropped) == sorted(
        str(folder / name / f"{n}-s") for name in NAMES for n in range(EPOCHS) if n not in kept
    )


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_turn_makes_only_new_checkpoints_again(store: Store, folder: Path) -> None:
    """The number of epochs grows as long as nothing is deleted."""
    process = Process(store, folder)
    port, log = process.ports[0], process.epochs[NAMES[0]]
    before = port.checkpoints()
    log.record(log.decide({}, {}, {}, 0.0), folder="new", rows=1, dead=0, state=None, saved=True)
    after = port.checkpoints()
    made = [each.number for each in after if not any(each is known for known in before)]
    assert [each.number for each in after] == [*range(-1, EPOCHS + 1)]
    assert made == [-1, EPOCHS - 1, EPOCHS], "and the last one, whose state may have been saved since"
    process.turn(0, MIDDLE, EPOCHS)
    assert not {-1, 1, 2, 3} & {each.number for each in port.checkpoints()}, "those whose states were deleted"
