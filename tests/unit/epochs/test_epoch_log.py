"""The log of epochs: its cache equals the store after any event, and the number of store queries does not grow with
the number of epochs."""

import os
import random
import shutil
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.errors import HomeError, StoreError
from falkirk.platform.data import DataPath
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import Decision, RegionRecord, Store
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.epochs.strays import Strays
from falkirk.theory.ids import LogId, Offset
from tests.stores import Place, void_range
from tests.strays import drop, drop_strays
from tests.support import on_disk, outcome


def log_of(store: Store, folder: Path) -> EpochLog:
    return EpochLog("epochs of b", "b", LocalData(folder), store)


def complete(log: EpochLog, number: int) -> None:
    log.record(number, folder=f"{number}-results", rows=1, dead=0, state=None, saved=False)


@pytest.mark.parametrize("seed", range(6 if os.environ.get("FALKIRK_STRIKES") else 2))
def test_it_is_what_the_store_says(store: Store, tmp_path: Path, seed: int) -> None:
    """Epochs complete in any order, states are saved later, a rollback cancels epochs, and old ones are deleted."""
    rng, log = random.Random(seed), log_of(store, tmp_path)
    for _ in range(60):
        epochs = log.epochs()
        is_open = [e.number for e in epochs if not e.is_complete]
        done = [e for e in epochs if e.is_complete]
        what = rng.choices(("decide", "complete", "save", "take back", "drop", "thin"), (4, 4, 2, 0.5, 1, 1))[0]
        if what == "decide" and len(is_open) < 3:
            log.decide({"t": {0: 0}}, {"t": {0: 1}}, {}, 0.0)
        elif what == "complete" and is_open:
            complete(log, rng.choice(is_open))
        elif what == "save" and done and not is_open and done[-1].state is None:
            log.record_state(done[-1].number, "state")
        elif what == "take back" and epochs:
            void_range(store, log.name, 0, rng.choice(epochs).number, log.next_number())
        elif what == "drop" and done and not is_open:
            log.drop_results_below(rng.choice(done).number)
            log.drop_states_below(rng.choice(done).number)
        elif what == "thin" and done:
            log.forget_states(sorted(e.number for e in (*rng.choices(done, k=3), done[-1])))
        assert log.epochs() == log_of(store, tmp_path).epochs()
        assert log.end() == log_of(store, tmp_path).end()


def test_it_knows_how_many_rows_void_epochs_had(store: Store, tmp_path: Path) -> None:
    log = log_of(store, tmp_path)
    for number in range(5):
        log.decide({"t": {0: 0}}, {"t": {0: 1}}, {}, 0.0)
        if number < 4:
            complete(log, number)
    assert log.void_rows(5) == {}
    void_range(store, log.name, 0, 2, 5)
    assert [e.number for e in log.epochs()] == [0, 1]
    assert log.void_rows(5) == {2: 1, 3: 1}, "the last one has no rows"
    assert log.void_rows(3) == {2: 1}, "those that were not published yet"


def saved(log: EpochLog, number: int) -> str:
    """Decide and complete an epoch whose state is saved in a folder; return the folder."""
    folder = log.new_folder(number, "state")
    for name in (f"{number}-results", folder):
        on_disk(log.path(name)).mkdir(parents=True)
        (log.path(name) / "rows").write_text("rows")
    log.decide({"t": {0: number}}, {"t": {0: number + 1}}, {}, 0.0)
    log.record(number, folder=f"{number}-results", rows=1, dead=0, state=folder, saved=True)
    return folder


def test_states_that_a_history_drops_are_deleted_and_the_kept_ones_are_whole(store: Store, tmp_path: Path) -> None:
    log = log_of(store, tmp_path)
    folders = [saved(log, number) for number in range(8)]
    log.forget_states([1, 4, 6])
    log.forget_states([1, 4, 6])
    for known in (log, log_of(store, tmp_path)):
        checkpoints = [e for e in known.epochs() if e.saved]
        assert [e.number for e in checkpoints] == [0, 1, 4, 6, 7], "those before the first are dropped by number"
        for epoch in checkpoints:
            known.state(epoch)
        for epoch in known.epochs():
            known.results(epoch)
    assert [log.path(folder).exists() for folder in folders] == [n not in (2, 3, 5) for n in range(8)]


