"""Refused files: a refusal is recorded before an epoch does without the file; a complete epoch keeps what it read."""

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from falkirk.cli import main
from falkirk.errors import DefinitionError, LogError
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import Store
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.epochs import files
from falkirk.runtime.spark.epochs.files import FileLog, RefusedFile, is_lost
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.runtime.spark.epochs.unreadable import BatchFiles, WhyUnreadable
from falkirk.theory.ids import LogId
from tests.unit.epochs.test_files import folder, log, names, put

__all__ = ["folder"]


def test_a_refused_file_is_left_out_and_reported_while_it_is_there(folder: Path, store: Store) -> None:
    bad = put(folder, "bad.json")
    put(folder, "good.json")
    orders = log(folder, store)
    assert names(orders) == ["bad.json", "good.json"]
    orders.refuse(0, "torn\x1b[2J\n" + "x" * 1_000)
    again = log(folder, store)
    for seen in (orders, again):
        assert [p.name for p in seen.paths(0, 2, without=seen.refused())] == ["good.json"]
        assert seen.end() == 2
        assert seen.report().startswith("refused in 'orders': 'bad.json' (torn[2J\\nxxx")
        assert len(seen.report()) < 400
        assert seen.report().isprintable()
    bad.unlink()
    assert [p.name for p in again.paths(0, 2, without=again.refused())] == ["good.json"], "nobody needs it"
    assert again.there_from() == 0, "a replay does not need it"
    again.end()
    assert again.report() == ""


def test_the_first_refusal_holds(folder: Path, store: Store) -> None:
    put(folder, "a")
    one, other = log(folder, store), log(folder, store)
    one.end()
    one.refuse(0, "torn")
    other.refuse(0, "of other types")
    store.record_decision("refused file", "orders", 1, {"file": "b", "reason": "by another process"})
    assert other.refused()[0].reason == one.refused()[0].reason == "torn"


def test_without_the_record_a_replay_would_read_the_file(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "a")
    orders = log(folder, store)
    orders.end()
    with monkeypatch.context() as patch:
        patch.setattr(Store, "record_decision", lambda *arguments: None)
        orders.refuse(0, "torn")
    assert log(folder, store).refused() == {}
    orders.refuse(0, "torn")
    assert log(folder, store).refused() == {0: RefusedFile(name="a", reason="torn")}


class Reader:
    """A batch that reads one folder. Args: why_unreadable: tries to read a file, twice at once."""

    def __init__(self, orders: FileLog, why_unreadable: WhyUnreadable | None = None) -> None:
        given = SimpleNamespace(folder=object(), log="files:orders", name="orders")
        batch = SimpleNamespace(name="words", inputs=(given,))
        logs = {LogId("files:orders"): orders}
        self.files = BatchFiles(
            cast(Any, None), cast(Any, batch), logs, why_unreadable=why_unreadable, pause_s=0.0
        )  # fmt: skip


def epoch(first: int, last: int, **known: Any) -> Epoch:
    """Return an epoch that reads the files [first, last)."""
    begins, ends = {"files:orders": {0: first}}, {"files:orders": {0: last}}
    return Epoch(number=0, first=begins, last=ends, then=ends, views={}, cut_at_s=0.0, **known)


class Fails:
    """Spark, for which some files fail, so many times each."""

    def __init__(self, times: dict[int, int]) -> None:
        self.times, self.read = times, list[int]()

    def __call__(self, given: Any, number: int) -> str | None:
        self.read.append(number)
        self.times[number] = self.times.get(number, 0) - 1
        return "torn" if self.times[number] >= 0 else None


def test_a_file_is_refused_that_fails_twice_in_a_row(folder: Path, store: Store) -> None:
    for name in ("a", "b", "c"):
        put(folder, name)
    orders = log(folder, store)
    orders.end()
    spark = Fails({0: 2, 1: 1})
    reader = Reader(orders, spark).files
    found = reader.unreadable(epoch(0, 3), threading.Event())
    assert found == {("files:orders", 0): "torn"}
    assert spark.read == [0, 1, 2, 0, 1]
    reader.refuse(found)
    assert list(reader.refused(epoch(0, 3))["files:orders"]) == [0]
    assert reader.unreadable(epoch(0, 3), threading.Event()) == {}
    assert spark.read == [0, 1, 2, 0, 1], "what was read to its end is not read once more"


def test_nothing_is_refused_by_a_run_that_is_stopped(folder: Path, store: Store) -> None:
    """Its jobs are cancelled, which is no fault of the files."""
    put(folder, "a")
    orders, stopping = log(folder, store), threading.Event()
    orders.end()
    spark = Fails({0: 9})

    def stopped(*arguments: Any) -> str | None:
        if spark.read:
            stopping.set()
        return spark(*arguments)

    assert Reader(orders, stopped).files.unreadable(epoch(0, 1), stopping) == {}
    assert Reader(orders, stopped).files.unreadable(epoch(0, 1), stopping) == {}
    assert spark.read == [0, 0, 0]


