"""A SQLite file that is replaced by renaming: its owner notices before it writes to a file without a name."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

import pytest

from falkirk.recovery.decision_store import Store
from falkirk.recovery.decision_store.sqlite import SqliteDatabase
from tests.support import outcome


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "store")
    store.take_charge("the owner")
    store.record_decision("epoch", "words", 0, "first")
    yield store
    store.close()


def copy(tmp_path: Path) -> Path:
    """Return a whole copy of the store."""
    other = tmp_path / "copy"
    with closing(sqlite3.connect(tmp_path / "store")) as source, closing(sqlite3.connect(other)) as target:
        source.backup(target)
    return other


@pytest.mark.parametrize("looks", [True, False])
def test_a_file_that_was_renamed_over_the_store_refuses_the_next_decision(
    tmp_path: Path, owner: Store, monkeypatch: pytest.MonkeyPatch, looks: bool
) -> None:
    """Before, decisions went to the file without a name, and the next start did not know them."""
    if not looks:
        monkeypatch.setattr(SqliteDatabase, "_require_same_file", lambda self: None)
    other = copy(tmp_path)
    os.replace(other, tmp_path / "store")
    found = outcome(lambda: owner.record_decision("epoch", "words", 1, "second"))
    asked = outcome(owner.require_charge)
    owner.close()
    assert (found, asked) == (("STORE_REPLACED", "STORE_REPLACED") if looks else (None, None))


def test_a_file_that_is_replaced_during_a_commit_fails_this_commit(tmp_path: Path, owner: Store) -> None:
    other = copy(tmp_path)
    owner.before_commits(lambda: os.replace(other, tmp_path / "store") if other.exists() else None)
    assert outcome(lambda: owner.record_decision("epoch", "words", 1, "second")) == "STORE_REPLACED"


def test_a_store_whose_file_was_deleted_refuses_the_next_decision(tmp_path: Path, owner: Store) -> None:
    (tmp_path / "store").unlink()
    assert outcome(lambda: owner.record_decision("epoch", "words", 1, "second")) == "STORE_REPLACED"


def killed(path: Path) -> None:
    """Open the store, record a decision, and die."""
    store = Store(path)
    store.record_decision("epoch", "words", 1, "in the log")
    os._exit(0)


@pytest.mark.parametrize("looks", [True, False])
def test_the_log_of_a_former_file_is_not_applied_to_the_present_one(
    tmp_path: Path, owner: Store, monkeypatch: pytest.MonkeyPatch, looks: bool
) -> None:
    """The application was killed, so its log was left. Then somebody restored an older copy of the file alone."""
    if not looks:
        monkeypatch.setattr(SqliteDatabase, "_require_own_log", lambda self: None)
    path = tmp_path / "store"
    other = copy(tmp_path)
    owner.close()
    process = get_context("spawn").Process(target=killed, args=(path,))
    process.start()
    process.join()
    os.replace(other, path)

    def known() -> list[int]:
        with closing(Store(path, must_exist=True)) as store:
            return [d.number for d in store.decisions("epoch", "words")]

    assert outcome(known) == ("STORE_LOG_FOREIGN" if looks else [0, 1])
    if looks:
        for ending in ("-wal", "-shm"):
            path.with_name(f"store{ending}").unlink()
        assert known() == [0]


def test_a_store_that_is_copied_with_its_log_is_read_with_it(tmp_path: Path, owner: Store) -> None:
    path, other = tmp_path / "store", tmp_path / "elsewhere"
    owner.close()
    process = get_context("spawn").Process(target=killed, args=(path,))
    process.start()
    process.join()
    shutil.copytree(tmp_path, other)
    with closing(Store(other / "store", must_exist=True)) as store:
        assert [d.number for d in store.decisions("epoch", "words")] == [0, 1]