def test_what_is_asked_does_not_grow(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of kept epochs has no limit: those of an hour, of a day, or all (`fk.FullHistory`)."""
    log, asked, ask = log_of(store, tmp_path), list[int](), Store.decisions

    def decisions(self: Store, *arguments: int) -> tuple[Decision, ...]:
        found = ask(self, *arguments)  # type: ignore[arg-type]
        asked.append(len(found))
        return found

    monkeypatch.setattr(Store, "decisions", decisions)
    for number in range(50):
        log.decide({"t": {0: number}}, {"t": {0: number + 1}}, {}, 0.0)
        complete(log, number)
        assert len(log.epochs()) == number + 1
    assert max(asked) == 2, "the newest epoch, and the one before it, whose state might have been saved since"


def test_a_folder_that_began_after_the_note_is_no_stray(store: Store, tmp_path: Path) -> None:
    """The batch runs when its strays are deleted, and an epoch that it computes has no record yet."""
    log = log_of(store, tmp_path / "b")
    strays = Strays(log, store)
    for name in ("0-stray", "1-completed-since"):
        (tmp_path / "b" / name).mkdir(parents=True)
    strays.note()
    (tmp_path / "b" / "2-under-way").mkdir()
    log.decide({"t": {0: 0}}, {"t": {0: 1}}, {}, 0.0)
    log.record(0, folder="1-completed-since", rows=1, dead=0, state=None, saved=True)
    for _ in range(2):
        drop(strays)
        assert sorted(path.name for path in log.folder.children()) == ["1-completed-since", "2-under-way"]


def test_folders_are_deleted_in_another_thread_and_those_that_are_left_later(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an object store each folder takes several requests, and the thread that asks also watches all processors."""
    log, names = log_of(store, tmp_path / "b"), [f"{n}-stray" for n in range(3)]
    for name in names:
        (tmp_path / "b" / name).mkdir(parents=True)
    time = SimpleNamespace(monotonic=lambda: now_s)
    strays, goes_on, remove, now_s = Strays(log, store, cast(Any, time)), Event(), LocalData.remove, 10.0
    tried, removed = list[str](), list[str]()

    def slow(folder: LocalData) -> None:
        tried.append(folder.name)
        assert goes_on.wait(60)
        if len(removed) == 1:
            raise StoreError(condition, "it does not answer")
        removed.append(folder.name)
        remove(folder)

    monkeypatch.setattr(LocalData, "remove", slow)
    condition = "STORE_AWAY"
    strays.note()
    for _ in range(2):
        strays.drop_later()
    assert len(log.folder.children()) == 3, "the caller does not wait"
    goes_on.set()
    assert strays.finish(60)
    assert len(log.folder.children()) == 2
    drop(strays)
    assert len(tried) == 2, "there is a pause first"
    now_s, condition = 20.0, "DATA_UNUSABLE"
    drop(strays)
    with pytest.raises(StoreError, match="does not answer"):
        strays.drop_later()
    monkeypatch.setattr(LocalData, "remove", remove)
    drop(strays)
    assert not log.folder.children()


def test_a_folder_that_is_deleted_is_found_whole_or_not_at_all(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command takes a folder that lacks files for a damaged one, and tells its user to restore a backup."""
    log, delete = log_of(store, tmp_path / "b"), shutil.rmtree
    folder, seen = saved(log, 0), list[bool]()

    def rmtree(path: Path, **more: bool) -> None:
        seen.append(log.path(folder).exists())
        delete(path, **more)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    log.drop(folder)
    assert seen
    assert not any(seen)
    monkeypatch.setattr(shutil, "rmtree", lambda path, **more: None)  # the process dies first
    log.drop(saved(log, 1))
    monkeypatch.setattr(shutil, "rmtree", delete)
    assert [path.name for path in log.folder.children() if path.name.startswith(".")]
    drop_strays(log, store)
    assert sorted(path.name for path in log.folder.children()) == ["0-results", "1-results"]


def test_a_former_owner_deletes_nothing_of_the_present_one(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was suspended while it started, and resumes when the present owner writes an epoch."""
    with closing(place.open()) as former, closing(place.open()) as present:
        former.take_charge("former")
        log, children = log_of(former, tmp_path / "b"), LocalData.children
        (tmp_path / "b" / "0-stray").mkdir(parents=True)

        def suspended(folder: LocalData) -> list[DataPath]:
            found = children(folder)
            present.take_charge("present")
            return found

        monkeypatch.setattr(LocalData, "children", suspended)
        assert outcome(partial(drop_strays, log, former)) == "HOME_TAKEN_OVER"
        assert (tmp_path / "b" / "0-stray").exists()
        monkeypatch.undo()
        drop_strays(log_of(present, tmp_path / "b"), present)
        assert not (tmp_path / "b" / "0-stray").exists()


def test_results_that_are_deleted_while_they_are_checked_are_not_damaged(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, check = log_of(store, tmp_path), LocalData.check
    saved(log, 0), saved(log, 1)
    first, second = log.epochs()
    assert log.results_if_there(first) == log.path("0-results")
    monkeypatch.setattr(LocalData, "check", lambda path, *more, **how: (log.drop(path.name), check(path, *more, **how)))
    assert log.results_if_there(first) is None
    monkeypatch.setattr(LocalData, "check", check)
    (tmp_path / "1-results" / "rows").unlink()
    with pytest.raises(HomeError, match="can't be read"):
        log.results_if_there(second)


def test_an_epoch_has_an_empty_range_of_a_topic_that_its_batch_read_later(store: Store, tmp_path: Path) -> None:
    """Also one that is in the cache, after the log was told to look again."""
    log, grown = log_of(store, tmp_path), {LogId("t"): {0: Offset(0)}, LogId("u"): {0: Offset(5)}}
    record = RegionRecord(fingerprint={}, start_offsets={LogId("t"): {0: Offset(0)}}, partitions={})
    store.create_region("b", record, {})
    for number in range(3):
        log.decide({"t": {0: number}}, {"t": {0: number + 1}}, {}, 0.0)
        complete(log, number)
    assert {epoch.absent for epoch in log.epochs()} == {frozenset()}
    store.grow_region("b", replace(record, start_offsets=grown))
    log.learn_starts()
    log.decide({"t": {0: 3}, "u": {0: 5}}, {"t": {0: 3}, "u": {0: 8}}, {}, 0.0)
    *before, last = log.epochs()
    assert [(e.first, e.last, e.then, e.absent) for e in before] == [
        ({"t": {0: n}, "u": {0: 5}}, {"t": {0: n + 1}, "u": {0: 5}}, {"t": {0: n + 1}, "u": {0: 5}}, {"u"})
        for n in range(3)
    ]
    assert (last.first["u"], last.last["u"], last.absent) == ({0: 5}, {0: 8}, frozenset())