def test_a_file_of_a_complete_epoch_is_waited_for(folder: Path, store: Store) -> None:
    put(folder, "a")
    orders = log(folder, store)
    orders.end()
    reader = Reader(orders, Fails({0: 1})).files
    with pytest.raises(LogError) as told:
        reader.refuse_changed(epoch(0, 1, folder="0-a"))
    assert told.value.condition == "INPUT_CHANGED"
    assert is_lost(told.value)
    assert orders.refused() == {}
    reader.refuse_changed(epoch(0, 1, folder="0-a"))  # put back


def test_an_epoch_leaves_out_what_was_refused_before_it_was_complete(folder: Path, store: Store) -> None:
    for name in ("a", "b", "c"):
        put(folder, name)
    orders = log(folder, store)
    orders.end()
    reader = Reader(orders).files
    orders.refuse(1, "torn")
    orders.refuse(2, "torn")
    assert list(reader.refused(epoch(0, 2))["files:orders"]) == [1]
    assert reader.refused(epoch(0, 2, folder="0-a"))["files:orders"] == {}, "it was complete before"
    assert list(reader.refused(epoch(0, 3, folder="0-a", refused={"files:orders": [2]}))["files:orders"]) == [2]


def test_a_complete_epoch_records_which_files_it_has_not_read(store: Store, tmp_path: Path) -> None:
    epochs = EpochLog("epochs:words", "words", LocalData(tmp_path), store)
    for number, refused in enumerate(({"files:orders": [3, 5]}, {})):
        (tmp_path / f"{number}-a").mkdir()
        assert epochs.decide({}, {}, {}, 0.0) == number
        epochs.record(number, folder=f"{number}-a", rows=0, dead=0, state=None, saved=False, refused=refused)
    read = EpochLog("epochs:words", "words", LocalData(tmp_path), store).epochs()
    assert [e.refused for e in read] == [{"files:orders": (3, 5)}, {}]


def test_a_file_without_the_right_to_read_it_is_waited_for(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rights are faked: root, as whom tests may run, may read everything."""
    put(folder, "a")
    orders = log(folder, store)
    assert names(orders) == ["a"]
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "access", lambda path, mode: False)
        with pytest.raises(LogError) as told:
            orders.paths(0, 1)
    assert told.value.condition == "INPUT_CHANGED"
    assert is_lost(told.value)
    assert names(orders) == ["a"]


def test_what_is_lost_is_a_file_or_its_folder_and_no_topic(folder: Path, store: Store) -> None:
    put(folder, "a").unlink()
    put(folder, "a")
    orders = log(folder, store)
    orders.end()
    (folder / "a").unlink()
    with pytest.raises(LogError) as told:
        orders.paths(0, 1)
    assert is_lost(told.value)
    assert "falkirk disown FILE orders/a" in told.value.hint
    assert not is_lost(LogError("INPUT_EXPIRED", "records have expired", topic="orders"))
    assert not is_lost(LogError("BROKER_AWAY", "no answer"))


def test_a_pipe_in_the_place_of_a_parquet_file_holds_nobody_up(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that exchanges the two between two looks would block all readers: opening a pipe waits."""
    put(folder, "a.parquet", "PAR1 and a row group PAR1")
    orders, real = log(folder, store, format="parquet"), os.access

    def swapped(path: Path, mode: int) -> bool:
        allowed = real(path, mode)
        path.unlink()
        os.mkfifo(path)
        return allowed

    monkeypatch.setattr(files.os, "access", swapped)
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(orders.end()), daemon=True)
    asking.start()
    asking.join(10)
    assert found == [0]


def test_the_operator_has_a_file_left_out(tmp_path: Path, folder: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "shop.py"
    file.write_text(
        f"import falkirk as fk\napp = fk.App('shop', home={str(home)!r})\n"
        f"app.source('orders', fk.Files({str(folder)!r}, 'json', schema='n INT'))\n"
    )
    put(folder, "a b.json")
    with open_home(home, "shop") as held:
        assert log(folder, held.store).end() == 1
    (folder / "a b.json").unlink()
    done = CliRunner().invoke(main, ["disown", str(file), "orders/a b.json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    with open_home(home, "shop") as held:
        orders = log(folder, held.store)
        assert list(orders.refused()) == [0]
        assert list(orders.paths(0, 1, without=orders.refused())) == []
        with pytest.raises(DefinitionError) as told:
            orders.disown("b.json")
    assert told.value.condition == "FILE_UNKNOWN"
    unknown = CliRunner().invoke(main, ["disown", str(file), "others/a b.json"])
    assert unknown.exit_code == 1
    assert "FILE_UNKNOWN" in unknown.output
